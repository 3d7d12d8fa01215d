"""A comparison -> the exit code that a CI job goes by."""

from typing import Literal

from agentv.compare.records import Comparison

Gate = Literal["mean", "ci", "noninferior"]
PASS, REGRESSION, CANNOT_TELL = 0, 1, 3


def exit_code(comparison: Comparison, gate: Gate) -> int:
    """Return whether a change may pass: 0 if so, 1 for a regression, 3 if the results cannot tell.

    An interval says nothing of cases that only one file has: with such cases, no gate by interval passes.
    """
    if gate == "mean":
        return REGRESSION if comparison.summary.meanDelta < 0 else PASS
    found = comparison.statistics
    if found.interval is None:
        return CANNOT_TELL
    low, high = found.interval
    if low >= 0 or (gate == "noninferior" and low > -found.margin):
        return CANNOT_TELL if has_unmatched(comparison) else PASS
    return REGRESSION if high < 0 else CANNOT_TELL


def has_unmatched(comparison: Comparison) -> bool:
    """Return whether one of the files lacks cases of the other."""
    return comparison.unmatched.file1 > 0 or comparison.unmatched.file2 > 0
