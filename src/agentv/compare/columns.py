"""Hold what a comparison needs of results files in columns, with one entry and a few bytes per case.

All files of a comparison share one `Index`, so that the entries of a case are at the same place in the columns of every
file.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from agentv.compare.blocks import (
    ERROR,
    INCOMPLETE,
    MIXED,
    PASSED,
    REPEATED,
    RETRIED,
    SEEN,
    UNJUDGED,
    UNSCORED,
    ColumnBlock,
    Names,
    ResultSetup,
    failed_by_machine,
)
from agentv.compare.case_index import Index, Moves, move_entries
from agentv.results.usage import Usage
from agentv.results.views import EvaluatorView
from agentv.stats.decimals import mean

COLUMNS = ("setups", "cases", "evaluators", "prompts")
_PLAIN = bytes([SEEN, SEEN | PASSED])
"""Flags of results that just passed or failed."""
Number = TypeVar("Number", int, float)
Numbers = Sequence[int]
"""The numbers of some cases in the index."""


def _zeros(typecode: Literal["I", "q"], size: int) -> "array[int]":
    column = array(typecode)
    _grow_column(column, size)
    return column


def _grow_column(column: "array[int]", size: int) -> None:
    """Append zeros to a column until it has `size` entries."""
    added = size - len(column)
    zeros = bytes(column.itemsize * added)
    column.frombytes(zeros)


def pick(column: "array[Number]", numbers: Numbers) -> "array[Number]":
    """Return the entries of these cases, whose numbers are in ascending order."""
    if len(numbers) == len(column):  # all cases
        return column
    entries = map(column.__getitem__, numbers)
    return array(column.typecode, entries)


def pick_bytes(column: bytearray, numbers: Numbers) -> bytes:
    """Return the entries of these cases, whose numbers are in ascending order."""
    if len(numbers) == len(column):
        return bytes(column)
    entries = map(column.__getitem__, numbers)
    return bytes(entries)


class PartialScore(NamedTuple):
    """A case with scored and unscored results: the mean of the scored ones and the possible range of the total mean."""

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

    def add(
        self,
        number: int,
        score: float,
        flags: int,
    ) -> None:
        """Add a result of a case."""
        self.numbers.append(number)
        self.scores.append(score)
        self.flags.append(flags)

    def move(self, moves: Moves) -> None:
        """Give cases new numbers."""
        numbers = [moves.get(number, number) for number in self.numbers]
        self.numbers = array("I", numbers)

    def by_case(self) -> Iterator[tuple[int, list[_Result]]]:
        """Yield the number of each case, and its results."""
        number_at = self.numbers.__getitem__
        order = sorted(range(len(self.numbers)), key=number_at)
        for number, places in groupby(order, key=number_at):
            results = []
            for place in places:
                score = self.scores[place]
                flags = self.flags[place]
                results.append(_Result(score, flags))
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

    def add(
        self,
        number: int,
        score: float,
        flags: int,
    ) -> None:
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

    def move(self, moves: Moves) -> None:
        """Give cases new numbers. Call it before `merge_repeats`."""
        move_entries(self.scores, moves)
        move_entries(self.flags, moves)
        self._repeats.move(moves)

    def merge_repeats(self) -> None:
        """Combine the results of cases that have several. Call it once, after all results were added."""
        for number, results in self._repeats.by_case():
            scores = [result.score for result in results if not failed_by_machine(result.flags)]
            if scores:
                self.scores[number] = mean(scores)
            self.flags[number] = _merge_flags(results)
            partial = _partial_score(results)
            if partial is not None:
                self.partial[number] = partial
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


def _partial_score(results: Sequence[_Result]) -> PartialScore | None:
    """Return the score of a case with several results, or None if all or none of them have a score."""
    scored = []
    for result in results:
        if not result.flags & UNSCORED:
            scored.append(result.score)
    total = len(results)
    missing = total - len(scored)
    if not scored or not missing:
        return None
    # each missing score is between 0 and 1
    low = sum(scored) / total
    high = low + missing / total
    return PartialScore(
        mean=mean(scored),
        low=low,
        high=high,
    )


def _merge_flags(results: Sequence[_Result]) -> int:
    """Return the flags of a case with several results. It passes if all of the scored ones do."""
    scored = 0
    passed = 0
    merged = REPEATED
    unscored = set()
    for result in results:
        flags = result.flags
        merged |= flags & ~(PASSED | UNSCORED)
        if flags & UNSCORED:
            unscored.add(flags & UNSCORED)
            continue
        scored += 1
        if flags & PASSED:
            passed += 1
    if not scored:
        # ERROR takes precedence over UNJUDGED, and both over MACHINE, which has the bits of both
        return merged | min(unscored)
    if passed == scored:
        merged |= PASSED
    if unscored:
        merged |= INCOMPLETE
    return merged


class RunColumns(Scores):
    """The results of one run."""

    def __init__(self, path: Path, index: Index, grouped: "RunColumns | None" = None):
        super().__init__()
        self.path = path
        self._index = index
        self.results = 0
        self.errors = 0
        self.judge_failures = 0
        self.retried = 0
        self.ambiguous = 0
        """Number of results whose id also occurs for another target."""
        self.timestamp = ""
        """Time of the first result."""
        self.setups: list[ResultSetup] = []
        self._setup_numbers: dict[ResultSetup, int] = {}
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
        self.eval_files: set[str | None] = set()
        """The eval files of the cases, with None for an unknown one."""
        self.grouped = grouped
        """The same results, indexed by target in addition to the id."""

    def column(self, name: str) -> "array[int] | None":
        """Return the setup number, or the hashed digest, of each case. Return None if all are 0."""
        return self._columns.get(name)

    def setup_of(self, number: int) -> ResultSetup:
        """Return the setup that produced the result of a case."""
        column = self.column("setups")
        if column is None:
            return self.setups[0]
        return self.setups[column[number]]

    def dataset_of(self, number: int) -> str | None:
        """Return the dataset of a case, or None if the run does not have the case."""
        if not self.flags[number]:
            return None
        return self.setup_of(number).dataset

    def grow(self, size: int) -> None:
        """Make room for `size` cases in all columns."""
        super().grow(size)
        for column in self._case_columns():
            _grow_column(column, size)

    def add_block(self, block: ColumnBlock) -> None:
        """Add the results of a block."""
        before = len(self._index)
        numbers = self._index.add(block.ids)
        after = len(self._index)
        values = self._column_values(block)
        for name in values:
            self._make_column(name)
        is_full = len(self) == before
        has_only_new_ids = after - before == len(numbers)
        if is_full and has_only_new_ids:  # as most blocks of the first file
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

    def _column_values(self, block: ColumnBlock) -> Mapping[str, Numbers]:
        """Return the entries of a block in those of the `COLUMNS` that are not all 0."""
        values = dict(block.digests)
        setups = [self._setup_number(setup) for setup in block.setups]
        if not any(setups):
            return values
        if len(setups) == 1:
            setups *= len(block.ids)
        values["setups"] = setups
        return values

    def _setup_number(self, setup: ResultSetup) -> int:
        if setup not in self._setup_numbers:
            self._setup_numbers[setup] = len(self.setups)
            self.setups.append(setup)
        return self._setup_numbers[setup]

    def _make_column(self, name: str) -> "array[int]":
        """Return a column, created with zeros if it does not exist yet."""
        if name not in self._columns:
            self._columns[name] = _zeros("I", len(self))
        return self._columns[name]

    def _append(
        self,
        block: ColumnBlock,
        values: Mapping[str, Numbers],
    ) -> None:
        self.scores.fromlist(block.scores)
        self.flags.extend(block.flags)
        for name, column in values.items():
            self._columns[name].extend(column)

    def _put(
        self,
        numbers: list[int],
        block: ColumnBlock,
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
                # `results` is an iterator, which has only the later entries left.
                later_entries = len(list(results))
                done = len(numbers) - later_entries - 1
                break
            scores[number] = score
            all_flags[number] = flags
        for name, new in values.items():
            column = self._columns[name]
            entries = zip(numbers[:done], new, strict=False)  # `new` is longer if not all are done
            for number, value in entries:
                column[number] = value
        if done < len(numbers):
            self._put_one_by_one(numbers, block, values, done)

    def _put_one_by_one(
        self,
        numbers: list[int],
        block: ColumnBlock,
        values: Mapping[str, Numbers],
        start: int,
    ) -> None:
        """Set the entries of cases that have no result yet, and add all other results as repeats.

        A result whose id has a result of another dataset is of another case: its entry in `numbers` changes.
        """
        setups, cases, evaluators, prompts = map(self._make_column, COLUMNS)
        zeros = [0] * len(numbers)
        columns = [values.get(name, zeros) for name in COLUMNS]
        results = zip(block.ids, block.scores, block.flags, *columns, strict=True)
        for place, result in enumerate(islice(results, start, None), start):
            eval_id, score, flags, setup, case, evaluator, prompt = result
            this_setup = self.setups[setup]
            number = numbers[place]
            if self.dataset_of(number) not in (None, this_setup.dataset):
                number = self._index.number_apart(this_setup.dataset, eval_id)
                self.grow(len(self._index))
                numbers[place] = number
            if not self.flags[number]:
                self.scores[number] = score
                self.flags[number] = flags
                setups[number] = setup
                cases[number] = case
                evaluators[number] = evaluator
                prompts[number] = prompt
                continue
            first_setup = self.setups[setups[number]]
            if first_setup.target_name != this_setup.target_name:
                self.ambiguous += 1
            is_comparable = first_setup.format == this_setup.format
            if cases[number] != case or (is_comparable and evaluators[number] != evaluator):
                flags |= MIXED
            self.add(number, score, flags)
            prompts[number] = prompts[number] or prompt

    def _count(self, block: ColumnBlock) -> None:
        """Add the figures of a block to those of the run."""
        self.results += len(block.flags)
        if block.flags.translate(None, _PLAIN):  # nearly always empty
            machine_failures = sum(map(failed_by_machine, block.flags))
            self.errors += _count_flag(block.flags, ERROR)
            self.judge_failures += _count_flag(block.flags, UNJUDGED) - machine_failures
            self.retried += _count_flag(block.flags, RETRIED)
        self.timestamp = self.timestamp or block.timestamp
        self.known_keys.update(block.known_keys)
        self.usage.add_all(block.metrics)
        self.dry_run += block.dry_run
        self.cut_off += block.cut_off
        self.graded += block.graded
        self.answers_of.update(block.answers_of)
        self.eval_files.update(block.eval_files)

    def _add_clusters(self, numbers: Numbers, clusters: Names) -> None:
        if self.clusters is None:
            self.clusters = _zeros("q", len(self))
        pairs = zip(numbers, clusters, strict=True)
        for number, cluster in pairs:
            if cluster is None:
                continue
            # Not `hash`, which differs between processes: the order of clusters determines the resamples.
            name = cluster.encode("utf-8", "replace")
            digest = blake2b(name, digest_size=8).digest()
            hashed = int.from_bytes(digest, signed=True)
            self.clusters[number] = hashed or 1

    def _add_labels(self, numbers: Numbers, labels: Names) -> None:
        if self.labels is None:
            self.labels = _zeros("I", len(self))
        pairs = zip(numbers, labels, strict=True)
        for number, label in pairs:
            if label is None:
                continue
            following = len(self.label_names) + 1
            place = self.label_names.setdefault(label, following)
            self.labels[number] = place

    def _add_evaluators(
        self,
        numbers: Numbers,
        results: Sequence[Sequence[EvaluatorView]],
        flags: Sequence[int],
    ) -> None:
        rows = zip(numbers, results, flags, strict=True)
        for number, evaluators, flag in rows:
            shared = SEEN | (flag & (ERROR | RETRIED))
            for each in evaluators:
                if each.score is None:
                    continue  # it does not apply to the case
                scores = self.evaluators.setdefault(each.name, Scores())
                scores.grow(len(self))
                own = _evaluator_flags(each)
                scores.add(number, each.score, shared | own)

    def move(self, moves: Moves) -> None:
        """Give cases new numbers, in all columns."""
        super().move(moves)
        for column in self._case_columns():
            move_entries(column, moves)
        for scores in self.evaluators.values():
            scores.grow(len(self))
            scores.move(moves)

    def merge_repeats(self) -> None:
        """Combine the results of cases that have several, also for each evaluator."""
        super().merge_repeats()
        for scores in self.evaluators.values():
            scores.merge_repeats()

    def _case_columns(self) -> Iterator["array[int]"]:
        """Yield the columns that have an entry per case, other than its score."""
        yield from self._columns.values()
        if self.clusters is not None:
            yield self.clusters
        if self.labels is not None:
            yield self.labels

    def scores_of(self, evaluator: str) -> Scores:
        """Return the scores of an evaluator. If a case ended in an error, it counts as an error of the evaluator."""
        found = self.evaluators.get(evaluator, Scores())
        found.grow(len(self))
        marked = Scores()
        marked.scores = found.scores
        marked.partial = found.partial
        pairs = zip(found.flags, self.flags, strict=True)
        for own, of_case in pairs:
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
    flags = 0
    if result.verdict == "pass":
        flags |= PASSED
    if result.failed:
        flags |= UNJUDGED
    return flags
