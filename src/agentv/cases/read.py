"""Read the cases of an eval file, one at a time.

A JSONL file is decoded in blocks of lines, by msgspec alone; only a block that contains an error is read line by line.
Memory stays flat: one block, plus eight bytes per case to find duplicate ids.
"""

from collections.abc import Callable, Iterator, Sequence
from os.path import isfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.schema import (
    CaseRecord,
    Defaults,
    EvalFileRecord,
    FileRecord,
    build_case,
    build_defaults,
    draft_case,
    explain_case,
    find_case_typos,
)
from agentv.errors import EvalFileError
from agentv.formats.conversion import Misfit, convert
from agentv.formats.jsonl import MAX_LINE_BYTES, column_in_json, explain_json_error, line_blocks
from agentv.formats.yaml import Document, Place, Steps, open_regular, read_error, read_yaml
from agentv.notices import mention, warn
from agentv.records import EvalCase, Problem
from agentv.system.compact_sets import DuplicateFinder

Report = Callable[[Problem], None]
"""A function that handles a problem: raises it, warns about it, or collects it."""


class Inspection(NamedTuple):
    """Callbacks for findings that are not problems of the file itself."""

    on_typo: Report
    """Called with an unknown field whose name is similar to a known one."""
    on_draft: Callable[[EvalCase, bool], None] = lambda _case, _is_skipped: None
    """Called with the readable part of an invalid case, and whether the case is merely skipped (warnings only)."""


TABLES = {
    ".csv": "'agentv import' makes an eval file of it",
    ".tsv": "'agentv import' makes an eval file of it",
    ".xlsx": "save it as .csv; 'agentv import' makes an eval file of that",
}
"""Hints for common dataset files that have to be converted to eval files, by their extension."""


def load_eval_cases(path: str | Path) -> Iterator[EvalCase]:
    """Yield the cases of an eval file, which is read lazily.

    Raise `EvalFileError` at the first error; a duplicate id in a JSONL file is found at its end. A case that lacks a
    required field is skipped with a warning.
    """
    return read_eval_file(Path(path), _raise_or_warn, Inspection(warn))


def read_eval_file(
    path: Path,
    report: Report,
    inspection: Inspection | None = None,
) -> Iterator[EvalCase]:
    """Yield the valid cases of an eval file, and report the problems of all others.

    A case that lacks a field is reported as a warning, everything else as an error. Raise `EvalFileError` if the file
    cannot be read at all. Field names are checked for typos in YAML files and in cases that lack a field; checking
    every case of a large JSONL file would take much longer than reading it.
    """
    suffix = path.suffix.lower()
    reader = READERS.get(suffix)
    if reader is not None:
        return reader(path, report, inspection)
    name = "a name without an extension"
    if path.suffix:
        name = f"the extension {path.suffix!r}"
    raise EvalFileError(
        f"{name} is not supported: eval files end in {', '.join(READERS)}",
        file=path,
        hint=TABLES.get(suffix, "rename the file, or name another"),
    )


def sidecar_of(path: Path) -> Path:
    """Return the path of a JSONL file's sidecar, a YAML file that may hold its defaults."""
    return path.with_suffix(".yaml")


def is_sidecar(path: Path) -> bool:
    """Return whether a file only holds the defaults of the JSONL file of the same name."""
    if path.suffix != ".yaml":
        return False
    if not any(isfile(path.with_suffix(suffix)) for suffix in (".jsonl", ".JSONL")):
        return False
    try:
        return "evalcases" not in read_object(path, or_nothing=True).value
    except EvalFileError:
        return True  # the reader of the JSONL file reports the error


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
) -> Iterator[EvalCase]:
    document = read_object(path)
    if inspection is not None:
        _report_typos(document, path, inspection)
    cases = read_cases(document, path, report, inspection)
    return (case for _, case in cases)


def _report_typos(document: Document, path: Path, inspection: Inspection) -> None:
    for typo in yaml_typos(document, path):
        inspection.on_typo(as_warning(typo))


def yaml_typos(document: Document, path: Path) -> Iterator[Problem]:
    """Yield the unknown fields of a YAML eval file or sidecar that are probably typos, each name once."""
    seen: set[Steps] = set()
    for steps, typo in _find_typos(document):
        if typo.steps not in seen:
            seen.add(typo.steps)
            place = document.place((*steps, *typo.steps))
            yield typo.problem(path, place)


def _find_typos(document: Document) -> Iterator[tuple[Steps, Misfit]]:
    """Yield the typos of the file and of its cases, each with the steps to the object that contains it."""
    for typo in find_case_typos(document.value, EvalFileRecord):
        yield (), typo
    cases = document.value.get("evalcases")
    if not isinstance(cases, list):
        return
    for index, case in enumerate(cases):
        if isinstance(case, dict):
            for typo in find_case_typos(case, CaseRecord):
                yield ("evalcases", index), typo


def as_warning(typo: Problem) -> Problem:
    """Return the problem of an unknown field as a warning, because a run ignores unknown fields."""
    return msgspec.structs.replace(
        typo,
        message=f"{typo.message}, ignored",
        severity="warning",
    )


def read_cases(
    document: Document,
    path: Path,
    report: Report,
    inspection: Inspection | None = None,
) -> Iterator[tuple[int, EvalCase]]:
    """Yield the cases of a parsed YAML eval file, each with its index in the list."""
    defaults = _read_defaults(path, document, path, report)
    values = document.value.get("evalcases")
    if not isinstance(values, list) or not values:
        place = document.place(("evalcases",))
        report(_no_cases(values).problem(path, place))
        return
    first_places: dict[str, Place] = {}
    for index, value in enumerate(values):
        steps = ("evalcases", index)
        line = document.place(steps).line
        case = _convert_case(value, defaults, line)
        if case is None:
            misfits = explain_case(value)
            for misfit in misfits:
                place = document.place((*steps, *misfit.steps))
                report(misfit.problem(path, place))
            _inspect_draft(value, misfits, defaults, line, inspection)
            continue
        place = document.place((*steps, "id"))
        if case.id in first_places:
            duplicate = _duplicate_id(case.id, first_places[case.id])
            report(duplicate.problem(path, place))
        else:
            first_places[case.id] = place
        yield index, case


def _no_cases(values: Any) -> Misfit:
    """Return what is wrong with an `evalcases` that is not a list, or an empty one."""
    message = "evalcases: expected a non-empty array"
    hint = "list the cases under 'evalcases:'"
    if values is None:
        message = "missing evalcases"
    if isinstance(values, dict):
        hint = "put a dash before the first field of each case: '- id: …'"
    return Misfit((), message, hint)


def _convert_case(value: Any, defaults: Defaults, line: int) -> EvalCase | None:
    """Return the case that a parsed value describes, or None if the value is invalid."""
    record = convert(value, CaseRecord)
    if isinstance(record, list):
        return None
    return build_case(record, defaults, line)


def _inspect_draft(
    written: Any,
    misfits: list[Misfit],
    defaults: Defaults,
    line: int,
    inspection: Inspection | None,
) -> None:
    """Pass the readable part of an invalid case to the inspection."""
    if inspection is None:
        return
    draft = draft_case(written, misfits, defaults, line)
    if draft is None:
        return
    is_skipped = all(misfit.severity == "warning" for misfit in misfits)
    inspection.on_draft(draft, is_skipped)


def read_object(path: Path, *, or_nothing: bool = False) -> Document:
    """Return the document of a YAML file; raise `EvalFileError` if it is not an object.

    With `or_nothing`, an empty file counts as an empty object.
    """
    document = read_yaml(path, EvalFileError)
    if isinstance(document.value, dict):
        return document
    message = "expected an object at the top"
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
        hint="'agentv schema eval' shows what belongs there",
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
) -> Iterator[EvalCase]:
    defaults = _read_sidecar(path, report, inspection)
    duplicates = DuplicateFinder()
    is_empty = True
    for lines, first in numbered_lines(path):
        ids: list[str] = []
        for line, record in enumerate(_decode_lines(lines), first):
            case = None
            if record is not None:
                case = build_case(record, defaults, line)
            if case is not None:
                ids.append(case.id)
                yield case
                continue
            raw = lines[line - first]
            if raw.strip():
                is_empty = False
                for problem in _explain_line(raw, defaults, line, inspection):
                    report(problem)
        duplicates.add(ids)
        if ids:
            is_empty = False
    if is_empty:
        report(_no_cases_on_lines(path))
    hashes = duplicates.duplicate_hashes()
    if hashes:
        for problem in _find_duplicates(path, hashes, defaults):
            report(problem)


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
            hint="put one case on each line, and long content into a file that a block refers to",
        ) from None


def _decode_lines(lines: list[bytes]) -> Sequence[CaseRecord | None]:
    """Return the record on each line, or None for a line that is blank or invalid.

    Lines that are not UTF-8 are rejected here, because msgspec does not decode the fields that it skips.
    """
    try:
        # Whole blocks go through `map`: a loop over the lines would be slower.
        if not all(map(bytes.isascii, lines)):
            b"\n".join(lines).decode()
        return [*map(_RECORDS.decode, lines)]
    except _UNREADABLE:
        return [*map(_decode_line, lines)]


def _decode_line(raw: bytes) -> CaseRecord | None:
    try:
        return _RECORDS.decode(raw.decode())
    except _UNREADABLE:
        return None


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_RECORDS = msgspec.json.Decoder(CaseRecord)


def _explain_line(
    raw: bytes,
    defaults: Defaults,
    line: int,
    inspection: Inspection | None,
) -> Iterator[Problem]:
    """Yield all problems of a line that does not hold a valid case."""
    path = defaults.file.path
    try:
        text = raw.decode()
        value = msgspec.json.decode(text)
    except _UNREADABLE as reason:
        message, column = explain_json_error(raw, reason)
        yield Problem(
            message=message,
            file=path,
            line=line,
            column=column,
        )
        return
    misfits = explain_case(value)
    for misfit in misfits:
        column = column_in_json(text, misfit.steps)
        yield misfit.problem(path, Place(line, column))
    _inspect_draft(value, misfits, defaults, line, inspection)


def _read_sidecar(path: Path, report: Report, inspection: Inspection | None) -> Defaults:
    """Return the defaults that the sidecar of a JSONL file sets."""
    sidecar = sidecar_of(path)
    if isfile(sidecar):
        try:
            document = read_object(sidecar, or_nothing=True)
        except EvalFileError as error:
            report(Problem.of(error))
            return build_defaults(path, FileRecord())
        if "evalcases" not in document.value:
            if inspection is not None:
                _report_typos(document, sidecar, inspection)
            return _read_defaults(path, document, sidecar, report)
    message = f"no sidecar {sidecar.name} beside this file: using the defaults"
    mention(Problem(message=message, severity="warning", file=path))
    return build_defaults(path, FileRecord())


def _find_duplicates(path: Path, hashes: set[int], defaults: Defaults) -> Iterator[Problem]:
    """Read the file a second time and yield a problem for each repetition of an id."""
    first_places: dict[str, Place] = {}
    for lines, first in numbered_lines(path):
        for line, raw in enumerate(lines, first):
            record = _decode_line(raw)
            if record is None or hash(record.id) not in hashes:
                continue
            case = build_case(record, defaults, line)
            if case is None:
                continue
            column = column_in_json(raw.decode(), ("id",))
            place = Place(line, column)
            if case.id in first_places:
                duplicate = _duplicate_id(case.id, first_places[case.id])
                yield duplicate.problem(path, place)
            else:
                first_places[case.id] = place


def _duplicate_id(id_: str, first: Place) -> Misfit:
    return Misfit((), f"duplicate id {id_!r}, first on line {first.line}", "give each case an id of its own")


READERS = {".yaml": _read_yaml, ".yml": _read_yaml, ".jsonl": _read_jsonl}
"""The reader of each kind of eval file, by extension."""
