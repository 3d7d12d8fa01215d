"""Merge the results files of one run into a single sorted stream, after checking that they are complete.

Files are read twice, as streams: once to index the results and to check that nothing is missing, and once in the order
of dataset, id, target and trial. Only the index is held in memory (see `merge_index`).
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import ResultsError
from agentv.files.encode import to_json
from agentv.records import Problem, ShardPlan
from agentv.results.formats import JSONL, ResultFormat, format_for, sniff
from agentv.results.merging.merge_index import MergeIndex, Place
from agentv.results.merging.shards import FileStamps, Shards, check_shards
from agentv.results.merging.stamps import STAMP_FIELDS, ShardStamp, StampChange
from agentv.results.read import SKIPPED, Block, View, read_result_blocks
from agentv.results.views import ResultRow, TextRow

MAX_SHOWN = 10
READ_AHEAD = 1 << 17
MAX_OPEN = 200
_START_BYTES = 4096
DIFFERS = ("timestamp", "run_id", *STAMP_FIELDS)
"""Fields that may differ between two copies of the same result, in addition to durations."""
_DURATIONS = {
    "execution_metrics": ("duration_ms",),
    "trace_summary": ("durationMs", "toolDurations"),
}

OnResults = Callable[[Sequence[TextRow]], None]


class Merge:
    """The results of several files of one run, each once, in order. Raise `ResultsError` if they are not one run.

    With `partial`, shards may be missing or incomplete; `missing` then lists them. Duplicate results count once if they
    differ only in `DIFFERS` and durations; `lines` raises for all others. `on_results` is called with all results while
    they are indexed, in the order of the files.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        partial: bool = False,
        on_results: OnResults | None = None,
    ):
        self._is_partial = partial
        self._index = MergeIndex()
        self._files = [_File(path) for path in sorted(paths)]
        self.results = 0
        """The number of results, including duplicates."""
        self.repeated = 0
        """The number of duplicates, which are known once `lines` is exhausted."""
        self._index_files(on_results)
        if not self.results:
            names = ", ".join(map(str, paths))
            problem = Problem(
                message=f"{names}: no results",
                hint="check how the runs ended",
            )
            raise ResultsError([problem])
        found = self._check_shards()
        self.plan = found.plan
        self.missing = found.missing
        problems = [*found.problems]
        if not partial:
            problems += found.missing
        if problems:
            raise ResultsError(problems)

    def _index_files(self, on_results: OnResults | None) -> None:
        """Index all files; raise `ResultsError` with the problems of all of them."""
        problems: list[Problem] = []
        for number, file in enumerate(self._files):
            try:
                self._index_file(number, file, on_results)
            except ResultsError as error:
                problems += error.problems
        if problems:
            raise ResultsError(problems)

    def _index_file(self, number: int, file: "_File", on_results: OnResults | None) -> None:
        view: Any = ResultRow
        if on_results is not None:
            view = TextRow
        for block in file.blocks(view):
            self._index.add(number, block.places())
            self.results += len(block.views)
            if on_results is not None:
                on_results(block.views)

    def _check_shards(self, repeated: Mapping[ShardStamp, int] | None = None) -> Shards:
        stamps: list[FileStamps] = []
        for file in self._files:
            file_stamps = (file.path, file.stamps, file.unstamped)
            stamps.append(file_stamps)
        return check_shards(stamps, repeated)

    def lines(self) -> Iterator[bytes]:
        """Yield each result as a line of JSON without its shard and plan.

        Raise `ResultsError` after the last one if duplicates differ, or if results are missing without them.
        """
        conflicts: list[Problem] = []
        not_shown = 0
        dropped: Counter[ShardStamp] = Counter()
        with _Reader(self._files) as reader:
            for group in self._index.groups():
                if len(group) == 1:
                    yield reader.read(group[0])
                    continue
                lines = [reader.read(place) for place in group]
                if _are_equal(lines):
                    yield min(lines)
                    duplicates = len(lines) - 1
                    self.repeated += duplicates
                    view = reader.view(group[0])
                    if view.shard is not None and view.plan is not None:
                        stamp = ShardStamp(view.shard, view.plan)
                        dropped[stamp] += duplicates
                elif len(conflicts) < MAX_SHOWN:
                    view = reader.view(group[0])
                    conflicts.append(self._conflict(view, group))
                else:
                    not_shown += 1
        if not_shown:
            more = Problem(message=f"and {not_shown} more such cases")
            conflicts.append(more)
        problems = conflicts or self._recount(dropped)
        if problems:
            raise ResultsError(problems)

    def _conflict(self, view: ResultRow, group: Sequence[Place]) -> Problem:
        """Return the problem of results for the same trial of a case that differ."""
        first_number, _, _ = group[0]
        last_number, _, _ = group[-1]
        first = self._files[first_number].path
        last = self._files[last_number].path
        where = f"in {first} twice"
        if first_number != last_number:
            where = f"in {first} and in {last}"
        case = f"case {view.eval_id!r} of {view.dataset!r} on {view.target!r}"
        if view.trial:
            case += f", trial {view.trial}"
        return Problem(
            message=f"{case} is {where}, with different content",
            hint="if a shard was run twice, pass only one of its files",
        )

    def _recount(self, dropped: Mapping[ShardStamp, int]) -> list[Problem]:
        """Check the shards again, without the dropped duplicates, and return the problems."""
        found = self._check_shards(dropped)
        problems = list(found.problems)
        if self._is_partial:
            self.missing = found.missing
        else:
            problems += found.missing
        return problems


class _File:
    """A results file: its format, and the number of results of each shard."""

    def __init__(self, path: Path):
        self.path = path
        self.form = format_for(path)
        self.stamps: Counter[ShardStamp] = Counter()
        self.unstamped = 0

    def blocks(self, view: type[View]) -> Iterator[Block[View]]:
        """Yield the results in blocks; raise `ResultsError` with everything that is wrong with the file."""
        truncated: list[Problem] = []
        for block in read_result_blocks(self.path, view, truncated.append):
            self._count(block.views)
            yield block
        if truncated:
            errors = [_as_error(problem) for problem in truncated]
            raise ResultsError(errors)
        # The content decides on the format, now that it is known to be valid.
        with self.path.open("rb") as file:
            start = file.peek(_START_BYTES)
        self.form = sniff(start) or self.form

    def _count(self, views: Sequence[Any]) -> None:
        """Count the results of each shard."""
        shards = [view.shard for view in views]
        plans = [view.plan for view in views]
        count = len(views)
        first_shard = shards[0]
        first_plan = plans[0]
        # nearly always, all results of a block are of one shard: counting in lists is much faster than a loop
        if shards.count(first_shard) == plans.count(first_plan) == count:
            self._add_stamp(first_shard, first_plan, count)
            return
        for shard, plan in zip(shards, plans, strict=True):
            self._add_stamp(shard, plan, 1)

    def _add_stamp(self, shard: str | None, plan: ShardPlan | None, count: int) -> None:
        if shard is None or plan is None:
            self.unstamped += count
            return
        stamp = ShardStamp(shard, plan)
        self.stamps[stamp] += count


class _Reader:
    """Reads results of several files as lines of JSON without a stamp."""

    def __init__(self, files: Sequence[_File]):
        self._files = files
        self._changes: list[StampChange | None] = []
        """Removes the stamp of each file that has exactly one."""
        for file in files:
            change = None
            if len(file.stamps) == 1:
                (stamp,) = file.stamps
                change = StampChange(stamp, None, file.form)
            self._changes.append(change)
        self._open: dict[int, ReadPart] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def view(self, place: Place) -> ResultRow:
        """Return the view of a result."""
        number, offset, size = place
        read = self._open.get(number) or self._open_file(number)
        raw = read(offset, size)
        form = self._files[number].form
        decode = form.decoder(ResultRow)
        found: ResultRow = decode(raw)
        return found

    def read(self, place: Place) -> bytes:
        """Return a result as a line of JSON."""
        number, offset, size = place
        read = self._open.get(number) or self._open_file(number)
        raw = read(offset, size)
        file = self._files[number]
        change = self._changes[number]
        may_have_stamp = False
        if change is not None:
            raw = change(raw)
        elif file.stamps:
            may_have_stamp = True
        # nearly always, the bytes are a line of JSON without a stamp now
        if raw[-2:] == b"}\n" and not may_have_stamp:
            return raw
        if may_have_stamp:
            raw = _without_stamp(raw, file.form)
        return _as_line(raw, file.form)

    def _open_file(self, number: int) -> "ReadPart":
        """Open a file for reading; close all others first if there are too many."""
        if len(self._open) >= MAX_OPEN:
            self._stack.close()
            self._open.clear()
        path = self._files[number].path
        file = path.open("rb", buffering=0)
        self._stack.enter_context(file)
        read = _read_ahead(file.fileno())
        self._open[number] = read
        return read


ReadPart = Callable[[int, int], bytes]
"""Returns part of a file, given its offset and size."""


def _read_ahead(descriptor: int) -> ReadPart:
    """Return a function that reads parts of a file, and reads ahead, more and more, while parts are consecutive."""
    # a closure: it runs once per result of a merge, and its variables are faster than attributes
    data = b""
    start = 0  # the offset of `data`
    behind = -1  # the end of the previous part
    ahead = 0

    def read(offset: int, size: int) -> bytes:
        nonlocal start, data, behind, ahead
        is_next = offset == behind
        behind = offset + size
        if not is_next:
            data = b""
            ahead = size
            return os.pread(descriptor, size, offset)
        at = offset - start
        if not data or at + size > len(data):
            ahead = min(2 * ahead, READ_AHEAD)
            ahead = max(size, ahead)
            data = os.pread(descriptor, ahead, offset)
            start = offset
            at = 0
        return data[at : at + size]

    return read


def _as_line(raw: bytes, form: ResultFormat) -> bytes:
    """Return the record of a result as a line of JSON."""
    if form is JSONL:
        return raw.strip() + b"\n"
    decode = form.decoder(dict)
    fields = decode(raw)
    return to_json(fields) + b"\n"


def _without_stamp(raw: bytes, form: ResultFormat) -> bytes:
    """Return the record of a result without its shard and plan."""
    decode = form.decoder(dict)
    fields = decode(raw)
    for name in STAMP_FIELDS:
        fields.pop(name, None)
    encoded = to_json(fields)
    return form.encode(encoded)


def _are_equal(lines: Sequence[bytes]) -> bool:
    """Return whether results differ only in `DIFFERS` and durations."""
    first = _content(lines[0])
    return all(_content(line) == first for line in lines[1:])


def _content(line: bytes) -> dict[str, Any]:
    """Return the fields of a result that two copies of it have in common."""
    fields = msgspec.json.decode(line, type=dict[str, Any])
    for name, durations in _DURATIONS.items():
        inner = fields.get(name)
        if isinstance(inner, dict):
            for duration in durations:
                inner.pop(duration, None)
            # an empty object is equal to a missing field
            fields[name] = inner or None
    for name in DIFFERS:
        fields.pop(name, None)
    content = {}
    for name, value in fields.items():
        if value is not None:
            content[name] = value
    return content


def _as_error(truncated: Problem) -> Problem:
    """Return a truncated last result, which readers of a single file treat as a warning, as an error."""
    message = truncated.message.removesuffix(SKIPPED)
    return msgspec.structs.replace(truncated, severity="error", message=message)
