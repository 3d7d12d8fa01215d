"""Results as they come -> figures of groups of cases, and of evaluators. What is held is a few numbers for each."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentv.formats.wire import text_of
from agentv.stats.inference import interval_of_mean

FIELDS = ("dataset", "target", "conversation_id")
"""What results can be grouped by besides the keys of their metadata."""
MAX_GROUPS = 50
"""As many are shown."""
MAX_KEYS = 50


def group_name(result: Any, key: str) -> str | None:
    """Return what a result has in a field or under a key of its metadata, as text; None if it has nothing there."""
    value = getattr(result, key, None) if key in FIELDS else None
    if value in (None, ""):
        value = (getattr(result, "metadata", None) or {}).get(key)
    return None if value in (None, "") else text_of(value)


class Figures:
    """Scores of cases, summed up."""

    __slots__ = ("cases", "passes", "squares", "total")

    def __init__(self) -> None:
        self.cases = 0
        self.total = self.squares = self.passes = 0.0

    def add(self, score: float, passes: float) -> None:
        """Count a case; `passes` is how many of its trials passed, as a fraction of them."""
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
        """The 95% interval of the mean; None for a single case, and if there is no variation."""
        if self.cases < 2:
            return None
        variance = (self.squares - self.total**2 / self.cases) / (self.cases - 1)
        return interval_of_mean(self.mean, math.sqrt(max(0.0, variance)), self.cases)


class _OpenCase(NamedTuple):
    """A case of which not all trials are in."""

    group: str | None
    total: float = 0.0
    runs: int = 0
    passes: int = 0


class Groups:
    """Collects the scores of cases by what they have under `key`. The trials of a case count as one."""

    def __init__(self, key: str, trials: int):
        self.key, self._trials = key, trials
        self._closed: dict[str | None, Figures] = {}
        self._open: dict[int, _OpenCase] = {}
        self.known_keys: set[str] = set()
        """Keys that the metadata of results has, while nothing is found under the one that was asked for."""

    def add(self, names: tuple[str, str], result: Any, *, passed: bool) -> None:
        """Count a result of the case of this dataset and id."""
        group = group_name(result, self.key)
        if group is None and len(self.known_keys) < MAX_KEYS:
            self.known_keys.update(getattr(result, "metadata", None) or {})
        if self._trials == 1:
            self._figures(self._closed, group).add(result.score, passed)
            return
        number = hash((group, names))
        before = self._open.pop(number, None) or _OpenCase(group)
        case = _OpenCase(group, before.total + result.score, before.runs + 1, before.passes + passed)
        if case.runs == self._trials:
            self._figures(self._closed, group).add(case.total / case.runs, case.passes / case.runs)
        else:
            self._open[number] = case

    @staticmethod
    def _figures(groups: dict[str | None, Figures], name: str | None) -> Figures:
        if name not in groups:
            groups[name] = Figures()
        return groups[name]

    @property
    def groups(self) -> Mapping[str | None, Figures]:
        """The figures of each group, the largest first; None is what has nothing under the key."""
        found = dict(self._closed)
        for case in self._open.values():
            more = Figures()
            if (before := self._closed.get(case.group)) is not None and found.get(case.group) is before:
                more.cases, more.total, more.squares, more.passes = (
                    before.cases, before.total, before.squares, before.passes,
                )  # fmt: skip
                found[case.group] = more
            self._figures(found, case.group).add(case.total / case.runs, case.passes / case.runs)
        return dict(sorted(found.items(), key=lambda item: (-item[1].cases, item[0] is None, item[0] or "")))


class EvaluatorFigures(NamedTuple):
    """What one evaluator made of the answers: the scores of its judgements, and how often it broke."""

    scores: Figures
    failures: int = 0


class Evaluators:
    """Collects the scores of each evaluator, one for each answer."""

    def __init__(self) -> None:
        self._scores: dict[str, Figures] = {}
        self._failures: dict[str, int] = {}

    def add(self, results: Iterable[Any]) -> None:
        """Count what the evaluators made of an answer."""
        for part in results:
            figures = self._scores.get(part.name)
            if figures is None:
                figures = self._scores[part.name] = Figures()
            if part.failed:
                self._failures[part.name] = self._failures.get(part.name, 0) + 1
            else:
                figures.add(part.score, part.verdict == "pass")

    @property
    def figures(self) -> dict[str, EvaluatorFigures]:
        """The figures of each evaluator, in the order in which they came."""
        return {name: EvaluatorFigures(found, self._failures.get(name, 0)) for name, found in self._scores.items()}
