"""The columns of a run -> its figures: means, pass rates and their intervals. The unit is the case, not the trial."""

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
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
from agentv.results.views import PageView
from agentv.stats.inference import interval_of_mean
from agentv.stats.pass_rates import bootstrap_interval, wilson

SHOWN_ERRORS = 12
ERROR_CHARACTERS = 300
MAX_GROUPS = 2000
MAX_SHARES = 10_000
Count = Annotated[int, msgspec.Meta(ge=0)]
Figures = dict[str, Any]


class Totals:
    """Adds up what the results of a run say besides their scores."""

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.cost = 0.0
        self.has_cost = False
        self.judge_cost: float | None = None
        self.first = self.last = ""
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
        metrics = view.execution_metrics
        if metrics is not None:
            if metrics.cost_usd is not None and math.isfinite(metrics.cost_usd):
                self.cost, self.has_cost = self.cost + metrics.cost_usd, True
            if (used := metrics.token_usage) is not None:
                for name in ("input", "output", "reasoning"):
                    self.tokens[name] += int(getattr(used, name) or 0)
        for judge in (view.judge_metrics or {}).values():
            if judge.cost_usd is not None and math.isfinite(judge.cost_usd):
                self.judge_cost = (self.judge_cost or 0.0) + judge.cost_usd
        if view.error is not None:
            text = " ".join(str(view.error)[: ERROR_CHARACTERS * 2].split())[:ERROR_CHARACTERS]
            if len(self.errors) < MAX_GROUPS or text in self.errors:
                self.errors[text] += 1


class EvaluatorSums(msgspec.Struct, frozen=True, kw_only=True):
    """What the scores of one evaluator come to, with the mean of the trials of each case."""

    name: str
    cases: Count
    mean: float
    deviation: float
    pass_rate: float
    failures: Count = 0


class CaseSums(msgspec.Struct, frozen=True, kw_only=True):
    """What the results of a run come to, by case. Intervals are made of nothing else.

    A report computes it here. The page of a viewer computes it in the browser, which has the columns.
    """

    results: Count
    cases: Annotated[int, msgspec.Meta(ge=1)]
    trials: Count
    mean: float
    deviation: float
    shares: Annotated[tuple[tuple[float, Count], ...], msgspec.Meta(max_length=MAX_SHARES)]
    """How many cases passed in which share of their trials."""
    histogram: tuple[Count, ...]
    target_errors: Count = 0
    timeouts: Count = 0
    judge_failures: Count = 0
    cut_off: Count = 0
    noted: Count = 0
    dry_run: Count = 0
    evaluators: tuple[EvaluatorSums, ...] = ()


def case_sums(index: RunIndex, rows: int) -> CaseSums:
    """Return what a run comes to. `rows` is how many rows the page has; some may have no result of this run."""
    cases, flags = Cases(index, rows), index.flags
    mean, deviation = mean_and_deviation(cases.means)
    return CaseSums(
        results=len(flags),
        cases=len(cases.means),
        trials=int(max(cases.runs)),
        mean=mean,
        deviation=deviation,
        shares=tuple(Counter(cases.shares).items()),
        histogram=tuple(_histogram(cases.means)),
        target_errors=sum(flag & (ERROR | TIMEOUT) == ERROR for flag in flags),
        timeouts=sum(bool(flag & TIMEOUT) for flag in flags),
        judge_failures=sum(bool(flag & UNJUDGED) for flag in flags),
        cut_off=sum(bool(flag & CUT_OFF) for flag in flags),
        noted=sum(bool(flag & NOTED) for flag in flags),
        dry_run=sum(bool(flag & DRY_RUN) for flag in flags),
        evaluators=tuple(_evaluators(index)),
    )


def run_figures(sums: CaseSums, totals: Totals, names: ResultNames) -> Figures:
    """Return the figures of a run."""
    low, high = interval_of_mean(sums.mean, sums.deviation, sums.cases) or (None, None)
    counted = ("results", "cases", "trials", "mean", "target_errors", "timeouts", "judge_failures", "cut_off", "noted")
    return {
        **{name: getattr(sums, name) for name in (*counted, "dry_run")},
        "mean_low": low,
        "mean_high": high,
        **_pass_rate(sums),
        "histogram": list(sums.histogram),
        "cost": totals.cost if totals.has_cost else None,
        "judge_cost": totals.judge_cost,
        "tokens": dict(totals.tokens) if totals.tokens.total() else None,
        "started": totals.first,
        "ended": totals.last,
        "errors": [{"text": text, "count": count} for text, count in totals.errors.most_common(SHOWN_ERRORS)],
        "evaluators": sorted(map(_evaluator_figures, sums.evaluators), key=lambda each: (each["mean"], each["name"])),
        "targets": [name for name in names.targets if name],
        "datasets": [name for name in names.datasets if name],
        "versions": list(totals.versions),
    }


class Cases:
    """The figures of each case that has a result; `passed` tells of every row whether most of its trials passed."""

    def __init__(self, index: RunIndex, rows: int):
        sums, runs, passes, scored = (array("d", bytes(8 * rows)) for _ in range(4))
        for row, score, flags in zip(index.rows, index.scores, index.flags, strict=True):
            sums[row] += score
            runs[row] += 1
            if has_passed(flags):
                passes[row] += 1
            if not flags & (ERROR | UNJUDGED):
                scored[row] += 1
        self.means = array("d", (round(total / count, 12) for total, count in zip(sums, runs, strict=True) if count))
        self.runs = array("d", filter(None, runs))
        self.shares = array("d", (share / count for share, count in zip(passes, runs, strict=True) if count))
        self.passed = bytearray(2 * share > count for share, count in zip(passes, scored, strict=True))
        self.seen = bytearray(map(bool, runs))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is 0 for a single number."""
    mean = math.fsum(values) / len(values)
    spread = math.dist(values, array("d", [mean]) * len(values))
    return mean, spread / math.sqrt(max(1, len(values) - 1))


def _pass_rate(sums: CaseSums) -> Figures:
    """Return the share of cases that pass; with trials, how probable it is that a trial passes."""
    rate = math.fsum(share * count for share, count in sums.shares) / sums.cases
    if sums.trials == 1:
        low, high = wilson(round(rate * sums.cases), sums.cases)
    else:
        shares, counts = zip(*sums.shares, strict=True)
        low, high = bootstrap_interval(counts, shares)
    return {"pass_rate": rate, "pass_low": low, "pass_high": high}


def _histogram(means: Sequence[float]) -> list[int]:
    counts = [0] * (len(EDGES) + 1)
    for mean in means:
        counts[bisect_right(EDGES, mean)] += 1
    return counts


def _evaluators(index: RunIndex) -> Iterator[EvaluatorSums]:
    """Yield what the scores of each evaluator come to, with the mean of the trials of each case that it judged."""
    rows = array("I")
    for row, count in zip(index.rows, index.evaluator_counts, strict=True):
        rows.extend([row] * count)
    names, scores, flags = index.evaluator_names, index.evaluator_scores, index.evaluator_flags
    titles = list(index.names.evaluators)
    order = sorted(range(len(names)), key=lambda at: (names[at] << 32) | rows[at])
    for number, places in groupby(order, key=names.__getitem__):
        means, passes, failures = array("d"), array("d"), 0
        for _, trials in groupby(places, key=rows.__getitem__):
            inside = list(trials)
            means.append(math.fsum(map(scores.__getitem__, inside)) / len(inside))
            passes.append(sum(flags[at] & VERDICT == PASS for at in inside) / len(inside))
            failures += sum(bool(flags[at] & UNJUDGED) for at in inside)
        mean, deviation = mean_and_deviation(means)
        yield EvaluatorSums(
            name=titles[number],
            cases=len(means),
            mean=mean,
            deviation=deviation,
            pass_rate=math.fsum(passes) / len(passes),
            failures=failures,
        )


def _evaluator_figures(sums: EvaluatorSums) -> Figures:
    low, high = interval_of_mean(sums.mean, sums.deviation, sums.cases) or (None, None)
    figures: Figures = msgspec.structs.asdict(sums)
    del figures["deviation"]
    return figures | {"low": low, "high": high}


def kept_rows(indices: Sequence[RunIndex], rows: int) -> bytearray:
    """Return for each row whether any of its results did not pass."""
    kept = bytearray(rows)
    for index in indices:
        for row, flags in zip(index.rows, index.flags, strict=True):
            if not has_passed(flags):
                kept[row] = 1
    return kept
