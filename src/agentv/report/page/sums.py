"""Sum up the results of a run per case, from its columns. The unit is the case, not the trial.

A report computes these sums here. In the viewer, `figures.js` computes the same sums in the browser, which has the
columns. Both must pass the test vectors in `tests/report/figures.json`.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated

import msgspec

from agentv.report.page.index import (
    CUT_OFF,
    DRY_RUN,
    ERROR,
    MACHINE,
    NOT_APPLICABLE,
    NOTED,
    PASS,
    TIMEOUT,
    UNJUDGED,
    VERDICT,
    RunIndex,
    has_passed,
    is_machine_failure,
)
from agentv.results.summary import histogram_of

MAX_SHARES = 10_000
Count = Annotated[int, msgspec.Meta(ge=0)]
Shares = Annotated[tuple[tuple[float, Count], ...], msgspec.Meta(max_length=MAX_SHARES)]


class EvaluatorSums(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one evaluator, summed up. A case counts with the mean of its trials.

    Judge failures are part of `failures` only.
    """

    name: str
    cases: Count
    mean: float
    deviation: float
    pass_rate: float
    failures: Count = 0


class CaseSums(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run, summed up per case. The confidence intervals depend on nothing else.

    Machine failures are part of `results` and `machine_failures` only.

    For a report, they are computed here. The page of the viewer has the columns and computes them in the browser.
    """

    results: Count
    cases: Count
    trials: Count
    mean: float
    """0 without cases, like `deviation`."""
    deviation: float
    shares: Shares
    """Pairs of a share of passed trials and the number of cases with that share."""
    histogram: tuple[Count, ...]
    target_errors: Count = 0
    timeouts: Count = 0
    judge_failures: Count = 0
    machine_failures: Count = 0
    cut_off: Count = 0
    noted: Count = 0
    dry_run: Count = 0
    evaluators: tuple[EvaluatorSums, ...] = ()


def case_sums(index: RunIndex, rows: int) -> CaseSums:
    """Return the sums of a run. `rows` is the number of rows of the page, which may include cases of other runs."""
    cases = Cases(index, rows)
    mean, deviation = mean_and_deviation(cases.means)
    flags = Counter(index.flags)
    timeouts = _count_with(TIMEOUT, flags)
    machine_failures = _count_with(MACHINE, flags)
    return CaseSums(
        results=len(index.flags),
        cases=len(cases.means),
        trials=int(max(cases.runs, default=0)),
        mean=mean,
        deviation=deviation,
        shares=tuple(Counter(cases.shares).items()),
        histogram=histogram_of(cases.means),
        target_errors=_count_with(ERROR, flags) - timeouts - machine_failures,  # these have the bit as well
        timeouts=timeouts,
        judge_failures=_count_with(UNJUDGED, flags) - machine_failures,
        machine_failures=machine_failures,
        cut_off=_count_with(CUT_OFF, flags),
        noted=_count_with(NOTED, flags),
        dry_run=_count_with(DRY_RUN, flags),
        evaluators=tuple(_evaluators(index)),
    )


def _count_with(bits: int, flags: Mapping[int, int]) -> int:
    """Return the number of results that have all the bits. `flags` is the number of results with each combination."""
    return sum(count for combination, count in flags.items() if (combination & bits) == bits)


class Cases:
    """The figures of each case that has a result."""

    def __init__(self, index: RunIndex, rows: int):
        scores = _zeros(rows)
        trials = _zeros(rows)
        passes = _zeros(rows)
        judged = _zeros(rows)
        machine_failures = _zeros(rows)
        for row, score, flags in zip(index.rows, index.scores, index.flags, strict=True):
            if is_machine_failure(flags):
                machine_failures[row] += 1
                continue
            scores[row] += score
            trials[row] += 1
            if has_passed(flags):
                passes[row] += 1
            if not flags & (ERROR | UNJUDGED):
                judged[row] += 1
        self.means = array("d")
        """The mean score of each case that has other results than machine failures."""
        self.runs = array("d")
        """The number of results of each of these cases, without machine failures."""
        self.shares = array("d")
        """The share of these results that passed."""
        self.seen = bytearray(rows)
        """For each row of the page, whether it has a result."""
        self.passed = bytearray(rows)
        """For each row of the page, whether most of its judged results passed."""
        self.all_passed = bytearray(rows)
        """For each row of the page, whether all of its judged results passed."""
        self.errored = bytearray(rows)
        """For each row, whether it has an error or no judgement, so that it is unknown whether all results pass."""
        for row, count in enumerate(trials):
            results = count + machine_failures[row]
            if not results:
                continue
            if count:
                self.means.append(round(scores[row] / count, 12))
                self.runs.append(count)
                self.shares.append(passes[row] / count)
            self.seen[row] = True
            self.passed[row] = 2 * passes[row] > judged[row]
            self.all_passed[row] = passes[row] == judged[row]
            self.errored[row] = self.all_passed[row] and judged[row] < results


class FlipCounts(msgspec.Struct, frozen=True):
    """The numbers of cases that the second run fixed and broke, and of those with an error or no judgement."""

    fixed: int
    broken: int
    errored: int = 0


def count_flips(first: Cases, second: Cases) -> FlipCounts:
    """Count the cases in both runs that passed only in the second, and only in the first. All trials must pass."""
    fixed = 0
    broken = 0
    errored = 0
    for row, before in enumerate(first.all_passed):
        after = second.all_passed[row]
        if not first.seen[row] or not second.seen[row]:
            continue
        if first.errored[row] or second.errored[row]:
            errored += 1
        elif after and not before:
            fixed += 1
        elif before and not after:
            broken += 1
    return FlipCounts(fixed, broken, errored)


def _zeros(count: int) -> "array[float]":
    return array("d", bytes(8 * count))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is 0 for a single number. Both are 0 without numbers."""
    if not values:
        return 0.0, 0.0
    mean = math.fsum(values) / len(values)
    # The distance to a vector of means is the square root of the sum of squares, without a Python loop.
    means = array("d", [mean]) * len(values)
    spread = math.dist(values, means)
    degrees_of_freedom = max(1, len(values) - 1)
    return mean, spread / math.sqrt(degrees_of_freedom)


def _evaluators(index: RunIndex) -> Iterator[EvaluatorSums]:
    """Yield the sums of each evaluator."""
    names = index.evaluator_names
    titles = list(index.names.evaluators)
    rows = array("I")
    for row, count in zip(index.rows, index.evaluator_counts, strict=True):
        rows.extend([row] * count)

    def evaluator_and_row(place: int) -> int:
        return (names[place] << 32) | rows[place]  # one integer is a faster sort key than a tuple

    scored = [place for place, flags in enumerate(index.evaluator_flags) if not flags & NOT_APPLICABLE]
    order = sorted(scored, key=evaluator_and_row)
    for number, places in groupby(order, key=names.__getitem__):
        yield _evaluator_sums(titles[number], places, rows, index)


def _evaluator_sums(
    name: str,
    places: Iterable[int],
    rows: "array[int]",
    index: RunIndex,
) -> EvaluatorSums:
    """Return the sums of one evaluator. `places` contains the positions of its scores, sorted by row."""
    scores = index.evaluator_scores
    flags = index.evaluator_flags
    means = array("d")
    passes = array("d")
    failures = 0
    for _, group in groupby(places, key=rows.__getitem__):
        judged = []
        passed = 0
        for place in group:
            if flags[place] & UNJUDGED:
                failures += 1
                continue
            judged.append(scores[place])
            if (flags[place] & VERDICT) == PASS:
                passed += 1
        if not judged:
            continue
        means.append(math.fsum(judged) / len(judged))
        passes.append(passed / len(judged))
    pass_rate = 0.0
    if passes:
        pass_rate = math.fsum(passes) / len(passes)
    mean, deviation = mean_and_deviation(means)
    return EvaluatorSums(
        name=name,
        cases=len(means),
        mean=mean,
        deviation=deviation,
        pass_rate=pass_rate,
        failures=failures,
    )


def kept_rows(indices: Sequence[RunIndex], rows: int) -> bytearray:
    """Return for each row whether any of its results did not pass."""
    kept = bytearray(rows)
    for index in indices:
        for row, flags in zip(index.rows, index.flags, strict=True):
            if not has_passed(flags):
                kept[row] = 1
    return kept
