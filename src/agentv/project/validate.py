"""Find everything that is wrong with a file of agentv, each problem with its position."""

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
"""A function that returns the position of a part of a case in its file."""
Cases = Iterator[EvalCase]
Checker = Callable[[Path, Report], Cases]
"""A function that checks a file, reports its problems and yields its valid cases."""
Fields = Mapping[str, Any]
"""A case as it is written."""
ProblemKey = tuple[object, ...]


class CheckedFile(msgspec.Struct, frozen=True):
    """The number of valid cases in a file, and its problems in the order of its lines."""

    file: Path
    cases: int
    problems: tuple[Problem, ...]


def check_files(paths: Iterable[Path]) -> Iterator[CheckedFile]:
    """Yield the problems of each file; a problem of a file that several others use is reported once."""
    reported: set[ProblemKey] = set()
    targets = TargetFiles()
    for path in paths:
        checked = check_file(path, targets)
        new: dict[ProblemKey, Problem] = {}
        for problem in checked.problems:
            key = _key(problem)
            if key not in reported:
                new[key] = problem
        reported.update(new)
        problems = tuple(new.values())
        yield msgspec.structs.replace(checked, problems=problems)


def _key(problem: Problem) -> ProblemKey:
    """Return the identity of a problem, which does not depend on the path by which its file was found."""
    file = None
    if problem.file is not None:
        file = os.path.realpath(problem.file)
    return file, problem.line, problem.column, problem.message


MAX_PROBLEMS = 1000


class _TooManyProblems(Exception):
    """A file has more problems than anyone will read."""


def check_file(path: Path, targets: TargetFiles | None = None) -> CheckedFile:
    """Return the problems of one file, up to `MAX_PROBLEMS`, including those of the targets that it uses."""
    problems: dict[Problem, None] = {}
    cases = 0

    def report(problem: Problem) -> None:
        problems[problem] = None
        if len(problems) >= MAX_PROBLEMS:
            raise _TooManyProblems

    def position(problem: Problem) -> tuple[bool, int, int]:
        is_elsewhere = problem.file != path  # problems of other files come last
        return is_elsewhere, problem.line or 0, problem.column or 0

    if targets is None:
        targets = TargetFiles()
    setup = _SetupChecker(path, report, targets)
    try:
        check = _checker(path)
        for case in check(path, report):
            cases += 1
            setup.check_case(case)
        setup.check_targets()
    except AgentvError as error:
        problems[Problem.of(error)] = None
    except _TooManyProblems:
        last_line = max(problem.line or 0 for problem in problems)
        too_many = Problem(
            message=f"{MAX_PROBLEMS} problems: the rest of the file was not checked",
            file=path,
            line=last_line + 1,
            column=1,
        )
        problems[too_many] = None
    ordered = sorted(problems, key=position)
    return CheckedFile(path, cases, tuple(ordered))


class _SetupChecker:
    """Check the evaluators of a file's cases, and the targets, judges and workspaces that they need."""

    def __init__(self, path: Path, report: Report, targets: TargetFiles):
        self._path = path
        self._report = report
        self._targets = targets
        self._judges = NeededJudges()
        self._builder = EvaluatorBuilder(
            self._judges,
            only_check=True,
            warn=report,
        )
        self._used: dict[str, EvalCase] = {}
        self._need_workspace: dict[str, dict[Problem, None]] = {}

    def check_case(self, case: EvalCase) -> None:
        """Report the problems of a case, and collect the target and the workspace that it needs."""
        if has_files(case):
            media_problem = self._targets.media_problem(self._path, case)
            if media_problem is not None:
                self._report(media_problem)
        target = case.target
        self._used.setdefault(target, case)
        for problem in self._builder.problems(case, target):
            self._report(problem)
        needed = self._builder.workspace_problems(case, target)
        if needed:
            problems = self._need_workspace.setdefault(target, {})
            problems.update(dict.fromkeys(needed))

    def check_targets(self) -> None:
        """Report the problems of the targets that the cases use."""
        if not self._used:
            return
        problems = self._targets.problems(
            self._path,
            self._used,
            self._judges,
            self._need_workspace,
        )
        for problem in problems:
            self._report(problem)


def _checker(path: Path) -> Checker:
    """Return the function that checks a file with this name."""
    if path.name in TARGETS_NAMES:
        return _check_targets
    absolute = path.absolute().as_posix()
    if any(absolute.endswith(f"/{name}") for name in CONFIG_NAMES):
        return _check_config
    if path.suffix.lower() in (".yaml", ".yml"):
        return _check_yaml
    return _check_jsonl


def _check_targets(path: Path, report: Report) -> Cases:
    environment = dict(os.environ)
    load_env([path.parent], environment)
    for problem in read_targets(path, environment).problems:
        report(problem)
    return iter(())


def _check_config(path: Path, report: Report) -> Cases:
    _, problems = read_record(path, Config, ConfigError)
    for problem in problems:
        report(problem)
    return iter(())


def _check_yaml(path: Path, report: Report) -> Cases:
    has_defaults_only = is_sidecar(path)
    document = read_object(path, or_nothing=has_defaults_only)
    if "targets" in document.value and "evalcases" not in document.value:
        yield from _check_targets(path, report)
        return
    for typo in yaml_typos(document, path):
        report(typo)
    if has_defaults_only:
        _, problems = read_record(path, FileRecord, EvalFileError)
        for problem in problems:
            report(problem)
        return
    checker = _CaseChecker(report, path)
    values: Any = document.value.get("evalcases")
    cases = read_cases(
        document,
        path,
        checker.report_error,
        checker.inspection,
    )
    for index, case in cases:
        locate = partial(_place_in_document, document, index)
        checker.check_attachments(case, values[index], locate)
        yield case


def _place_in_document(document: Document, index: int, steps: Steps) -> Place:
    return document.place(("evalcases", index, *steps))


def _check_jsonl(path: Path, report: Report) -> Cases:
    checker = _CaseChecker(report, path)
    cases = read_eval_file(path, checker.report_error, checker.inspection)
    # Cases do not carry their text, so the file is read a second time, in step with the cases.
    lines = _lines(path)
    for case in cases:
        for line, raw in lines:
            written = checker.check_line(line, raw)
            if line == case.line:
                locate = partial(_place_in_line, raw, line)
                checker.check_attachments(case, written, locate)
                break
        yield case
    for line, raw in lines:
        checker.check_line(line, raw)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    for block, first in numbered_lines(path):
        yield from enumerate(block, first)


def _place_in_line(raw: bytes, line: int, steps: Steps) -> Place:
    column = column_in_json(raw.decode(), steps)
    return Place(line, column)


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = msgspec.Raw(b"null")
_ALIASES = {"input_messages": "input", "expected_messages": "expected_output"}


class _CaseChecker:
    """Check what loading a case does not: attached files, and fields with unknown names."""

    def __init__(self, report: Report, path: Path):
        self._report = report
        self._path = path
        self._typos: set[Steps] = set()
        self._builder = EvaluatorBuilder(only_check=True, warn=report)

    @property
    def inspection(self) -> Inspection:
        """The callbacks for the reader. Its typos are ignored: this class finds more of them than a run does."""
        return Inspection(lambda _typo: None, self._check_draft)

    def _check_draft(self, case: EvalCase, _is_skipped: bool) -> None:
        for problem in self._builder.setting_problems(case, case.target):
            self._report(problem)

    def report_error(self, problem: Problem) -> None:
        """Report a problem as an error, even if a run would only skip the case."""
        error = msgspec.structs.replace(problem, severity="error")
        self._report(error)

    def check_line(self, line: int, raw: bytes) -> Fields:
        """Check the field names on a line of JSONL, and return the fields."""
        try:
            written = _FIELDS.decode(raw.decode())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return {}
        locate = partial(_place_in_line, raw, line)
        self._check_fields(written, locate)
        return written

    def _check_fields(self, written: Fields, locate: Locate) -> None:
        """Report the names that are probably typos, each once per file."""
        for typo in find_case_typos(written, CaseRecord):
            if typo.steps not in self._typos:
                self._typos.add(typo.steps)
                place = locate(typo.steps)
                self._report(typo.problem(self._path, place))

    def check_attachments(self, case: EvalCase, written: Fields, locate: Locate) -> None:
        """Report the attached files that cannot be used."""
        found = 0
        for steps, value in _attached_files(case, written):
            misfit = _check_attachment(value, case)
            if misfit is None:
                continue
            found += 1
            # Each lookup scans the text of the case, so the number of exact positions is limited.
            place = locate(steps if found <= MAX_MISFITS else ())
            self._report(misfit.problem(self._path, place))


def _attached_files(case: EvalCase, written: Fields) -> Iterator[tuple[Steps, str]]:
    """Yield the path of each attached file, with the steps that lead to it in the case as it is written."""
    for field, alias in _ALIASES.items():
        name = field
        if written.get(field) in (None, _NULL):
            name = alias
        messages = getattr(case, field)
        for index, message in enumerate(messages):
            for steps, block in _file_blocks(message):
                yield (name, index, *steps), block.value


def _file_blocks(message: Message) -> Iterator[tuple[Steps, FileBlock]]:
    if not isinstance(message.content, tuple):
        return
    for index, block in enumerate(message.content):
        if isinstance(block, FileBlock):
            yield ("content", index, "value"), block


def _check_attachment(value: str, case: EvalCase) -> Misfit | None:
    """Return the problem of a file that a case attaches, or None if it can be used."""
    try:
        path = find_attachment(value, case.file)
        if path.stat().st_size == 0:
            return Misfit((), f"empty file: {value}", severity="warning")
    except AttachmentError as error:
        return Misfit((), error.message, error.hint)
    except OSError as error:
        return Misfit((), str(error))
    try:
        if media_type(value, path) is None:
            read_attachment(value, path)
    except AttachmentError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            hint = "only a target that reads files itself can use it"
            return Misfit((), error.message, hint, "warning")
        return Misfit((), error.message, error.hint)
    return None
