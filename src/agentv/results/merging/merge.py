"""Merge the results files of one run into a single sorted stream, after checking that they are complete.

Files are read twice, as streams: once to index the results and to check that nothing is missing, and once in the order
of dataset, id, target and trial. Only the index is held in memory (see `merge_index`).
"""

import contextlib
import io
import itertools
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agentv.errors import ResultsError
from agentv.notices import warn
from agentv.records import Problem, ShardPlan
from agentv.results.formats import DECODE_ERRORS, JSONL, ResultFormat, format_for, sniff
from agentv.results.merging.merge_index import MergeIndex, Place
from agentv.results.merging.shards import FileStamps, Shards, check_shards
from agentv.results.merging.stamps import STAMP_FIELDS, ShardStamp, StampChange
from agentv.results.read import LEFT_OUT, Block, Record, View, read_result_blocks, read_results
from agentv.results.run_files import RunFiles, files_of
from agentv.results.views import CountedView, PlacedView

MAX_SHOWN = 10
READ_AHEAD = 1 << 17
MAX_OPEN = 200
_START_BYTES = 4096
DIFFERS = ("timestamp", "run_id", *STAMP_FIELDS)
"""Fields that may differ between two copies of the same result, in addition to durations."""
_DURATIONS = {"execution_metrics": ("duration_ms",), "trace_summary": ("durationMs", "toolDurations")}

OnResults = Callable[[Sequence[CountedView]], None]


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
                message=f"there are no results in {names}",
                hint="see how the runs ended",
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
        view: Any = PlacedView
        if on_results is not None:
            view = CountedView
        for block in file.blocks(view):
            self._index.add(number, block.places())
            self.results += len(block.views)
            if on_results is not None:
                on_results(block.views)

    def _check_shards(self, repeated: Mapping[ShardStamp, int] | None = None) -> Shards:
        stamps: list[FileStamps] = []
        for file in self._files:
            stamps.append((file.path, file.stamps, file.unstamped))
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
                lines = list(map(reader.read, group))
                if _are_equal(lines):
                    yield min(lines)
                    self.repeated += len(lines) - 1
                    view = reader.view(group[0])
                    if view.shard is not None and view.plan is not None:
                        dropped[ShardStamp(view.shard, view.plan)] += len(lines) - 1
                elif len(conflicts) < MAX_SHOWN:
                    conflicts.append(self._conflict(reader.view(group[0]), group))
                else:
                    not_shown += 1
        if not_shown:
            conflicts.append(Problem(message=f"and {not_shown} more such cases"))
        problems = conflicts or self._recount(dropped)
        if problems:
            raise ResultsError(problems)

    def _conflict(self, view: PlacedView, group: Sequence[Place]) -> Problem:
        """Return the problem of results for the same trial of a case that differ."""
        first = self._files[group[0][0]]
        last = self._files[group[-1][0]]
        where = f"in {first.path} twice"
        if first is not last:
            where = f"in {first.path} and in {last.path}"
        case = f"case {view.eval_id!r} of {view.dataset!r} on {view.target!r}"
        if view.trial:
            case += f", trial {view.trial}"
        return Problem(
            message=f"{case} is {where}, with different content",
            hint="if a shard was run twice, name one of its files only",
        )

    def _recount(self, dropped: Mapping[ShardStamp, int]) -> list[Problem]:
        """Check the shards again, without the dropped duplicates, and return the problems."""
        found = self._check_shards(dropped)
        if self._is_partial:
            self.missing = found.missing
            return [*found.problems]
        return [*found.problems, *found.missing]


class _File:
    """A results file: its format, and the number of results of each shard."""

    def __init__(self, path: Path):
        self.path = path
        self.form = format_for(path)
        self.stamps: Counter[ShardStamp] = Counter()
        self.unstamped = 0

    def blocks(self, view: type[View]) -> Iterator[Block[View]]:
        """Yield the results in blocks; raise `ResultsError` with everything that is wrong with the file."""
        torn: list[Problem] = []
        for block in read_result_blocks(self.path, view, torn.append):
            self._count(block.views)
            yield block
        if torn:
            raise ResultsError([_as_error(problem) for problem in torn])
        with self.path.open("rb") as file:
            self.form = sniff(file.peek(_START_BYTES)) or self.form

    def _count(self, views: Sequence[Any]) -> None:
        """Count the results of each shard."""
        shards = [view.shard for view in views]
        plans = [view.plan for view in views]
        # nearly always, all results of a block are of one shard: comparing lists is much faster than a loop
        if shards.count(shards[0]) == plans.count(plans[0]) == len(views):
            self._add_stamp(shards[0], plans[0], len(views))
            return
        for shard, plan in zip(shards, plans, strict=True):
            self._add_stamp(shard, plan, 1)

    def _add_stamp(self, shard: str | None, plan: ShardPlan | None, count: int) -> None:
        if shard is not None and plan is not None:
            self.stamps[ShardStamp(shard, plan)] += count
        else:
            self.unstamped += count


class _Reader:
    """Reads results of several files as lines of JSON without a stamp."""

    def __init__(self, files: Sequence[_File]):
        self._files = files
        self._changes: list[StampChange | None] = []
        """Removes the stamp of each file that has exactly one."""
        for file in files:
            change = None
            if len(file.stamps) == 1:
                change = StampChange(next(iter(file.stamps)), None, file.form)
            self._changes.append(change)
        self._open: dict[int, ReadPart] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def view(self, place: Place) -> PlacedView:
        """Return the view of a result."""
        number, offset, size = place
        read = self._open.get(number) or self._open_file(number)
        decode = self._files[number].form.decoder(PlacedView)
        found: PlacedView = decode(read(offset, size))
        return found

    def read(self, place: Place) -> bytes:
        """Return a result as a line of JSON."""
        number, offset, size = place
        read = self._open.get(number) or self._open_file(number)
        raw = read(offset, size)
        change = self._changes[number]
        if change is not None:
            raw = change(raw)
        # nearly always, the bytes are a line of JSON without a stamp now
        if raw[-2:] == b"}\n" and (change is not None or not self._files[number].stamps):
            return raw
        return self._as_line(raw, self._files[number], is_stamped=change is None)

    def _as_line(self, raw: bytes, file: _File, *, is_stamped: bool) -> bytes:
        if is_stamped and file.stamps:
            raw = _without_stamp(raw, file.form)
        if file.form is JSONL:
            return raw.strip() + b"\n"
        fields = file.form.decoder(dict)(raw)
        return msgspec.json.encode(fields, enc_hook=str) + b"\n"

    def _open_file(self, number: int) -> "ReadPart":
        """Open a file for reading; close all others first if there are too many."""
        if len(self._open) >= MAX_OPEN:
            self._stack.close()
            self._open.clear()
        file = self._stack.enter_context(self._files[number].path.open("rb", buffering=0))
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
            ahead = max(size, min(2 * ahead, READ_AHEAD))
            data = os.pread(descriptor, ahead, offset)
            start = offset
            at = 0
        return data[at : at + size]

    return read


def _without_stamp(raw: bytes, form: ResultFormat) -> bytes:
    fields = form.decoder(dict)(raw)
    for name in STAMP_FIELDS:
        fields.pop(name, None)
    return form.encode(msgspec.json.encode(fields, enc_hook=str))


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
    return {name: value for name, value in fields.items() if value is not None}


def _as_error(torn: Problem) -> Problem:
    """Return a truncated last result, which readers of a single file treat as a warning, as an error."""
    message = torn.message.removesuffix(LEFT_OUT)
    return msgspec.structs.replace(torn, severity="error", message=message)


def are_shards(paths: Sequence[Path]) -> bool:
    """Return whether files are different shards of one plan, by the first result of each; empty files are ignored."""
    shards: list[str | None] = []
    plans: set[str | None] = set()
    for path in paths:
        view = _first_view(path)
        if view is None:
            continue
        shards.append(view.shard)
        if view.plan is None:
            return False
        plans.add(view.plan.digest)
    return len(plans) == 1 and len(set(shards)) == len(shards)


def _first_view(path: Path) -> PlacedView | None:
    # problems are reported by the command that reads the whole file
    with contextlib.suppress(ResultsError):
        for block in read_result_blocks(path, PlacedView, lambda _: None):
            return block.views[0]
    return None


def open_results(paths: Sequence[Path]) -> BinaryIO:
    """Open the results of a run as one file: a single file unchanged, several files merged. Raise as `Merge` does."""
    if len(paths) == 1:
        return paths[0].open("rb")
    return io.BufferedReader(_Stream(Merge(paths).lines()), READ_AHEAD)


def read_views(
    run: RunFiles,
    view: type[View],
    on_torn: Callable[[Problem], None] = warn,
    *,
    skip: Callable[[Sequence[View]], bool] | None = None,
) -> Iterator[View]:
    """Return an iterator over the views of a run, as `read_run` does without bytes.

    Blocks of a single file for which `skip` returns true are skipped.
    """
    paths = files_of(run)
    if len(paths) > 1:
        return (record.view for record in read_run(paths, view, on_torn))
    blocks = read_result_blocks(paths[0], view, on_torn, skip=skip)
    # `chain` instead of a nested loop: it costs nothing per result
    return itertools.chain.from_iterable(block.views for block in blocks)


def read_run(
    paths: Sequence[Path],
    view: type[View],
    on_torn: Callable[[Problem], None] = warn,
) -> Iterator[Record[View]]:
    """Yield the results of a run, as `read_results` does: of a single file, or of several files merged."""
    if len(paths) == 1:
        yield from read_results(paths[0], view, on_torn)
        return
    decode = msgspec.json.Decoder(view).decode
    for line in Merge(paths).lines():
        try:
            found = decode(line)
        except DECODE_ERRORS:
            # read each file again for an error with the file and line of the problem
            for path in paths:
                deque(read_results(path, view), maxlen=0)
            raise
        yield Record(found, line)


class _Stream(io.RawIOBase):
    """A readable file that consists of the given lines."""

    def __init__(self, lines: Iterator[bytes]):
        self._lines = lines
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._lines, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
