"""Results as they come -> the money that a run spent, by target and by judge. What is not known stays unknown."""

from collections.abc import Mapping
from typing import Any, Protocol

from agentv.records import JudgeMetrics
from agentv.results.usage import Metrics


class HasMoney(Protocol):
    """What is needed of a result."""

    @property
    def target(self) -> str: ...
    @property
    def execution_metrics(self) -> Metrics | None: ...
    @property
    def judge_metrics(self) -> Mapping[str, Any] | None: ...
    @property
    def graded_from(self) -> object | None: ...


class Spent:
    """A sum of money, of how many things it is known, and of how many it is not."""

    __slots__ = ("known", "unknown", "usd")

    def __init__(self) -> None:
        self.usd, self.known, self.unknown = 0.0, 0, 0

    def add(self, cost: float | None, count: int = 1) -> None:
        """Add what so many things cost; None is unknown."""
        if cost is None:
            self.unknown += count
        else:
            self.usd, self.known = self.usd + cost, self.known + count

    @property
    def is_known(self) -> bool:
        """Whether anything is known of it."""
        return self.known > 0


class Spending:
    """Adds up what a run spends. An answer of the cache, and one that is only graded again, costs nothing."""

    def __init__(self) -> None:
        self.targets: dict[str, Spent] = {}
        self.judges: dict[str, Spent] = {}
        self.checks: Spent | None = None
        """What `--check-judge` took, if judges were checked."""

    def add(self, result: HasMoney) -> None:
        """Count a result of this run."""
        metrics = result.execution_metrics
        if metrics is not None and result.graded_from is None:
            spent = self.targets.get(result.target)
            if spent is None:
                spent = self.targets[result.target] = Spent()
            spent.add(0.0 if metrics.cached else metrics.cost_usd)
        if result.judge_metrics:
            for name, judge in result.judge_metrics.items():
                self.judges.setdefault(name, Spent()).add(judge.cost_usd, judge.calls)

    def add_checks(self, judges: Mapping[str, JudgeMetrics]) -> None:
        """Count what the checks of judges took."""
        self.checks = self.checks or Spent()
        for judge in judges.values():
            self.checks.add(judge.cost_usd, judge.calls)

    @property
    def parts(self) -> list[tuple[str, Spent]]:
        """What was paid for: `target NAME`, `judge NAME` and `checks`."""
        named = [*((f"target {name}", spent) for name, spent in self.targets.items())]
        named += [(f"judge {name}", spent) for name, spent in self.judges.items()]
        return [*named, *([("checks", self.checks)] if self.checks is not None else [])]

    @property
    def usd(self) -> float | None:
        """What is known to have been spent; None if nothing is known."""
        known = [spent.usd for _, spent in self.parts if spent.is_known]
        return sum(known) if known else None

    @property
    def judge_usd(self) -> float | None:
        """What is known to have been spent on judges, checks aside."""
        known = [spent.usd for spent in self.judges.values() if spent.is_known]
        return sum(known) if known else None
