"""Where the evaluators of a case are written: in the case, in its file, or in the sidecar.

Cases do not carry places, as a large file would have too many. They are found again in the file when there is
something to tell.
"""

from collections.abc import Callable, Mapping
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.read import read_object, sidecar_of
from agentv.cases.schema import NO_ID
from agentv.errors import EvalFileError
from agentv.formats.jsonl import column_in_json
from agentv.formats.yaml import Document, Place, Steps, open_regular
from agentv.records import EvalCase, Problem, Severity


class Origin(NamedTuple):
    """Where a setting is written: `steps` lead to it from its case, or from the top of the file."""

    file: Path
    steps: Steps
    place: Callable[[Steps], Place]
    case_id: str | None = None
    """The case that has the setting; None if all cases of the file share it."""

    def problem(self, at: Steps, subject: str, message: str, hint: str = "", severity: Severity = "error") -> Problem:
        """Return the problem with the value that the steps `at` lead to; `subject` is what the message is about."""
        place = self.place(at)
        is_named = self.case_id not in (None, NO_ID) and severity == "error"
        parts = (f"case {self.case_id!r}" if is_named else "", subject, message)
        return Problem(
            message=": ".join(filter(None, parts)),
            severity=severity,
            file=self.file,
            line=place.line,
            column=place.column,
            hint=hint,
        )


class OriginFinder:
    """Finds where settings are written. What it has read last is kept, as problems often come in the order of lines."""

    def __init__(self) -> None:
        self._yaml: _YamlFile | None = None
        self._lines: _LineReader | None = None

    def find(self, case: EvalCase, setting: str) -> Origin:
        """Return where `evaluators`, `rubrics` or `evaluator` of a case is written; the case if it is nowhere."""
        is_jsonl = case.file.path.suffix.lower() == ".jsonl"
        written, place = self._find_line(case) if is_jsonl else self._find_item(case)
        if (steps := _steps_to(setting, written)) is not None:
            return Origin(case.file.path, steps, place, case.id)
        shared = sidecar_of(case.file.path) if is_jsonl else case.file.path
        file = self._read_yaml(shared) if written is not None else None
        if file is None or (is_jsonl and "evalcases" in file.document.value):
            return Origin(case.file.path, (setting,), place, case.id)
        if (steps := _steps_to(setting, file.document.value)) is not None:
            return Origin(shared, steps, file.document.place)
        return Origin(case.file.path, (setting,), place, case.id)

    def _find_line(self, case: EvalCase) -> "_Written":
        """Return the case as it is written on its line of a JSONL file."""
        if self._lines is None or self._lines.path != case.file.path:
            self._lines = _LineReader(case.file.path)
        try:
            text = self._lines.read(case.line).decode()
            written = msgspec.json.decode(text)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            return _not_found(case)
        if not isinstance(written, dict) or _id_of(written) != case.id:
            return _not_found(case)
        return written, lambda steps: Place(case.line, column_in_json(text, steps))

    def _find_item(self, case: EvalCase) -> "_Written":
        """Return the case as it is written in a YAML file."""
        file = self._read_yaml(case.file.path)
        if file is None or (case.line, case.id) not in file.indexes:
            return _not_found(case)
        index = file.indexes[case.line, case.id]
        around = ("evalcases", index)
        return file.document.value["evalcases"][index], lambda steps: file.document.place((*around, *steps))

    def _read_yaml(self, path: Path) -> "_YamlFile | None":
        if not isfile(path):
            return None
        if self._yaml is None or self._yaml.path != path:
            try:
                document = read_object(path, or_nothing=True)
            except EvalFileError:
                return None
            self._yaml = _YamlFile(path, document, _indexes(document))
        return self._yaml


_Written = tuple[Mapping[str, Any] | None, Callable[[Steps], Place]]
"""A case as it is written, or None if it is not found, and where its parts are."""


class _YamlFile(NamedTuple):
    path: Path
    document: Document
    indexes: Mapping[tuple[int, str], int]
    """The number of each case in the list, by its line and its id."""


class _LineReader:
    """Reads single lines of a file. It goes on from the last one, so that many lines in order take one pass."""

    def __init__(self, path: Path):
        self.path = path
        self._line, self._offset = 1, 0

    def read(self, line: int) -> bytes:
        """Return a line by its number, from 1; empty if there is none."""
        if line < self._line:
            self._line, self._offset = 1, 0
        with open_regular(self.path) as file:
            file.seek(self._offset)
            while self._line < line and (skipped := file.readline()):
                self._line, self._offset = self._line + 1, self._offset + len(skipped)
            raw = file.readline()
        return raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw


def _steps_to(setting: str, written: Mapping[str, Any] | None) -> Steps | None:
    """Return the steps to a setting in a case or a file, if it is there; `evaluators` has two places."""
    if written is None:
        return None
    if written.get(setting) is not None:
        return (setting,)
    execution = written.get("execution")
    if setting == "evaluators" and isinstance(execution, dict) and execution.get(setting) is not None:
        return ("execution", setting)
    return None


def _indexes(document: Document) -> dict[tuple[int, str], int]:
    cases = document.value.get("evalcases")
    return {
        (document.place(("evalcases", index)).line, _id_of(case)): index
        for index, case in enumerate(cases if isinstance(cases, list) else ())
        if isinstance(case, dict)
    }


def _id_of(written: Mapping[str, Any]) -> str:
    id_ = written.get("id")
    return id_ if isinstance(id_, str) and id_ else NO_ID


def _not_found(case: EvalCase) -> _Written:
    """Return the case's own line for every part of it: the file may have changed."""
    return None, partial(_first_column, case.line)


def _first_column(line: int, _steps: Steps) -> Place:
    return Place(line, 1)
