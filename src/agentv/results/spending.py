"""Accumulate the cost of a run by target and by judge. Unknown costs are counted, not estimated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentv.records import JudgeMetrics
from agentv.results.usage import Metrics


class HasMoney(Protocol):
    """The fields of a result that spending is computed from."""

    @property
    def target(self) -> str: ...
    @property
    def execution_metrics(self) -> Metrics | None: ...
    @property
    def judge_metrics(self) -> Mapping[str, Any] | None: ...
    @property
    def graded_from(self) -> object | None: ...


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

    def add(self, result: HasMoney) -> None:
        """Count a result of this run."""
        metrics = result.execution_metrics
        if metrics is not None and result.graded_from is None:
            spent = self.targets.get(result.target)
            if spent is None:
                spent = Spent()
                self.targets[result.target] = spent
            if metrics.cached:
                spent.add(0.0)
            else:
                spent.add(metrics.cost_usd)
        if result.judge_metrics:
            for name, judge in result.judge_metrics.items():
                self.judges.setdefault(name, Spent()).add(judge.cost_usd, judge.calls)

    def add_checks(self, judges: Mapping[str, JudgeMetrics]) -> None:
        """Count the calls that checked judges."""
        if self.checks is None:
            self.checks = Spent()
        for judge in judges.values():
            self.checks.add(judge.cost_usd, judge.calls)

    @property
    def parts(self) -> list[tuple[str, Spent]]:
        """The cost by item: `target NAME`, `judge NAME` and `checks`."""
        named = [(f"target {name}", spent) for name, spent in self.targets.items()]
        named += [(f"judge {name}", spent) for name, spent in self.judges.items()]
        if self.checks is not None:
            named.append(("checks", self.checks))
        return named

    @property
    def usd(self) -> float | None:
        """The known cost of the run, or None if nothing is known."""
        return _known_usd(spent for _, spent in self.parts)

    @property
    def judge_usd(self) -> float | None:
        """The known cost of judges, excluding checks, or None if nothing is known."""
        return _known_usd(self.judges.values())


def _known_usd(parts: Iterable[Spent]) -> float | None:
    known = [spent.usd for spent in parts if spent.is_known]
    if not known:
        return None
    return sum(known)
