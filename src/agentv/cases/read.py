"""Eval file -> EvalCase, one at a time.

A JSONL file is decoded in blocks of plain lines, by msgspec alone; only a block that holds anything
out of the ordinary is looked at line by line. What is held is one block, and eight bytes a case to
find an id that stands twice.
"""

from collections.abc import Callable, Iterator, Sequence
from os.path import isfile
from pathlib import Path

import msgspec

from agentv.cases.schema import CaseRecord, Defaults, FileRecord, complete, defaults_of
from agentv.errors import EvalFileError
from agentv.formats.conversion import Misfit, converted
from agentv.formats.jsonl import MAX_LINE_BYTES, bad_json, column_in_json, line_blocks
from agentv.formats.yaml import Document, Place, open_regular, read_yaml, unreadable
from agentv.notices import mention, warn
from agentv.records import EvalCase, Problem
from agentv.system.compact_sets import DuplicateFinder

Report = Callable[[Problem], None]
"""What is done with a problem: raise it, warn of it, or collect it."""


def load_eval_cases(path: str | Path) -> Iterator[EvalCase]:
    """The cases of an eval file, read as they are asked for.

    Raises `EvalFileError` at the first thing that is wrong; an id that stands twice in a JSONL file
    is found at its end. A case without a required field is left out with a warning.
    """
    return read_eval_file(Path(path), _raise_or_warn)


def read_eval_file(path: Path, report: Report) -> Iterator[EvalCase]:
    """The cases of an eval file; each problem that keeps another one out is reported.

    A case that is only left out is reported as a warning, everything else as an error. What keeps
    the whole file from being read is raised.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        name = f"the extension {path.suffix!r}" if path.suffix else "a name without an extension"
        message = f"{name} is not supported: eval files end in {', '.join(READERS)}"
        raise EvalFileError(message, file=path, hint="rename the file, or name another")
    return reader(path, report)


def sidecar_of(path: Path) -> Path:
    """The file beside a JSONL file that may hold its defaults."""
    return path.with_suffix(".yaml")


def is_sidecar(path: Path) -> bool:
    """Whether a file only holds the defaults of the JSONL file beside it."""
    if path.suffix != ".yaml" or not any(isfile(path.with_suffix(suffix)) for suffix in (".jsonl", ".JSONL")):
        return False
    try:
        return "evalcases" not in read_object(path, or_nothing=True).value
    except EvalFileError:
        return True  # broken, and told so by whoever reads the dataset


def _raise_or_warn(problem: Problem) -> None:
    if problem.severity == "warning":
        warn(problem)
        return
    raise EvalFileError.of(problem)


# ---- YAML ----


def _read_yaml(path: Path, report: Report) -> Iterator[EvalCase]:
    return (case for _, case in cases_in(read_object(path), path, report))


def cases_in(document: Document, path: Path, report: Report) -> Iterator[tuple[int, EvalCase]]:
    """The cases of a YAML eval file that has been parsed, each with its number in the list."""
    defaults = _defaults(path, document, path, report)
    values = document.value.get("evalcases")
    if not isinstance(values, list) or not values:
        message = "missing evalcases" if values is None else "evalcases: expected a non-empty array"
        misfit = Misfit((), message, "list the cases under 'evalcases:'")
        report(misfit.problem(path, document.place(("evalcases",))))
        return
    places: dict[str, Place] = {}
    for index, value in enumerate(values):
        steps = ("evalcases", index)
        record = converted(value, CaseRecord)
        case = record if isinstance(record, list) else complete(record, defaults, document.place(steps).line)
        if isinstance(case, list):
            for misfit in case:
                report(misfit.problem(path, document.place((*steps, *misfit.steps))))
            continue
        place = document.place((*steps, "id"))
        if first := places.get(case.id):
            report(_twice(case.id, first).problem(path, place))
        places.setdefault(case.id, place)
        yield index, case


def read_object(path: Path, *, or_nothing: bool = False) -> Document:
    """What a YAML file holds, which must be an object, or may be nothing at all."""
    document = read_yaml(path, EvalFileError)
    if or_nothing and document.value is None:
        return document._replace(value={})
    if not isinstance(document.value, dict):
        message = "the file is empty" if document.value is None else "expected an object at the top"
        place = document.place(())
        hint = "'agentv schema eval' shows what belongs there"
        raise EvalFileError(message, file=path, line=place.line, column=place.column, hint=hint)
    return document


def _defaults(path: Path, document: Document, where: Path, report: Report) -> Defaults:
    """The defaults for the cases of `path` that the document read from `where` sets."""
    record = converted(document.value, FileRecord)
    if isinstance(record, FileRecord):
        return defaults_of(path, record)
    for misfit in record:
        report(misfit.problem(where, document.place(misfit.steps)))
    return defaults_of(path, FileRecord())


# ---- JSONL ----


def _read_jsonl(path: Path, report: Report) -> Iterator[EvalCase]:
    defaults = _sidecar_defaults(path, report)
    repeats = DuplicateFinder()
    empty = True
    for lines, first in numbered_lines(path):
        ids: list[str] = []
        for line, record in enumerate(_decoded(lines), first):
            case = complete(record, defaults, line) if record is not None else None
            if type(case) is EvalCase:
                ids.append(case.id)
                yield case
            elif lines[line - first].strip():
                empty = False
                for problem in _explained(lines[line - first], defaults, line):
                    report(problem)
        repeats.add(ids)
        empty = empty and not ids
    if empty:
        hint = "write one case, a JSON object, on each line"
        report(Problem(message="the file has no eval cases", file=path, line=1, column=1, hint=hint))
    if hashes := repeats.duplicate_hashes():
        for problem in _repeated(path, hashes, defaults):
            report(problem)


def numbered_lines(path: Path) -> Iterator[tuple[list[bytes], int]]:
    """The lines of the file, some at a time, with the number of the first of them."""
    line = 1
    try:
        with open_regular(path) as file:
            for lines in line_blocks(file):
                yield lines, line
                line += len(lines)
    except (OSError, ValueError) as problem:
        raise unreadable(problem, path, EvalFileError) from problem
    except OverflowError:
        message = f"the line is longer than {MAX_LINE_BYTES // 2**20} MiB"
        hint = "put one case on each line, and long content into a file that a block refers to"
        raise EvalFileError(message, file=path, line=line, column=1, hint=hint) from None


def _decoded(lines: list[bytes]) -> Sequence[CaseRecord | None]:
    """The record on each line; None where there is none.

    msgspec does not look into fields that it does not know, so that lines are UTF-8 is seen to here.
    """
    try:
        if not all(map(bytes.isascii, lines)):
            b"\n".join(lines).decode()
        return [*map(_RECORDS.decode, lines)]
    except _UNREADABLE:
        return [*map(_decoded_line, lines)]


def _decoded_line(raw: bytes) -> CaseRecord | None:
    try:
        return _RECORDS.decode(raw.decode())
    except _UNREADABLE:
        return None


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_RECORDS = msgspec.json.Decoder(CaseRecord)


def _explained(raw: bytes, defaults: Defaults, line: int) -> Iterator[Problem]:
    """All that is wrong with a line that gave no case."""
    path = defaults.file.path
    try:
        value = msgspec.json.decode(raw.decode())
    except _UNREADABLE as reason:
        message, column = bad_json(raw, reason)
        yield Problem(message=message, file=path, line=line, column=column)
        return
    record = converted(value, CaseRecord)
    wrong = complete(record, defaults, line) if isinstance(record, CaseRecord) else record
    if isinstance(wrong, list):
        text = raw.decode()
        for misfit in wrong:
            yield misfit.problem(path, Place(line, column_in_json(text, misfit.steps)))


def _sidecar_defaults(path: Path, report: Report) -> Defaults:
    """The defaults that the file beside a JSONL file sets."""
    beside = sidecar_of(path)
    if isfile(beside):
        try:
            document = read_object(beside, or_nothing=True)
        except EvalFileError as error:
            report(Problem.of(error))
            return defaults_of(path, FileRecord())
        if "evalcases" not in document.value:
            return _defaults(path, document, beside, report)
    message = f"no sidecar {beside.name} beside this file: using the defaults"
    mention(Problem(message=message, severity="warning", file=path))
    return defaults_of(path, FileRecord())


def _repeated(path: Path, hashes: set[int], defaults: Defaults) -> Iterator[Problem]:
    """The ids that stand more than once, each with its places; found in a second pass."""
    places: dict[str, Place] = {}
    for lines, first in numbered_lines(path):
        for line, raw in enumerate(lines, first):
            record = _decoded_line(raw)
            if record is None or hash(record.id) not in hashes:
                continue
            case = complete(record, defaults, line)
            if not isinstance(case, EvalCase):
                continue
            place = Place(line, column_in_json(raw.decode(), ("id",)))
            if case.id in places:
                yield _twice(case.id, places[case.id]).problem(path, place)
            places.setdefault(case.id, place)


def _twice(id_: str, first: Place) -> Misfit:
    return Misfit((), f"duplicate id {id_!r}, first on line {first.line}", "give each case an id of its own")


READERS = {".yaml": _read_yaml, ".yml": _read_yaml, ".jsonl": _read_jsonl}
"""How each kind of eval file is read, by its extension."""
