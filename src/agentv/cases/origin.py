"""Find where the parts of a case are written, above all its evaluators: in the case, in its file, or in the sidecar.

Cases carry no positions, because a large file would have too many. The position is looked up in the file again when
there is something to report.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.objects import NO_FILE, DefaultEvaluators
from agentv.cases.read import has_cases, read_object, sidecar_of
from agentv.cases.schema import NO_ID
from agentv.errors import EvalFileError
from agentv.files.jsonl import column_in_json
from agentv.files.yaml import Document, Place, Steps, open_regular
from agentv.records import EvalCase, Problem, Severity


def case_problem(case: EvalCase, message: str, hint: str = "") -> Problem:
    """Return a problem with a case as a whole, at the location of the case."""
    return Problem(
        message=f"case {case.id!r}: {message}",
        file=case.file.path,
        line=case.line,
        column=1,
        hint=hint,
    )


class Origin(NamedTuple):
    """Where a setting is written: `steps` lead to it from its case, or from the top of the file."""

    file: Path
    steps: Steps
    place: Callable[[Steps], Place]
    case_id: str | None = None
    """The case that has the setting; None if all cases of the file share it."""

    def problem(
        self,
        at: Steps,
        subject: str,
        message: str,
        hint: str = "",
        severity: Severity = "error",
    ) -> Problem:
        """Return a problem with the value at the steps `at`; `subject` names what the message is about."""
        parts = [subject, message]
        is_named = self.case_id not in (None, NO_ID)
        if is_named and severity == "error":
            parts.insert(0, f"case {self.case_id!r}")
        place = self.place(at)
        return Problem(
            message=": ".join(filter(None, parts)),
            severity=severity,
            file=self.file,
            line=place.line,
            column=place.column,
            hint=hint,
        )


class OriginFinder:
    """Find where settings are written.

    The last file read is kept: problems are mostly reported in the order of lines.
    """

    def __init__(self) -> None:
        self._yaml: _YamlFile | None = None
        self._lines: _LineReader | None = None

    def find(self, case: EvalCase, setting: str) -> Origin:
        """Return where `evaluators`, `rubrics` or `evaluator` of a case is written, or the case itself if nowhere."""
        if setting == "evaluators" and isinstance(case.execution.evaluators, DefaultEvaluators):
            return Origin(NO_FILE, (setting,), lambda _steps: Place(0, 0))
        written = self.written(case)
        steps = _steps_to(setting, written.value)
        if steps is None and written.value is not None:
            shared = self._find_shared(case, setting)
            if shared is not None:
                return shared
        return Origin(
            file=case.file.path,
            steps=steps or (setting,),
            place=written.place,
            case_id=case.id,
        )

    def find_added(self, case: EvalCase, number: int) -> tuple[Origin, int] | None:
        """Return where `add_evaluators` is written and the position in it, if the case adds this evaluator."""
        written = self.written(case)
        added = (written.value or {}).get("add_evaluators") or ()
        first = len(case.evaluators) - len(added)
        if number < first:
            return None
        origin = Origin(
            file=case.file.path,
            steps=("add_evaluators",),
            place=written.place,
            case_id=case.id,
        )
        return origin, number - first

    def written(self, case: EvalCase) -> "WrittenCase":
        """Return the case as written in its file."""
        if _is_jsonl(case):
            return self._find_line(case)
        return self._find_item(case)

    def _find_line(self, case: EvalCase) -> "WrittenCase":
        """Return the case as written on its line of a JSONL file."""
        if self._lines is None or self._lines.path != case.file.path:
            self._lines = _LineReader(case.file.path)
        try:
            text = self._lines.read(case.line).decode()
            value = msgspec.json.decode(text)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            return _not_found(case)
        if not isinstance(value, dict) or not _is_of(case.id, _id_of(value)):
            return _not_found(case)

        def place(steps: Steps) -> Place:
            column = column_in_json(text, steps)
            return Place(case.line, column)

        return WrittenCase(value, place)

    def _find_item(self, case: EvalCase) -> "WrittenCase":
        """Return the case as written in a YAML file."""
        file = self._read_yaml(case.file.path)
        if file is None:
            return _not_found(case)
        document = file.document
        index = None
        for id_, number in file.indexes.get(case.line, ()):
            if _is_of(case.id, id_):
                index = number
        if index is None and "cases_from" in document.value:
            return WrittenCase({}, partial(_one_place, document.place(("cases_from",))))
        if index is None:
            return _not_found(case)
        value = document.value["evalcases"][index]

        def place(steps: Steps) -> Place:
            return document.place(("evalcases", index, *steps))

        return WrittenCase(value, place)

    def _find_shared(self, case: EvalCase, setting: str) -> Origin | None:
        """Return where the case's file or its sidecar sets the setting for all cases; None if it does not."""
        path = case.file.path
        if _is_jsonl(case):
            path = sidecar_of(path)
        file = self._read_yaml(path)
        if file is None:
            return None
        value = file.document.value
        if _is_jsonl(case) and has_cases(value):
            return None  # a YAML eval file of the same name, not a sidecar
        steps = _steps_to(setting, value)
        if steps is None:
            return None
        return Origin(path, steps, file.document.place)

    def _read_yaml(self, path: Path) -> "_YamlFile | None":
        if not isfile(path):
            return None
        if self._yaml is None or self._yaml.path != path:
            try:
                document = read_object(path, or_nothing=True)
            except EvalFileError:
                return None
            indexes = _case_indexes(document)
            self._yaml = _YamlFile(path, document, indexes)
        return self._yaml


class WrittenCase(NamedTuple):
    """A case as written in its file."""

    value: Mapping[str, Any] | None
    """None if the case is not found: the file may have changed."""
    place: Callable[[Steps], Place]
    """Return the position of a part of the case."""


class _YamlFile(NamedTuple):
    path: Path
    document: Document
    indexes: Mapping[int, Sequence[tuple[str, int]]]
    """The id of each case and its index in the list, by its line."""


class _LineReader:
    """Read single lines of a file. Reading continues from the last line, so that lines in order take one pass."""

    def __init__(self, path: Path):
        self.path = path
        self._line = 1
        self._offset = 0

    def read(self, line: int) -> bytes:
        """Return a line by its number, counted from 1; empty if there is none."""
        if line < self._line:
            self._line = 1
            self._offset = 0
        with open_regular(self.path) as file:
            file.seek(self._offset)
            while self._line < line:
                skipped = file.readline()
                if not skipped:
                    break
                self._line += 1
                self._offset += len(skipped)
            raw = file.readline()
        if line == 1:
            return raw.removeprefix(b"\xef\xbb\xbf")
        return raw


def _is_jsonl(case: EvalCase) -> bool:
    return case.file.path.suffix.lower() == ".jsonl"


def _steps_to(setting: str, written: Mapping[str, Any] | None) -> Steps | None:
    """Return the steps to a setting in a case or a file, or None if it is not set.

    `evaluators` may also be written under `execution`.
    """
    if written is None:
        return None
    if written.get(setting) is not None:
        return (setting,)
    if setting != "evaluators":
        return None
    execution = written.get("execution")
    if isinstance(execution, dict) and execution.get(setting) is not None:
        return ("execution", setting)
    return None


def _case_indexes(document: Document) -> dict[int, list[tuple[str, int]]]:
    cases = document.value.get("evalcases")
    if not isinstance(cases, list):
        return {}
    indexes: dict[int, list[tuple[str, int]]] = {}
    for index, case in enumerate(cases):
        if isinstance(case, dict):
            place = document.place(("evalcases", index))
            indexes.setdefault(place.line, []).append((_id_of(case), index))
    return indexes


def _is_of(case_id: str, written_id: str) -> bool:
    """Return whether a case has this id in the file, or belongs to the family with this id."""
    return case_id == written_id or case_id.startswith(f"{written_id}[")


def _id_of(written: Mapping[str, Any]) -> str:
    id_ = written.get("id")
    if isinstance(id_, str) and id_:
        return id_
    return NO_ID


def _not_found(case: EvalCase) -> WrittenCase:
    """Return a case without content. All its parts have the location of the case."""
    return WrittenCase(None, partial(_first_column, case.line))


def _one_place(place: Place, _steps: Steps) -> Place:
    return place


def _first_column(line: int, _steps: Steps) -> Place:
    return Place(line, 1)
