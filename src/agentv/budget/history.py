"""Read the tokens, cost and duration of answers and judgements from earlier results of the same targets and cases.

Runs are found through their run records, newest first. Results files of other targets are not opened, and the number of
results that are read is limited.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from agentv.budget.demand import Demand, TargetDemand, is_batch
from agentv.budget.ranges import RunningSample
from agentv.errors import AgentvError
from agentv.providers.settings import TargetSettings
from agentv.records import JudgeMetrics, RetryMetrics, TokenUsage
from agentv.results.read import read_records
from agentv.results.runs import known_runs
from agentv.results.views import DigestsView, ScoreRow
from agentv.targets.prices import own_pricing

MAX_RUNS = 20
MAX_RESULTS = 100_000


class _Metrics(msgspec.Struct, frozen=True, gc=False):
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    cached: bool = False
    retries: RetryMetrics | None = None


class HistoryView(ScoreRow, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with the usage of its target and its judges."""

    error: Any = None
    failure: str | None = None
    dataset: str = ""
    target: str = ""
    attempt: int | None = 1
    digests: DigestsView | None = None
    dry_run: bool | None = None
    execution_metrics: _Metrics | None = None
    judge_metrics: dict[str, JudgeMetrics] | None = None


@dataclass
class EarlierUsage:
    """The usage per result: of an answer of one target, or of all judgements of an answer by one judge."""

    results: int = 0
    calls: RunningSample = field(default_factory=RunningSample)
    input: RunningSample = field(default_factory=RunningSample)
    """Input tokens."""
    output: RunningSample = field(default_factory=RunningSample)
    """Output tokens."""
    cost: RunningSample = field(default_factory=RunningSample)
    live_cost: RunningSample = field(default_factory=RunningSample)
    """The cost at the prices that apply outside of batch APIs."""
    seconds: RunningSample = field(default_factory=RunningSample)

    def live(self) -> "EarlierUsage":
        """Return the same usage at the prices that apply outside of batch APIs."""
        return replace(self, cost=self.live_cost)

    def add_tokens(self, usage: TokenUsage | None) -> None:
        if usage is not None:
            self.input.add(usage.input)
            self.output.add(usage.output)

    def add_duration(self, milliseconds: float | None) -> None:
        if milliseconds is not None:
            self.seconds.add(milliseconds / 1000)


@dataclass
class History:
    """The usage and the scores of earlier results."""

    targets: dict[str, EarlierUsage] = field(default_factory=dict)
    """By the digest of the target."""
    judges: dict[str, EarlierUsage] = field(default_factory=dict)
    """By the name of the judge."""
    scores: RunningSample = field(default_factory=RunningSample)


def read_history(demand: Demand, runs: Path) -> History:
    """Return the usage of earlier results of the same targets and cases. Files that cannot be read are skipped."""
    reader = _HistoryReader(demand)
    for path in _results_files(runs, reader.targets):
        try:
            for record in read_records(path, HistoryView):
                if reader.seen >= MAX_RESULTS:
                    return reader.history
                reader.add(record.view)
        except (OSError, AgentvError):
            continue
    return reader.history


def _results_files(
    runs: Path,
    targets: Mapping[str, TargetDemand],
) -> list[Path]:
    """Return the results files of the newest runs of these targets, newest first."""
    found: dict[Path, None] = {}
    for run in known_runs(runs):
        has_target = any(target.get("digest") in targets for target in run.targets)
        if run.results and has_target:
            path = Path(run.results)
            if path.is_file():
                found.setdefault(path)
        if len(found) >= MAX_RUNS:
            break
    return list(found)


class _HistoryReader:
    """Adds up the results that belong to the demand of a run."""

    def __init__(self, demand: Demand):
        self.history = History()
        self.seen = 0
        self.targets = {target.digest: target for target in demand.targets.values()}
        self._judges = {judge.name: judge.settings for judge in demand.judges.values()}
        self._answered = demand.answered
        self._scored = demand.scored

    def add(self, result: HistoryView) -> None:
        """Count a result if it is one of the same target and case."""
        self.seen += 1
        digests = result.digests or DigestsView()
        target = self.targets.get(digests.target)
        if target is None or result.dry_run or result.error is not None:
            return
        case = (result.dataset, result.eval_id, digests.case)
        if (*case, digests.target) not in self._answered:
            return
        self._add_answer(result, target)
        if (*case, digests.evaluators) not in self._scored:
            return
        if result.failure is None:
            self.history.scores.add(result.score)
        judge_metrics = result.judge_metrics or {}
        for name, metrics in judge_metrics.items():
            settings = self._judges.get(name)
            if settings is not None:
                self._add_judge(name, metrics, settings)

    def _add_answer(
        self,
        result: HistoryView,
        target: TargetDemand,
    ) -> None:
        usage = self.history.targets.setdefault(target.digest, EarlierUsage())
        metrics = result.execution_metrics or _Metrics()
        tokens = metrics.token_usage
        settings = target.settings
        usage.results += 1
        usage.calls.add(float(result.attempt or 1))
        usage.add_tokens(tokens)
        usage.add_duration(metrics.duration_ms)
        cost = _current_cost(settings, tokens, metrics.cost_usd, batch=is_batch(settings))
        retries = metrics.retries
        if retries is not None and cost is not None:
            cost += _current_cost(settings, retries.token_usage, retries.cost_usd, batch=False) or 0.0
        usage.cost.add(cost)

    def _add_judge(
        self,
        name: str,
        metrics: JudgeMetrics,
        settings: TargetSettings,
    ) -> None:
        usage = self.history.judges.setdefault(name, EarlierUsage())
        tokens = metrics.token_usage
        usage.results += 1
        usage.calls.add(float(metrics.calls))
        usage.add_tokens(tokens)
        usage.add_duration(metrics.duration_ms)
        cost = _current_cost(settings, tokens, metrics.cost_usd, batch=is_batch(settings))
        usage.cost.add(cost)
        live_cost = _current_cost(settings, tokens, metrics.cost_usd, batch=False)
        usage.live_cost.add(live_cost)


def _current_cost(
    settings: TargetSettings | None,
    tokens: TokenUsage | None,
    reported: float | None,
    *,
    batch: bool,
) -> float | None:
    """Return the cost of tokens at current prices, or the cost in the result if the target may have reported it."""
    pricing = None
    if settings is not None:
        pricing = own_pricing(settings)
        if pricing is None and not settings.may_report_cost:
            # The result was priced by a setting that no longer exists.
            return None
    if pricing is None or tokens is None:
        return reported
    return pricing.cost(tokens, batch=batch)
