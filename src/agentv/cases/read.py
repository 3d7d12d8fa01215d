"""Read the cases of an eval file, one at a time.

A JSONL file is decoded in blocks of lines, by msgspec alone; only a block that contains an error is read line by line.
Memory stays flat: one block, plus eight bytes per case to find duplicate ids.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from agentv.cases.expand import CaseExpander, CaseSource, Inspection, Report
from agentv.cases.generated import Ledger, check_spec, generate, located
from agentv.cases.schema import (
    CaseRecord,
    Defaults,
    EvalFileRecord,
    FileRecord,
    StrictCaseRecord,
    build_case,
    build_defaults,
)
from agentv.cases.unknown_fields import UnknownFields, as_ignored
from agentv.errors import ConfigError, EvalFileError, closest
from agentv.files.compact_sets import DuplicateFinder
from agentv.files.conversion import Misfit, convert
from agentv.files.jsonl import MAX_LINE_BYTES, column_in_json, explain_json_error, line_blocks
from agentv.files.yaml import Document, Place, Steps, open_regular, read_error, read_yaml
from agentv.log import debug, ignore, warn
from agentv.records import CaseFile, EvalCase, Json, Problem

R = TypeVar("R", bound=CaseRecord)

TABLES = {
    ".csv": "convert it with 'agentv import'",
    ".tsv": "convert it with 'agentv import'",
    ".xlsx": "save it as .csv and convert that with 'agentv import'",
}
"""Hints for common dataset files that have to be converted to eval files, by their extension."""


def load_eval_cases(path: str | Path) -> Iterator[EvalCase]:
    """Yield the cases of an eval file, which is read lazily.

    Raise `EvalFileError` at the first error; a duplicate id in a JSONL file is found at its end. A case that lacks a
    required field is skipped with a warning.
    """
    return read_eval_file(Path(path), _raise_or_warn, Inspection(_warn_of_ignored))


def read_eval_file(
    path: Path,
    report: Report,
    inspection: Inspection | None = None,
    ledger: Ledger | None = None,
) -> Iterator[EvalCase]:
    """Yield the valid cases of an eval file, and report the problems of all others.

    A case that lacks a field is reported as a warning, everything else as an error. Raise `EvalFileError` if the file
    cannot be read at all. Unknown fields are looked for only if there is an `inspection`. The `ledger` receives the
    hashes of cases that a function yields.
    """
    suffix = path.suffix.lower()
    reader = READERS.get(suffix)
    if reader is not None:
        return reader(path, report, inspection, ledger)
    name = "a name without an extension"
    if path.suffix:
        name = f"the extension {path.suffix!r}"
    raise EvalFileError(
        f"{name} is not supported: eval files end in {', '.join(READERS)}",
        file=path,
        hint=TABLES.get(suffix, "rename the file, or pass another one"),
    )


def numbered(cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
    """Yield the cases of a file, each with its position."""
    for position, case in enumerate(cases, 1):
        yield msgspec.structs.replace(case, position=position)


def sidecar_of(path: Path) -> Path:
    """Return the path of a JSONL file's sidecar, a YAML file that may hold its defaults."""
    return path.with_suffix(".yaml")


def read_case_file(path: Path) -> CaseFile:
    """Return the settings of an eval file, without reading its cases. Raise `EvalFileError` if it cannot be read."""
    if path.suffix.lower() == ".jsonl":
        return _read_sidecar(path, ignore, None).file
    return _read_defaults(path, read_object(path), path, ignore).file


def is_sidecar(path: Path) -> bool:
    """Return whether a file contains only the defaults for the JSONL file with the same name."""
    if path.suffix != ".yaml":
        return False
    if not any(isfile(path.with_suffix(suffix)) for suffix in (".jsonl", ".JSONL")):
        return False
    try:
        return not has_cases(read_object(path, or_nothing=True).value)
    except EvalFileError:
        return True  # the reader of the JSONL file reports the error


def has_cases(file: Json) -> bool:
    """Return whether a YAML file is an eval file, and not a sidecar."""
    return "evalcases" in file or "cases_from" in file


def calls_function(path: Path) -> bool:
    """Return whether a function yields cases of an eval file. Raise `EvalFileError` if the file cannot be read."""
    return path.suffix.lower() != ".jsonl" and "cases_from" in read_object(path).value


def _warn_of_ignored(problem: Problem) -> None:
    warn(as_ignored(problem))


def _raise_or_warn(problem: Problem) -> None:
    if problem.severity == "warning":
        warn(problem)
        return
    raise EvalFileError.of(problem)


# ---- YAML ----


def _read_yaml(
    path: Path,
    report: Report,
    inspection: Inspection | None,
    ledger: Ledger | None,
) -> Iterator[EvalCase]:
    document = read_object(path)
    if inspection is not None and has_cases(document.value):
        report_unknown_fields(document, path, EvalFileRecord, inspection.on_ignored)
    return read_cases(document, path, report, inspection, ledger)


def report_unknown_fields(
    document: Document,
    path: Path,
    type_: type[FileRecord],
    report: Report,
) -> None:
    """Report the unknown fields of a YAML eval file, or of a sidecar, as `type_` says, and those of its cases."""
    unknown = UnknownFields(path)
    unknown.add(document.value, type_, document.place)
    cases = document.value.get("evalcases")
    if isinstance(cases, list):
        for index, case in enumerate(cases):
            if isinstance(case, dict):
                locate = partial(_place_in_document, document, index)
                unknown.add(case, CaseRecord, locate)
    for problem in unknown.problems():
        report(problem)


def _place_in_document(document: Document, index: int, steps: Steps) -> Place:
    return document.place(("evalcases", index, *steps))


def read_cases(
    document: Document,
    path: Path,
    report: Report,
    inspection: Inspection | None = None,
    ledger: Ledger | None = None,
) -> Iterator[EvalCase]:
    """Yield the cases of a parsed YAML eval file."""
    defaults = _read_defaults(path, document, path, report)
    misfit = _no_cases(document.value)
    if misfit is not None:
        place = document.place(misfit.steps or ("evalcases",))
        report(misfit.problem(path, place))
        return

    runs_code = inspection is None or inspection.runs_code

    def written_cases() -> Iterator[CaseSource]:
        yield from _listed_cases(document)
        yield from _generated_cases(document, path, ledger, runs_code=runs_code)

    duplicates = DuplicateFinder()
    expander = CaseExpander(path, defaults, report, inspection)
    for written in written_cases():
        for case in expander.cases(written):
            duplicates.add_one(case.id)
            yield case
    hashes = duplicates.duplicate_hashes()
    if hashes:
        for problem in _find_duplicates(written_cases(), hashes, path, defaults):
            report(problem)


def _listed_cases(document: Document) -> Iterator[CaseSource]:
    """Yield the cases in the list of a YAML eval file."""
    for index, value in enumerate(document.value.get("evalcases") or ()):
        locate = partial(_place_in_document, document, index)
        yield CaseSource(value, locate(()).line, locate)


def _generated_cases(
    document: Document,
    path: Path,
    ledger: Ledger | None,
    *,
    runs_code: bool,
) -> Iterator[CaseSource]:
    """Yield the cases of the function that a YAML eval file names. All of them are placed where it is named."""
    spec = document.value.get("cases_from")
    if spec is None:
        return
    place = document.place(("cases_from",))

    def locate(_steps: Steps) -> Place:
        return place

    try:
        if not runs_code:
            check_spec(spec, path.parent)
            return
        for case in generate(spec, path.parent, ledger):
            yield CaseSource(case.written, place.line, locate, f"cases_from: case {case.number}")
    except ConfigError as error:
        raise located(error, path, *place) from error


def _no_cases(file: Json) -> Misfit | None:
    """Return the problem of a file whose `evalcases` is missing, empty, or not a list."""
    values = file.get("evalcases")
    spec = file.get("cases_from")
    if spec is not None and (not isinstance(spec, str) or not spec):
        return Misfit(("cases_from",), f"{spec!r} does not name a function", "use path/to/file.py:name")
    has_listed_cases = isinstance(values, list) and bool(values)
    has_only_generated_cases = spec is not None and "evalcases" not in file
    if has_listed_cases or has_only_generated_cases:
        return None
    if not has_cases(file):
        for name in file:
            if closest(name, ["evalcases", "eval_cases"]):
                return Misfit((name,), "unknown field", "did you mean 'evalcases'?")
    message = "'evalcases' must be a non-empty list"
    hint = "list the cases under 'evalcases:'"
    if values is None:
        message = "missing evalcases"
    if isinstance(file.get("targets"), list):
        hint = "this is a targets file: pass an eval file, a folder or a quoted glob instead"
    if isinstance(values, dict):
        hint = "put a dash before the first field of each case: '- id: …'"
    return Misfit((), message, hint)


def read_object(path: Path, *, or_nothing: bool = False) -> Document:
    """Return the document of a YAML file; raise `EvalFileError` if it is not an object.

    With `or_nothing`, an empty file counts as an empty object.
    """
    document = read_yaml(path, EvalFileError)
    if isinstance(document.value, dict):
        return document
    message = "the file must contain a mapping"
    if document.value is None:
        if or_nothing:
            return document._replace(value={})
        message = "the file is empty"
    place = document.place(())
    raise EvalFileError(
        message,
        file=path,
        line=place.line,
        column=place.column,
        hint="see 'agentv schema eval'",
    )


def _read_defaults(
    path: Path,
    document: Document,
    source: Path,
    report: Report,
) -> Defaults:
    """Return the defaults that a document sets for the cases of `path`; `source` is the document's file."""
    record = convert(document.value, FileRecord)
    if isinstance(record, FileRecord):
        return build_defaults(path, record)
    for misfit in record:
        place = document.place(misfit.steps)
        report(misfit.problem(source, place))
    return build_defaults(path, FileRecord())


# ---- JSONL ----


def _read_jsonl(
    path: Path,
    report: Report,
    inspection: Inspection | None,
    _ledger: Ledger | None,
) -> Iterator[EvalCase]:
    defaults = _read_sidecar(path, report, inspection)
    duplicates = DuplicateFinder()
    expander = CaseExpander(path, defaults, report, inspection)
    is_empty = True
    for lines, first, records, has_variables in _record_blocks(path, inspection):
        ids: list[str] = []
        for line, record in enumerate(records, first):
            # Fast path: most lines are one valid case without variables.
            if (
                record is not None
                and record.matrix is None
                and record.rows is None
                and record.exclude is None
                and not (has_variables and _may_have_variables(lines[line - first]))
            ):
                case = build_case(record, defaults, line)
                if case is not None:
                    ids.append(case.id)
                    yield case
                    continue
            raw = lines[line - first]
            if not raw.strip():
                continue
            is_empty = False
            written = _written_line(raw, line)
            if isinstance(written, Problem):
                report(msgspec.structs.replace(written, file=path))
                continue
            for case in expander.cases(written):
                duplicates.add_one(case.id)
                yield case
        duplicates.add(ids)
        if ids:
            is_empty = False
    if is_empty:
        report(_no_cases_on_lines(path))
    hashes = duplicates.duplicate_hashes()
    if hashes:
        for problem in _find_duplicates(_written_lines(path), hashes, path, defaults):
            report(problem)


def _may_have_variables(raw: bytes) -> bool:
    """Return whether JSON may contain `{{ vars.NAME }}`."""
    return _VARIABLE.search(raw) is not None or _ESCAPED_VARIABLE.search(raw) is not None


def _written_line(raw: bytes, line: int) -> CaseSource | Problem:
    """Return the raw case on a line, or the problem of a line that is not JSON."""
    try:
        text = raw.decode()
        value = msgspec.json.decode(text)
    except _UNREADABLE as reason:
        message, column = explain_json_error(raw, reason)
        return Problem(message=f"{_line_words(line)}: {message}", line=line, column=column)

    def locate(steps: Steps) -> Place:
        return Place(line, column_in_json(text, steps))

    return CaseSource(value, line, locate, _line_words(line))


def _line_words(line: int) -> str:
    """Return what messages about a line start with, as the specification of the format requires."""
    return f"Line {line}"


def _written_lines(path: Path) -> Iterator[CaseSource]:
    """Yield the raw cases of a JSONL file."""
    for lines, first in numbered_lines(path):
        for line, raw in enumerate(lines, first):
            written = _written_line(raw, line)
            if isinstance(written, CaseSource):
                yield written


def _no_cases_on_lines(path: Path) -> Problem:
    return Problem(
        message="the file has no eval cases",
        file=path,
        line=1,
        column=1,
        hint="write one case, a JSON object, on each line",
    )


def numbered_lines(path: Path) -> Iterator[tuple[list[bytes], int]]:
    """Yield the lines of a file in blocks, each with the number of its first line.

    Raise `EvalFileError` if the file cannot be read, or at a line that is too long.
    """
    line = 1
    try:
        with open_regular(path) as file:
            for lines in line_blocks(file):
                yield lines, line
                line += len(lines)
    except (OSError, ValueError) as problem:
        raise read_error(problem, path, EvalFileError) from problem
    except OverflowError:
        raise EvalFileError(
            f"the line is longer than {MAX_LINE_BYTES // 2**20} MiB",
            file=path,
            line=line,
            column=1,
            hint="put one case on each line, and attach long content as a file",
        ) from None


class _Block(NamedTuple):
    """Some lines of a file, the number of the first, and the record on each."""

    lines: list[bytes]
    first: int
    records: Sequence[CaseRecord | None]
    has_variables: bool
    """Whether any line may have variables. Most blocks have none, and one search is faster than one per line."""


def _record_blocks(path: Path, inspection: Inspection | None) -> Iterator[_Block]:
    """Yield the lines of a file and their records; at the end, report the unknown fields to the inspection."""
    unknown = UnknownFields(path)
    for lines, first in numbered_lines(path):
        text = b"\n".join(lines)
        if inspection is None:
            records = _decode_lines(lines, text)
        else:
            records = _inspect_lines(lines, text, first, unknown)
        yield _Block(lines, first, records, _may_have_variables(text))
    if inspection is not None:
        for problem in unknown.problems():
            inspection.on_ignored(problem)


def _decode_lines(lines: list[bytes], text: bytes) -> Sequence[CaseRecord | None]:
    """Return the record on each line, or None for a line that is blank or invalid.

    Lines that are not UTF-8 are rejected here, because msgspec does not decode the fields that it skips.
    """
    try:
        return _decode_block(lines, text, _RECORDS)
    except _UNREADABLE:
        return [*map(_decode_line, lines)]


def _inspect_lines(
    lines: list[bytes],
    text: bytes,
    first: int,
    unknown: UnknownFields,
) -> Sequence[CaseRecord | None]:
    """Return the record on each line, as `_decode_lines` does, and collect the unknown fields.

    Field names are only looked at in a block that contains an unknown field or an invalid line.
    """
    try:
        return _decode_block(lines, text, _STRICT_RECORDS)
    except _UNREADABLE:
        for line, raw in enumerate(lines, first):
            try:
                written = _FIELDS.decode(raw.decode())
                unknown.add(written, CaseRecord, partial(_place_in_line, raw, line))
            except _UNREADABLE:
                continue  # reported as an invalid line
        return _decode_lines(lines, text)


def _decode_block(lines: list[bytes], text: bytes, decoder: "msgspec.json.Decoder[R]") -> list[R]:
    """Return the records of a block; `text` is all lines of it.

    Whole blocks go through `map`: a loop over the lines would be slower.
    """
    if not text.isascii():
        text.decode()
    return [*map(decoder.decode, lines)]


def _place_in_line(raw: bytes, line: int, steps: Steps) -> Place:
    column = column_in_json(raw.decode(), steps)
    return Place(line, column)


def _decode_line(raw: bytes) -> CaseRecord | None:
    try:
        return _RECORDS.decode(raw.decode())
    except _UNREADABLE:
        return None


# Each starts with a literal that is rare in JSON, which makes the search fast.
_VARIABLE = re.compile(rb"vars\.")
_ESCAPED_VARIABLE = re.compile(rb"\\u00[267]")
"""The escape of a character in `vars.`, as no writer of JSON uses it."""
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_RECORDS = msgspec.json.Decoder(CaseRecord)
_STRICT_RECORDS = msgspec.json.Decoder(StrictCaseRecord)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _read_sidecar(path: Path, report: Report, inspection: Inspection | None) -> Defaults:
    """Return the defaults that the sidecar of a JSONL file sets."""
    if inspection is not None:
        _check_for_yml(path, inspection)
    sidecar = sidecar_of(path)
    if isfile(sidecar):
        try:
            document = read_object(sidecar, or_nothing=True)
        except EvalFileError as error:
            report(Problem.of(error))
            return build_defaults(path, FileRecord())
        if not has_cases(document.value):
            if inspection is not None:
                report_unknown_fields(document, sidecar, FileRecord, inspection.on_ignored)
            return _read_defaults(path, document, sidecar, report)
    message = f"no sidecar {sidecar.name} beside this file: using the defaults"
    debug(Problem(message=message, severity="warning", file=path))
    return build_defaults(path, FileRecord())


def _check_for_yml(path: Path, inspection: Inspection) -> None:
    """Report a `.yml` file beside a JSONL file that looks like a sidecar: only `.yaml` is one."""
    other = path.with_suffix(".yml")
    if not isfile(other):
        return
    try:
        is_eval_file = has_cases(read_object(other, or_nothing=True).value)
    except EvalFileError:
        is_eval_file = False
    if is_eval_file:
        return
    sidecar = sidecar_of(path)
    problem = Problem(
        message=f"this is not the sidecar of {path.name}: expected {sidecar.name}",
        file=other,
        line=1,
        column=1,
        hint=f"rename it to {sidecar.name}, if it contains the defaults of the cases",
    )
    inspection.on_ignored(problem)


# ---- duplicate ids ----


class _CasePlace(NamedTuple):
    """Where the id of a case is written: in the eval file, or in the file with its row."""

    file: Path
    place: Place


def _find_duplicates(
    cases: Iterable[CaseSource],
    hashes: set[int],
    path: Path,
    defaults: Defaults,
) -> Iterator[Problem]:
    """Read the cases a second time and yield a problem for each repetition of an id."""
    first_places: dict[str, _CasePlace] = {}
    expander = CaseExpander(path, defaults, ignore)
    for written in cases:
        for case in expander.cases(written):
            if hash(case.id) not in hashes:
                continue
            here = _CasePlace(path, written.locate(("id",)))
            if expander.row is not None:
                file, line = expander.row
                here = _CasePlace(file, Place(line, 1))
            first = first_places.setdefault(case.id, here)
            if first is not here:
                duplicate = _duplicate_id(case.id, first, here)
                yield duplicate.problem(here.file, here.place)


def _duplicate_id(id_: str, first: _CasePlace, here: _CasePlace) -> Misfit:
    where = f"on line {first.place.line}"
    if first.file != here.file:
        where += f" of {first.file}"
    return Misfit((), f"duplicate id {id_!r}, first {where}", "use unique ids")


READERS = {".yaml": _read_yaml, ".yml": _read_yaml, ".jsonl": _read_jsonl}
"""The reader of each kind of eval file, by extension."""
