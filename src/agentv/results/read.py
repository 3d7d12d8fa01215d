"""Read results files, JSONL or YAML, as views of their results.

Files of any size are read as streams. `read_records` reads files written by agentv, one result at a time.
`read_results`, `read_result_blocks` and `read_blocks` read results files from any source and report all problems.
"""

import io
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import msgspec

from agentv.errors import AgentvError, OutputError, ResultsError
from agentv.files.conversion import convert
from agentv.files.encode import to_json
from agentv.files.jsonl import column_in_json, explain_json_error
from agentv.files.yaml import Document, Place, parse_yaml, read_error, utf8_error_message
from agentv.log import warn
from agentv.records import CaseKey, Problem
from agentv.results.formats import DECODE_ERRORS, MAX_DEPTH, YAML, ResultFormat, format_for, sniff
from agentv.results.views import PartsRow, ReportView, ResultRow, ScoreRow

BLOCK_BYTES = 1 << 16
MAX_PROBLEMS = 10
_BOM = b"\xef\xbb\xbf"
SKIPPED = "; skipped"
"""Appended to the message when a truncated last result is reported as a warning."""
TRUNCATED_HINT = "the run was stopped while writing it: continue with 'agentv eval --resume', or delete it"
FOREIGN_HINT = "this is not a result of agentv; use 'agentv import' to read files of other tools"
_START_BYTES = 4096

View = TypeVar("View", bound=ScoreRow)
_Decoder = msgspec.json.Decoder[Any]


class StoredResult(NamedTuple, Generic[View]):
    """A result in a file: its view and its bytes."""

    view: View
    raw: bytes


class Block(NamedTuple, Generic[View]):
    """Consecutive results of a file."""

    views: Sequence[View]
    raw: bytes
    """The results as JSON, one per line."""
    offset: int
    """The offset of the first result in the file."""
    ends: Sequence[int]
    """The end of each result in the file, relative to `offset`."""

    def records(self) -> Iterable[StoredResult[View]]:
        """Return an iterable of each result with its bytes."""
        if len(self.views) == 1:
            return [StoredResult(self.views[0], self.raw)]
        return map(StoredResult, self.views, self.raw.split(b"\n"))

    def places(self) -> Iterator[tuple[View, int, int]]:
        """Yield each result with its offset and size in the file."""
        offset = self.offset
        start = 0
        for view, end in zip(self.views, self.ends, strict=True):
            yield view, offset + start, end - start
            start = end


def read_records(
    path: Path,
    view: type[View],
    form: ResultFormat | None = None,
) -> Iterator[StoredResult[View]]:
    """Yield the results of a file written by agentv; skip a truncated result at the end.

    The format is `form`, or else detected from the content. Raise `OutputError` for an invalid record.
    """
    with path.open("rb") as file:
        form = form or sniff(file.peek(_START_BYTES)) or format_for(path)
        decode = form.decoder(view)
        for number, raw in enumerate(form.split(file), 1):
            if not raw.strip() or form.is_truncated(raw):
                continue
            try:
                found = decode(raw)
            except DECODE_ERRORS:
                raise OutputError(
                    f"{form.record} {number} is not a result of agentv",
                    file=path,
                    hint="--resume requires a results file of agentv; choose another --out",
                ) from None
            yield StoredResult(found, raw)


def report_results(path: Path, cases: Container[CaseKey] | None) -> Iterator[ReportView]:
    """Yield the results of a file written by agentv; if `cases` is given, only the results of these."""
    for record in read_records(path, ReportView):
        if cases is None or record.view.case_key in cases:
            yield record.view


def read_results(
    path: Path,
    view: type[View],
    on_truncated: Callable[[Problem], None] = warn,
) -> Iterator[StoredResult[View]]:
    """Yield the results of any results file, one at a time, each with its JSON on one line.

    A truncated result at the end is skipped and passed to `on_truncated` as a warning. Raise `ResultsError` with all
    other problems after the last result.
    """
    for block in read_result_blocks(path, view, on_truncated):
        yield from block.records()


def read_result_blocks(
    path: Path,
    view: type[View],
    on_truncated: Callable[[Problem], None] = warn,
    *,
    skip: Callable[[Sequence[View]], bool] | None = None,
) -> Iterator[Block[View]]:
    """Yield the results of any results file in blocks, which takes half the time of `read_results`.

    Blocks for which `skip` returns true are skipped, before the end of each result is located. Truncated results and
    problems are handled as in `read_results`.
    """
    problems: list[Problem] = []
    try:
        with path.open("rb") as file:
            opened = _open_results(file, path)
            for block in opened.blocks(view, problems, skip):
                yield block
                if len(problems) > MAX_PROBLEMS:
                    break
    except OSError as error:
        problems.append(Problem.of(unreadable(error, path)))
    errors: list[Problem] = []
    for problem in problems:
        if problem.hint == TRUNCATED_HINT:
            on_truncated(_as_warning(problem))
        elif problem.severity == "warning":
            on_truncated(problem)
        else:
            errors.append(problem)
    if errors:
        raise ResultsError(errors)


_Skip = Callable[[Sequence[Any]], bool] | None


class _OpenResults(NamedTuple):
    """An open results file, positioned at `offset`, where its results begin."""

    file: BinaryIO
    path: Path
    offset: int
    form: ResultFormat

    def blocks(self, view: type[View], problems: list[Problem], skip: _Skip) -> Iterator[Block[View]]:
        """Yield the results in blocks, and add everything that is wrong to `problems`."""
        if self.form is YAML:
            return _yaml_blocks(self, view, problems, skip)
        return _json_blocks(self, view, problems, skip)


def _open_results(file: io.BufferedReader, path: Path) -> _OpenResults:
    """Detect the format of an open file and skip its byte order mark."""
    start = file.peek(_START_BYTES)
    offset = 0
    if start.startswith(_BOM):
        file.read(len(_BOM))
        offset = len(_BOM)
    form = sniff(start) or format_for(path)
    return _OpenResults(file=file, path=path, offset=offset, form=form)


def _json_blocks(
    opened: _OpenResults,
    view: type[View],
    problems: list[Problem],
    skip: _Skip,
) -> Iterator[Block[View]]:
    file = opened.file
    decoder = msgspec.json.Decoder(view)
    next_offset = opened.offset
    lines = 0
    while raw := file.read(BLOCK_BYTES) + file.readline():
        offset = next_offset
        next_offset += len(raw)
        try:
            views = decoder.decode_lines(raw)
            if skip is not None and skip(views):
                continue
        except DECODE_ERRORS:
            views = []
        ends = _line_ends(raw)
        if views and len(views) == len(ends):
            yield Block(views, raw, offset, ends)
        else:
            # a line is invalid or empty, or the last one has no line feed
            lines_before = lines
            if file.seekable():
                # `lines` lacks the lines of skipped blocks
                lines_before = _count_lines(file, offset)
            yield from _read_lines(raw, opened.path, problems, view, first=lines_before + 1, offset=offset)
            if len(problems) > MAX_PROBLEMS:
                return
        lines += len(ends)


def _line_ends(raw: bytes) -> list[int]:
    """Return the offset after each line feed."""
    # `find` is several times as fast here as splitting or counting, because lines are long
    find = raw.find
    ends: list[int] = []
    end = find(b"\n") + 1
    while end:
        ends.append(end)
        end = find(b"\n", end) + 1
    return ends


def _yaml_blocks(
    opened: _OpenResults,
    view: type[View],
    problems: list[Problem],
    skip: _Skip,
) -> Iterator[Block[View]]:
    for document in _read_yaml(opened.file, opened.path, problems, view, opened.offset):
        if skip is not None and skip([document.view]):
            continue
        raw = to_json(document.value)
        yield Block([document.view], raw, document.offset, [document.size])


def _as_warning(truncated: Problem) -> Problem:
    return msgspec.structs.replace(truncated, severity="warning", message=f"{truncated.message}{SKIPPED}")


def unreadable(error: OSError, path: Path) -> AgentvError:
    """Return an error that explains why a results file cannot be read."""
    if not path.is_dir():
        return read_error(error, path, AgentvError)
    hint = "pass a results file"
    newest = max(path.glob("eval_*"), key=lambda file: file.stat().st_mtime, default=None)
    if newest is not None:
        hint = f"pass a results file in it, such as {newest}"
    return AgentvError("this is a folder, not a results file", file=path, hint=hint)


def read_blocks(
    file: BinaryIO,
    path: Path,
    problems: list[Problem],
    view: type[ResultRow],
) -> Iterator[Sequence[ScoreRow]]:
    """Yield the results of a file in blocks, and add everything that is wrong to `problems`.

    All results of a block have the same type: `ScoreRow` if they have only an id and a score, else `view` or
    `PartsRow`.
    """
    start = file.read(len(_BOM)).removeprefix(_BOM) + file.read(_START_BYTES)
    if (sniff(start) or format_for(path)) is YAML:
        rest_of_line = file.readline()
        lines = itertools.chain(io.BytesIO(start + rest_of_line), file)
        for document in _read_yaml(lines, path, problems, PartsRow):
            yield [document.view]
    else:
        yield from _read_json_blocks(start, file, path, problems, view)


def _read_json_blocks(
    start: bytes,
    file: BinaryIO,
    path: Path,
    problems: list[Problem],
    view: type[ResultRow],
) -> Iterator[Sequence[ScoreRow]]:
    """Yield the results of a file of which `start` has already been read."""
    decoders: list[_Decoder] = [msgspec.json.Decoder(ScoreRow), msgspec.json.Decoder(view)]
    block = start + file.read(BLOCK_BYTES) + file.readline()
    size = 0
    lines = 0
    while block:
        rows = _decode_block(block, decoders)
        if rows is not None:
            yield rows
            lines += len(rows)
        else:
            lines_before = lines
            if file.seekable():
                # `lines` lacks empty and invalid lines
                lines_before = _count_lines(file, size)
            for found in _read_lines(block, path, problems, PartsRow, first=lines_before + 1, offset=size):
                yield found.views
            if len(problems) > MAX_PROBLEMS:
                return
        size += len(block)
        block = file.read(BLOCK_BYTES) + file.readline()


def _decode_block(block: bytes, decoders: list[_Decoder]) -> Sequence[ScoreRow] | None:
    """Decode a block with the first decoder that accepts all of its results; return None if all decoders reject it.

    The decoders before it are removed: the following blocks are not expected to fit them either.
    """
    for number, decoder in enumerate(decoders):
        try:
            rows: Sequence[ScoreRow] = decoder.decode_lines(block)
        except DECODE_ERRORS:
            continue
        del decoders[:number]
        return rows
    return None


def _count_lines(file: BinaryIO, size: int) -> int:
    """Return the number of lines in the first `size` bytes; used only when there is a problem to report."""
    here = file.tell()
    file.seek(0)
    lines = 0
    for start in range(0, size, BLOCK_BYTES):
        part = file.read(min(BLOCK_BYTES, size - start))
        lines += part.count(b"\n")
    file.seek(here)
    return lines


def _read_lines(  # noqa: PLR0913
    block: bytes,
    path: Path,
    problems: list[Problem],
    view: type[View],
    *,
    first: int,
    offset: int,
) -> Iterator[Block[View]]:
    """Yield the results of a block with problems, one at a time; `first` is the number of its first line."""
    lines = block.split(b"\n")
    last = first + len(lines) - 1
    decode = msgspec.json.Decoder(view).decode
    next_offset = offset
    for number, raw in enumerate(lines, first):
        start = next_offset
        next_offset += len(raw) + 1
        if not raw.strip():
            continue
        try:
            yield Block([decode(raw)], raw, start, [len(raw)])
        except DECODE_ERRORS as error:
            is_last = number == last
            problems.extend(_find_problems(raw, error, path, number, is_last=is_last, view=view))
            if len(problems) > MAX_PROBLEMS:
                return


def _find_problems(  # noqa: PLR0913
    raw: bytes,
    error: Exception,
    path: Path,
    line: int,
    *,
    is_last: bool,
    view: type[ScoreRow],
) -> Iterator[Problem]:
    """Yield the problems of an invalid line of JSON; `is_last` means that it has no line feed."""
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        message, column = explain_json_error(raw, error)
        if is_last:
            yield Problem(
                message=f"the last line is truncated ({message})",
                file=path,
                line=line,
                hint=TRUNCATED_HINT,
            )
        else:
            yield Problem(
                message=message,
                file=path,
                line=line,
                column=column,
            )
        return
    misfits = convert(value, view)
    if not isinstance(misfits, list):
        return
    is_result = isinstance(value, dict) and "eval_id" in value
    if misfits and not is_result:
        misfits[0] = misfits[0]._replace(hint=FOREIGN_HINT)
    for misfit in misfits:
        place = Place(line, column_in_json(raw.decode(), misfit.steps))
        yield misfit.problem(path, place)


def explain_record(  # noqa: PLR0913
    raw: bytes,
    error: Exception,
    *,
    form: ResultFormat,
    path: Path,
    line: int,
    view: type[ResultRow],
    is_last: bool,
) -> list[Problem]:
    """Return the problems of an invalid record, which begins at `line`; `error` is the exception of the decoder.

    `is_last` means that the file ends with it, and that its end may be missing.
    """
    if form is not YAML:
        return list(_find_problems(raw.removesuffix(b"\n"), error, path, line, is_last=is_last, view=view))
    problems: list[Problem] = []
    for _ in _read_yaml([raw], path, problems, view, first_line=line):
        pass
    return problems


class _YamlResult(NamedTuple, Generic[View]):
    """A result in a YAML file: its view, its plain value, and its offset and size."""

    view: View
    value: Any
    offset: int
    size: int


def _read_yaml(  # noqa: PLR0913
    lines: Iterable[bytes],
    path: Path,
    problems: list[Problem],
    view: type[View],
    offset: int = 0,
    *,
    first_line: int = 1,
) -> Iterator[_YamlResult[View]]:
    """Yield the results of a YAML file whose first line is at `offset`; add everything that is wrong to `problems`."""
    next_line = first_line
    next_offset = offset
    for raw in YAML.split(lines):
        first = next_line
        next_line += raw.count(b"\n")
        start = next_offset
        next_offset += len(raw)
        if YAML.is_truncated(raw):
            truncated = Problem(
                message="the last document is truncated",
                file=path,
                line=first,
                hint=TRUNCATED_HINT,
            )
            problems.append(truncated)
            return
        document = _parse_document(raw, path, first, problems)
        if document is not None and document.value is not None:
            found = convert(document.value, view)
            if isinstance(found, list):
                for misfit in found:
                    place = document.place(misfit.steps)
                    problems.append(misfit.problem(path, Place(first + place.line - 1, place.column)))
            else:
                yield _YamlResult(found, document.value, start, len(raw))
        if len(problems) > MAX_PROBLEMS:
            return


def _parse_document(
    raw: bytes,
    path: Path,
    first: int,
    problems: list[Problem],
) -> Document | None:
    """Parse the YAML document at line `first`; add a problem and return None if it is invalid."""
    try:
        return parse_yaml(raw.decode(), path, AgentvError, max_depth=MAX_DEPTH)
    except UnicodeDecodeError as error:
        problems.append(Problem(message=utf8_error_message(error), file=path, line=first))
    except AgentvError as error:
        problem = Problem(
            message=error.message,
            file=path,
            line=first + (error.line or 1) - 1,
            column=error.column,
            hint=error.hint,
        )
        problems.append(problem)
    return None
