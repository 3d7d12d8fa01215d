"""Compute the figures of a run from its sums and totals: means, pass rates and confidence intervals."""

import math
from collections import Counter

import msgspec

from agentv.redact import clean
from agentv.report.page.index import ResultNames
from agentv.report.page.sums import CaseSums, EvaluatorSums
from agentv.results.git_state import short_commit
from agentv.results.views import MetricsView, PageView
from agentv.stats.inference import interval_of_mean
from agentv.stats.pass_rates import bootstrap_interval, wilson

SHOWN_ERRORS = 12
ERROR_CHARACTERS = 300
MAX_ERROR_TEXTS = 2000
"""The maximum number of different errors that are counted."""
Interval = tuple[float, float] | tuple[None, None]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a run used."""

    input: int
    output: int
    reasoning: int


class ErrorCount(msgspec.Struct, frozen=True, kw_only=True):
    """Results that ended in the same error."""

    text: str
    count: int


class EvaluatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one evaluator, with the 95% confidence interval of its mean."""

    name: str
    cases: int
    mean: float
    low: float | None
    high: float | None
    pass_rate: float
    failures: int


class JudgeHealthFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the judges, and the facts that it is based on: pairs of a name and a text."""

    verdict: str
    facts: tuple[tuple[str, str], ...] = ()


class MetricRow(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over a run as the summary shows it. The interval is empty if there is none."""

    name: str
    value: str
    interval: str


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. The page reads them by these names; see `contract.d.ts`."""

    results: int
    cases: int
    trials: int
    mean: float | None
    """None without cases: all results are machine failures."""
    mean_low: float | None
    mean_high: float | None
    pass_rate: float | None
    pass_low: float
    pass_high: float
    histogram: tuple[int, ...]
    target_errors: int
    timeouts: int
    judge_failures: int
    machine_failures: int
    cut_off: int
    dry_run: int
    evaluators: tuple[EvaluatorRow, ...]
    """Sorted by their means, the lowest first."""

    cost: float | None
    judge_cost: float | None
    tokens: Tokens | None
    started: str
    ended: str
    errors: tuple[ErrorCount, ...]
    targets: tuple[str, ...]
    datasets: tuple[str, ...]
    versions: tuple[str, ...]
    run_ids: tuple[str, ...]
    seconds: float | None = None
    commit: str = ""

    # The rest comes from the run record, if there is one.
    models: tuple[str, ...] = ()
    branch: str = ""
    command: str = ""
    planned: int | None = None
    unfinished: bool = False
    """Whether the record does not contain the number of planned cases yet."""
    invalid: int = 0
    skipped: int = 0
    """The number of cases that are marked with `skip`. They are not planned."""
    not_run: int = 0
    unplanned_results: int = 0
    """The number of results whose cases are not in the eval files."""
    metrics: tuple[MetricRow, ...] = ()
    judge_health: JudgeHealthFigures | None = None


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
        self.commit = ""
        self.errors: Counter[str] = Counter()
        self.versions: dict[str, None] = {}

    def add(self, view: PageView) -> None:
        """Count a result."""
        if view.timestamp:
            self.first = min(self.first or view.timestamp, view.timestamp)
            self.last = max(self.last, view.timestamp)
        if view.run_id:
            self.run_ids.setdefault(view.run_id)
        if view.commit:
            self.commit = view.commit
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
        self._add_cost(metrics.cost_usd)
        if metrics.retries is not None:
            self._add_cost(metrics.retries.cost_usd)
        usage = metrics.token_usage
        if usage is not None:
            self.tokens["input"] += int(usage.input or 0)
            self.tokens["output"] += int(usage.output or 0)
            self.tokens["reasoning"] += int(usage.reasoning or 0)

    def _add_cost(self, cost: float | None) -> None:
        if cost is not None and math.isfinite(cost):
            self.cost += cost
            self.has_cost = True

    def _add_error(self, error: str) -> None:
        words = error[: ERROR_CHARACTERS * 2].split()
        text = " ".join(words)[:ERROR_CHARACTERS]
        if len(self.errors) < MAX_ERROR_TEXTS or text in self.errors:
            self.errors[text] += 1

    def used_tokens(self) -> Tokens | None:
        """Return the tokens of all results, or None if no result reports any."""
        if not self.tokens.total():
            return None
        return Tokens(
            input=self.tokens["input"],
            output=self.tokens["output"],
            reasoning=self.tokens["reasoning"],
        )

    def frequent_errors(self) -> tuple[ErrorCount, ...]:
        """Return the most frequent errors with their counts."""
        groups = []
        for text, count in self.errors.most_common(SHOWN_ERRORS):
            groups.append(ErrorCount(text=text, count=count))
        return tuple(groups)


def run_figures(sums: CaseSums, totals: Totals, names: ResultNames) -> RunFigures:
    """Return the figures of a run, without those of its record."""
    mean = None
    if sums.cases:
        mean = sums.mean
    mean_low, mean_high = _interval(sums)
    pass_rate, pass_low, pass_high = _pass_rate(sums)
    cost = None
    if totals.has_cost:
        cost = totals.cost
    evaluators = [_evaluator_figures(evaluator) for evaluator in sums.evaluators]
    evaluators.sort(key=lambda figures: (figures.mean, figures.name))
    return RunFigures(
        results=sums.results,
        cases=sums.cases,
        trials=sums.trials,
        mean=mean,
        mean_low=mean_low,
        mean_high=mean_high,
        pass_rate=pass_rate,
        pass_low=pass_low,
        pass_high=pass_high,
        histogram=sums.histogram,
        target_errors=sums.target_errors,
        timeouts=sums.timeouts,
        judge_failures=sums.judge_failures,
        machine_failures=sums.machine_failures,
        cut_off=sums.cut_off,
        dry_run=sums.dry_run,
        evaluators=tuple(evaluators),
        cost=cost,
        judge_cost=totals.judge_cost,
        tokens=totals.used_tokens(),
        started=totals.first,
        ended=totals.last,
        errors=totals.frequent_errors(),
        targets=tuple(name for name in names.targets if name),
        datasets=tuple(name for name in names.datasets if name),
        versions=tuple(totals.versions),
        run_ids=tuple(totals.run_ids),
        commit=clean(short_commit(totals.commit)),
    )


def _interval(sums: CaseSums | EvaluatorSums) -> Interval:
    """Return the 95% confidence interval of the mean, or `(None, None)`."""
    interval = interval_of_mean(sums.mean, sums.deviation, sums.cases)
    if interval is None:
        return None, None
    return interval


def _pass_rate(sums: CaseSums) -> tuple[float | None, float, float]:
    """Return the pass rate and its 95% confidence interval. With trials, it is the mean pass rate of the cases."""
    if not sums.cases:
        return None, 0.0, 1.0
    passed = math.fsum(share * count for share, count in sums.shares)
    rate = passed / sums.cases
    if sums.trials == 1:
        low, high = wilson(round(rate * sums.cases), sums.cases)
    else:
        shares, counts = zip(*sums.shares, strict=True)
        low, high = bootstrap_interval(counts, shares)
    return rate, low, high


def _evaluator_figures(sums: EvaluatorSums) -> EvaluatorRow:
    low, high = _interval(sums)
    return EvaluatorRow(
        name=sums.name,
        cases=sums.cases,
        mean=sums.mean,
        low=low,
        high=high,
        pass_rate=sums.pass_rate,
        failures=sums.failures,
    )
