"""Results files -> how each compares with the first, case by case and in figures that allow a conclusion."""

import math
import operator
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import compress, repeat
from pathlib import Path
from typing import Literal, NamedTuple, get_args, overload

from agentv.compare.columns import ERROR, MIXED, SEEN, By, Needs, Run, Scores, Setup, group_of, new_index, read_run
from agentv.compare.pairs import PairedScores, pair_scores
from agentv.compare.records import Changed, Comparison, Counts, Pair, Part, Source, Totals
from agentv.errors import ConfigError, ResultsError, nearest
from agentv.records import Problem
from agentv.stats.decimals import difference, mean
from agentv.stats.inference import holm

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
    numbers: dict[str, object] = {"threshold": threshold, "margin": margin}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be a number from 0 on, not {value!r}")
    if by is not None and by not in get_args(By):
        raise ConfigError(f"by: unknown {by!r}", hint=nearest(str(by), get_args(By)))
    return compare_files([Path(first), Path(second)], Wish(threshold, margin, by, cluster))[0]


def compare_files(paths: Sequence[Path], wish: Wish) -> list[Comparison]:
    """How each of the other files compares with the first. What is wrong with any of them is a `ResultsError`."""
    index, apart = new_index(), new_index()
    runs: list[Run] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            runs.append(read_run(path, index, Needs(wish.cluster, wish.by), apart))
        except ResultsError as error:
            problems += error.problems
    if wish.cluster is not None and runs and all(run.clusters is None for run in runs):
        message = f"no result in {' or '.join(dict.fromkeys(str(run.path) for run in runs))} has {wish.cluster!r}"
        hint = "--cluster is a key of the results' metadata, or one of conversation_id, dataset, target"
        problems.append(Problem(message=message, hint=hint))
    if problems:
        raise ResultsError(problems)
    ids = list(index)
    index.clear()  # most of what is held
    for run in runs:
        run.grow(len(ids))
        if run.apart is not None:
            run.apart.grow(len(apart))
    return [_compared(runs[0], run, _Names(ids, list(apart)), wish) for run in runs[1:]]


class _Names(NamedTuple):
    """What cases are called, by their numbers: alone, and apart by dataset or target."""

    ids: Sequence[str]
    apart: Sequence[str]


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


def _compared(first: Run, second: Run, names: _Names, wish: Wish) -> Comparison:
    ids = names.ids
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
    paired, clusters = pair_scores(first, second, numbers, pairs.deltas), _clusters(first, second)
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
        statistics=paired.statistics(wish.margin, clusters),
        changed=changed,
        unchanged=(None if unchanged is None else paired.only(unchanged).statistics(wish.margin, clusters)),
        by={wish.by: _parts(first, second, paired, wish, names.apart)} if wish.by else {},
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
        path=os.fsencode(run.path).decode("utf-8", "replace"),
        results=run.results,
        cases=run.count(SEEN),
        targets=targets,
        timestamp=run.first,
        errors=run.errors,
        judge_failures=run.judge_failures,
        retried=run.retried,
        ambiguous=run.ambiguous,
    )


def _changes(first: Run, second: Run, numbers: Sequence[int]) -> tuple[Changed, "array[int] | None"]:
    """What differs between the two runs of each case, and the places of the pairs that can be held side by side."""
    if not any(setup.target for run in (first, second) for setup in run.made):
        return Changed(unknown=len(numbers)), None

    def kinds() -> Iterator[tuple[int, ...]]:
        setups = (map(run.setups.__getitem__, numbers) for run in (first, second))
        others = (_unlike(getattr(first, name), getattr(second, name), numbers) for name in COLUMNS)
        mixed = (bool((first.flags[number] | second.flags[number]) & MIXED) for number in numbers)
        has_mixed = first.repeats or second.repeats
        return zip(*setups, *others, mixed if has_mixed else repeat(False), strict=False)

    counts: Counter[str] = Counter()
    confounded: dict[tuple[int, ...], bool] = {}
    for kind, times in Counter(kinds()).items():
        differing = _differing(first.made[kind[0]], second.made[kind[1]], _Kind._make(kind))
        counts.update(dict.fromkeys(differing, times))
        confounded[kind] = not differing.isdisjoint(CONFOUNDERS)
    if not any(confounded.values()):
        return Changed(**counts), None
    return Changed(**counts), array("I", compress(range(len(numbers)), (not confounded[kind] for kind in kinds())))


COLUMNS = ("texts", "evaluators", "prompts")
CONFOUNDERS = ("cases", "evaluators", "prompts", "judges", "mixed")


class _Kind(NamedTuple):
    """How the two runs of a case differ: by which setups they were made, and what else is not the same."""

    first: int
    second: int
    cases: int
    evaluators: int
    prompts: int
    mixed: int


def _unlike(first: Sequence[int] | None, second: Sequence[int] | None, numbers: Sequence[int]) -> Iterator[bool]:
    if first is None and second is None:
        return repeat(False)
    sides = (repeat(0) if side is None else map(side.__getitem__, numbers) for side in (first, second))
    return map(operator.ne, *sides)


def _differing(first: Setup, second: Setup, kind: _Kind) -> set[str]:
    """The names in `Changed` of what is not the same."""
    if not first.target or not second.target:
        return {"unknown"}
    of_setups = {name for name in ("target", "judges", "agentv") if getattr(first, name) != getattr(second, name)}
    return of_setups | {name for name in ("cases", "evaluators", "prompts", "mixed") if getattr(kind, name)}


def _clusters(first: Run, second: Run) -> "array[int] | None":
    """Which cases belong together, by whichever file says so."""
    if first.clusters is None or second.clusters is None:
        return first.clusters if second.clusters is None else second.clusters
    return array("q", (one or other for one, other in zip(first.clusters, second.clusters, strict=True)))


def _parts(first: Run, second: Run, paired: PairedScores, wish: Wish, apart: Sequence[str]) -> tuple[Part, ...]:
    """The figures apart for each evaluator, dataset or target."""
    clusters = _clusters(first, second)
    if wish.by == "evaluator":
        groups = dict(_evaluators(first, second))
    elif (first.ambiguous or second.ambiguous) and first.apart is not None and second.apart is not None:
        groups = _apart(first.apart, second.apart, apart)
        clusters = _clusters(first.apart, second.apart)
    else:
        groups = _groups(first, second, paired, wish)
    found = {name: part.statistics(wish.margin, clusters) for name, part in groups.items()}
    adjusted = iter(holm([part.tests[0].p_value for part in found.values() if part.tests]))
    return tuple(
        Part(name=name, p_adjusted=next(adjusted) if part.tests else None, statistics=part)
        for name, part in found.items()
    )


def _evaluators(first: Run, second: Run) -> Iterator[tuple[str, PairedScores]]:
    for name in dict.fromkeys([*first.parts, *second.parts]):
        one, other = first.part(name), second.part(name)
        numbers = _in_both(one, other)
        broken = SEEN | ERROR  # of a case that ended in an error on both sides, nobody knows who would have judged it
        known = (not one.flags[number] == other.flags[number] == broken for number in numbers)
        yield name, pair_scores(one, other, array("I", compress(numbers, known)))


def _apart(first: Run, second: Run, names: Sequence[str]) -> dict[str, PairedScores]:
    """The cases of each dataset or target, where the same ids stand in several."""
    numbers: dict[str, array[int]] = {}
    for number in _in_both(first, second):
        numbers.setdefault(group_of(names[number]), array("I")).append(number)
    return {name: pair_scores(first, second, found) for name, found in numbers.items()}


def _groups(first: Run, second: Run, paired: PairedScores, wish: Wish) -> dict[str, PairedScores]:
    places: dict[str, array[int]] = {}
    for at, number in enumerate(paired.numbers):
        before, after = first.made[first.setups[number]], second.made[second.setups[number]]
        name = before.dataset if wish.by == "dataset" else _arrow(before.target_name, after.target_name)
        places.setdefault(name, array("I")).append(at)
    return {name: paired.only(found) for name, found in places.items()}


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
