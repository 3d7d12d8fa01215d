"""The results files of one run -> one, in order, if they are all that the run should have.

Files are read twice, as streams: once to find where each result is, and to check that nothing is missing, and once in
the order of dataset, id, target and trial. What is held is the index (see `merge_index`).
"""

import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agentv.errors import ResultsError
from agentv.records import Problem
from agentv.results.formats import DECODE_ERRORS, JSONL, ResultFormat, format_for, sniff
from agentv.results.merge_index import MergeIndex, Place
from agentv.results.read import read_results, unreadable
from agentv.results.shards import check_shards
from agentv.results.stamps import ShardStamp, StampChange
from agentv.results.views import PlacedView, ScoreView

MAX_SHOWN = 10
READ_AHEAD = 1 << 16
MAX_OPEN = 200
_BOM = b"\xef\xbb\xbf"
_START_BYTES = 4096
DIFFERS = ("timestamp", "run_id", "shard", "plan")
"""The fields that are not the same when the same result is got twice; durations are the others."""
_DURATIONS = {"execution_metrics": ("duration_ms",), "trace_summary": ("durationMs", "toolDurations")}


class Merge:
    """The results of several files of one run, each once, in order. Raise `ResultsError` if they are not one run.

    With `partial`, shards may be missing or incomplete; `missing` then says which. Results that are there twice count
    once, if they are the same but for when, and in how much time, they were got; `lines` finds those that are not.
    """

    def __init__(self, paths: Sequence[Path], *, partial: bool = False):
        self.paths = paths
        self._index, self._files = MergeIndex(), [_File(path) for path in paths]
        self.results = self.repeated = 0
        self.trials = 1
        problems: list[Problem] = []
        for number, file in enumerate(self._files):
            problems += self._scan(number, file)
        if problems:
            raise ResultsError(problems)
        if not self.results:
            names = ", ".join(map(str, paths))
            raise ResultsError([Problem(message=f"there are no results in {names}", hint="see how the runs ended")])
        found = check_shards([(file.path, file.stamps, file.unstamped) for file in self._files])
        self.plan = found.plan
        self.missing = found.missing
        if problems := [*found.problems, *([] if partial else found.missing)]:
            raise ResultsError(problems)
        self._is_partial = partial

    def _scan(self, number: int, file: "_File") -> list[Problem]:
        """Add the results of a file to the index; return everything that is wrong with it."""
        trials, results = self.trials, self.results
        try:
            for view, offset, size in file.scan():
                trial = view.trial or 1
                self._index.add((view.dataset, view.eval_id, view.target, trial), (number, offset, size))
                trials, results = max(trials, trial), results + 1
        except OSError as error:
            return [Problem.of(unreadable(error, file.path))]
        except DECODE_ERRORS:
            return find_problems(file.path)
        self.trials, self.results = trials, results
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

    def scan(self) -> Iterator[tuple[PlacedView, int, int]]:
        """Yield each result with the place of its first byte and how many there are."""
        with self.path.open("rb") as file:
            start = file.peek(_START_BYTES)
            self.form = sniff(start) or self.form
            offset = file.seek(len(_BOM)) if start.startswith(_BOM) else 0
            decode = self.form.decoder(PlacedView)
            last, count = None, 0
            for raw in self.form.split(file):
                size = len(raw)
                if raw.isspace():
                    offset += size
                    continue
                view = decode(raw)
                if self.form.is_torn(raw) and self.form is not JSONL:
                    raise msgspec.DecodeError("torn")
                stamp = (view.shard, view.plan)
                if stamp != last:
                    self._count(last, count)
                    last, count = stamp, 0
                count += 1
                yield view, offset, size
                offset += size
            self._count(last, count)

    def _count(self, stamp: Any, count: int) -> None:
        if stamp is not None and None not in stamp:
            self.stamps[ShardStamp(*stamp)] += count
        else:
            self.unstamped += count


class _Reader:
    """Reads results of several files as lines of JSON without a stamp."""

    def __init__(self, files: Sequence[_File]):
        self._files = files
        self._changes = [
            StampChange(next(iter(file.stamps)), None, file.form) if len(file.stamps) == 1 else None for file in files
        ]
        self._open: dict[int, _Ahead] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def view(self, place: Place) -> PlacedView:
        """Return what a result is of."""
        source = self._open.get(place.file) or self._open_file(place.file)
        found: PlacedView = self._files[place.file].form.decoder(PlacedView)(source.read(place.offset, place.size))
        return found

    def read(self, place: Place) -> bytes:
        """Return the line of a result."""
        source = self._open.get(place.file) or self._open_file(place.file)
        raw, file, change = source.read(place.offset, place.size), self._files[place.file], self._changes[place.file]
        if change is not None:
            raw = change(raw)
        elif file.stamps:
            raw = _without_stamp(raw, file.form)
        if file.form is JSONL:
            return raw if raw.endswith(b"}\n") else raw.strip() + b"\n"
        return msgspec.json.encode(file.form.decoder(dict)(raw), enc_hook=str) + b"\n"

    def _open_file(self, number: int) -> "_Ahead":
        if len(self._open) >= MAX_OPEN:
            self._stack.close()
            self._open.clear()
        self._open[number] = _Ahead(self._stack.enter_context(self._files[number].path.open("rb", buffering=0)))
        return self._open[number]


class _Ahead:
    """Reads pieces of a file; ahead of what is asked for, if one piece follows on another."""

    def __init__(self, file: io.FileIO):
        self._descriptor = file.fileno()
        self._start, self._data, self._next = 0, b"", -1

    def read(self, offset: int, size: int) -> bytes:
        at = offset - self._start
        if not 0 <= at <= len(self._data) - size:
            ahead = max(size, READ_AHEAD) if offset == self._next else size
            self._start, self._data, at = offset, os.pread(self._descriptor, ahead, offset), 0
        self._next = offset + size
        return self._data[at : at + size]


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


def find_problems(path: Path, view: type[ScoreView] = PlacedView) -> list[Problem]:
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
