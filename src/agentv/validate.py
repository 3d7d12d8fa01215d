"""Any agentv file -> everything that is wrong with it, each problem with its place."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentv.case_records import CaseRecord, EvalFileRecord, FileRecord
from agentv.cases import Report, cases_in, is_sidecar, numbered_lines, read_eval_file, read_object
from agentv.config import CONFIG_NAMES, Config
from agentv.documents import Document, Place, Steps, column_in_json
from agentv.errors import AgentvError, AttachmentError, ConfigError, EvalFileError
from agentv.folders import attached_file
from agentv.records import EvalCase, FileBlock, Message, Problem
from agentv.shapes import Misfit, read_record, slips
from agentv.targets import TARGETS_NAMES, read_targets

Locate = Callable[[Steps], Place]
"""Where a part of a case stands in its file."""


class Checked(msgspec.Struct, frozen=True):
    """What became of one file: how many usable cases it has, and its problems in the order of its lines."""

    file: Path
    cases: int
    problems: tuple[Problem, ...]


def check_files(paths: Iterable[Path]) -> Iterator[Checked]:
    """Everything that is wrong with each file; a sidecar's problem is told once, with or without its dataset."""
    told: set[Problem] = set()
    for path in paths:
        checked = check_file(path)
        yield msgspec.structs.replace(checked, problems=tuple(p for p in checked.problems if p not in told))
        told.update(checked.problems)


def check_file(path: Path) -> Checked:
    """Everything that is wrong with one file of ours."""
    problems: list[Problem] = []
    cases = 0
    try:
        for _ in _checker(path)(path, problems.append):
            cases += 1
    except AgentvError as error:
        problems.append(Problem.of(error))
    ordered = sorted(dict.fromkeys(problems), key=lambda found: (found.line or 0, found.column or 0))
    return Checked(path, cases, tuple(ordered))


def _checker(path: Path) -> Callable[[Path, Report], Iterator[EvalCase]]:
    """What checks a file of this name; every checker yields the cases that it found to be usable."""
    if path.name in TARGETS_NAMES:
        return _check_targets
    if any(path.absolute().as_posix().endswith(f"/{name}") for name in CONFIG_NAMES):
        return _check_config
    return _check_yaml if path.suffix.lower() in (".yaml", ".yml") else _check_jsonl


def _check_targets(path: Path, report: Report) -> Iterator[EvalCase]:
    for problem in read_targets(path).problems:
        report(problem)
    return iter(())


def _check_config(path: Path, report: Report) -> Iterator[EvalCase]:
    for problem in read_record(path, Config, ConfigError)[1]:
        report(problem)
    return iter(())


def _check_yaml(path: Path, report: Report) -> Iterator[EvalCase]:
    document = read_object(path)
    if "targets" in document.value:
        yield from _check_targets(path, report)
        return
    for slip in slips(document.value, EvalFileRecord):
        report(slip.problem(path, document.place(slip.steps)))
    if "evalcases" not in document.value and is_sidecar(path):
        for problem in read_record(path, FileRecord, EvalFileError)[1]:
            report(problem)
        return
    check = _CaseChecker(report)
    entries = document.value.get("evalcases") or ()
    indexes = {document.place(("evalcases", index)).line: index for index, _ in enumerate(entries)}
    for case in cases_in(document, path, check.strictly):
        index = indexes[case.line]
        check.case(case, entries[index], partial(_place_in_document, document, index))
        yield case


def _place_in_document(document: Document, index: int, steps: Steps) -> Place:
    return document.place(("evalcases", index, *steps))


def _check_jsonl(path: Path, report: Report) -> Iterator[EvalCase]:
    check = _CaseChecker(report)
    cases = read_eval_file(path, check.strictly)
    lines = ((line, raw) for block, first in numbered_lines(path) for line, raw in enumerate(block, first))
    for case in cases:
        raw = next(raw for line, raw in lines if line == case.line)
        check.case(case, _FIELDS.decode(raw), partial(_place_in_line, raw, case.line))
        yield case


def _place_in_line(raw: bytes, line: int, steps: Steps) -> Place:
    return Place(line, column_in_json(raw.decode(), steps))


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _CaseChecker:
    """Looks at what loading a case does not: the files that it refers to, and fields that nobody reads."""

    def __init__(self, report: Report):
        self._report = report
        self._slips: set[str] = set()

    def strictly(self, problem: Problem) -> None:
        """Report a problem of a case as an error: one that a run would leave out is not in order."""
        self._report(msgspec.structs.replace(problem, severity="error"))

    def case(self, case: EvalCase, written: Mapping[str, Any], locate: Locate) -> None:
        for slip in slips(written.keys() - self._slips, CaseRecord):
            self._slips.update(str(step) for step in slip.steps)  # once in a file will do
            self._report(slip.problem(case.file.path, locate(slip.steps)))
        for field, alias in (("input_messages", "input"), ("expected_messages", "expected_output")):
            for index, message in enumerate(getattr(case, field)):
                for steps, block in _file_blocks(message):
                    place = locate((field if written.get(field) else alias, index, *steps))
                    self._attachment(block.value, case, place)

    def _attachment(self, value: str, case: EvalCase, place: Place) -> None:
        try:
            if attached_file(value, case.file).stat().st_size == 0:
                self._report(Misfit((), f"empty file: {value}", severity="warning").problem(case.file.path, place))
        except (AttachmentError, OSError) as error:
            message, hint = (error.message, error.hint) if isinstance(error, AttachmentError) else (str(error), "")
            self._report(Misfit((), message, hint).problem(case.file.path, place))


def _file_blocks(message: Message) -> Iterator[tuple[Steps, FileBlock]]:
    if isinstance(message.content, tuple):
        for index, block in enumerate(message.content):
            if isinstance(block, FileBlock):
                yield ("content", index, "value"), block
