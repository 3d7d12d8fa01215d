"""A results file, JSONL or YAML -> what comparing needs of each result, or all that is wrong with them."""

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from agentv.errors import AgentvError
from agentv.formats.conversion import convert
from agentv.formats.jsonl import column_in_json, explain_json_error
from agentv.formats.yaml import Place, parse_yaml, utf8_error_message
from agentv.records import Fraction, Problem
from agentv.results.write import documents, is_torn

BLOCK_BYTES = 1 << 17
MOST_PROBLEMS = 10
TORN = "the run was stopped while writing it: go on with 'agentv eval --resume', or take it out"


class Digests(msgspec.Struct, frozen=True, gc=False):
    case: str = ""
    target: str = ""
    evaluators: str = ""
    judges: str = ""
    prompts: str = ""
    agentv: str = ""


class Part(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    score: Fraction = 0.0
    verdict: str | None = None
    failed: bool = False


class Row(msgspec.Struct, frozen=True, gc=False):
    """What every comparison needs of a result; the rest is passed over as it is decoded."""

    eval_id: Annotated[str, msgspec.Meta(min_length=1)]
    score: Fraction
    verdict: str | None = None
    error: Any = None
    failure: str | None = None
    attempt: int | None = 1
    target: str = ""
    dataset: str = ""
    timestamp: str = ""
    conversation_id: str | None = None
    digests: Digests | None = None


class WholeRow(Row, frozen=True, gc=False):
    """And what only some need."""

    evaluator_results: tuple[Part, ...] | None = None
    metadata: dict[str, Any] | None = None


def result_rows(file: BinaryIO, path: Path, problems: list[Problem], *, whole: bool) -> Iterator[Sequence[Row]]:
    """The results of a file, some at a time; what is wrong goes to `problems`."""
    start = file.read(3).removeprefix(b"\xef\xbb\xbf") + file.read(4096)
    is_json = start.lstrip().startswith(b"{")
    if not is_json and (start.startswith(b"---") or path.suffix.lower() in (".yaml", ".yml")):
        yield from _yaml_rows(itertools.chain(io.BytesIO(start + file.readline()), file), path, problems)
        return
    decoder = _WHOLE_LINES if whole else _LINES
    block = start + file.read(BLOCK_BYTES) + file.readline()
    size = lines = 0
    while block:
        try:
            rows = decoder.decode_lines(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            before = _lines_in(file, size) if file.seekable() else lines
            yield from _one_by_one(block, before + 1, path, problems)
            if len(problems) > MOST_PROBLEMS:
                return
        else:
            yield rows
            lines += len(rows)
        size += len(block)
        block = file.read(BLOCK_BYTES) + file.readline()


_LINES = msgspec.json.Decoder(Row)
_WHOLE_LINES = msgspec.json.Decoder(WholeRow)


def _lines_in(file: BinaryIO, size: int) -> int:
    """How many lines the first bytes of a file are; counted only when somebody has to be told."""
    here = file.tell()
    file.seek(0)
    lines = sum(file.read(min(BLOCK_BYTES, size - start)).count(b"\n") for start in range(0, size, BLOCK_BYTES))
    file.seek(here)
    return lines


def _one_by_one(block: bytes, first: int, path: Path, problems: list[Problem]) -> Iterator[Sequence[Row]]:
    """The results of a block in which something is wrong."""
    lines = block.split(b"\n")
    for number, raw in enumerate(lines, first):
        if not raw.strip():
            continue
        try:
            yield [_WHOLE_LINES.decode(raw)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            is_torn = number == first + len(lines) - 1
            problems.extend(_wrong(raw, error, path, number, is_torn=is_torn))
            if len(problems) > MOST_PROBLEMS:
                return


def _wrong(raw: bytes, error: Exception, path: Path, line: int, *, is_torn: bool) -> Iterator[Problem]:
    """What is wrong with a line."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        message, column = explain_json_error(raw, error)
        if is_torn:
            yield Problem(message=f"the last line is cut off ({message})", file=path, line=line, hint=TORN)
        else:
            yield Problem(message=message, file=path, line=line, column=column)
        return
    found = convert(value, WholeRow)
    for misfit in found if isinstance(found, list) else ():
        place = Place(line, column_in_json(raw.decode(), misfit.steps))
        yield misfit.problem(path, place)


def _yaml_rows(lines: Iterable[bytes], path: Path, problems: list[Problem]) -> Iterator[Sequence[Row]]:
    line = 1
    for raw in documents(lines):
        first, line = line, line + raw.count(b"\n")
        if is_torn(raw, "yaml"):
            problems.append(Problem(message="the last document is cut off", file=path, line=first, hint=TORN))
            return
        try:
            document = parse_yaml(raw.decode(), path, AgentvError, max_depth=900)
        except UnicodeDecodeError as error:
            problems.append(Problem(message=utf8_error_message(error), file=path, line=first))
        except AgentvError as error:
            at = first + (error.line or 1) - 1
            problems.append(Problem(message=error.message, file=path, line=at, column=error.column, hint=error.hint))
        else:
            if document.value is None:
                continue
            found = convert(document.value, WholeRow)
            if isinstance(found, list):
                for misfit in found:
                    place = document.place(misfit.steps)
                    problems.append(misfit.problem(path, Place(first + place.line - 1, place.column)))
            else:
                yield [found]
        if len(problems) > MOST_PROBLEMS:
            return
