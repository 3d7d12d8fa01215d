"""Accumulate scores per group of cases and per evaluator. Memory use is a few numbers per group."""

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from agentv.errors import ConfigError, closest, nearest
from agentv.files.wire import text_of
from agentv.records import CaseKey
from agentv.results.views import AnyResult, TextRow
from agentv.stats.inference import interval_of_mean
from agentv.stats.pass_rates import wilson

FIELDS = ("dataset", "target", "conversation_id")
"""Fields that results can be grouped by, in addition to the keys of their metadata and variables."""
EVALUATOR = "evaluator"
"""The key that groups the scores of evaluators by their names, instead of the scores of cases."""
MAX_GROUPS = 50
"""The number of groups that are shown."""
MAX_KEYS = 50
ALL_TRIALS = 0
"""Instead of the number of trials, if it is unknown: a case is complete when all results were added."""
GroupName = tuple[str | None, ...]
"""The value of each key, or None if a case has no value for it."""


def group_name(result: Any, key: str) -> str | None:
    """Return the value of a field, metadata key or variable of a result as text, or None if it has no value.

    `metadata.KEY` and `vars.KEY` name a key whose name alone would be a field.
    """
    value = None
    if key in FIELDS:
        value = getattr(result, key, None)
    if value in (None, ""):
        metadata = getattr(result, "metadata", None) or {}
        value = metadata.get(key)
    if value in (None, "") and "." in key:
        place, _, name = key.partition(".")
        if place in ("metadata", "vars"):
            value = (getattr(result, place, None) or {}).get(name)
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
        deviations = self.squares - self.total**2 / self.cases
        variance = deviations / (self.cases - 1)
        # rounding can make the variance of equal scores slightly negative
        deviation = math.sqrt(max(0.0, variance))
        return interval_of_mean(self.mean, deviation, self.cases)


@dataclass(slots=True, eq=False)
class GroupFigures(Figures):
    """The figures of one group."""

    pass_squares: float = 0.0

    def add(self, score: float, passes: float) -> None:
        Figures.add(self, score, passes)
        self.pass_squares += passes * passes

    @property
    def pass_interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval of the pass rate.

        It is that of Wilson, or of Student's t if trials of a case differ; then it is None without variation.
        """
        if self.pass_squares == self.passes:  # each case passed or failed
            return wilson(self.passes, self.cases)
        if self.cases < 2:
            return None
        deviations = self.pass_squares - self.passes**2 / self.cases
        deviation = math.sqrt(max(0.0, deviations / (self.cases - 1)))
        return interval_of_mean(self.pass_rate, deviation, self.cases)


class _OpenCase(NamedTuple):
    """A case with trials still to come."""

    group: GroupName
    total: float = 0.0
    runs: int = 0
    passes: int = 0

    def add_to(self, figures: Figures) -> None:
        """Count the case by the mean over the trials so far."""
        figures.add(
            score=self.total / self.runs,
            passes=self.passes / self.runs,
        )


class Groups:
    """Collects the scores of cases by their values for `keys`. All trials of a case count as one."""

    def __init__(self, keys: Sequence[str], trials: int):
        self.keys = tuple(keys)
        self._trials = trials
        self._closed: dict[GroupName, GroupFigures] = {}
        self._open: dict[int, _OpenCase] = {}
        self.known_keys: set[str] = set()
        """Metadata keys of results that lack one of `keys`, to suggest in a message."""

    def add(self, case_key: CaseKey, result: Any, *, passed: bool) -> None:
        """Count a result of a case: its score or, by `EVALUATOR`, those of its evaluators."""
        if EVALUATOR not in self.keys:
            self._add(case_key, self._group_of(result), result.score, passed=passed)
            return
        for part in result.evaluator_results or ():
            if part.score is None or part.failed:
                continue  # it does not apply to the case, or could not judge it
            group = self._group_of(result, part.name)
            self._add(case_key, group, part.score, passed=part.verdict == "pass")

    def _group_of(self, result: Any, evaluator: str = "") -> GroupName:
        group = []
        for key in self.keys:
            value: str | None = evaluator
            if key != EVALUATOR:
                value = group_name(result, key)
            if value is None:
                self._keep_known_keys(result)
            group.append(value)
        return tuple(group)

    def _add(
        self,
        case_key: CaseKey,
        group: GroupName,
        score: float,
        *,
        passed: bool,
    ) -> None:
        if self._trials == 1:
            figures = _figures_of(group, self._closed)
            figures.add(score, passed)
            return
        # the hash instead of the key keeps the memory per open case small
        number = hash((group, case_key))
        before = self._open.pop(number, None)
        if before is None:
            before = _OpenCase(group)
        case = _OpenCase(
            group=group,
            total=before.total + score,
            runs=before.runs + 1,
            passes=before.passes + passed,
        )
        if case.runs == self._trials:
            figures = _figures_of(group, self._closed)
            case.add_to(figures)
        else:
            self._open[number] = case

    def _keep_known_keys(self, result: Any) -> None:
        if len(self.known_keys) < MAX_KEYS:
            metadata = getattr(result, "metadata", None) or {}
            variables = getattr(result, "vars", None) or {}
            self.known_keys.update(metadata, (f"vars.{name}" for name in variables))

    @property
    def groups(self) -> Mapping[GroupName, GroupFigures]:
        """The figures of each group, largest first. Cases without a value are grouped under None."""
        found = dict(self._closed)
        # figures that open cases are added to are copied first: more trials of these cases may follow
        open_groups = {case.group for case in self._open.values()}
        for name in open_groups:
            if name in found:
                found[name] = copy.copy(found[name])
        for case in self._open.values():
            figures = _figures_of(case.group, found)
            case.add_to(figures)
        ordered = sorted(found.items(), key=_group_order)
        return dict(ordered)

    def missing_keys(self, groups: Iterable[GroupName]) -> list[str]:
        """Return the keys for which no case has a value."""
        names = list(groups)
        missing = []
        for place, key in enumerate(self.keys):
            if all(name[place] is None for name in names):
                missing.append(key)
        return missing

    def nearest_keys(self, key: str) -> str:
        """Return the known keys, or the one that is most similar to `key`, for a message."""
        return nearest(key, {*FIELDS, EVALUATOR, *self.known_keys})


def unknown_key(key: str, found_keys: Iterable[str], having: str = "result") -> ConfigError:
    """Return the error for a key to group by that no result, or case, has; `found_keys` are keys that some have."""
    known = sorted({*FIELDS, EVALUATOR, *found_keys})
    hint = ""
    close = closest(key, known)
    if close:
        hint = f"did you mean {close!r}?"
    return ConfigError(f"by: no {having} has {key!r}; known keys: {', '.join(known)}", hint=hint)


def group_rows(results: Iterable[Mapping[str, Any] | AnyResult], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each group of results, largest first: the value of each key, and its figures.

    Raise `ConfigError` if no result has a value for a key.
    """
    groups = Groups(keys, ALL_TRIALS)
    for given in results:
        result: AnyResult
        if isinstance(given, Mapping):
            result = msgspec.convert(given, TextRow)
        else:
            result = given
        if result.failure != "machine":  # no mean includes it
            case_key = CaseKey(result.dataset, result.eval_id)
            groups.add(case_key, result, passed=result.verdict == "pass")
    found = groups.groups
    missing = groups.missing_keys(found)
    if missing:
        raise unknown_key(missing[0], groups.known_keys)
    return [_row(groups.keys, name, figures) for name, figures in found.items()]


def _row(keys: Sequence[str], name: GroupName, figures: GroupFigures) -> dict[str, Any]:
    mean_lower, mean_upper = figures.interval or (None, None)
    pass_lower, pass_upper = figures.pass_interval or (None, None)
    return {
        **dict(zip(keys, name, strict=True)),
        "n": figures.cases,
        "mean": figures.mean,
        "mean_ci_lower": mean_lower,
        "mean_ci_upper": mean_upper,
        "pass_rate": figures.pass_rate,
        "pass_rate_ci_lower": pass_lower,
        "pass_rate_ci_upper": pass_upper,
    }


def _figures_of(name: GroupName, groups: dict[GroupName, GroupFigures]) -> GroupFigures:
    """Return the figures of a group, created on first use."""
    if name not in groups:
        groups[name] = GroupFigures()
    return groups[name]


def _group_order(item: tuple[GroupName, Figures]) -> tuple[int, tuple[tuple[bool, str], ...]]:
    """Sort by size, largest first, then by name, with groups without a value last."""
    group, figures = item
    names = tuple((name is None, name or "") for name in group)
    return -figures.cases, names


class OffScaleScores(NamedTuple):
    """Scores outside the range from 0 to 1: their number, and the most extreme one."""

    scores: int
    extreme: float


class EvaluatorFigures(NamedTuple):
    """The scores that one evaluator gave, and how often it failed to give one."""

    scores: Figures
    failures: int = 0
    off_scale: OffScaleScores | None = None
    """The scores outside the range from 0 to 1 among the failures."""


class Evaluators:
    """Collects the scores of each evaluator, one per answer."""

    def __init__(self) -> None:
        self._scores: dict[str, Figures] = {}
        self._failures: Counter[str] = Counter()
        self._off_scale: dict[str, OffScaleScores] = {}

    def add(self, results: Iterable[Any]) -> None:
        """Count the evaluator results of one answer."""
        for part in results:
            if part.score is None:
                continue  # it does not apply to the case
            name = part.name
            figures = self._scores.get(name)
            if figures is None:
                figures = Figures()
                self._scores[name] = figures
            if part.failed:
                self._failures[name] += 1
                if part.off_scale is not None:
                    self._add_off_scale(name, part.off_scale)
            else:
                passed = part.verdict == "pass"
                figures.add(part.score, passed)

    def _add_off_scale(self, name: str, score: float) -> None:
        before = self._off_scale.get(name, OffScaleScores(0, score))
        extreme = max(before.extreme, score, key=abs)
        self._off_scale[name] = OffScaleScores(before.scores + 1, extreme)

    @property
    def figures(self) -> dict[str, EvaluatorFigures]:
        """The figures of each evaluator, in order of first appearance."""
        found: dict[str, EvaluatorFigures] = {}
        for name, scores in self._scores.items():
            failures = self._failures[name]
            found[name] = EvaluatorFigures(scores, failures, self._off_scale.get(name))
        return found
