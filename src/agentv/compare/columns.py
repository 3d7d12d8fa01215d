"""Results files -> columns of what a comparison needs, one entry for each case, in a few bytes a case.

An `Index` gives every id a number, in the order in which ids first appear; all the files of a comparison share one, so
that the entries of a case stand at the same place in the columns of every file.
"""

import itertools
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from agentv.errors import AgentvError, ResultsError
from agentv.formats.yaml import read_error
from agentv.records import Problem
from agentv.results.read import Digests, Row, WholeRow, result_rows
from agentv.scoring import PASS as PASSING_SCORE
from agentv.stats.decimals import mean

SEEN, PASSED, ERROR, UNJUDGED, RETRIED, REPEATED, MIXED = (1 << bit for bit in range(7))
UNSCORED = ERROR | UNJUDGED
"""What is no judgement of an answer, though a score is written for it."""
_HALF = 0xFFFFFFFF
_APART = "\x1f"
By = Literal["evaluator", "dataset", "target"]


class Needs(NamedTuple):
    """What a comparison wants to know besides."""

    cluster: str | None = None
    """By what cases belong together: a field, or a key of the metadata; without it, the conversation."""
    by: By | None = None
    """For what it wants the figures apart."""


class Setup(NamedTuple):
    """What produced a result besides its case and its evaluators; all but the names are fingerprints."""

    target_name: str
    dataset: str
    target: str
    judges: str
    agentv: str


_NO_DIGESTS = Digests()
Index = defaultdict[str, int]


def new_index() -> Index:
    """Gives each new id the next number."""
    return defaultdict(itertools.count().__next__)


class Partly(NamedTuple):
    """A case of which some results have no score: the mean of the others, and what all of them could come to."""

    mean: float
    low: float
    high: float


class Scores:
    """Scores by case; one that came several times counts with its mean."""

    def __init__(self) -> None:
        self.scores, self.flags = array("d"), bytearray()
        self.partly: dict[int, Partly] = {}
        self._more: tuple[array[int], array[float], bytearray] = array("I"), array("d"), bytearray()
        """All the results of cases that have several: which case, which score, which flags."""
        self.repeats = 0
        """How many results there were besides the first of each case."""

    def __len__(self) -> int:
        return len(self.flags)

    def count(self, flag: int) -> int:
        """How many cases have this flag."""
        return sum(self.flags.count(flags) for flags in range(MIXED * 2) if flags & flag)

    def grow(self, size: int) -> None:
        """Make room for so many cases."""
        self.scores.frombytes(bytes(8 * (size - len(self.scores))))
        self.flags.extend(bytes(size - len(self.flags)))

    def add(self, number: int, score: float, flags: int) -> None:
        """Take in a result."""
        seen = self.flags[number]
        if not seen:
            self.scores[number], self.flags[number] = score, flags
            return
        self.repeats += 1
        if not seen & REPEATED:
            self._keep(number, self.scores[number], seen)
            self.flags[number] = seen | REPEATED
        self._keep(number, score, flags)

    def _keep(self, number: int, score: float, flags: int) -> None:
        numbers, scores, all_flags = self._more
        numbers.append(number)
        scores.append(score)
        all_flags.append(flags)

    def settle(self) -> None:
        """Sum up the cases that have several results; those without a score have no part in the statistics."""
        for number, places in _by_number(self._more[0]):
            rows = [(self._more[1][place], self._more[2][place]) for place in places]
            scored = [score for score, flags in rows if not flags & UNSCORED]
            passed = sum(bool(flags & PASSED) for _, flags in rows if not flags & UNSCORED)
            flags = REPEATED | (PASSED if 2 * passed > len(scored) else 0)
            for _, each in rows:
                flags |= each & ~(PASSED | UNSCORED if scored else PASSED)
            self.scores[number], self.flags[number] = mean([score for score, _ in rows]), flags
            if scored and len(scored) < len(rows):
                low, missing = sum(scored) / len(rows), (len(rows) - len(scored)) / len(rows)
                self.partly[number] = Partly(mean(scored), low, low + missing)
        self._more = array("I"), array("d"), bytearray()

    def score(self, number: int) -> float:
        """The score of a case as the statistics see it."""
        return self.partly[number].mean if number in self.partly else self.scores[number]

    def bounds(self, number: int) -> tuple[float, float]:
        """What the score of a case could be."""
        if number in self.partly:
            return self.partly[number][1:]
        return (0.0, 1.0) if self.flags[number] & UNSCORED else (self.scores[number], self.scores[number])


def _by_number(numbers: Sequence[int]) -> Iterator[tuple[int, Iterator[int]]]:
    """Each number that is there, and the places where it stands."""
    return groupby(sorted(range(len(numbers)), key=numbers.__getitem__), key=numbers.__getitem__)


class Run(Scores):
    """The results of one file."""

    def __init__(self, path: Path, index: Index):
        super().__init__()
        self.path, self._index = path, index
        self.results = self.errors = self.judge_failures = self.retried = 0
        self.ambiguous = 0
        """How many results have an id that stands in another dataset, or with another target, too."""
        self.first = ""
        """When the first result was written."""
        self.texts, self.evaluators, self.setups = array("I"), array("I"), array("I")
        """For each case, what stands for all that it asks and for how it is scored, and the place in `made`."""
        self.prompts: array[int] | None = None
        self.clusters: array[int] | None = None
        self.parts: dict[str, Scores] = {}
        """The scores of each evaluator."""
        self.apart: Run | None = None
        """The same results once more, with the cases of each dataset or target kept apart."""
        self.made: list[Setup] = []
        self._numbers_made: dict[tuple[str, ...], int] = {}

    def grow(self, size: int) -> None:
        super().grow(size)
        for column in (self.texts, self.evaluators, self.setups, self.prompts, self.clusters):
            if column is not None:
                column.frombytes(bytes(column.itemsize * (size - len(column))))

    def add_rows(self, rows: Sequence[Row], needs: Needs, ids: Sequence[str] | None = None) -> None:
        """Take in results. Whole columns are made at once: this is done by the million."""
        start = len(self._index)
        numbers = list(map(self._index.__getitem__, [row.eval_id for row in rows] if ids is None else ids))
        scores = [row.score for row in rows]
        flags = _flags_of(rows, scores)
        digests = [row.digests or _NO_DIGESTS for row in rows]
        is_bare = digests.count(_NO_DIGESTS) == len(digests)
        texts = [0] * len(rows) if is_bare else [hash(each.case) & _HALF for each in digests]
        evaluators = texts if is_bare else [hash(each.evaluators) & _HALF for each in digests]
        setups = self._setups_of(rows, digests)
        if len(self) == start == len(self._index) - len(rows):  # all are new, as in every first file
            self.scores.extend(scores)
            self.flags.extend(flags)
            self.texts.extend(texts)
            self.evaluators.extend(evaluators)
            self.setups.extend(setups)
            self.grow(len(self._index))
        else:
            self.grow(len(self._index))
            self._scatter(numbers, zip(scores, flags, texts, evaluators, setups, strict=True))
        self._count(flags)
        self.first = self.first or rows[0].timestamp
        if needs.by == "evaluator":
            self._add_parts(numbers, rows, flags)
        if not is_bare:
            self._add_prompts(numbers, digests)
        self._add_clusters(numbers, rows, needs.cluster)

    def _count(self, flags: Sequence[int]) -> None:
        self.results += len(flags)
        if max(flags) > SEEN | PASSED:
            self.errors += sum(bool(flag & ERROR) for flag in flags)
            self.judge_failures += sum(bool(flag & UNJUDGED) for flag in flags)
            self.retried += sum(bool(flag & RETRIED) for flag in flags)

    def _scatter(self, numbers: Sequence[int], entries: Iterable[tuple[float, int, int, int, int]]) -> None:
        """Put entries where they belong."""
        all_scores, all_flags, all_texts = self.scores, self.flags, self.texts
        all_evaluators, all_setups = self.evaluators, self.setups
        for number, (score, flags, text, evaluators, setup) in zip(numbers, entries, strict=True):
            if all_flags[number]:
                first, other = self.made[all_setups[number]], self.made[setup]
                self.ambiguous += (first.dataset, first.target_name) != (other.dataset, other.target_name)
                is_same = (all_texts[number], all_evaluators[number]) == (text, evaluators)
                self.add(number, score, flags if is_same else flags | MIXED)
            else:
                all_scores[number], all_flags[number] = score, flags
                all_texts[number], all_evaluators[number], all_setups[number] = text, evaluators, setup

    def _setups_of(self, rows: Sequence[Row], digests: Sequence[Digests]) -> list[int]:
        """The number of what produced each result, which mostly is the same for all."""
        columns = [
            [row.target for row in rows],
            [row.dataset for row in rows],
            [each.target for each in digests],
            [each.judges for each in digests],
            [each.agentv for each in digests],
        ]
        if all(column.count(column[0]) == len(rows) for column in columns):
            return [self._setup_number(tuple(column[0] for column in columns))] * len(rows)
        return list(map(self._setup_number, zip(*columns, strict=True)))

    def _setup_number(self, key: tuple[str, ...]) -> int:
        if key not in self._numbers_made:
            self._numbers_made[key] = len(self.made)
            self.made.append(Setup(*key))
        return self._numbers_made[key]

    def _add_prompts(self, numbers: Sequence[int], digests: Sequence[Digests]) -> None:
        found = [each.prompts for each in digests]
        if found.count("") == len(found):
            return
        if self.prompts is None:
            self.prompts = array("I", bytes(4 * len(self)))
        for number, prompts in zip(numbers, found, strict=True):
            self.prompts[number] = self.prompts[number] or hash(prompts) & _HALF

    def _add_clusters(self, numbers: Sequence[int], rows: Sequence[Row], name: str | None) -> None:
        found = [row.conversation_id for row in rows] if name is None else [_field(row, name) for row in rows]
        if found.count(None) == len(found):
            return
        if self.clusters is None:
            self.clusters = array("q", bytes(8 * len(self)))
        for number, cluster in zip(numbers, found, strict=True):
            if cluster is not None:  # whose number must be the same in every run: the order decides what chance does
                name_of = blake2b(cluster.encode("utf-8", "replace"), digest_size=8).digest()
                self.clusters[number] = int.from_bytes(name_of, signed=True) or 1

    def _add_parts(self, numbers: Sequence[int], rows: Sequence[Row], flags: Sequence[int]) -> None:
        for number, row, flag in zip(numbers, rows, flags, strict=True):
            for part in (isinstance(row, WholeRow) and row.evaluator_results) or ():
                scores = self.parts.setdefault(part.name, Scores())
                scores.grow(len(self))
                passed = part.score >= PASSING_SCORE if part.verdict is None else part.verdict == "pass"
                own = (PASSED if passed else 0) | (UNJUDGED if part.failed else 0)
                scores.add(number, part.score, SEEN | flag & (ERROR | RETRIED) | own)

    def settle(self) -> None:
        super().settle()
        for part in self.parts.values():
            part.settle()

    def part(self, name: str) -> Scores:
        """The scores of an evaluator. A case that ended in an error has none, as any of its evaluators has."""
        found = self.parts.get(name, Scores())
        found.grow(len(self))
        broken = Scores()
        broken.scores, broken.partly = found.scores, found.partly
        broken.flags = bytearray(
            of_part or (SEEN | ERROR if of_case & ERROR else 0)
            for of_part, of_case in zip(found.flags, self.flags, strict=True)
        )
        return broken


def _flags_of(rows: Sequence[Row], scores: Sequence[float]) -> list[int]:
    """What is known of each result. Nearly all ran at once and were scored: then it is only whether they passed."""
    flags = [
        SEEN | PASSED if (row.verdict == "pass" if row.verdict is not None else score >= PASSING_SCORE) else SEEN
        for row, score in zip(rows, scores, strict=True)
    ]
    failed = 2 * len(rows) - [row.error for row in rows].count(None) - [row.failure for row in rows].count(None)
    if failed or [row.attempt for row in rows].count(1) < len(rows):
        for at, row in enumerate(rows):
            flags[at] |= (
                (ERROR if row.error is not None else 0)
                | (UNJUDGED if row.failure == "judge" and row.error is None else 0)
                | (RETRIED if row.attempt is not None and row.attempt > 1 else 0)
            )
    return flags


def _field(row: Row, name: str) -> str | None:
    """What a result says of this field, or of this key of its metadata."""
    value = getattr(row, name, None) if name in ("dataset", "target", "conversation_id") else None
    if value is None and isinstance(row, WholeRow):
        value = (row.metadata or {}).get(name)
    return None if value in (None, "") else str(value)


def read_run(path: Path, index: Index, needs: Needs, apart: Index) -> Run:
    """The results of a file. All that is wrong with it is a `ResultsError`, which nobody can go on from.

    `apart` is the index of cases that are kept apart by what the figures are wanted for.
    """
    run = Run(path, index)
    name = needs.by if needs.by in ("dataset", "target") else None
    run.apart = Run(path, apart) if name else None
    problems: list[Problem] = []
    try:
        with path.open("rb") as file:
            whole = needs.by == "evaluator" or needs.cluster is not None
            for rows in filter(None, result_rows(file, path, problems, whole=whole)):
                run.add_rows(rows, needs)
                if run.apart is not None and name:
                    run.apart.add_rows(rows, needs, [f"{getattr(row, name)}{_APART}{row.eval_id}" for row in rows])
    except OSError as error:
        problems.append(Problem.of(_unreadable(error, path)))
    if not problems and not run.results:
        problems.append(Problem(message="there are no results in this file", file=path, hint=NO_RESULTS))
    if problems:
        raise ResultsError(problems)
    for each in (run, run.apart):
        if each is not None:
            each.settle()
    return run


def group_of(apart: str) -> str:
    """The dataset or the target of a case that is kept apart by it."""
    return apart.partition(_APART)[0]


NO_RESULTS = "name a file that 'agentv eval' has written"


def _unreadable(error: OSError, path: Path) -> AgentvError:
    if path.is_dir():
        newest = max(path.glob("eval_*"), key=lambda file: file.stat().st_mtime, default=None)
        hint = f"name a results file in it, such as {newest}" if newest else "name a results file"
        return AgentvError("this is a folder, not a results file", file=path, hint=hint)
    return read_error(error, path, AgentvError)
