"""Earlier results of the same targets and cases -> what an answer and a judgement took.

Runs are found by their records, the newest first; those of other targets are not even opened. How much is read is
bounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from agentv.errors import AgentvError
from agentv.providers.settings import TargetSettings
from agentv.records import JudgeMetrics, TokenUsage
from agentv.results.read import read_records
from agentv.results.runs import read_runs
from agentv.results.views import DigestsView, VerdictView
from agentv.run.forecast.amounts import Sample
from agentv.run.forecast.demand import Demand, TargetDemand, is_batch
from agentv.targets.prices import own_pricing

MAX_RUNS, MAX_RESULTS = 20, 100_000
"""How many runs, and how many of their results, are looked at."""


class _Metrics(msgspec.Struct, frozen=True, gc=False):
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    cached: bool = False


class HistoryView(VerdictView, frozen=True, gc=False):
    """A result with what its answer and its judgement took."""

    dataset: str = ""
    target: str = ""
    attempt: int | None = 1
    digests: DigestsView | None = None
    dry_run: bool | None = None
    execution_metrics: _Metrics | None = None
    judge_metrics: dict[str, JudgeMetrics] | None = None


@dataclass
class Taken:
    """What calls took, each, as far as is known: an answer, or the judgements of an answer by one judge."""

    results: int = 0
    calls: Sample = field(default_factory=Sample)
    input: Sample = field(default_factory=Sample)
    output: Sample = field(default_factory=Sample)
    cost: Sample = field(default_factory=Sample)
    live_cost: Sample = field(default_factory=Sample)
    """What they would have cost outside of batches."""
    seconds: Sample = field(default_factory=Sample)

    def live(self) -> "Taken":
        """Return the same at the prices outside of batches."""
        return replace(self, cost=self.live_cost)


@dataclass
class History:
    """What earlier results tell."""

    targets: dict[str, Taken] = field(default_factory=dict)
    """By the digest of the target."""
    judges: dict[str, Taken] = field(default_factory=dict)
    """By the name of the judge."""
    scores: Sample = field(default_factory=Sample)


def read_history(demand: Demand, runs: Path) -> History:
    """Return what earlier results of the same targets and cases took; a file that cannot be read is passed over."""
    history = History()
    targets = {target.digest: target for target in demand.targets.values()}
    judges = {judge.name: judge.settings for judge in demand.judges.values()}
    left = MAX_RESULTS
    for path in _results_files(runs, targets):
        try:
            for record in read_records(path, HistoryView):
                left -= 1
                if left < 0:
                    return history
                result = record.view
                digests = result.digests or DigestsView()
                if digests.target not in targets or result.dry_run or result.error is not None:
                    continue
                names = result.dataset, result.eval_id, digests.case
                if (*names, digests.target) in demand.answered:
                    _add_answer(history, result, targets[digests.target])
                    if (*names, digests.evaluators) in demand.scored:
                        history.scores.add(result.score if result.failure is None else None)
                        _add_judges(history, result, judges)
        except (OSError, AgentvError):
            continue
    return history


def _results_files(runs: Path, targets: dict[str, TargetDemand]) -> list[Path]:
    """Return the results files of the newest runs of these targets, the newest first."""
    found: dict[Path, None] = {}
    for run in read_runs(runs):
        if run.results and any(each.get("digest") in targets for each in run.targets):
            path = Path(run.results)
            if path.is_file():
                found.setdefault(path)
        if len(found) >= MAX_RUNS:
            break
    return list(found)


def _add_answer(history: History, result: HistoryView, target: TargetDemand) -> None:
    taken = history.targets.setdefault(target.digest, Taken())
    metrics = result.execution_metrics or _Metrics()
    taken.results += 1
    taken.calls.add(float(result.attempt or 1))
    usage = metrics.token_usage
    taken.input.add(usage.input if usage else None)
    taken.output.add(usage.output if usage else None)
    taken.seconds.add(metrics.duration_ms / 1000 if metrics.duration_ms is not None else None)
    taken.cost.add(_cost(target.settings, usage, metrics.cost_usd, batch=is_batch(target.settings)))


def _add_judges(history: History, result: HistoryView, judges: Mapping[str, TargetSettings]) -> None:
    for name, judge in (result.judge_metrics or {}).items():
        if name not in judges:
            continue
        taken = history.judges.setdefault(name, Taken())
        taken.results += 1
        taken.calls.add(float(judge.calls))
        usage = judge.token_usage
        taken.input.add(usage.input if usage else None)
        taken.output.add(usage.output if usage else None)
        taken.seconds.add(judge.duration_ms / 1000 if judge.duration_ms is not None else None)
        taken.cost.add(_cost(judges[name], usage, judge.cost_usd, batch=is_batch(judges[name])))
        taken.live_cost.add(_cost(judges[name], usage, judge.cost_usd, batch=False))


def _cost(
    settings: TargetSettings | None, usage: TokenUsage | None, then: float | None, *, batch: bool
) -> float | None:
    """Return what tokens cost by the prices of today; what they cost `then`, if the target itself may have told it."""
    pricing = own_pricing(settings) if settings is not None else None
    if pricing is None and settings is not None and not settings.may_report_cost:
        return None  # by a price that nobody names any more
    return then if pricing is None or usage is None else pricing.cost(usage, batch=batch)
