"""Eval file -> EvalCase, one at a time.

A JSONL file is decoded in blocks of lines, by msgspec alone; only a block with an error in it is read
line by line. One block is held in memory, and eight bytes for each case to find duplicate ids.
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
"""Takes a problem: raises it, warns of it, or collects it."""


class Inspection(NamedTuple):
    """Takes what is worth telling of a file besides its problems, from whoever reads it."""

    slip: Report
    """Takes an unknown field whose name is much like that of a known one."""
    draft: Callable[[EvalCase, bool], None] = lambda _case, _is_left_out: None
    """Takes what can be read of a case that has problems, and whether it is only left out because of them."""


TABLES = {
    ".csv": "'agentv import' makes an eval file of it",
    ".tsv": "'agentv import' makes an eval file of it",
    ".xlsx": "save it as .csv; 'agentv import' makes an eval file of that",
}
"""What to do with files that people have, and that are no eval files."""


def load_eval_cases(path: str | Path) -> Iterator[EvalCase]:
    """Yield the cases of an eval file, which is read as they are asked for.

    Raise `EvalFileError` at the first error; a duplicate id in a JSONL file is found at its end. A case without a
    required field is left out with a warning.
    """
    return read_eval_file(Path(path), _raise_or_warn, Inspection(warn))


def read_eval_file(path: Path, report: Report, inspection: Inspection | None = None) -> Iterator[EvalCase]:
    """Yield the cases of an eval file, and report each problem with the others.

    A case that lacks a field is reported as a warning, everything else as an error. Raise `EvalFileError` if the file
    cannot be read at all. Names that are probably typos are looked for in YAML files and in the cases that lack a
    field, as a large JSONL file would take much longer to read.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        name = f"the extension {path.suffix!r}" if path.suffix else "a name without an extension"
        message = f"{name} is not supported: eval files end in {', '.join(READERS)}"
        raise EvalFileError(
            message, file=path, hint=TABLES.get(path.suffix.lower(), "rename the file, or name another")
        )
    return reader(path, report, inspection)


def sidecar_of(path: Path) -> Path:
    """Return the path of the file beside a JSONL file that may hold its defaults."""
    return path.with_suffix(".yaml")


def is_sidecar(path: Path) -> bool:
    """Return whether a file only holds the defaults of the JSONL file beside it."""
    if path.suffix != ".yaml" or not any(isfile(path.with_suffix(suffix)) for suffix in (".jsonl", ".JSONL")):
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


def _read_yaml(path: Path, report: Report, inspection: Inspection | None) -> Iterator[EvalCase]:
    document = read_object(path)
    if inspection is not None:
        for slip in yaml_slips(document, path):
            inspection.slip(as_warning(slip))
    return (case for _, case in read_cases(document, path, report, inspection))


def yaml_slips(document: Document, path: Path) -> Iterator[Problem]:
    """Yield the unknown fields of a YAML eval file or a sidecar that are probably typos, each name once."""
    entries = cases if isinstance(cases := document.value.get("evalcases"), list) else ()
    seen: set[Steps] = set()
    places: list[tuple[Steps, Any, type]] = [((), document.value, EvalFileRecord)]
    places += [(("evalcases", number), entry, CaseRecord) for number, entry in enumerate(entries)]
    for steps, written, type_ in places:
        for typo in find_case_typos(written, type_) if isinstance(written, dict) else ():
            if typo.steps not in seen:
                seen.add(typo.steps)
                yield typo.problem(path, document.place((*steps, *typo.steps)))


def as_warning(slip: Problem) -> Problem:
    """Return an unknown field as what it is to a run: no reason to stop."""
    return msgspec.structs.replace(slip, message=f"{slip.message}, ignored", severity="warning")


def read_cases(
    document: Document, path: Path, report: Report, inspection: Inspection | None = None
) -> Iterator[tuple[int, EvalCase]]:
    """Yield the cases of a YAML eval file that has been parsed, each with its index in the list."""
    defaults = _read_defaults(path, document, path, report)
    values = document.value.get("evalcases")
    if not isinstance(values, list) or not values:
        message = "missing evalcases" if values is None else "evalcases: expected a non-empty array"
        is_one = isinstance(values, dict)
        hint = (
            "put a dash before the first field of each case: '- id: …'"
            if is_one
            else "list the cases under 'evalcases:'"
        )
        misfit = Misfit((), message, hint)
        report(misfit.problem(path, document.place(("evalcases",))))
        return
    places: dict[str, Place] = {}
    for index, value in enumerate(values):
        steps = ("evalcases", index)
        record = convert(value, CaseRecord)
        line = document.place(steps).line
        case = record if isinstance(record, list) else build_case(record, defaults, line)
        if isinstance(case, list):
            misfits = explain_case(value)
            for misfit in misfits:
                report(misfit.problem(path, document.place((*steps, *misfit.steps))))
            _inspect_draft(value, misfits, defaults, line, inspection)
            continue
        place = document.place((*steps, "id"))
        if first := places.get(case.id):
            report(_duplicate_id(case.id, first).problem(path, place))
        places.setdefault(case.id, place)
        yield index, case


def _inspect_draft(
    written: Any, misfits: list[Misfit], defaults: Defaults, line: int, inspection: Inspection | None
) -> None:
    draft = draft_case(written, misfits, defaults, line) if inspection is not None else None
    if inspection is not None and draft is not None:
        inspection.draft(draft, all(misfit.severity == "warning" for misfit in misfits))


def read_object(path: Path, *, or_nothing: bool = False) -> Document:
    """Return the document of a YAML file; raise `EvalFileError` if it is no object.

    With `or_nothing`, an empty file counts as an empty object.
    """
    document = read_yaml(path, EvalFileError)
    if or_nothing and document.value is None:
        return document._replace(value={})
    if not isinstance(document.value, dict):
        message = "the file is empty" if document.value is None else "expected an object at the top"
        place = document.place(())
        hint = "'agentv schema eval' shows what belongs there"
        raise EvalFileError(message, file=path, line=place.line, column=place.column, hint=hint)
    return document


def _read_defaults(path: Path, document: Document, source: Path, report: Report) -> Defaults:
    """Return the defaults for the cases of `path` that a document sets; `source` is the file of the document."""
    record = convert(document.value, FileRecord)
    if isinstance(record, FileRecord):
        return build_defaults(path, record)
    for misfit in record:
        report(misfit.problem(source, document.place(misfit.steps)))
    return build_defaults(path, FileRecord())


# ---- JSONL ----


def _read_jsonl(path: Path, report: Report, inspection: Inspection | None) -> Iterator[EvalCase]:
    defaults = _read_sidecar(path, report, inspection)
    repeats = DuplicateFinder()
    empty = True
    for lines, first in numbered_lines(path):
        ids: list[str] = []
        for line, record in enumerate(_decode_lines(lines), first):
            case = build_case(record, defaults, line) if record is not None else None
            if type(case) is EvalCase:
                ids.append(case.id)
                yield case
            elif lines[line - first].strip():
                empty = False
                for problem in _explain_line(lines[line - first], defaults, line, inspection):
                    report(problem)
        repeats.add(ids)
        empty = empty and not ids
    if empty:
        hint = "write one case, a JSON object, on each line"
        report(Problem(message="the file has no eval cases", file=path, line=1, column=1, hint=hint))
    if hashes := repeats.duplicate_hashes():
        for problem in _find_duplicates(path, hashes, defaults):
            report(problem)


def numbered_lines(path: Path) -> Iterator[tuple[list[bytes], int]]:
    """Yield the lines of a file in blocks, each with the number of its first line."""
    line = 1
    try:
        with open_regular(path) as file:
            for lines in line_blocks(file):
                yield lines, line
                line += len(lines)
    except (OSError, ValueError) as problem:
        raise read_error(problem, path, EvalFileError) from problem
    except OverflowError:
        message = f"the line is longer than {MAX_LINE_BYTES // 2**20} MiB"
        hint = "put one case on each line, and long content into a file that a block refers to"
        raise EvalFileError(message, file=path, line=line, column=1, hint=hint) from None


def _decode_lines(lines: list[bytes]) -> Sequence[CaseRecord | None]:
    """Return the record on each line; None for a line that has none.

    That lines are UTF-8 is checked here, since msgspec does not decode fields that it does not know.
    """
    try:
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


def _explain_line(raw: bytes, defaults: Defaults, line: int, inspection: Inspection | None) -> Iterator[Problem]:
    """Yield everything that is wrong with a line that has no case."""
    path = defaults.file.path
    try:
        value = msgspec.json.decode(raw.decode())
    except _UNREADABLE as reason:
        message, column = explain_json_error(raw, reason)
        yield Problem(message=message, file=path, line=line, column=column)
        return
    text, misfits = raw.decode(), explain_case(value)
    for misfit in misfits:
        yield misfit.problem(path, Place(line, column_in_json(text, misfit.steps)))
    _inspect_draft(value, misfits, defaults, line, inspection)


def _read_sidecar(path: Path, report: Report, inspection: Inspection | None) -> Defaults:
    """Return the defaults that the file beside a JSONL file sets."""
    beside = sidecar_of(path)
    if isfile(beside):
        try:
            document = read_object(beside, or_nothing=True)
        except EvalFileError as error:
            report(Problem.of(error))
            return build_defaults(path, FileRecord())
        if "evalcases" not in document.value:
            for slip in yaml_slips(document, beside) if inspection is not None else ():
                inspection.slip(as_warning(slip))  # type: ignore[union-attr]  # it is not None here
            return _read_defaults(path, document, beside, report)
    message = f"no sidecar {beside.name} beside this file: using the defaults"
    mention(Problem(message=message, severity="warning", file=path))
    return build_defaults(path, FileRecord())


def _find_duplicates(path: Path, hashes: set[int], defaults: Defaults) -> Iterator[Problem]:
    """Yield a problem for each id that is not the first of its kind; found in a second pass."""
    places: dict[str, Place] = {}
    for lines, first in numbered_lines(path):
        for line, raw in enumerate(lines, first):
            record = _decode_line(raw)
            if record is None or hash(record.id) not in hashes:
                continue
            case = build_case(record, defaults, line)
            if not isinstance(case, EvalCase):
                continue
            place = Place(line, column_in_json(raw.decode(), ("id",)))
            if case.id in places:
                yield _duplicate_id(case.id, places[case.id]).problem(path, place)
            places.setdefault(case.id, place)


def _duplicate_id(id_: str, first: Place) -> Misfit:
    return Misfit((), f"duplicate id {id_!r}, first on line {first.line}", "give each case an id of its own")


READERS = {".yaml": _read_yaml, ".yml": _read_yaml, ".jsonl": _read_jsonl}
"""The reader of each kind of eval file, by its extension."""
