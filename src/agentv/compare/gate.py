"""Decide the exit code of a comparison for CI jobs."""

from typing import Literal

from agentv.compare.records import Comparison

Gate = Literal["mean", "ci", "noninferior"]
PASS = 0
REGRESSION = 1
CANNOT_TELL = 3


def exit_code(comparison: Comparison, gate: Gate) -> int:
    """Return 0 if a change passes the gate, 1 for a regression, and 3 if the results are inconclusive.

    The interval does not cover cases that only one file has: if there are such cases, `ci` and `noninferior` never
    pass.
    """
    if gate == "mean":
        has_regressed = comparison.summary.meanDelta < 0
        return REGRESSION if has_regressed else PASS
    statistics = comparison.statistics
    if statistics.interval is None:
        return CANNOT_TELL
    low, high = statistics.interval
    is_noninferior = gate == "noninferior" and low > -statistics.margin
    if low >= 0 or is_noninferior:
        return CANNOT_TELL if has_unmatched(comparison) else PASS
    if high < 0:
        return REGRESSION
    return CANNOT_TELL


def has_unmatched(comparison: Comparison) -> bool:
    """Return whether one of the files lacks cases of the other."""
    unmatched = comparison.unmatched
    return unmatched.file1 > 0 or unmatched.file2 > 0
