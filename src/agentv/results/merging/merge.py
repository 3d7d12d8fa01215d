"""The results files of one run -> one, in order, if they are all that the run should have.

Files are read twice, as streams: once to find where each result is, and to check that nothing is missing, and once in
the order of dataset, id, target and trial. What is held is the index (see `merge_index`).
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
from agentv.records import Problem
from agentv.results.formats import DECODE_ERRORS, JSONL, ResultFormat, format_for, sniff
from agentv.results.merging.merge_index import MergeIndex, Place
from agentv.results.merging.shards import check_shards
from agentv.results.merging.stamps import ShardStamp, StampChange
from agentv.results.read import LEFT_OUT, Block, Record, View, read_result_blocks, read_results
from agentv.results.run_files import RunFiles, files_of
from agentv.results.views import CountedView, PlacedView

MAX_SHOWN = 10
READ_AHEAD = 1 << 17
MAX_OPEN = 200
_START_BYTES = 4096
DIFFERS = ("timestamp", "run_id", "shard", "plan")
"""The fields that are not the same when the same result is got twice; durations are the others."""
_DURATIONS = {"execution_metrics": ("duration_ms",), "trace_summary": ("durationMs", "toolDurations")}


class Merge:
    """The results of several files of one run, each once, in order. Raise `ResultsError` if they are not one run.

    With `partial`, shards may be missing or incomplete; `missing` then says which. Results that are there twice count
    once, if they are the same but for when, and in how much time, they were got; `lines` finds those that are not.
    All results are given to `on_results` as they are read, in the order of the files.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        partial: bool = False,
        on_results: Callable[[Sequence[CountedView]], None] | None = None,
    ):
        self._index, self._files = MergeIndex(), [_File(path) for path in sorted(paths)]
        self.results = self.repeated = 0
        """How many results there are, and how many of them do not count, as they are there twice."""
        problems: list[Problem] = []
        for number, file in enumerate(self._files):
            problems += self._scan(number, file, on_results)
        if problems:
            raise ResultsError(problems)
        if not self.results:
            names = ", ".join(map(str, paths))
            raise ResultsError([Problem(message=f"there are no results in {names}", hint="see how the runs ended")])
        found = check_shards([(file.path, file.stamps, file.unstamped) for file in self._files])
        self.plan, self.missing, self._is_partial = found.plan, found.missing, partial
        if problems := [*found.problems, *([] if partial else found.missing)]:
            raise ResultsError(problems)

    def _scan(
        self, number: int, file: "_File", on_results: Callable[[Sequence[CountedView]], None] | None
    ) -> list[Problem]:
        """Add the results of a file to the index; return everything that is wrong with it."""
        view: Any = PlacedView if on_results is None else CountedView
        try:
            for block in file.blocks(view):
                self._index.add(number, block.places())
                self.results += len(block.views)
                if on_results is not None:
                    on_results(block.views)
        except ResultsError as error:
            return list(error.problems)
        return []

    def lines(self) -> Iterator[bytes]:
        """Yield each result as a line of JSON, without its shard and plan; raise `ResultsError` if two contradict."""
        conflicts: list[Problem] = []
        more = 0
        dropped: Counter[ShardStamp] = Counter()
        with _Reader(self._files) as reader:
            for group in self._index.groups():
                if len(group) == 1:
                    yield reader.read(group[0])
                    continue
                lines = list(map(reader.read, group))
                view = reader.view(group[0])
                if _are_equal(lines):
                    yield min(lines)
                    self.repeated += len(lines) - 1
                    if view.shard is not None and view.plan is not None:
                        dropped[ShardStamp(view.shard, view.plan)] += len(lines) - 1
                elif len(conflicts) < MAX_SHOWN:
                    conflicts.append(_conflict(view, self._files[group[0][0]], self._files[group[-1][0]]))
                else:
                    more += 1
        if more:
            conflicts.append(Problem(message=f"and {more} more such cases"))
        if conflicts := conflicts or self._recount(dropped):
            raise ResultsError(conflicts)

    def _recount(self, dropped: Mapping[ShardStamp, int]) -> list[Problem]:
        """Return what is wrong once results that are there twice count once."""
        found = check_shards([(file.path, file.stamps, file.unstamped) for file in self._files], dropped)
        if self._is_partial:
            self.missing = found.missing
            return list(found.problems)
        return [*found.problems, *found.missing]


class _File:
    """A results file: its format, and whose results it has."""

    def __init__(self, path: Path):
        self.path, self.form = path, format_for(path)
        self.stamps: Counter[ShardStamp] = Counter()
        self.unstamped = 0

    def blocks(self, view: type[View]) -> Iterator[Block[View]]:
        """Yield the results, many at a time; raise `ResultsError` with everything that is wrong with the file."""
        torn: list[Problem] = []
        for block in read_result_blocks(self.path, view, torn.append):
            self._count(block.views)
            yield block
        if torn:
            raise ResultsError([_refused(problem) for problem in torn])
        with self.path.open("rb") as file:
            self.form = sniff(file.peek(_START_BYTES)) or self.form

    def _count(self, views: Sequence[Any]) -> None:
        """Count whose results these are."""
        shards, plans = [view.shard for view in views], [view.plan for view in views]
        if shards.count(shards[0]) == plans.count(plans[0]) == len(views):  # as it is nearly always
            views = [views[0]]
        for (shard, plan), group in itertools.groupby(views, lambda view: (view.shard, view.plan)):
            count = sum(1 for _ in group) if len(views) > 1 else len(shards)
            if shard is not None and plan is not None:
                self.stamps[ShardStamp(shard, plan)] += count
            else:
                self.unstamped += count


class _Reader:
    """Reads results of several files as lines of JSON without a stamp."""

    def __init__(self, files: Sequence[_File]):
        self._files = files
        self._changes = [
            StampChange(next(iter(file.stamps)), None, file.form) if len(file.stamps) == 1 else None for file in files
        ]
        self._open: dict[int, ReadPart] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def view(self, place: Place) -> PlacedView:
        """Return what a result is of."""
        number, offset, size = place
        read = self._open.get(number) or self._open_file(number)
        found: PlacedView = self._files[number].form.decoder(PlacedView)(read(offset, size))
        return found

    def read(self, place: Place) -> bytes:
        """Return the line of a result."""
        number, offset, size = place
        read = self._open.get(number) or self._open_file(number)
        raw, change = read(offset, size), self._changes[number]
        if change is not None:
            raw = change(raw)
        if raw[-2:] == b"}\n" and (change is not None or not self._files[number].stamps):
            return raw  # as nearly always
        return self._as_line(raw, self._files[number], is_stamped=change is None)

    def _as_line(self, raw: bytes, file: _File, *, is_stamped: bool) -> bytes:
        if is_stamped and file.stamps:
            raw = _without_stamp(raw, file.form)
        if file.form is JSONL:
            return raw.strip() + b"\n"
        return msgspec.json.encode(file.form.decoder(dict)(raw), enc_hook=str) + b"\n"

    def _open_file(self, number: int) -> "ReadPart":
        if len(self._open) >= MAX_OPEN:
            self._stack.close()
            self._open.clear()
        file = self._stack.enter_context(self._files[number].path.open("rb", buffering=0))
        self._open[number] = _read_ahead(file.fileno())
        return self._open[number]


ReadPart = Callable[[int, int], bytes]
"""Returns so many bytes of a file, from an offset on."""


def _read_ahead(descriptor: int) -> ReadPart:
    """Return what reads parts of a file; it reads ahead, more and more, while one part follows on another."""
    start, data, behind, ahead = 0, b"", -1, 0

    def read(offset: int, size: int) -> bytes:
        nonlocal start, data, behind, ahead
        if offset != behind:
            behind, data, ahead = offset + size, b"", size
            return os.pread(descriptor, size, offset)
        behind, at = offset + size, offset - start
        if not data or at + size > len(data):
            ahead = max(size, min(2 * ahead, READ_AHEAD))
            start, data, at = offset, os.pread(descriptor, ahead, offset), 0
        return data[at : at + size]

    return read


def _without_stamp(raw: bytes, form: ResultFormat) -> bytes:
    fields = {name: value for name, value in form.decoder(dict)(raw).items() if name not in ("shard", "plan")}
    return form.encode(msgspec.json.encode(fields, enc_hook=str))


def _are_equal(lines: Sequence[bytes]) -> bool:
    """Return whether results are the same but for when, and in how much time, they were got."""
    return all(found == _content(lines[0]) for found in map(_content, lines[1:]))


def _content(line: bytes) -> dict[str, Any]:
    fields = msgspec.json.decode(line, type=dict[str, Any])
    for name, inner in _DURATIONS.items():
        if isinstance(fields.get(name), dict):
            kept = {key: value for key, value in fields[name].items() if key not in inner}
            fields |= {name: kept or None}
    return {name: value for name, value in fields.items() if name not in DIFFERS and value is not None}


def _conflict(view: PlacedView, first: _File, other: _File) -> Problem:
    trial = f", trial {view.trial}" if view.trial else ""
    where = f"in {first.path} and in {other.path}" if first is not other else f"in {first.path} twice"
    message = f"case {view.eval_id!r} of {view.dataset!r} on {view.target!r}{trial} is {where}, with different content"
    return Problem(message=message, hint="if a shard was run twice, name one of its files only")


def _refused(torn: Problem) -> Problem:
    """Return a torn last result, which is elsewhere a warning, as an error."""
    return msgspec.structs.replace(torn, severity="error", message=torn.message.removesuffix(LEFT_OUT))


def are_shards(paths: Sequence[Path]) -> bool:
    """Return whether files are different shards of one plan, by the first result of each; empty ones may be."""
    found = [view for path in paths for block in itertools.islice(_first_blocks(path), 1) for view in block.views[:1]]
    plans = {view.plan.digest if view.plan is not None else None for view in found}
    return len(plans) == 1 and None not in plans and len({view.shard for view in found}) == len(found)


def _first_blocks(path: Path) -> Iterator[Block[PlacedView]]:
    with contextlib.suppress(ResultsError):  # whoever reads the whole file will tell
        yield from read_result_blocks(path, PlacedView, lambda _: None)


def open_results(paths: Sequence[Path]) -> BinaryIO:
    """Return the results of a run as a file: of one file as it is, of several merged; raise as `Merge` does."""
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
    """Yield the results of a run, as `read_run` does, without their bytes; `skip` is told of the blocks of one file."""
    paths = files_of(run)
    if len(paths) > 1:
        return (record.view for record in read_run(paths, view, on_torn))
    return itertools.chain.from_iterable(
        block.views for block in read_result_blocks(paths[0], view, on_torn, skip=skip)
    )


def read_run(
    paths: Sequence[Path], view: type[View], on_torn: Callable[[Problem], None] = warn
) -> Iterator[Record[View]]:
    """Do for a run of one file, or of several that are merged, what `read_results` does for a file."""
    if len(paths) == 1:
        yield from read_results(paths[0], view, on_torn)
        return
    decode = msgspec.json.Decoder(view).decode
    for line in Merge(paths).lines():
        try:
            found = decode(line)
        except DECODE_ERRORS:
            for path in paths:  # one of which has what is wrong
                deque(read_results(path, view), maxlen=0)
            raise
        yield Record(found, line)


class _Stream(io.RawIOBase):
    """Lines as a file that can be read once."""

    def __init__(self, lines: Iterator[bytes]):
        self._lines, self._rest = lines, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._lines, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
