"""Decide the exit code of a comparison for CI jobs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from agentv.compare.distrust import NOTE
from agentv.compare.pairs import Pairs, pairs_of
from agentv.compare.records import Comparison, Statistics, case_name
from agentv.compare.selection import CaseSelection
from agentv.compare.verdict import has_lower_pass_rate
from agentv.records import CaseKey
from agentv.text import join_names, plural

Gate = Literal["mean", "ci", "noninferior", "no-regressions"]
NO_REGRESSION = 0
REGRESSION = 1
CANNOT_TELL = 3
Undecided = Literal["pass", "fail", "3"]
EXIT_CODES: Mapping[Undecided, int] = {"pass": NO_REGRESSION, "fail": REGRESSION, "3": CANNOT_TELL}
"""The possible exit codes of an undecided gate."""
MAX_NAMES = 5
"""The maximum number of cases that a reason names."""


class GateResult(NamedTuple):
    """The exit code of a gate: 0 if it passes, 1 if it fails, and 3 if it is undecided."""

    code: int
    reason: str = ""
    """Why, if the exit code does not follow from the verdict."""
    hint: str = ""
    """Which option of `agentv compare` changes that."""


def judge_gate(
    comparison: Comparison,
    gate: Gate,
    *,
    allow_missing: bool = False,
    folder: Path | None = None,
    required: Sequence[CaseSelection] = (),
) -> GateResult:
    """Judge the cases that both runs have.

    All gates but `mean` also fail if the second run lacks cases of the first, unless `allow_missing` is true or its
    eval files no longer contain them. They are undecided if a case that passed in the first run ended in an error or
    was not judged in the second. `folder` is in the project of the eval files, by default the current one. If there
    are `required` cases, only these count for `no-regressions`.
    """
    if gate == "mean":
        return _with_pass_rate(_judge_mean(comparison), comparison)
    pairs = pairs_of(comparison)
    is_covered = _covers_all
    if gate == "no-regressions":
        if required:
            is_covered = partial(_is_any, required)
        result = _judge_regressions(comparison, pairs, is_covered)
    else:
        result = _judge_interval(comparison, gate)
    if result.code == REGRESSION:
        return result
    if not allow_missing:
        missing = _find_missing_names(pairs, folder, is_covered)
        if missing:
            cases = plural(len(missing), "case")
            names = join_names(missing, MAX_NAMES)
            reason = f"B has no result for {cases} of A: {names}"
            return GateResult(REGRESSION, reason, "use --allow-missing to accept this")
    errored = _select(pairs, pairs.flips.lost_to_errors, is_covered)
    if errored:
        cases = plural(len(errored), "case")
        names = join_names(pairs.names(errored), MAX_NAMES)
        reason = f"{cases} that passed in A could not be scored in B: {names}"
        return GateResult(CANNOT_TELL, reason)
    if required and gate == "no-regressions":
        return result
    return _with_pass_rate(result, comparison)


IsCovered = Callable[[CaseKey], bool]
"""Returns whether a gate is about a case. The dataset is empty if the id is enough."""


def _covers_all(_case: CaseKey) -> bool:
    return True


def _is_any(selections: Sequence[CaseSelection], case: CaseKey) -> bool:
    return any(selection.includes(*case) for selection in selections)


def _select(pairs: Pairs, places: Sequence[int], is_covered: IsCovered) -> list[int]:
    """Return the positions of the pairs that a gate covers."""
    found = []
    for place in places:
        pair = pairs[place]
        if is_covered(CaseKey(pair.dataset, pair.eval_id)):
            found.append(place)
    return found


def _with_pass_rate(result: GateResult, comparison: Comparison) -> GateResult:
    """Return the result, with a reason if a gate on scores passes although the pass rate is lower."""
    passes = comparison.statistics.passes
    if result.code != NO_REGRESSION or passes is None or not has_lower_pass_rate(passes):
        return result
    cases = plural(passes.lost, "case no longer passes", "cases no longer pass")
    reason = f"the gate compares scores, which are not worse; {cases}"
    return GateResult(NO_REGRESSION, reason, "use --gate no-regressions to require that they pass")


def _find_missing_names(pairs: Pairs, folder: Path | None, is_covered: IsCovered) -> list[str]:
    # reading eval files is imported only if a gate needs it
    from agentv.compare.missing import find_missing

    return [case_name(*case) for case in find_missing(pairs, folder) if is_covered(case)]


def _judge_mean(comparison: Comparison) -> GateResult:
    if not pairs_of(comparison).mean_deltas:
        return GateResult(CANNOT_TELL, "all cases are machine failures in A or B")
    mean_delta = comparison.summary.meanDelta
    if mean_delta >= 0:
        return GateResult(NO_REGRESSION)
    if comparison.statistics.verdict == "worse":
        return GateResult(REGRESSION)
    difference = _signed(mean_delta)
    if comparison.summary.errored:
        difference += ", errored cases included"
    reason = f"the mean of B is lower ({difference})"
    return GateResult(REGRESSION, reason, "use --gate noninferior to require evidence")


def _judge_regressions(comparison: Comparison, pairs: Pairs, is_covered: IsCovered) -> GateResult:
    lost = _select(pairs, pairs.flips.lost, is_covered)
    others = len(pairs.flips.lost) - len(lost)
    if not lost and others:
        cases = plural(others, "case that no longer passes", "cases that no longer pass")
        return GateResult(NO_REGRESSION, f"--require does not select {cases}")
    if not lost and comparison.statistics.verdict == "worse":
        return GateResult(NO_REGRESSION, "B is worse, but every case that passed in A still passes")
    if not lost:
        return GateResult(NO_REGRESSION)
    cases = plural(len(lost), "case no longer passes", "cases no longer pass")
    names = join_names(pairs.names(lost), MAX_NAMES)
    return GateResult(REGRESSION, f"{cases}: {names}")


def _judge_interval(comparison: Comparison, gate: Gate) -> GateResult:
    statistics = comparison.statistics
    if statistics.interval is None:
        return GateResult(CANNOT_TELL, _why_no_interval(statistics))
    low, high = statistics.interval
    is_noninferior = gate == "noninferior" and low > -statistics.margin
    if is_noninferior and high < 0:
        return GateResult(NO_REGRESSION, f"B is worse, but by less than the margin of {statistics.margin:g}")
    if low >= 0 or is_noninferior:
        return GateResult(NO_REGRESSION)
    if high < 0:
        return GateResult(REGRESSION)
    interval = f"[{_signed(low)}, {_signed(high)}]"
    limit = "0"
    if gate == "noninferior":
        limit = f"the margin of -{statistics.margin:g}"
    return GateResult(CANNOT_TELL, f"the confidence interval of the difference, {interval}, extends below {limit}")


def _why_no_interval(statistics: Statistics) -> str:
    if NOTE in statistics.notes:
        return NOTE
    if statistics.notes:
        return statistics.notes[0]
    return "no confidence interval could be computed"


def _signed(value: float) -> str:
    """Return a number with its sign, and with more than three decimals if it would be 0 otherwise."""
    if abs(value) < 0.0005:
        return f"{value:+.1g}"
    return f"{value:+.3f}"


def has_unmatched(comparison: Comparison) -> bool:
    """Return whether one of the files lacks cases of the other."""
    unmatched = comparison.unmatched
    return unmatched.file1 > 0 or unmatched.file2 > 0
