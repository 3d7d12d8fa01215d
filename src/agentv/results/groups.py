"""Accumulate scores per group of cases and per evaluator. Memory use is a few numbers per group."""

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentv.formats.wire import text_of
from agentv.stats.inference import interval_of_mean

FIELDS = ("dataset", "target", "conversation_id")
"""Fields that results can be grouped by, in addition to the keys of their metadata."""
MAX_GROUPS = 50
"""The number of groups that are shown."""
MAX_KEYS = 50


def group_name(result: Any, key: str) -> str | None:
    """Return the value of a field or metadata key of a result as text, or None if it has no value."""
    value = None
    if key in FIELDS:
        value = getattr(result, key, None)
    if value in (None, ""):
        metadata = getattr(result, "metadata", None) or {}
        value = metadata.get(key)
    if value in (None, ""):
        return None
    return text_of(value)


@dataclass(slots=True, eq=False)
class Figures:
    """Running sums of the scores of cases."""

    cases: int = 0
    total: float = 0.0
    squares: float = 0.0
    passes: float = 0.0

    def add(self, score: float, passes: float) -> None:
        """Count a case; `passes` is the fraction of its trials that passed."""
        self.cases += 1
        self.total += score
        self.squares += score * score
        self.passes += passes

    @property
    def mean(self) -> float:
        return self.total / self.cases

    @property
    def pass_rate(self) -> float:
        return self.passes / self.cases

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval of the mean, or None for a single case or scores without variation."""
        if self.cases < 2:
            return None
        variance = (self.squares - self.total**2 / self.cases) / (self.cases - 1)
        # rounding can make the variance of equal scores slightly negative
        deviation = math.sqrt(max(0.0, variance))
        return interval_of_mean(self.mean, deviation, self.cases)


class _OpenCase(NamedTuple):
    """A case with trials still to come."""

    group: str | None
    total: float = 0.0
    runs: int = 0
    passes: int = 0

    def add_to(self, figures: Figures) -> None:
        """Count the case by the mean over the trials so far."""
        figures.add(self.total / self.runs, self.passes / self.runs)


class Groups:
    """Collects the scores of cases by their value for `key`. All trials of a case count as one."""

    def __init__(self, key: str, trials: int):
        self.key = key
        self._trials = trials
        self._closed: dict[str | None, Figures] = {}
        self._open: dict[int, _OpenCase] = {}
        self.known_keys: set[str] = set()
        """Metadata keys of results that lack `key`, to suggest in a message."""

    def add(self, names: tuple[str, str], result: Any, *, passed: bool) -> None:
        """Count a result of the case with this dataset and id."""
        group = group_name(result, self.key)
        if group is None and len(self.known_keys) < MAX_KEYS:
            self.known_keys.update(getattr(result, "metadata", None) or {})
        if self._trials == 1:
            _figures_of(group, self._closed).add(result.score, passed)
            return
        # the hash instead of the names keeps the memory per open case small
        number = hash((group, names))
        before = self._open.pop(number, None) or _OpenCase(group)
        case = _OpenCase(
            group=group,
            total=before.total + result.score,
            runs=before.runs + 1,
            passes=before.passes + passed,
        )
        if case.runs == self._trials:
            case.add_to(_figures_of(group, self._closed))
        else:
            self._open[number] = case

    @property
    def groups(self) -> Mapping[str | None, Figures]:
        """The figures of each group, largest first; cases without a value are in the group None."""
        found = dict(self._closed)
        # figures that open cases are added to are copied first: more trials of these cases may follow
        for name in {case.group for case in self._open.values()}:
            if name in found:
                found[name] = copy.copy(found[name])
        for case in self._open.values():
            case.add_to(_figures_of(case.group, found))
        return dict(sorted(found.items(), key=_group_order))


def _figures_of(name: str | None, groups: dict[str | None, Figures]) -> Figures:
    """Return the figures of a group, created on first use."""
    if name not in groups:
        groups[name] = Figures()
    return groups[name]


def _group_order(item: tuple[str | None, Figures]) -> tuple[int, bool, str]:
    """Sort by size, largest first, then by name, with the group without a name last."""
    name, figures = item
    return -figures.cases, name is None, name or ""


class EvaluatorFigures(NamedTuple):
    """The scores that one evaluator gave, and how often it failed to give one."""

    scores: Figures
    failures: int = 0


class Evaluators:
    """Collects the scores of each evaluator, one per answer."""

    def __init__(self) -> None:
        self._scores: dict[str, Figures] = {}
        self._failures: dict[str, int] = {}

    def add(self, results: Iterable[Any]) -> None:
        """Count the evaluator results of one answer."""
        for part in results:
            figures = self._scores.get(part.name)
            if figures is None:
                figures = Figures()
                self._scores[part.name] = figures
            if part.failed:
                self._failures[part.name] = self._failures.get(part.name, 0) + 1
            else:
                figures.add(part.score, part.verdict == "pass")

    @property
    def figures(self) -> dict[str, EvaluatorFigures]:
        """The figures of each evaluator, in order of first appearance."""
        found: dict[str, EvaluatorFigures] = {}
        for name, scores in self._scores.items():
            found[name] = EvaluatorFigures(scores, self._failures.get(name, 0))
        return found
