"""Any agentv file -> everything that is wrong with it, each problem with its place."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentv.cases.attachments import attached_file, attached_text
from agentv.cases.guidelines import CONFIG_NAMES, Config
from agentv.cases.read import Report, cases_in, is_sidecar, numbered_lines, read_eval_file, read_object
from agentv.cases.schema import CaseRecord, EvalFileRecord, FileRecord
from agentv.errors import AgentvError, AttachmentError, ConfigError, EvalFileError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.formats.conversion import MOST_MISFITS, Misfit, read_record, slips
from agentv.formats.jsonl import column_in_json
from agentv.formats.yaml import Document, Place, Steps
from agentv.records import EvalCase, FileBlock, Message, Problem
from agentv.system.dotenv import load_env
from agentv.targets.read import TARGETS_NAMES, read_targets

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


MOST_PROBLEMS = 1000


class _Enough(Exception):
    """More problems in one file than anyone will read."""


def check_file(path: Path) -> Checked:
    """Everything that is wrong with one file of ours, up to a thousand problems."""
    problems: dict[Problem, None] = {}
    cases = 0

    def report(problem: Problem) -> None:
        problems[problem] = None
        if len(problems) >= MOST_PROBLEMS:
            raise _Enough

    builder = EvaluatorBuilder(only_check=True)
    try:
        for case in _checker(path)(path, report):
            cases += 1
            for problem in builder.problems(case, case.target):
                report(problem)
    except AgentvError as error:
        problems[Problem.of(error)] = None
    except _Enough:
        last = max(problem.line or 0 for problem in problems)
        message = f"{MOST_PROBLEMS} problems: the rest of the file was not checked"
        problems[Problem(message=message, file=path, line=last + 1, column=1)] = None
    ordered = sorted(problems, key=lambda found: (found.line or 0, found.column or 0))
    return Checked(path, cases, tuple(ordered))


def _checker(path: Path) -> Callable[[Path, Report], Iterator[EvalCase]]:
    """What checks a file of this name; every checker yields the cases that it found to be usable."""
    if path.name in TARGETS_NAMES:
        return _check_targets
    if any(path.absolute().as_posix().endswith(f"/{name}") for name in CONFIG_NAMES):
        return _check_config
    return _check_yaml if path.suffix.lower() in (".yaml", ".yml") else _check_jsonl


def _check_targets(path: Path, report: Report) -> Iterator[EvalCase]:
    environment = dict(os.environ)
    load_env([path.parent], environment)
    for problem in read_targets(path, environment).problems:
        report(problem)
    return iter(())


def _check_config(path: Path, report: Report) -> Iterator[EvalCase]:
    for problem in read_record(path, Config, ConfigError)[1]:
        report(problem)
    return iter(())


def _check_yaml(path: Path, report: Report) -> Iterator[EvalCase]:
    sidecar = is_sidecar(path)
    document = read_object(path, or_nothing=sidecar)
    if "targets" in document.value and "evalcases" not in document.value:
        yield from _check_targets(path, report)
        return
    for slip in slips(document.value, EvalFileRecord):
        report(slip.problem(path, document.place(slip.steps)))
    if sidecar:
        for problem in read_record(path, FileRecord, EvalFileError)[1]:
            report(problem)
        return
    check = _CaseChecker(report, path)
    entries = document.value.get("evalcases")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            check.fields(entry, partial(_place_in_document, document, index))
    for index, case in cases_in(document, path, check.strictly):
        check.attachments(case, entries[index], partial(_place_in_document, document, index))
        yield case


def _place_in_document(document: Document, index: int, steps: Steps) -> Place:
    return document.place(("evalcases", index, *steps))


def _check_jsonl(path: Path, report: Report) -> Iterator[EvalCase]:
    check = _CaseChecker(report, path)
    cases = read_eval_file(path, check.strictly)
    lines = ((line, raw) for block, first in numbered_lines(path) for line, raw in enumerate(block, first))
    for case in cases:
        for line, raw in lines:
            written = check.line(line, raw)
            if line == case.line:
                check.attachments(case, written, partial(_place_in_line, raw, line))
                break
        yield case
    for line, raw in lines:
        check.line(line, raw)


def _place_in_line(raw: bytes, line: int, steps: Steps) -> Place:
    return Place(line, column_in_json(raw.decode(), steps))


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _CaseChecker:
    """Looks at what loading a case does not: the files that it refers to, and fields that nobody reads."""

    def __init__(self, report: Report, path: Path):
        self._report, self._path = report, path
        self._slips: set[str] = set()

    def strictly(self, problem: Problem) -> None:
        """Report a problem of a case as an error: one that a run would leave out is not in order."""
        self._report(msgspec.structs.replace(problem, severity="error"))

    def line(self, line: int, raw: bytes) -> Mapping[str, Any]:
        """The fields of a line of JSONL, with a look at their names."""
        try:
            written = _FIELDS.decode(raw.decode())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return {}
        self.fields(written, partial(_place_in_line, raw, line))
        return written

    def fields(self, written: Mapping[str, Any], locate: Locate) -> None:
        """Report the names that are probably slips; once in a file will do."""
        for slip in slips(written.keys() - self._slips, CaseRecord):
            self._slips.update(str(step) for step in slip.steps)
            self._report(slip.problem(self._path, locate(slip.steps)))

    def attachments(self, case: EvalCase, written: Mapping[str, Any], locate: Locate) -> None:
        """Report the files that the case cannot use."""
        found = 0
        for field, alias in (("input_messages", "input"), ("expected_messages", "expected_output")):
            name = alias if written.get(field) in (None, _NULL) else field
            for index, message in enumerate(getattr(case, field)):
                for steps, block in _file_blocks(message):
                    if misfit := _attachment(block.value, case):
                        found += 1
                        place = locate((name, index, *steps) if found <= MOST_MISFITS else ())
                        self._report(misfit.problem(self._path, place))


_NULL = msgspec.Raw(b"null")


def _attachment(value: str, case: EvalCase) -> Misfit | None:
    """What is wrong with a file that a case refers to."""
    try:
        path = attached_file(value, case.file)
        if path.stat().st_size == 0:
            return Misfit((), f"empty file: {value}", severity="warning")
    except (AttachmentError, OSError) as error:
        message, hint = (error.message, error.hint) if isinstance(error, AttachmentError) else (str(error), "")
        return Misfit((), message, hint)
    try:
        attached_text(value, path)
    except AttachmentError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            return Misfit((), error.message, error.hint)
        return Misfit((), error.message, "only a target that reads files itself can use it", "warning")
    return None


def _file_blocks(message: Message) -> Iterator[tuple[Steps, FileBlock]]:
    if isinstance(message.content, tuple):
        for index, block in enumerate(message.content):
            if isinstance(block, FileBlock):
                yield ("content", index, "value"), block
