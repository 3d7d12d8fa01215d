"""Any file of agentv -> everything that is wrong with it, each problem with its place."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentv.cases.attachments import find_attachment, media_type, read_attachment
from agentv.cases.guidelines import CONFIG_NAMES, Config
from agentv.cases.media import has_files
from agentv.cases.read import (
    Inspection,
    Report,
    is_sidecar,
    numbered_lines,
    read_cases,
    read_eval_file,
    read_object,
    yaml_typos,
)
from agentv.cases.schema import CaseRecord, FileRecord, find_case_typos
from agentv.errors import AgentvError, AttachmentError, ConfigError, EvalFileError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.formats.conversion import MAX_MISFITS, Misfit, read_record
from agentv.formats.jsonl import column_in_json
from agentv.formats.yaml import Document, Place, Steps
from agentv.judges.target import NeededJudges
from agentv.project.used_targets import TargetFiles
from agentv.records import EvalCase, FileBlock, Message, Problem
from agentv.system.dotenv import load_env
from agentv.targets.read import TARGETS_NAMES, read_targets

Locate = Callable[[Steps], Place]
"""Returns the place of a part of a case in its file."""


class CheckedFile(msgspec.Struct, frozen=True):
    """The number of usable cases in a file, and its problems in the order of its lines."""

    file: Path
    cases: int
    problems: tuple[Problem, ...]


def check_files(paths: Iterable[Path]) -> Iterator[CheckedFile]:
    """Yield what is wrong with each file; a problem of a file that several others use comes once."""
    reported: set[tuple[object, ...]] = set()
    targets = TargetFiles()
    for path in paths:
        checked = check_file(path, targets)
        new = {_key(problem): problem for problem in checked.problems if _key(problem) not in reported}
        yield msgspec.structs.replace(checked, problems=tuple(new.values()))
        reported.update(new)


def _key(problem: Problem) -> tuple[object, ...]:
    """Return what makes two problems the same, by whatever path their file was found."""
    file = os.path.realpath(problem.file) if problem.file is not None else None
    return file, problem.line, problem.column, problem.message


MAX_PROBLEMS = 1000


class _TooManyProblems(Exception):
    """There are more problems in one file than anyone will read."""


def check_file(path: Path, targets: TargetFiles | None = None) -> CheckedFile:
    """Return everything that is wrong with one file, up to `MAX_PROBLEMS`, and with the targets that it uses."""
    problems: dict[Problem, None] = {}
    cases = 0

    def report(problem: Problem) -> None:
        problems[problem] = None
        if len(problems) >= MAX_PROBLEMS:
            raise _TooManyProblems

    judges, used, needs = NeededJudges(), dict[str, EvalCase](), dict[str, dict[Problem, None]]()
    builder, targets = EvaluatorBuilder(judges, only_check=True, warn=report), targets or TargetFiles()
    try:
        for case in _checker(path)(path, report):
            cases += 1
            if has_files(case) and (found := targets.media_problem(path, case)) is not None:
                report(found)
            used.setdefault(case.target, case)
            for problem in builder.problems(case, case.target):
                report(problem)
            if needed := builder.workspace_problems(case, case.target):
                needs.setdefault(case.target, {}).update(dict.fromkeys(needed))
        for problem in targets.problems(path, used, judges, needs) if used else ():
            report(problem)
    except AgentvError as error:
        problems[Problem.of(error)] = None
    except _TooManyProblems:
        last = max(problem.line or 0 for problem in problems)
        message = f"{MAX_PROBLEMS} problems: the rest of the file was not checked"
        problems[Problem(message=message, file=path, line=last + 1, column=1)] = None
    ordered = sorted(problems, key=lambda found: (found.file != path, found.line or 0, found.column or 0))
    return CheckedFile(path, cases, tuple(ordered))


def _checker(path: Path) -> Callable[[Path, Report], Iterator[EvalCase]]:
    """Return the function that checks a file of this name; it yields the cases that can be used."""
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
    for slip in yaml_typos(document, path):
        report(slip)
    if sidecar:
        for problem in read_record(path, FileRecord, EvalFileError)[1]:
            report(problem)
        return
    check = _CaseChecker(report, path)
    entries: Any = document.value.get("evalcases")
    for index, case in read_cases(document, path, check.strictly, check.inspection):
        check.attachments(case, entries[index], partial(_place_in_document, document, index))
        yield case


def _place_in_document(document: Document, index: int, steps: Steps) -> Place:
    return document.place(("evalcases", index, *steps))


def _check_jsonl(path: Path, report: Report) -> Iterator[EvalCase]:
    check = _CaseChecker(report, path)
    cases = read_eval_file(path, check.strictly, check.inspection)
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
    """Checks what loading a case does not: the files that it attaches, and fields with unknown names."""

    def __init__(self, report: Report, path: Path):
        self._report, self._path = report, path
        self._typos: set[Steps] = set()
        self._builder = EvaluatorBuilder(only_check=True, warn=report)

    @property
    def inspection(self) -> Inspection:
        """What the reader tells of besides problems. Typos are looked for here, and more of them than a run does."""
        return Inspection(lambda _slip: None, self._check_draft)

    def _check_draft(self, case: EvalCase, _is_left_out: bool) -> None:
        for problem in self._builder.setting_problems(case, case.target):
            self._report(problem)

    def strictly(self, problem: Problem) -> None:
        """Report a problem as an error, also if a run would only leave the case out."""
        self._report(msgspec.structs.replace(problem, severity="error"))

    def line(self, line: int, raw: bytes) -> Mapping[str, Any]:
        """Return the fields of a line of JSONL, and check their names."""
        try:
            written = _FIELDS.decode(raw.decode())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return {}
        self.fields(written, partial(_place_in_line, raw, line))
        return written

    def fields(self, written: Mapping[str, Any], locate: Locate) -> None:
        """Report the names that are probably typos, each once in a file."""
        for typo in find_case_typos(written, CaseRecord):
            if typo.steps not in self._typos:
                self._typos.add(typo.steps)
                self._report(typo.problem(self._path, locate(typo.steps)))

    def attachments(self, case: EvalCase, written: Mapping[str, Any], locate: Locate) -> None:
        """Report the attached files that cannot be used."""
        found = 0
        for field, alias in (("input_messages", "input"), ("expected_messages", "expected_output")):
            name = alias if written.get(field) in (None, _NULL) else field
            for index, message in enumerate(getattr(case, field)):
                for steps, block in _file_blocks(message):
                    if misfit := _check_attachment(block.value, case):
                        found += 1
                        place = locate((name, index, *steps) if found <= MAX_MISFITS else ())
                        self._report(misfit.problem(self._path, place))


_NULL = msgspec.Raw(b"null")


def _check_attachment(value: str, case: EvalCase) -> Misfit | None:
    """Return what is wrong with a file that a case attaches."""
    try:
        path = find_attachment(value, case.file)
        if path.stat().st_size == 0:
            return Misfit((), f"empty file: {value}", severity="warning")
    except (AttachmentError, OSError) as error:
        message, hint = (error.message, error.hint) if isinstance(error, AttachmentError) else (str(error), "")
        return Misfit((), message, hint)
    try:
        if media_type(value, path) is None:
            read_attachment(value, path)
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
