"""Compute the figures of a run from its columns: means, pass rates and confidence intervals per case, not per trial."""

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import msgspec

from agentv.report.page.index import (
    CUT_OFF,
    DRY_RUN,
    ERROR,
    NOTED,
    PASS,
    TIMEOUT,
    UNJUDGED,
    VERDICT,
    ResultNames,
    RunIndex,
    has_passed,
)
from agentv.results.summary import EDGES
from agentv.results.views import MetricsView, PageView
from agentv.stats.inference import interval_of_mean
from agentv.stats.pass_rates import bootstrap_interval, wilson

SHOWN_ERRORS = 12
ERROR_CHARACTERS = 300
MAX_ERROR_TEXTS = 2000
"""The maximum number of different errors that are counted."""
MAX_SHARES = 10_000
Count = Annotated[int, msgspec.Meta(ge=0)]
Shares = Annotated[tuple[tuple[float, Count], ...], msgspec.Meta(max_length=MAX_SHARES)]
Interval = tuple[float, float] | tuple[None, None]
Figures = dict[str, Any]


class Totals:
    """The sums of tokens and costs over the results of a run, and their errors, times and versions."""

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.cost = 0.0
        self.has_cost = False
        self.judge_cost: float | None = None
        self.first = ""
        self.last = ""
        self.run_ids: dict[str, None] = {}
        self.errors: Counter[str] = Counter()
        self.versions: dict[str, None] = {}

    def add(self, view: PageView) -> None:
        """Count a result."""
        if view.timestamp:
            self.first = min(self.first or view.timestamp, view.timestamp)
            self.last = max(self.last, view.timestamp)
        if view.run_id:
            self.run_ids.setdefault(view.run_id)
        if view.digests and view.digests.agentv:
            self.versions.setdefault(view.digests.agentv)
        if view.execution_metrics is not None:
            self._add_metrics(view.execution_metrics)
        if view.judge_metrics:
            for judge in view.judge_metrics.values():
                if judge.cost_usd is not None and math.isfinite(judge.cost_usd):
                    self.judge_cost = (self.judge_cost or 0.0) + judge.cost_usd
        if view.error is not None:
            self._add_error(str(view.error))

    def _add_metrics(self, metrics: MetricsView) -> None:
        if metrics.cost_usd is not None and math.isfinite(metrics.cost_usd):
            self.cost += metrics.cost_usd
            self.has_cost = True
        usage = metrics.token_usage
        if usage is not None:
            self.tokens["input"] += int(usage.input or 0)
            self.tokens["output"] += int(usage.output or 0)
            self.tokens["reasoning"] += int(usage.reasoning or 0)

    def _add_error(self, error: str) -> None:
        words = error[: ERROR_CHARACTERS * 2].split()
        text = " ".join(words)[:ERROR_CHARACTERS]
        if len(self.errors) < MAX_ERROR_TEXTS or text in self.errors:
            self.errors[text] += 1


class EvaluatorSums(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one evaluator, summed up. A case counts with the mean of its trials."""

    name: str
    cases: Count
    mean: float
    deviation: float
    pass_rate: float
    failures: Count = 0


class CaseSums(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run, summed up per case. The confidence intervals depend on nothing else.

    For a report, they are computed here. The page of the viewer has the columns and computes them in the browser.
    """

    results: Count
    cases: Annotated[int, msgspec.Meta(ge=1)]
    trials: Count
    mean: float
    deviation: float
    shares: Shares
    """Pairs of a share of passed trials and the number of cases with that share."""
    histogram: tuple[Count, ...]
    target_errors: Count = 0
    timeouts: Count = 0
    judge_failures: Count = 0
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
    return CaseSums(
        results=len(index.flags),
        cases=len(cases.means),
        trials=int(max(cases.runs)),
        mean=mean,
        deviation=deviation,
        shares=tuple(Counter(cases.shares).items()),
        histogram=tuple(_histogram(cases.means)),
        target_errors=_count_with(ERROR, flags) - timeouts,  # a timeout has both bits
        timeouts=timeouts,
        judge_failures=_count_with(UNJUDGED, flags),
        cut_off=_count_with(CUT_OFF, flags),
        noted=_count_with(NOTED, flags),
        dry_run=_count_with(DRY_RUN, flags),
        evaluators=tuple(_evaluators(index)),
    )


def _count_with(bit: int, flags: Mapping[int, int]) -> int:
    """Return the number of results that have the bit. `flags` is the number of results with each combination."""
    return sum(count for combination, count in flags.items() if combination & bit)


def run_figures(sums: CaseSums, totals: Totals, names: ResultNames) -> Figures:
    """Return the figures of a run."""
    mean_low, mean_high = _interval(sums)
    pass_rate, pass_low, pass_high = _pass_rate(sums)
    cost = None
    if totals.has_cost:
        cost = totals.cost
    tokens = None
    if totals.tokens.total():
        tokens = dict(totals.tokens)
    errors = []
    for text, count in totals.errors.most_common(SHOWN_ERRORS):
        errors.append({"text": text, "count": count})
    evaluators = [_evaluator_figures(evaluator) for evaluator in sums.evaluators]
    evaluators.sort(key=lambda figures: (figures["mean"], figures["name"]))
    return {
        "results": sums.results,
        "cases": sums.cases,
        "trials": sums.trials,
        "mean": sums.mean,
        "target_errors": sums.target_errors,
        "timeouts": sums.timeouts,
        "judge_failures": sums.judge_failures,
        "cut_off": sums.cut_off,
        "noted": sums.noted,
        "dry_run": sums.dry_run,
        "mean_low": mean_low,
        "mean_high": mean_high,
        "pass_rate": pass_rate,
        "pass_low": pass_low,
        "pass_high": pass_high,
        "histogram": list(sums.histogram),
        "cost": cost,
        "judge_cost": totals.judge_cost,
        "tokens": tokens,
        "started": totals.first,
        "ended": totals.last,
        "errors": errors,
        "evaluators": evaluators,
        "targets": [name for name in names.targets if name],
        "datasets": [name for name in names.datasets if name],
        "versions": list(totals.versions),
    }


class Cases:
    """The figures of each case that has a result."""

    def __init__(self, index: RunIndex, rows: int):
        scores = _zeros(rows)
        trials = _zeros(rows)
        passes = _zeros(rows)
        judged = _zeros(rows)
        for row, score, flags in zip(index.rows, index.scores, index.flags, strict=True):
            scores[row] += score
            trials[row] += 1
            if has_passed(flags):
                passes[row] += 1
            if not flags & (ERROR | UNJUDGED):
                judged[row] += 1
        self.means = array("d")
        """The mean score of each case."""
        self.runs = array("d")
        """The number of results of each case."""
        self.shares = array("d")
        """The share of results of each case that passed."""
        self.seen = bytearray(rows)
        """For each row of the page, whether it has a result."""
        self.passed = bytearray(rows)
        """For each row of the page, whether most of its judged results passed."""
        for row, count in enumerate(trials):
            if not count:
                continue
            self.means.append(round(scores[row] / count, 12))
            self.runs.append(count)
            self.shares.append(passes[row] / count)
            self.seen[row] = True
            self.passed[row] = 2 * passes[row] > judged[row]


def _zeros(count: int) -> "array[float]":
    return array("d", bytes(8 * count))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is 0 for a single number."""
    mean = math.fsum(values) / len(values)
    # The distance to a vector of means is the square root of the sum of squares, without a Python loop.
    means = array("d", [mean]) * len(values)
    spread = math.dist(values, means)
    degrees_of_freedom = max(1, len(values) - 1)
    return mean, spread / math.sqrt(degrees_of_freedom)


def _interval(sums: CaseSums | EvaluatorSums) -> Interval:
    """Return the 95% confidence interval of the mean, or twice None if there is none."""
    interval = interval_of_mean(sums.mean, sums.deviation, sums.cases)
    if interval is None:
        return None, None
    return interval


def _pass_rate(sums: CaseSums) -> tuple[float, float, float]:
    """Return the pass rate and its 95% confidence interval. With trials, it is the mean pass rate of the cases."""
    passed = math.fsum(share * count for share, count in sums.shares)
    rate = passed / sums.cases
    if sums.trials == 1:
        low, high = wilson(round(rate * sums.cases), sums.cases)
    else:
        shares, counts = zip(*sums.shares, strict=True)
        low, high = bootstrap_interval(counts, shares)
    return rate, low, high


def _histogram(means: Sequence[float]) -> list[int]:
    counts = [0] * (len(EDGES) + 1)
    for mean in means:
        counts[bisect_right(EDGES, mean)] += 1
    return counts


def _evaluators(index: RunIndex) -> Iterator[EvaluatorSums]:
    """Yield the sums of each evaluator."""
    names = index.evaluator_names
    titles = list(index.names.evaluators)
    rows = array("I")
    for row, count in zip(index.rows, index.evaluator_counts, strict=True):
        rows.extend([row] * count)

    def evaluator_and_row(place: int) -> int:
        return (names[place] << 32) | rows[place]  # one integer is a faster sort key than a tuple

    order = sorted(range(len(names)), key=evaluator_and_row)
    for number, places in groupby(order, key=names.__getitem__):
        yield _evaluator_sums(titles[number], places, rows, index)


def _evaluator_sums(
    name: str,
    places: Iterable[int],
    rows: "array[int]",
    index: RunIndex,
) -> EvaluatorSums:
    """Return the sums of one evaluator. `places` are the positions of its scores, sorted by row."""
    scores = index.evaluator_scores
    flags = index.evaluator_flags
    means = array("d")
    passes = array("d")
    failures = 0
    for _, group in groupby(places, key=rows.__getitem__):
        trials = list(group)
        total = math.fsum(scores[place] for place in trials)
        means.append(total / len(trials))
        passed = 0
        for place in trials:
            if flags[place] & VERDICT == PASS:
                passed += 1
            if flags[place] & UNJUDGED:
                failures += 1
        passes.append(passed / len(trials))
    mean, deviation = mean_and_deviation(means)
    return EvaluatorSums(
        name=name,
        cases=len(means),
        mean=mean,
        deviation=deviation,
        pass_rate=math.fsum(passes) / len(passes),
        failures=failures,
    )


def _evaluator_figures(sums: EvaluatorSums) -> Figures:
    low, high = _interval(sums)
    return {
        "name": sums.name,
        "cases": sums.cases,
        "mean": sums.mean,
        "pass_rate": sums.pass_rate,
        "failures": sums.failures,
        "low": low,
        "high": high,
    }


def kept_rows(indices: Sequence[RunIndex], rows: int) -> bytearray:
    """Return for each row whether any of its results did not pass."""
    kept = bytearray(rows)
    for index in indices:
        for row, flags in zip(index.rows, index.flags, strict=True):
            if not has_passed(flags):
                kept[row] = 1
    return kept
