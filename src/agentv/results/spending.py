"""Accumulate the cost of a run by target and by judge. Unknown costs are counted, not estimated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentv.records import ExecutionMetrics, JudgeMetrics
from agentv.results.views import AnyResult, JudgeMetricsView, MetricsView


@dataclass(slots=True, eq=False)
class Spent:
    """A sum of costs, with the number of items whose cost is known and unknown."""

    usd: float = 0.0
    known: int = 0
    unknown: int = 0

    def add(self, cost: float | None, count: int = 1) -> None:
        """Add the cost of `count` items; None means unknown."""
        if cost is None:
            self.unknown += count
        else:
            self.usd += cost
            self.known += count

    @property
    def is_known(self) -> bool:
        """Whether the cost of at least one item is known."""
        return self.known > 0


class Spending:
    """Adds up the cost of a run. Answers from the cache and re-graded answers cost nothing."""

    def __init__(self) -> None:
        self.targets: dict[str, Spent] = {}
        self.judges: dict[str, Spent] = {}
        self.checks: Spent | None = None
        """The cost of `--check-judge`, or None if judges were not checked."""
        self.retries = Spent()
        """The cost of failed attempts that were retried, as part of the cost of targets."""

    def add(self, result: AnyResult) -> None:
        """Count a result of this run."""
        metrics = result.execution_metrics
        if metrics is not None and result.graded_from is None:
            spent = self.targets.get(result.target)
            if spent is None:
                spent = Spent()
                self.targets[result.target] = spent
            self._add_metrics(spent, metrics)
        if result.judge_metrics:
            self._add_judges(result.judge_metrics)

    def _add_metrics(self, spent: Spent, metrics: ExecutionMetrics | MetricsView) -> None:
        if metrics.cached:
            spent.add(0.0)
        elif metrics.cost_usd is not None or metrics.duration_ms is not None or metrics.token_usage is not None:
            # If none is known, the last attempt failed before it could cost anything.
            spent.add(metrics.cost_usd)
        retries = metrics.retries
        if retries is not None and retries.cost_usd is not None:
            spent.add(retries.cost_usd)
            self.retries.add(retries.cost_usd, retries.attempts)

    def _add_judges(self, judges: Mapping[str, JudgeMetrics | JudgeMetricsView]) -> None:
        for name, judge in judges.items():
            spent = self.judges.setdefault(name, Spent())
            spent.add(judge.cost_usd, judge.calls)

    def add_cancelled(
        self,
        target: str,
        costs: Iterable[float | None],
        judges: Mapping[str, JudgeMetrics] | None,
    ) -> None:
        """Count the attempts and the judges of a case that was cancelled before it had a result."""
        for cost in costs:
            spent = self.targets.setdefault(target, Spent())
            spent.add(cost)
        if judges is not None:
            self._add_judges(judges)

    def add_checks(self, judges: Mapping[str, JudgeMetrics]) -> None:
        """Count the calls that checked judges."""
        if self.checks is None:
            self.checks = Spent()
        for judge in judges.values():
            self.checks.add(judge.cost_usd, judge.calls)

    @property
    def parts(self) -> list[tuple[str, Spent]]:
        """The cost by item: `target NAME`, `judge NAME` and `checks`."""
        named: list[tuple[str, Spent]] = []
        for name, spent in self.targets.items():
            named.append((f"target {name}", spent))
        for name, spent in self.judges.items():
            named.append((f"judge {name}", spent))
        if self.checks is not None:
            named.append(("checks", self.checks))
        return named

    @property
    def usd(self) -> float | None:
        """The known cost of the run, or None if nothing is known."""
        every_part = [spent for _, spent in self.parts]
        return _known_usd(every_part)

    @property
    def judge_usd(self) -> float | None:
        """The known cost of judges, excluding checks, or None if nothing is known."""
        return _known_usd(self.judges.values())


def _known_usd(parts: Iterable[Spent]) -> float | None:
    known = [spent.usd for spent in parts if spent.is_known]
    if not known:
        return None
    return sum(known)
