"""Results files -> columns of what a comparison needs, one entry for each case, in a few bytes a case.

An `Index` gives every id a number, in the order in which ids first appear; all the files of a comparison share one, so
that the entries of a case stand at the same place in the columns of every file.
"""

import itertools
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from agentv.decimals import means
from agentv.documents import unreadable
from agentv.errors import AgentvError, ResultsError
from agentv.records import Problem
from agentv.result_rows import Digests, Row, WholeRow, result_rows
from agentv.scoring import PASS as PASSING_SCORE

SEEN, PASSED, ERROR, UNJUDGED, RETRIED, REPEATED = (1 << bit for bit in range(6))
UNSCORED = ERROR | UNJUDGED
"""What is no judgement of an answer, though a score is written for it."""
_HALF = 0xFFFFFFFF


class Needs(NamedTuple):
    """What a comparison wants to know besides."""

    cluster: str | None = None
    """By what cases belong together: a field, or a key of the metadata; without it, the conversation."""
    parts: bool = False
    """Whether it wants the scores of the evaluators."""


class Setup(NamedTuple):
    """What produced a result besides its case; all but the names are fingerprints."""

    target_name: str
    dataset: str
    target: str
    evaluators: str
    judges: str
    prompts: str
    agentv: str


_NO_DIGESTS = Digests()
Index = defaultdict[str, int]


def new_index() -> Index:
    """Gives each new id the next number."""
    return defaultdict(itertools.count().__next__)


class Scores:
    """Scores by case; one that came several times counts with its mean."""

    def __init__(self) -> None:
        self.scores, self.flags = array("d"), bytearray()
        self._numbers, self._more = array("I"), array("d")

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def repeats(self) -> int:
        """How many results there were besides the first of each case."""
        return len(self._numbers)

    def count(self, flag: int) -> int:
        """How many cases have this flag."""
        return sum(self.flags.count(flags) for flags in range(REPEATED * 2) if flags & flag)

    def grow(self, size: int) -> None:
        """Make room for so many cases."""
        self.scores.frombytes(bytes(8 * (size - len(self.scores))))
        self.flags.extend(bytes(size - len(self.flags)))

    def add(self, number: int, score: float, flags: int) -> None:
        seen = self.flags[number]
        if seen:
            self._numbers.append(number)
            self._more.append(score)
            self.flags[number] = seen | REPEATED | flags
        else:
            self.scores[number] = score
            self.flags[number] = flags

    def settle(self) -> None:
        """Put the mean in the place of the first score, where there are several; the mean decides who passed."""
        firsts = array("I", dict.fromkeys(self._numbers))
        scores = array("d", map(self.scores.__getitem__, firsts)) + self._more
        for number, mean in zip(*means(firsts + self._numbers, scores), strict=True):
            self.scores[number] = mean
            self.flags[number] = self.flags[number] & ~PASSED | (PASSED if mean >= PASSING_SCORE else 0)
        self._more = array("d")


class Run(Scores):
    """The results of one file."""

    def __init__(self, path: Path, index: Index):
        super().__init__()
        self.path, self._index = path, index
        self.results = 0
        self.first = ""
        """When the first result was written."""
        self.texts, self.setups = array("I"), array("I")
        """For each case, what stands for all that it asks, and the place in `made` of what produced its result."""
        self.clusters: array[int] | None = None
        self.parts: dict[str, Scores] = {}
        """The scores of each evaluator."""
        self.made: list[Setup] = []
        self._numbers_made: dict[tuple[str, ...], int] = {}
        self.ambiguous = 0
        """How many results have an id that stands in another dataset too."""

    def grow(self, size: int) -> None:
        super().grow(size)
        for column in (self.texts, self.setups, self.clusters):
            if column is not None:
                column.frombytes(bytes(column.itemsize * (size - len(column))))

    def add_rows(self, rows: Sequence[Row], needs: Needs) -> None:
        """Take in results. Whole columns are made at once: this is done by the million."""
        start = len(self._index)
        numbers = list(map(self._index.__getitem__, [row.eval_id for row in rows]))
        scores = [row.score for row in rows]
        flags = _flags_of(rows, scores)
        digests = [row.digests or _NO_DIGESTS for row in rows]
        texts = [hash(each.case) & _HALF for each in digests]
        setups = self._setups_of(rows, digests)
        if len(self) == start == len(self._index) - len(rows):  # all are new, as in every first file
            self.scores.extend(scores)
            self.flags.extend(flags)
            self.texts.extend(texts)
            self.setups.extend(setups)
            self.grow(len(self._index))
        else:
            self.grow(len(self._index))
            self._scatter(numbers, zip(scores, flags, texts, setups, strict=True))
        self.results += len(rows)
        self.first = self.first or next((row.timestamp for row in rows), "")
        if needs.parts:
            self._add_parts(numbers, rows, flags)
        self._add_clusters(numbers, rows, needs.cluster)

    def _scatter(self, numbers: Sequence[int], entries: Iterable[tuple[float, int, int, int]]) -> None:
        """Put entries where they belong."""
        all_scores, all_flags, all_texts, all_setups = self.scores, self.flags, self.texts, self.setups
        for number, (score, flags, text, setup) in zip(numbers, entries, strict=True):
            if all_flags[number]:
                self.add(number, score, flags)
                self.ambiguous += self.made[all_setups[number]].dataset != self.made[setup].dataset
            else:
                all_scores[number], all_flags[number] = score, flags
                all_texts[number], all_setups[number] = text, setup

    def _setups_of(self, rows: Sequence[Row], digests: Sequence[Digests]) -> list[int]:
        """The number of what produced each result, which mostly is the same for all."""
        columns = [
            [row.target for row in rows],
            [row.dataset for row in rows],
            [each.target for each in digests],
            [each.evaluators for each in digests],
            [each.judges for each in digests],
            [each.prompts for each in digests],
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

    def _add_clusters(self, numbers: Sequence[int], rows: Sequence[Row], name: str | None) -> None:
        found = [row.conversation_id for row in rows] if name is None else [_field(row, name) for row in rows]
        if found.count(None) == len(found):
            return
        if self.clusters is None:
            self.clusters = array("q", bytes(8 * len(self)))
        for number, cluster in zip(numbers, found, strict=True):
            if cluster is not None:
                self.clusters[number] = hash(cluster) or 1

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
    return None if value is None else str(value)


def read_run(path: Path, index: Index, needs: Needs) -> Run:
    """The results of a file. All that is wrong with it is a `ResultsError`, which nobody can go on from."""
    run = Run(path, index)
    problems: list[Problem] = []
    try:
        with path.open("rb") as file:
            whole = needs.parts or needs.cluster is not None
            for rows in filter(None, result_rows(file, path, problems, whole=whole)):
                run.add_rows(rows, needs)
    except OSError as error:
        problems.append(Problem.of(_unreadable(error, path)))
    if not problems and not run.results:
        problems.append(Problem(message="there are no results in this file", file=path, hint=NO_RESULTS))
    if problems:
        raise ResultsError(problems)
    run.settle()
    return run


NO_RESULTS = "name a file that 'agentv eval' has written"


def _unreadable(error: OSError, path: Path) -> AgentvError:
    if path.is_dir():
        newest = max(path.glob("eval_*"), key=lambda file: file.stat().st_mtime, default=None)
        hint = f"name a results file in it, such as {newest}" if newest else "name a results file"
        return AgentvError("this is a folder, not a results file", file=path, hint=hint)
    return unreadable(error, path, AgentvError)
