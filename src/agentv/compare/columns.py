"""Results files -> columns of what a comparison needs, with one entry for each case, in a few bytes a case.

An `Index` gives every id a number, in the order in which ids first appear. All the files of a comparison share one, so
that the entries of a case stand at the same place in the columns of every file.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import NamedTuple, TypeVar

from agentv.compare.blocks import ERROR, MIXED, PASSED, REPEATED, RETRIED, SEEN, UNJUDGED, UNSCORED, Block, Setup
from agentv.results.usage import Usage
from agentv.results.views import EvaluatorView
from agentv.scoring import PASS as PASSING_SCORE
from agentv.stats.decimals import mean

COLUMNS = ("setups", "cases", "evaluators", "prompts")
_PLAIN = bytes([SEEN, SEEN | PASSED])
Number = TypeVar("Number", int, float)


class Index(dict[str, int]):
    """The number of each id, in the order in which they were added."""

    def add(self, ids: Sequence[str]) -> list[int]:
        """Give the next numbers to those of the ids that are new, and return the numbers of all."""
        try:
            return list(map(self.__getitem__, ids))
        except KeyError:
            before, most = len(self), len(self) + len(ids)
        numbers = list(map(self.setdefault, ids, range(before, most)))
        if len(self) == most:  # all are new
            return numbers
        while len(self) > before:
            self.popitem()
        return [self.setdefault(each, len(self)) for each in ids]


def pick(column: "array[Number]", numbers: Sequence[int]) -> "array[Number]":
    """Return the entries of these cases, whose numbers ascend."""
    if len(numbers) == len(column):  # these are all
        return column
    return array(column.typecode, map(column.__getitem__, numbers))


def pick_bytes(column: bytearray, numbers: Sequence[int]) -> bytes:
    """Return the entries of these cases, whose numbers ascend."""
    return bytes(column if len(numbers) == len(column) else map(column.__getitem__, numbers))


class PartialScore(NamedTuple):
    """A case of which some results have no score: the mean of the others, and what all of them could come to."""

    mean: float
    low: float
    high: float


class Scores:
    """Scores by case; one that has several results counts with their mean."""

    def __init__(self) -> None:
        self.scores, self.flags = array("d"), bytearray()
        self.partial: dict[int, PartialScore] = {}
        self._more: tuple[array[int], array[float], bytearray] = array("I"), array("d"), bytearray()
        """All the results of cases that have several: which case, which score, which flags."""
        self.repeats = 0
        """Results besides the first of each case."""

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def cases(self) -> int:
        """How many cases have a result."""
        return len(self.flags) - self.flags.count(0)

    def grow(self, size: int) -> None:
        """Make room for `size` cases."""
        self.scores.frombytes(bytes(8 * (size - len(self.scores))))
        self.flags.extend(bytes(size - len(self.flags)))

    def add(self, number: int, score: float, flags: int) -> None:
        """Add a result of a case."""
        seen = self.flags[number]
        if not seen:
            self.scores[number], self.flags[number] = score, flags
            return
        self.repeats += 1
        if not seen & REPEATED:
            self._add_repeat(number, self.scores[number], seen)
            self.flags[number] = seen | REPEATED
        self._add_repeat(number, score, flags)

    def _add_repeat(self, number: int, score: float, flags: int) -> None:
        numbers, scores, all_flags = self._more
        numbers.append(number)
        scores.append(score)
        all_flags.append(flags)

    def merge_repeats(self) -> None:
        """Sum up the cases that have several results; results without a score have no part in the statistics."""
        for number, places in _group_by_number(self._more[0]):
            results = [(self._more[1][place], self._more[2][place]) for place in places]
            scored = [score for score, flags in results if not flags & UNSCORED]
            passed = sum(bool(flags & PASSED) for _, flags in results if not flags & UNSCORED)
            flags = REPEATED | (PASSED if 2 * passed > len(scored) else 0)
            for _, each in results:
                flags |= each & ~(PASSED | UNSCORED if scored else PASSED)
            self.scores[number], self.flags[number] = mean([score for score, _ in results]), flags
            if scored and len(scored) < len(results):
                low, missing = sum(scored) / len(results), (len(results) - len(scored)) / len(results)
                self.partial[number] = PartialScore(mean(scored), low, low + missing)
        self._more = array("I"), array("d"), bytearray()

    def pick_scores(self, numbers: Sequence[int]) -> "array[float]":
        """Return the scores of these cases as the statistics see them: without what was not judged."""
        if not self.partial:
            return pick(self.scores, numbers)
        return array("d", (self.partial[n].mean if n in self.partial else self.scores[n] for n in numbers))

    def bounds(self, number: int) -> tuple[float, float]:
        """Return the least and the most that the score of a case could be."""
        if number in self.partial:
            return self.partial[number][1:]
        return (0.0, 1.0) if self.flags[number] & UNSCORED else (self.scores[number], self.scores[number])


def _group_by_number(numbers: Sequence[int]) -> Iterator[tuple[int, Iterator[int]]]:
    """Yield each number that is there, and the places where it stands."""
    return groupby(sorted(range(len(numbers)), key=numbers.__getitem__), key=numbers.__getitem__)


class RunColumns(Scores):
    """The results of one file."""

    def __init__(self, path: Path, index: Index):
        super().__init__()
        self.path, self._index = path, index
        self.results = self.errors = self.judge_failures = self.retried = 0
        self.ambiguous = 0
        """Results with an id that stands in another dataset, or with another target, too."""
        self.timestamp = ""
        """When the first result was written."""
        self.setups: list[Setup] = []
        self._setup_numbers: dict[Setup, int] = {}
        self._columns: dict[str, array[int]] = {}
        self.clusters: array[int] | None = None
        self.evaluators: dict[str, Scores] = {}
        """The scores of each evaluator."""
        self.labels: array[int] | None = None
        """Where the label of each case stands in `label_names`, counted from 1; 0 is none."""
        self.label_names: dict[str, int] = {}
        self.known_keys: set[str] = set()
        self.usage = Usage()
        self.dry_run = self.cut_off = self.graded = 0
        self.answers_of: set[str | None] = set()
        """The runs that the answers are of."""
        self.grouped: RunColumns | None = None
        """The same results once more, with the cases of each dataset or target kept apart."""

    def column(self, name: str) -> "array[int] | None":
        """Return the places in `setups` of each case, or the numbers of its digests; None if all are 0."""
        return self._columns.get(name)

    def setup_of(self, number: int) -> Setup:
        """Return what produced the result of a case."""
        column = self.column("setups")
        return self.setups[column[number] if column is not None else 0]

    def grow(self, size: int) -> None:
        super().grow(size)
        for column in (*self._columns.values(), self.clusters, self.labels):
            if column is not None:
                column.frombytes(bytes(column.itemsize * (size - len(column))))

    def add_block(self, block: Block) -> None:
        """Add the results of a block."""
        before = len(self._index)
        numbers = self._index.add(block.ids)
        values = dict(block.digests)
        setups = [self._setup_number(setup) for setup in block.setups]
        if any(setups):
            values["setups"] = setups * (len(numbers) if len(setups) == 1 else 1)
        for name in values:
            self._make_column(name)
        if len(self) == before == len(self._index) - len(numbers):  # all are new, as in every first file
            self._append(block, values)
            self.grow(len(self._index))
        else:
            self.grow(len(self._index))
            self._put(numbers, block, values)
        self._count(block.flags)
        self.timestamp = self.timestamp or block.timestamp
        if block.evaluator_results is not None:
            self._add_evaluators(numbers, block.evaluator_results, block.flags)
        if block.clusters is not None:
            self._add_clusters(numbers, block.clusters)
        if block.labels is not None:
            self._add_labels(numbers, block.labels)
            self.known_keys.update(block.known_keys)
        self.usage.add_all(block.metrics)
        self.dry_run += block.dry_run
        self.cut_off += block.cut_off
        self.graded += block.graded
        self.answers_of.update(block.answers_of)

    def _setup_number(self, setup: Setup) -> int:
        if setup not in self._setup_numbers:
            self._setup_numbers[setup] = len(self.setups)
            self.setups.append(setup)
        return self._setup_numbers[setup]

    def _make_column(self, name: str) -> "array[int]":
        if name not in self._columns:
            self._columns[name] = array("I", bytes(4 * len(self)))
        return self._columns[name]

    def _append(self, block: Block, values: Mapping[str, Sequence[int]]) -> None:
        self.scores.fromlist(block.scores)
        self.flags.extend(block.flags)
        for name, column in values.items():
            self._columns[name].extend(column)

    def _put(self, numbers: Sequence[int], block: Block, values: Mapping[str, Sequence[int]]) -> None:
        """Set the entries of cases; from the first that has a result already, go on one by one."""
        scores, all_flags = self.scores, self.flags
        results = zip(numbers, block.scores, block.flags, strict=True)
        for number, score, flags in results:
            if all_flags[number]:
                done = len(numbers) - len(list(results)) - 1
                break
            scores[number], all_flags[number] = score, flags
        else:
            done = len(numbers)
        for name, new in values.items():
            column = self._columns[name]
            for number, value in zip(numbers[:done], new, strict=False):
                column[number] = value
        if done < len(numbers):
            self._put_one_by_one(numbers, block, values, done)

    def _put_one_by_one(
        self, numbers: Sequence[int], block: Block, values: Mapping[str, Sequence[int]], start: int
    ) -> None:
        """Set the entries of cases that have no result yet, and add the other results as repeats."""
        setups, cases, evaluators, prompts = map(self._make_column, COLUMNS)
        entries = zip(*(values.get(name) or repeat(0, len(numbers)) for name in COLUMNS), strict=True)
        results = zip(numbers, block.scores, block.flags, entries, strict=True)
        for number, score, flags, entry in islice(results, start, None):
            if not self.flags[number]:
                self.scores[number], self.flags[number] = score, flags
                setups[number], cases[number], evaluators[number], prompts[number] = entry
                continue
            setup, case, evaluator, prompt = entry
            self.ambiguous += self.setups[setups[number]].names != self.setups[setup].names
            is_same = (cases[number], evaluators[number]) == (case, evaluator)
            self.add(number, score, flags if is_same else flags | MIXED)
            prompts[number] = prompts[number] or prompt

    def _count(self, flags: bytes) -> None:
        self.results += len(flags)
        if flags.translate(None, _PLAIN):  # nearly always, nothing is left
            self.errors += sum(bool(flag & ERROR) for flag in flags)
            self.judge_failures += sum(bool(flag & UNJUDGED) for flag in flags)
            self.retried += sum(bool(flag & RETRIED) for flag in flags)

    def _add_clusters(self, numbers: Sequence[int], clusters: Sequence[str | None]) -> None:
        if self.clusters is None:
            self.clusters = array("q", bytes(8 * len(self)))
        for number, cluster in zip(numbers, clusters, strict=True):
            if cluster is not None:  # whose number must be the same in every run: the order decides what chance does
                digest = blake2b(cluster.encode("utf-8", "replace"), digest_size=8).digest()
                self.clusters[number] = int.from_bytes(digest, signed=True) or 1

    def _add_labels(self, numbers: Sequence[int], labels: Sequence[str | None]) -> None:
        if self.labels is None:
            self.labels = array("I", bytes(4 * len(self)))
        for number, label in zip(numbers, labels, strict=True):
            if label is not None:
                self.labels[number] = self.label_names.setdefault(label, len(self.label_names) + 1)

    def _add_evaluators(
        self, numbers: Sequence[int], results: Sequence[Sequence[EvaluatorView]], flags: Sequence[int]
    ) -> None:
        for number, evaluators, flag in zip(numbers, results, flags, strict=True):
            for each in evaluators:
                scores = self.evaluators.setdefault(each.name, Scores())
                scores.grow(len(self))
                passed = each.score >= PASSING_SCORE if each.verdict is None else each.verdict == "pass"
                own = (PASSED if passed else 0) | (UNJUDGED if each.failed else 0)
                scores.add(number, each.score, SEEN | flag & (ERROR | RETRIED) | own)

    def merge_repeats(self) -> None:
        super().merge_repeats()
        for scores in self.evaluators.values():
            scores.merge_repeats()

    def scores_of(self, evaluator: str) -> Scores:
        """Return the scores of an evaluator. A case that ended in an error has none, nor has any of its evaluators."""
        found = self.evaluators.get(evaluator, Scores())
        found.grow(len(self))
        marked = Scores()
        marked.scores, marked.partial = found.scores, found.partial
        marked.flags = bytearray(
            own or (SEEN | ERROR if of_case & ERROR else 0)
            for own, of_case in zip(found.flags, self.flags, strict=True)
        )
        return marked
