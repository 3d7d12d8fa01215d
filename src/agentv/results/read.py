"""A results file, JSONL or YAML -> views of its results.

Files are read as streams, whatever their size. `read_records` is for files that agentv has written, one result at a
time; `read_results` and `read_blocks` are for any results file, one or many results at a time, and find everything that
is wrong with it.
"""

import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import msgspec

from agentv.errors import AgentvError, OutputError, ResultsError
from agentv.formats.conversion import convert
from agentv.formats.jsonl import column_in_json, explain_json_error
from agentv.formats.yaml import Place, parse_yaml, read_error, utf8_error_message
from agentv.notices import warn
from agentv.records import Problem
from agentv.results.formats import DECODE_ERRORS, MAX_DEPTH, YAML, ResultFormat, format_for, sniff
from agentv.results.views import PartsView, ResultView, ScoreView

BLOCK_BYTES = 1 << 16
MAX_PROBLEMS = 10
_BOM = b"\xef\xbb\xbf"
LEFT_OUT = ": it is left out"
"""What a warning of a torn last result says besides."""
TORN_HINT = "the run was stopped while writing it: go on with 'agentv eval --resume', or take it out"
FOREIGN_HINT = "this is no result of agentv; 'agentv import' reads what other tools write"
_START_BYTES = 4096

View = TypeVar("View", bound=ScoreView)
_Decoder = msgspec.json.Decoder[Any]


class Record(NamedTuple, Generic[View]):
    """A result in a file: what a reader needs of it, and its bytes."""

    view: View
    raw: bytes


class Block(NamedTuple, Generic[View]):
    """Results that stand one after the other in a file."""

    views: Sequence[View]
    raw: bytes
    """Each result as JSON, on a line of its own."""
    offset: int
    """Where they begin in the file."""
    ends: Sequence[int]
    """Where each of them ends there, from `offset` on."""

    def records(self) -> Iterable[Record[View]]:
        """Return each result with its bytes."""
        if len(self.views) == 1:
            return [Record(self.views[0], self.raw)]
        return map(Record, self.views, self.raw.split(b"\n"))

    def places(self) -> Iterator[tuple[View, int, int]]:
        """Yield each result, where it begins in the file and how many bytes it has there."""
        start, offset = 0, self.offset
        for view, end in zip(self.views, self.ends, strict=True):
            yield view, offset + start, end - start
            start = end


def read_records(path: Path, view: type[View], form: ResultFormat | None = None) -> Iterator[Record[View]]:
    """Yield the results of a file that agentv has written; skip a torn one at the end.

    The format is `form`, else what the file starts with tells it. Raise `OutputError` for a record that is no result.
    """
    with path.open("rb") as file:
        form = form or sniff(file.peek(_START_BYTES)) or format_for(path)
        decode = form.decoder(view)
        for number, raw in enumerate(form.split(file), 1):
            if not raw.strip() or form.is_torn(raw):
                continue
            try:
                found = decode(raw)
            except DECODE_ERRORS:
                hint = "--resume takes a results file of agentv; name another --out"
                raise OutputError(f"{form.record} {number} is no result of agentv", file=path, hint=hint) from None
            yield Record(found, raw)


def read_results(path: Path, view: type[View], on_torn: Callable[[Problem], None] = warn) -> Iterator[Record[View]]:
    """Yield the results of any results file, one at a time; `raw` is a result as JSON, on one line.

    A torn result at the end is skipped, and `on_torn` is told. Raise `ResultsError`, at the end, with all else that is
    wrong.
    """
    for block in read_result_blocks(path, view, on_torn):
        yield from block.records()


def read_result_blocks(
    path: Path,
    view: type[View],
    on_torn: Callable[[Problem], None] = warn,
    *,
    skip: Callable[[Sequence[View]], bool] | None = None,
) -> Iterator[Block[View]]:
    """Do the same as `read_results`, many results at a time; those that `skip` says nobody wants are left out.

    Half of the time of a reader goes into taking results one by one, and into finding where each of them ends.
    """
    problems: list[Problem] = []
    try:
        with path.open("rb") as file:
            start = file.peek(_START_BYTES)
            offset = len(file.read(len(_BOM))) if start.startswith(_BOM) else 0
            blocks = _yaml_blocks if (sniff(start) or format_for(path)) is YAML else _json_blocks
            for block in blocks(_Opened(file, path, offset), view, problems, skip):
                yield block
                if len(problems) > MAX_PROBLEMS:
                    break
    except OSError as error:
        problems.append(Problem.of(unreadable(error, path)))
    problems = list(map(_tolerate_torn, problems))
    for torn in (problem for problem in problems if problem.severity == "warning"):
        on_torn(torn)
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise ResultsError(errors)


_Skip = Callable[[Sequence[Any]], bool] | None


class _Opened(NamedTuple):
    """A file whose results begin at `offset`, which is where it is read from."""

    file: BinaryIO
    path: Path
    offset: int


def _json_blocks(opened: _Opened, view: type[View], problems: list[Problem], skip: _Skip) -> Iterator[Block[View]]:
    decoder = msgspec.json.Decoder(view)
    (file, path, offset), lines = opened, 0
    while raw := file.read(BLOCK_BYTES) + file.readline():
        start, offset = offset, offset + len(raw)
        try:
            views = decoder.decode_lines(raw)
            if skip is not None and skip(views):
                continue
        except DECODE_ERRORS:
            views = []
        ends = _line_ends(raw)
        if views and len(views) == len(ends):
            yield Block(views, raw, start, ends)
        else:  # something is wrong, a line is empty, or the last one has no end
            first = (_count_lines(file, start) if file.seekable() else lines) + 1
            yield from _read_lines(raw, path, problems, view, first=first, offset=start)
            if len(problems) > MAX_PROBLEMS:
                return
        lines += len(ends)


def _line_ends(raw: bytes) -> list[int]:
    """Return where each line ends; `find` is several times as fast as `count`, as lines are long."""
    ends: list[int] = []
    end, find = 0, raw.find
    while end := find(b"\n", end) + 1:
        ends.append(end)
    return ends


def _yaml_blocks(opened: _Opened, view: type[View], problems: list[Problem], skip: _Skip) -> Iterator[Block[View]]:
    for found, value, offset, size in _read_yaml(opened.file, opened.path, problems, view, opened.offset):
        if skip is None or not skip([found]):
            yield Block([found], msgspec.json.encode(value, enc_hook=str), offset, [size])


def _tolerate_torn(problem: Problem) -> Problem:
    """Return the problem as a warning if it is that a kill has cut off the end of the file."""
    if problem.hint != TORN_HINT:
        return problem
    return msgspec.structs.replace(problem, severity="warning", message=f"{problem.message}{LEFT_OUT}")


def unreadable(error: OSError, path: Path) -> AgentvError:
    """Return the error that explains why a results file cannot be read."""
    if path.is_dir():
        newest = max(path.glob("eval_*"), key=lambda file: file.stat().st_mtime, default=None)
        hint = f"name a results file in it, such as {newest}" if newest else "name a results file"
        return AgentvError("this is a folder, not a results file", file=path, hint=hint)
    return read_error(error, path, AgentvError)


def read_blocks(
    file: BinaryIO, path: Path, problems: list[Problem], view: type[ResultView]
) -> Iterator[Sequence[ScoreView]]:
    """Yield the results of a file, many at a time, and add everything that is wrong to `problems`.

    Those of a block are of one type: `ScoreView` if they have only an id and a score, else `view` or `PartsView`.
    """
    start = file.read(3).removeprefix(_BOM) + file.read(_START_BYTES)
    if (sniff(start) or format_for(path)) is YAML:
        whole = itertools.chain(io.BytesIO(start + file.readline()), file)
        yield from ([found] for found, *_ in _read_yaml(whole, path, problems, PartsView))
        return
    decoders: list[_Decoder] = [msgspec.json.Decoder(ScoreView), msgspec.json.Decoder(view)]
    block = start + file.read(BLOCK_BYTES) + file.readline()
    size = lines = 0
    while block:
        rows = _decode_block(block, decoders)
        if rows is None:
            before = _count_lines(file, size) if file.seekable() else lines
            found = _read_lines(block, path, problems, PartsView, first=before + 1, offset=size)
            yield from (each.views for each in found)
            if len(problems) > MAX_PROBLEMS:
                return
        else:
            yield rows
            lines += len(rows)
        size += len(block)
        block = file.read(BLOCK_BYTES) + file.readline()


def _decode_block(block: bytes, decoders: list[_Decoder]) -> Sequence[ScoreView] | None:
    """Return the results by the first decoder that takes them all, None if none does; drop those before it."""
    for number, decoder in enumerate(decoders):
        try:
            rows: Sequence[ScoreView] = decoder.decode_lines(block)
        except DECODE_ERRORS:
            continue
        del decoders[:number]
        return rows
    return None


def _count_lines(file: BinaryIO, size: int) -> int:
    """Return how many lines the first `size` bytes are; counted only when there is a problem to report."""
    here = file.tell()
    file.seek(0)
    lines = sum(file.read(min(BLOCK_BYTES, size - start)).count(b"\n") for start in range(0, size, BLOCK_BYTES))
    file.seek(here)
    return lines


def _read_lines(  # noqa: PLR0913
    block: bytes, path: Path, problems: list[Problem], view: type[View], *, first: int, offset: int
) -> Iterator[Block[View]]:
    """Yield the results of a block in which something is wrong, one at a time; `first` is the number of its line."""
    lines = block.split(b"\n")
    decode = msgspec.json.Decoder(view).decode
    for number, raw in enumerate(lines, first):
        start, offset = offset, offset + len(raw) + 1
        if not raw.strip():
            continue
        try:
            yield Block([decode(raw)], raw, start, [len(raw)])
        except DECODE_ERRORS as error:
            is_last = number == first + len(lines) - 1
            problems.extend(_find_problems(raw, error, path, number, is_last=is_last, view=view))
            if len(problems) > MAX_PROBLEMS:
                return


def _find_problems(  # noqa: PLR0913
    raw: bytes, error: Exception, path: Path, line: int, *, is_last: bool, view: type[ScoreView]
) -> Iterator[Problem]:
    """Yield what is wrong with a line of JSON; `is_last` says that it has no line feed at its end."""
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        message, column = explain_json_error(raw, error)
        if is_last:
            yield Problem(message=f"the last line is cut off ({message})", file=path, line=line, hint=TORN_HINT)
        else:
            yield Problem(message=message, file=path, line=line, column=column)
        return
    found = convert(value, view)
    misfits = found if isinstance(found, list) else []
    if misfits and not (isinstance(value, dict) and "eval_id" in value):
        misfits[0] = misfits[0]._replace(hint=FOREIGN_HINT)
    for misfit in misfits:
        place = Place(line, column_in_json(raw.decode(), misfit.steps))
        yield misfit.problem(path, place)


def explain_line(raw: bytes, error: Exception, path: Path, line: int, view: type[ResultView]) -> list[Problem]:
    """Return what is wrong with a line that is no result; `error` is that of the decoder."""
    return list(_find_problems(raw, error, path, line, is_last=False, view=view))


def _read_yaml(
    lines: Iterable[bytes], path: Path, problems: list[Problem], view: type[View], offset: int = 0
) -> Iterator[tuple[View, Any, int, int]]:
    """Yield each result with the value that it was made of, where it begins and how many bytes it has."""
    line = 1
    for raw in YAML.split(lines):
        first, line = line, line + raw.count(b"\n")
        start, offset = offset, offset + len(raw)
        if YAML.is_torn(raw):
            problems.append(Problem(message="the last document is cut off", file=path, line=first, hint=TORN_HINT))
            return
        try:
            document = parse_yaml(raw.decode(), path, AgentvError, max_depth=MAX_DEPTH)
        except UnicodeDecodeError as error:
            problems.append(Problem(message=utf8_error_message(error), file=path, line=first))
        except AgentvError as error:
            at = first + (error.line or 1) - 1
            problems.append(Problem(message=error.message, file=path, line=at, column=error.column, hint=error.hint))
        else:
            if document.value is None:
                continue
            found = convert(document.value, view)
            if isinstance(found, list):
                for misfit in found:
                    place = document.place(misfit.steps)
                    problems.append(misfit.problem(path, Place(first + place.line - 1, place.column)))
            else:
                yield found, document.value, start, len(raw)
        if len(problems) > MAX_PROBLEMS:
            return
