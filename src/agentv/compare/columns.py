"""Hold what a comparison needs of results files in columns, with one entry and a few bytes per case.

An `Index` numbers the ids in the order in which they first appear. All files of a comparison share one index, so that
the entries of a case are at the same place in the columns of every file.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from agentv.compare.blocks import (
    ERROR,
    MIXED,
    PASSED,
    REPEATED,
    RETRIED,
    SEEN,
    UNJUDGED,
    UNSCORED,
    Block,
    Names,
    Setup,
)
from agentv.results.usage import Usage
from agentv.results.views import EvaluatorView
from agentv.scoring import PASS as PASSING_SCORE
from agentv.stats.decimals import mean

COLUMNS = ("setups", "cases", "evaluators", "prompts")
_PLAIN = bytes([SEEN, SEEN | PASSED])
"""Flags of results that just passed or failed."""
Number = TypeVar("Number", int, float)
Numbers = Sequence[int]
"""The numbers of some cases in the index."""


def _zeros(typecode: Literal["I", "q"], size: int) -> "array[int]":
    column = array(typecode)
    column.frombytes(bytes(column.itemsize * size))
    return column


class Index(dict[str, int]):
    """The number of each id, in the order in which ids were added."""

    def add(self, ids: Sequence[str]) -> list[int]:
        """Number the ids that are new, and return the numbers of all."""
        # Most blocks contain only known ids or only new ones: both cases run without a loop in Python.
        try:
            return list(map(self.__getitem__, ids))
        except KeyError:
            before = len(self)
        end = before + len(ids)
        numbers = list(map(self.setdefault, ids, range(before, end)))
        if len(self) == end:
            return numbers
        # Some ids were known or repeated, which leaves gaps between the numbers.
        while len(self) > before:
            self.popitem()
        return [self.setdefault(each, len(self)) for each in ids]


def pick(column: "array[Number]", numbers: Numbers) -> "array[Number]":
    """Return the entries of these cases, whose numbers are in ascending order."""
    if len(numbers) == len(column):  # all cases
        return column
    return array(column.typecode, map(column.__getitem__, numbers))


def pick_bytes(column: bytearray, numbers: Numbers) -> bytes:
    """Return the entries of these cases, whose numbers are in ascending order."""
    if len(numbers) == len(column):
        return bytes(column)
    return bytes(map(column.__getitem__, numbers))


class PartialScore(NamedTuple):
    """A case of which some results have no score: the mean of the others, and the possible range of the mean of all."""

    mean: float
    low: float
    high: float


class _Result(NamedTuple):
    score: float
    flags: int


class _Repeats:
    """All results of the cases that have several, as columns."""

    def __init__(self) -> None:
        self.numbers = array("I")
        self.scores = array("d")
        self.flags = bytearray()

    def add(self, number: int, score: float, flags: int) -> None:
        """Add a result of a case."""
        self.numbers.append(number)
        self.scores.append(score)
        self.flags.append(flags)

    def by_case(self) -> Iterator[tuple[int, list[_Result]]]:
        """Yield the number of each case, and its results."""
        number_at = self.numbers.__getitem__
        order = sorted(range(len(self.numbers)), key=number_at)
        for number, places in groupby(order, key=number_at):
            results = []
            for place in places:
                result = _Result(self.scores[place], self.flags[place])
                results.append(result)
            yield number, results


class Scores:
    """Scores by case. The score of a case with several results is their mean."""

    def __init__(self) -> None:
        self.scores = array("d")
        self.flags = bytearray()
        self.partial: dict[int, PartialScore] = {}
        self._repeats = _Repeats()
        self.repeats = 0
        """Number of results in addition to the first of each case."""

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def cases(self) -> int:
        """Number of cases that have a result."""
        return len(self.flags) - self.flags.count(0)

    def grow(self, size: int) -> None:
        """Make room for `size` cases."""
        added = size - len(self)
        self.scores.frombytes(bytes(8 * added))
        self.flags.extend(bytes(added))

    def add(self, number: int, score: float, flags: int) -> None:
        """Add a result of a case."""
        seen = self.flags[number]
        if not seen:
            self.scores[number] = score
            self.flags[number] = flags
            return
        self.repeats += 1
        if not seen & REPEATED:
            self._repeats.add(number, self.scores[number], seen)
            self.flags[number] = seen | REPEATED
        self._repeats.add(number, score, flags)

    def merge_repeats(self) -> None:
        """Combine the results of cases that have several. Call it once, after all results were added."""
        for number, results in self._repeats.by_case():
            scores = [result.score for result in results]
            self.scores[number] = mean(scores)
            self.flags[number] = _merge_flags(results)
            scored = [result.score for result in results if not result.flags & UNSCORED]
            if 0 < len(scored) < len(results):
                # each missing score is between 0 and 1
                low = sum(scored) / len(results)
                missing = len(results) - len(scored)
                self.partial[number] = PartialScore(
                    mean=mean(scored),
                    low=low,
                    high=low + missing / len(results),
                )
        self._repeats = _Repeats()

    def pick_scores(self, numbers: Numbers) -> "array[float]":
        """Return the scores of these cases for statistics, which ignore results without a score."""
        if not self.partial:
            return pick(self.scores, numbers)
        picked = array("d")
        for number in numbers:
            partial = self.partial.get(number)
            if partial is None:
                picked.append(self.scores[number])
            else:
                picked.append(partial.mean)
        return picked

    def bounds(self, number: int) -> tuple[float, float]:
        """Return the lowest and the highest score that a case could have."""
        partial = self.partial.get(number)
        if partial is not None:
            return partial.low, partial.high
        if self.flags[number] & UNSCORED:
            return 0.0, 1.0
        score = self.scores[number]
        return score, score


def _merge_flags(results: Sequence[_Result]) -> int:
    """Return the flags of a case with several results. It passes if the majority of the scored ones do."""
    scored = 0
    passed = 0
    merged = REPEATED
    for result in results:
        merged |= result.flags & ~(PASSED | UNSCORED)
        if not result.flags & UNSCORED:
            scored += 1
            if result.flags & PASSED:
                passed += 1
    if 2 * passed > scored:
        merged |= PASSED
    if not scored:
        for result in results:
            merged |= result.flags & UNSCORED
    return merged


class RunColumns(Scores):
    """The results of one run."""

    def __init__(self, path: Path, index: Index):
        super().__init__()
        self.path = path
        self._index = index
        self.results = 0
        self.errors = 0
        self.judge_failures = 0
        self.retried = 0
        self.ambiguous = 0
        """Number of results whose id also occurs in another dataset or for another target."""
        self.timestamp = ""
        """Time of the first result."""
        self.setups: list[Setup] = []
        self._setup_numbers: dict[Setup, int] = {}
        self._columns: dict[str, array[int]] = {}
        self.clusters: array[int] | None = None
        """Hash of the cluster of each case, or 0."""
        self.evaluators: dict[str, Scores] = {}
        """The scores of each evaluator."""
        self.labels: array[int] | None = None
        """Position of each case's label in `label_names`, starting at 1, or 0."""
        self.label_names: dict[str, int] = {}
        self.known_keys: set[str] = set()
        self.usage = Usage()
        self.dry_run = 0
        self.cut_off = 0
        self.graded = 0
        self.answers_of: set[str | None] = set()
        """The ids of the runs that produced the answers."""
        self.grouped: RunColumns | None = None
        """The same results, indexed by dataset or target in addition to the id."""

    def column(self, name: str) -> "array[int] | None":
        """Return the setup number, or the hashed digest, of each case. Return None if all are 0."""
        return self._columns.get(name)

    def setup_of(self, number: int) -> Setup:
        """Return the setup that produced the result of a case."""
        column = self.column("setups")
        if column is None:
            return self.setups[0]
        return self.setups[column[number]]

    def grow(self, size: int) -> None:
        """Make room for `size` cases in all columns."""
        super().grow(size)
        for column in (*self._columns.values(), self.clusters, self.labels):
            if column is not None:
                added = size - len(column)
                column.frombytes(bytes(column.itemsize * added))

    def add_block(self, block: Block) -> None:
        """Add the results of a block."""
        before = len(self._index)
        numbers = self._index.add(block.ids)
        after = len(self._index)
        values = self._column_values(block)
        for name in values:
            self._make_column(name)
        if len(self) == before == after - len(numbers):  # all ids are new, as in most blocks of the first file
            self._append(block, values)
            self.grow(after)
        else:
            self.grow(after)
            self._put(numbers, block, values)
        if block.evaluator_results is not None:
            self._add_evaluators(numbers, block.evaluator_results, block.flags)
        if block.clusters is not None:
            self._add_clusters(numbers, block.clusters)
        if block.labels is not None:
            self._add_labels(numbers, block.labels)
        self._count(block)

    def _column_values(self, block: Block) -> Mapping[str, Numbers]:
        """Return the entries of a block in those of the `COLUMNS` that are not all 0."""
        values = dict(block.digests)
        setups = [self._setup_number(setup) for setup in block.setups]
        if any(setups):
            if len(setups) == 1:
                setups *= len(block.ids)
            values["setups"] = setups
        return values

    def _setup_number(self, setup: Setup) -> int:
        if setup not in self._setup_numbers:
            self._setup_numbers[setup] = len(self.setups)
            self.setups.append(setup)
        return self._setup_numbers[setup]

    def _make_column(self, name: str) -> "array[int]":
        """Return a column, created with zeros if it does not exist yet."""
        if name not in self._columns:
            self._columns[name] = _zeros("I", len(self))
        return self._columns[name]

    def _append(self, block: Block, values: Mapping[str, Numbers]) -> None:
        self.scores.fromlist(block.scores)
        self.flags.extend(block.flags)
        for name, column in values.items():
            self._columns[name].extend(column)

    def _put(
        self,
        numbers: Numbers,
        block: Block,
        values: Mapping[str, Numbers],
    ) -> None:
        """Set the entries of cases. From the first case that already has a result, continue with the slow path."""
        # Local names and no calls: this loop runs once per case of every file but the first.
        scores = self.scores
        all_flags = self.flags
        done = len(numbers)
        results = zip(numbers, block.scores, block.flags, strict=True)
        for number, score, flags in results:
            if all_flags[number]:
                remaining = len(list(results))
                done = len(numbers) - remaining - 1
                break
            scores[number] = score
            all_flags[number] = flags
        for name, new in values.items():
            column = self._columns[name]
            for number, value in zip(numbers[:done], new, strict=False):
                column[number] = value
        if done < len(numbers):
            self._put_one_by_one(numbers, block, values, done)

    def _put_one_by_one(
        self,
        numbers: Numbers,
        block: Block,
        values: Mapping[str, Numbers],
        start: int,
    ) -> None:
        """Set the entries of cases that have no result yet, and add all other results as repeats."""
        setups, cases, evaluators, prompts = map(self._make_column, COLUMNS)
        zeros = [0] * len(numbers)
        columns = [values.get(name, zeros) for name in COLUMNS]
        results = zip(numbers, block.scores, block.flags, *columns, strict=True)
        for result in islice(results, start, None):
            number, score, flags, setup, case, evaluator, prompt = result
            if not self.flags[number]:
                self.scores[number] = score
                self.flags[number] = flags
                setups[number] = setup
                cases[number] = case
                evaluators[number] = evaluator
                prompts[number] = prompt
                continue
            first_setup = self.setups[setups[number]]
            if first_setup.names != self.setups[setup].names:
                self.ambiguous += 1
            if cases[number] != case or evaluators[number] != evaluator:
                flags |= MIXED
            self.add(number, score, flags)
            prompts[number] = prompts[number] or prompt

    def _count(self, block: Block) -> None:
        """Add the figures of a block to those of the run."""
        self.results += len(block.flags)
        if block.flags.translate(None, _PLAIN):  # nearly always empty
            self.errors += _count_flag(block.flags, ERROR)
            self.judge_failures += _count_flag(block.flags, UNJUDGED)
            self.retried += _count_flag(block.flags, RETRIED)
        self.timestamp = self.timestamp or block.timestamp
        self.known_keys.update(block.known_keys)
        self.usage.add_all(block.metrics)
        self.dry_run += block.dry_run
        self.cut_off += block.cut_off
        self.graded += block.graded
        self.answers_of.update(block.answers_of)

    def _add_clusters(self, numbers: Numbers, clusters: Names) -> None:
        if self.clusters is None:
            self.clusters = _zeros("q", len(self))
        for number, cluster in zip(numbers, clusters, strict=True):
            if cluster is None:
                continue
            # Not `hash`, which differs between processes: the order of clusters determines the resamples.
            name = cluster.encode("utf-8", "replace")
            digest = blake2b(name, digest_size=8).digest()
            self.clusters[number] = int.from_bytes(digest, signed=True) or 1

    def _add_labels(self, numbers: Numbers, labels: Names) -> None:
        if self.labels is None:
            self.labels = _zeros("I", len(self))
        for number, label in zip(numbers, labels, strict=True):
            if label is not None:
                following = len(self.label_names) + 1
                self.labels[number] = self.label_names.setdefault(label, following)

    def _add_evaluators(
        self,
        numbers: Numbers,
        results: Sequence[Sequence[EvaluatorView]],
        flags: Sequence[int],
    ) -> None:
        for number, evaluators, flag in zip(numbers, results, flags, strict=True):
            shared = SEEN | flag & (ERROR | RETRIED)
            for each in evaluators:
                scores = self.evaluators.setdefault(each.name, Scores())
                scores.grow(len(self))
                scores.add(number, each.score, shared | _evaluator_flags(each))

    def merge_repeats(self) -> None:
        """Combine the results of cases that have several, also for each evaluator."""
        super().merge_repeats()
        for scores in self.evaluators.values():
            scores.merge_repeats()

    def scores_of(self, evaluator: str) -> Scores:
        """Return the scores of an evaluator. If a case ended in an error, it counts as an error of the evaluator."""
        found = self.evaluators.get(evaluator, Scores())
        found.grow(len(self))
        marked = Scores()
        marked.scores = found.scores
        marked.partial = found.partial
        for own, of_case in zip(found.flags, self.flags, strict=True):
            flags = own
            if not own and of_case & ERROR:
                flags = SEEN | ERROR
            marked.flags.append(flags)
        return marked


def _count_flag(flags: bytes, flag: int) -> int:
    """Return how many entries have this flag."""
    return sum(bool(each & flag) for each in flags)


def _evaluator_flags(result: EvaluatorView) -> int:
    """Return the flags that depend on the result of one evaluator."""
    passed = result.verdict == "pass"
    if result.verdict is None:
        passed = result.score >= PASSING_SCORE
    flags = 0
    if passed:
        flags |= PASSED
    if result.failed:
        flags |= UNJUDGED
    return flags
