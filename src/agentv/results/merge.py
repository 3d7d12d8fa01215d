"""The results files of one run -> one, in order, if they are all that the run should have.

Files are read twice, as streams: once to find where each result is, and to check that nothing is missing, and once in
the order of dataset, id, target and trial. What is held is the index (see `merge_index`).
"""

import io
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from agentv.errors import ResultsError
from agentv.records import Problem, ShardPlan
from agentv.results.formats import DECODE_ERRORS, JSONL, ResultFormat, format_for, sniff
from agentv.results.merge_index import HasPlace, MergeIndex, Place
from agentv.results.read import read_results, unreadable
from agentv.results.shards import check_shards
from agentv.results.stamps import ShardStamp, StampChange
from agentv.results.views import EarlierView, PlacedView, ScoreView

MAX_SHOWN = 10
READ_AHEAD = BLOCK_BYTES = 1 << 17
MAX_OPEN = 200
_BOM = b"\xef\xbb\xbf"
_START_BYTES = 4096
DIFFERS = ("timestamp", "run_id", "shard", "plan")
"""The fields that are not the same when the same result is got twice; durations are the others."""
_DURATIONS = {"execution_metrics": ("duration_ms",), "trace_summary": ("durationMs", "toolDurations")}


class MergeView(HasPlace, Protocol):
    """What a merge needs of a result, be it of whichever view."""

    @property
    def shard(self) -> str | None: ...
    @property
    def plan(self) -> ShardPlan | None: ...


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
        on_results: Callable[[Sequence[EarlierView]], None] | None = None,
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
        self, number: int, file: "_File", on_results: Callable[[Sequence[EarlierView]], None] | None
    ) -> list[Problem]:
        """Add the results of a file to the index; return everything that is wrong with it."""
        view = PlacedView if on_results is None else EarlierView
        try:
            for views, places in file.scan(view):
                self._index.add(number, views, places)
                self.results += len(views)
                if on_results is not None:
                    on_results(views)
        except OSError as error:
            return [Problem.of(unreadable(error, file.path))]
        except DECODE_ERRORS:
            return _find_problems(file.path, view)
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
                    conflicts.append(_conflict(view, self._files[group[0].file], self._files[group[-1].file]))
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

    def scan(self, view: type[ScoreView]) -> Iterator[tuple[Sequence[Any], Sequence[tuple[int, int]]]]:
        """Yield views of the results, many at a time, and for each its first byte and how many bytes it has."""
        with self.path.open("rb") as file:
            start = file.peek(_START_BYTES)
            self.form = sniff(start) or self.form
            offset = file.seek(len(_BOM)) if start.startswith(_BOM) else 0
            blocks = _json_blocks(file, view) if self.form is JSONL else _records(file, self.form, view)
            for views, sizes in blocks:
                ends = list(itertools.accumulate(sizes, initial=offset))
                places = [(at, size) for at, size in zip(ends, sizes, strict=False) if size > 0]
                offset = ends[-1]
                if views:
                    self._count(views)
                    yield views, places

    def _count(self, views: Sequence[MergeView]) -> None:
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


Block = tuple[Sequence[Any], Sequence[int]]
"""Views of results, and how many bytes each has, in a row; what lies between them is a negative number."""


def _json_blocks(file: BinaryIO, view: type[ScoreView]) -> Iterator[Block]:
    decoder = msgspec.json.Decoder(view)
    while block := file.read(BLOCK_BYTES) + file.readline():
        sizes = [len(line) + 1 for line in block.split(b"\n")]
        if (last := sizes.pop() - 1) > 0:  # which has no line feed at its end
            sizes.append(last)
        views = decoder.decode_lines(block)
        if len(views) != len(sizes):  # there are empty lines
            yield from _records(io.BytesIO(block), JSONL, view)
        else:
            yield views, sizes


def _records(lines: Iterable[bytes], form: ResultFormat, view: type[ScoreView]) -> Iterator[Block]:
    decode = form.decoder(view)
    for raw in form.split(lines):
        if form is not JSONL and form.is_torn(raw):
            raise msgspec.DecodeError("the last document is cut off")
        yield ([], [-len(raw)]) if raw.isspace() else ([decode(raw)], [len(raw)])


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
        read = self._open.get(place.file) or self._open_file(place.file)
        found: PlacedView = self._files[place.file].form.decoder(PlacedView)(read(place.offset, place.size))
        return found

    def read(self, place: Place) -> bytes:
        """Return the line of a result."""
        number, offset, size = place
        read = self._open.get(number) or self._open_file(number)
        raw, change = read(offset, size), self._changes[number]
        file = self._files[number]
        if change is not None:
            raw = change(raw)
        elif file.stamps:
            raw = _without_stamp(raw, file.form)
        if file.form is JSONL:
            return raw if raw.endswith(b"}\n") else raw.strip() + b"\n"
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
    """Return what reads parts of a file; it reads ahead if one part follows on another."""
    start, data, behind = 0, b"", -1

    def read(offset: int, size: int) -> bytes:
        nonlocal start, data, behind
        if offset == behind:
            behind = offset + size
            at = offset - start
            if at + size > len(data):
                start, data, at = offset, os.pread(descriptor, max(size, READ_AHEAD), offset), 0
            return data[at : at + size]
        behind = offset + size
        start, data = behind, b""
        return os.pread(descriptor, size, offset)

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


def _find_problems(path: Path, view: type[ScoreView]) -> list[Problem]:
    """Return everything that is wrong with a file whose results cannot be decoded as such a view."""
    problems: list[Problem] = []
    try:
        for _ in read_results(path, view, problems.append):
            pass
    except ResultsError as error:
        problems += error.problems
    return [msgspec.structs.replace(problem, severity="error") for problem in problems]


def open_results(paths: Sequence[Path]) -> BinaryIO:
    """Return the results of a run as a file: of one file as it is, of several merged; raise as `Merge` does."""
    if len(paths) == 1:
        return paths[0].open("rb")
    return io.BufferedReader(_Stream(Merge(paths).lines()), READ_AHEAD)


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
