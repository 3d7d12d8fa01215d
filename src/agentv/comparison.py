"""Results files -> how each compares with the first, case by case and in figures that allow a conclusion."""

import math
import operator
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import compress
from pathlib import Path
from typing import Literal, NamedTuple, overload

from agentv.columns import ERROR, RETRIED, SEEN, UNJUDGED, Needs, Run, Scores, Setup, new_index, read_run
from agentv.compared import Changed, Comparison, Counts, Pair, Part, Source, Totals
from agentv.decimals import difference, mean
from agentv.errors import ConfigError, ResultsError
from agentv.paired import Sheet
from agentv.records import Problem
from agentv.statistics import holm

By = Literal["evaluator", "dataset", "target"]
Gate = Literal["mean", "ci", "noninferior"]
MARGIN = 0.02
PASS, REGRESSION, CANNOT_TELL = 0, 1, 3


class Wish(NamedTuple):
    """How to compare."""

    threshold: float = 0.1
    margin: float = MARGIN
    by: By | None = None
    cluster: str | None = None


def compare_results(  # noqa: PLR0913  # an argument for each option
    first: str | Path,
    second: str | Path,
    *,
    threshold: float = 0.1,
    margin: float = MARGIN,
    by: By | None = None,
    cluster: str | None = None,
) -> Comparison:
    """How the results of the second file compare with those of the first."""
    for name, value in (("threshold", threshold), ("margin", margin)):
        if not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be a number from 0 on, not {value!r}")
    return compare_files([Path(first), Path(second)], Wish(threshold, margin, by, cluster))[0]


def compare_files(paths: Sequence[Path], wish: Wish) -> list[Comparison]:
    """How each of the other files compares with the first. What is wrong with any of them is a `ResultsError`."""
    index = new_index()
    runs: list[Run] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            runs.append(read_run(path, index, Needs(wish.cluster, parts=wish.by == "evaluator")))
        except ResultsError as error:
            problems += error.problems
    if wish.cluster is not None and runs and runs[0].clusters is None:
        message = f"no result in {runs[0].path} has {wish.cluster!r}"
        hint = "--cluster is a key of the results' metadata, or one of conversation_id, dataset, target"
        problems.append(Problem(message=message, hint=hint))
    if problems:
        raise ResultsError(problems)
    ids = list(index)
    index.clear()  # most of what is held
    for run in runs:
        run.grow(len(ids))
    return [_compared(runs[0], run, ids, wish) for run in runs[1:]]


class Pairs(Sequence[Pair]):
    """The cases that are in both files, in the order of the first; made when they are asked for."""

    def __init__(self, ids: Sequence[str], numbers: Sequence[int], runs: tuple[Run, Run], wish: Wish):
        self._ids, self.numbers = ids, numbers
        self._least = wish.threshold or math.nextafter(0, 1)  # no delta at all is never more than a tie
        self.scores = [array("d", map(run.scores.__getitem__, numbers)) for run in runs]
        self.deltas = array("d", map(difference, *self.scores))

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> list[Pair]: ...
    def __getitem__(self, at: int | slice) -> Pair | list[Pair]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        delta = self.deltas[at]
        before, after = self.scores[0][at], self.scores[1][at]
        return Pair(self._ids[self.numbers[at]], before, after, delta, self._outcome(delta))

    def __iter__(self) -> Iterator[Pair]:
        ids = map(self._ids.__getitem__, self.numbers)
        least = self._least
        outcomes = ("win" if delta >= least else "loss" if delta <= -least else "tie" for delta in self.deltas)
        return map(Pair, ids, *self.scores, self.deltas, outcomes)

    def _outcome(self, delta: float) -> Literal["win", "loss", "tie"]:
        """A delta of the threshold's size counts."""
        if delta >= self._least:
            return "win"
        return "loss" if delta <= -self._least else "tie"

    def wins_and_losses(self) -> tuple[int, int]:
        """How many of each there are."""
        return sum(map(self._least.__le__, self.deltas)), sum(map((-self._least).__ge__, self.deltas))

    def extremes(self, most: int) -> tuple[list[Pair], list[Pair]]:
        """The worst losses and the best gains, with the largest first."""
        at = range(len(self))
        worst = nsmallest(most, at, key=self.deltas.__getitem__)
        best = nlargest(most, at, key=self.deltas.__getitem__)
        return [self[i] for i in worst if self.deltas[i] < 0], [self[i] for i in best if self.deltas[i] > 0]


def _compared(first: Run, second: Run, ids: Sequence[str], wish: Wish) -> Comparison:
    numbers = _in_both(first, second)
    if not numbers:
        message = f"no eval_id is in both {first.path} and {second.path}"
        hint = f"they begin with {_some(first, ids)} and {_some(second, ids)}: are they runs of the same eval?"
        raise ResultsError([Problem(message=message, hint=hint)])
    pairs = Pairs(ids, numbers, (first, second), wish)
    wins, losses = pairs.wins_and_losses()
    cases = first.count(SEEN), second.count(SEEN)
    unmatched = Counts(file1=cases[0] - len(pairs), file2=cases[1] - len(pairs))
    changed, unchanged = _changes(first, second, numbers)
    sheet = Sheet(first, second, numbers, pairs.deltas)
    return Comparison(
        matched=pairs,
        unmatched=unmatched,
        summary=Totals(
            total=len(pairs) + unmatched.file1 + unmatched.file2,
            matched=len(pairs),
            wins=wins,
            losses=losses,
            ties=len(pairs) - wins - losses,
            meanDelta=mean(pairs.deltas),
            repeats=Counts(file1=first.repeats, file2=second.repeats),
        ),
        statistics=sheet.statistics(wish.margin, first.clusters),
        changed=changed,
        unchanged=(None if unchanged is None else sheet.only(unchanged).statistics(wish.margin, first.clusters)),
        by={wish.by: _parts(first, second, sheet, wish)} if wish.by else {},
        files=(_source(first), _source(second)),
        threshold=wish.threshold,
    )


def _in_both(first: Scores, second: Scores) -> "array[int]":
    return array("I", compress(range(len(first)), map(operator.and_, first.flags, second.flags)))


def _some(run: Run, ids: Sequence[str]) -> str:
    return repr(next(id_ for id_, flag in zip(ids, run.flags, strict=False) if flag))


def _source(run: Run) -> Source:
    targets = tuple(sorted({setup.target_name for setup in run.made if setup.target_name}))
    return Source(
        path=str(run.path),
        results=run.results,
        cases=run.count(SEEN),
        targets=targets,
        timestamp=run.first,
        errors=run.count(ERROR),
        judge_failures=run.count(UNJUDGED),
        retried=run.count(RETRIED),
        ambiguous=run.ambiguous,
    )


def _changes(first: Run, second: Run, numbers: Sequence[int]) -> tuple[Changed, "array[int] | None"]:
    """What differs between the two runs of each case, and the places of the pairs that can be held side by side."""

    def kinds() -> Iterator[tuple[int, int, bool]]:
        texts = map(operator.ne, *(map(run.texts.__getitem__, numbers) for run in (first, second)))
        setups = (map(run.setups.__getitem__, numbers) for run in (first, second))
        return zip(*setups, texts, strict=True)

    counts: Counter[str] = Counter()
    confounded: dict[tuple[int, int, bool], bool] = {}
    for kind, times in Counter(kinds()).items():
        differing = _differing(first.made[kind[0]], second.made[kind[1]], texts=kind[2])
        counts.update(dict.fromkeys(differing, times))
        confounded[kind] = not differing.isdisjoint(CONFOUNDERS)
    if not any(confounded.values()):
        return Changed(**counts), None
    return Changed(**counts), array("I", compress(range(len(numbers)), (not confounded[kind] for kind in kinds())))


CONFOUNDERS = ("cases", "evaluators", "judges", "prompts")


def _differing(first: Setup, second: Setup, *, texts: bool) -> set[str]:
    """The names in `Changed` of what is not the same."""
    if not first.target or not second.target:
        return {"unknown"}
    names = {name for name in ("target", *CONFOUNDERS[1:], "agentv") if getattr(first, name) != getattr(second, name)}
    return names | {"cases"} if texts else names


def _parts(first: Run, second: Run, sheet: Sheet, wish: Wish) -> tuple[Part, ...]:
    """The figures apart for each evaluator, dataset or target."""
    sheets = dict(_evaluators(first, second) if wish.by == "evaluator" else _groups(first, second, sheet, wish))
    found = {name: part.statistics(wish.margin, first.clusters) for name, part in sheets.items()}
    adjusted = iter(holm([part.tests[0].p_value for part in found.values() if part.tests]))
    return tuple(
        Part(name=name, p_adjusted=next(adjusted) if part.tests else None, statistics=part)
        for name, part in found.items()
    )


def _evaluators(first: Run, second: Run) -> Iterator[tuple[str, Sheet]]:
    for name in dict.fromkeys([*first.parts, *second.parts]):
        sides = [run.parts.get(name, Scores()) for run in (first, second)]
        for side in sides:
            side.grow(len(first))
        numbers = _in_both(*sides)
        scores = (map(side.scores.__getitem__, numbers) for side in sides)
        yield name, Sheet(sides[0], sides[1], numbers, array("d", map(difference, *scores)))


def _groups(first: Run, second: Run, sheet: Sheet, wish: Wish) -> Iterator[tuple[str, Sheet]]:
    places: dict[str, array[int]] = {}
    for at, number in enumerate(sheet.numbers):
        before, after = first.made[first.setups[number]], second.made[second.setups[number]]
        name = before.dataset if wish.by == "dataset" else _arrow(before.target_name, after.target_name)
        places.setdefault(name, array("I")).append(at)
    return ((name, sheet.only(found)) for name, found in places.items())


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def exit_code(comparison: Comparison, gate: Gate) -> int:
    """Whether a change may pass: 0 if so, 1 for a regression, 3 if the results cannot tell."""
    if gate == "mean":
        return REGRESSION if comparison.summary.meanDelta < 0 else PASS
    found = comparison.statistics
    if found.interval is None:
        return CANNOT_TELL
    low, high = found.interval
    if low >= 0 or (gate == "noninferior" and low > -found.margin):
        return PASS
    return REGRESSION if high < 0 else CANNOT_TELL
