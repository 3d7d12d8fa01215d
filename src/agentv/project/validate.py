"""Find everything that is wrong with a file of agentv, each problem with its position."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from agentv.cases.attached_files import AttachmentCheck
from agentv.cases.expand import Inspection, Report
from agentv.cases.metrics import metric_problems
from agentv.cases.read import (
    has_cases,
    is_sidecar,
    read_cases,
    read_eval_file,
    read_object,
    report_unknown_fields,
)
from agentv.cases.schema import EvalFileRecord, FileRecord
from agentv.config import CONFIG_NAMES, Config
from agentv.errors import AgentvError, ConfigError, EvalFileError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.files.conversion import read_record
from agentv.project.unmet_settings import UnmetSettings
from agentv.project.used_targets import TargetFiles, check_needs
from agentv.records import CaseFile, EvalCase, Problem
from agentv.redact import clean
from agentv.run.planning.check import CaseCheck, Needs
from agentv.run.planning.plan import Selection
from agentv.targets.dotenv import load_env
from agentv.targets.find import TARGETS_NAMES
from agentv.targets.read import read_targets

Cases = Iterator[EvalCase]
Reader = Callable[[Path, Report], Cases]
"""A function that reads a file, reports its problems and yields its valid cases."""
ProblemKey = tuple[object, ...]


class CheckedFile(msgspec.Struct, frozen=True):
    """The number of valid cases in a file, and its problems in the order of its lines."""

    file: Path
    cases: int
    problems: tuple[Problem, ...]


def check_files(
    paths: Iterable[Path],
    in_project: Collection[Path] = (),
    target: str | None = None,
) -> Iterator[CheckedFile]:
    """Yield the problems of each file; a problem of a file that several others use is reported once.

    Files that are `in_project` need a targets file. Others are checked on their own if there is none. `target` answers
    all cases, as with `agentv eval --target`.
    """
    reported: set[ProblemKey] = set()
    targets = TargetFiles(in_project)
    for path in paths:
        checked = check_file(path, targets, target)
        new: dict[ProblemKey, Problem] = {}
        for problem in checked.problems:
            key = _key(problem)
            if key not in reported:
                new[key] = problem
        reported.update(new)
        problems = tuple(new.values())
        yield msgspec.structs.replace(checked, problems=problems)


def _key(problem: Problem) -> ProblemKey:
    """Return the identity of a problem, which does not depend on how its file was found."""
    file = None
    if problem.file is not None:
        file = os.path.realpath(problem.file)
    return file, problem.line, problem.column, problem.message


MAX_PROBLEMS = 1000


class _TooManyProblems(Exception):
    """A file has more problems than anyone will read."""


def check_file(
    path: Path,
    targets: TargetFiles | None = None,
    target: str | None = None,
) -> CheckedFile:
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
    selection = Selection(target=target)
    needs = Needs(path)
    case_check = CaseCheck(
        needs=needs,
        builder=EvaluatorBuilder(needs.judges, only_check=True, warn=report),
        find_settings=partial(targets.find_settings, path.parent),
        report=report,
        attachments=AttachmentCheck(report, reads_content=True),
    )
    unmet = UnmetSettings(case_check.builder)
    try:
        read_file = _reader(path)
        file: CaseFile | None = None
        for case in read_file(path, report):
            cases += 1
            file = case.file
            case_check.check(case, selection.target_of(case))
            unmet.add(case)
        if file is not None and file.metrics:
            for problem in metric_problems(file, case_check.builder.code_folders(path.parent)):
                report(problem)
        for problem in unmet.problems():
            report(problem)
        if needs.targets:
            check_needs(needs, targets, report)
    except AgentvError as error:
        problem = Problem.of(error)
        problems[problem] = None
    except _TooManyProblems:
        lines = [problem.line or 0 for problem in problems]
        last_line = max(lines)
        too_many = Problem(
            message=f"{MAX_PROBLEMS} problems: the rest of the file was not checked",
            file=path,
            line=last_line + 1,
            column=1,
        )
        problems[too_many] = None
    ordered = sorted(problems, key=position)
    return CheckedFile(path, cases, tuple(ordered))


def _reader(path: Path) -> Reader:
    """Return the function that reads a file with this name."""
    if path.name in TARGETS_NAMES:
        return _read_targets
    absolute = path.absolute().as_posix()
    for name in CONFIG_NAMES:
        if absolute.endswith(f"/{name}"):
            return _read_config
    if path.suffix.lower() in (".yaml", ".yml"):
        return _read_yaml
    return _read_jsonl


def _read_targets(path: Path, report: Report) -> Cases:
    environment = dict(os.environ)
    load_env([path.parent], environment)
    targets = read_targets(path, environment)
    clean.learn(targets.secrets)
    for problem in targets.problems:
        report(problem)
    return iter(())


def _read_config(path: Path, report: Report) -> Cases:
    _, problems = read_record(path, Config, ConfigError)
    for problem in problems:
        report(problem)
    return iter(())


def _read_yaml(path: Path, report: Report) -> Cases:
    has_defaults_only = is_sidecar(path)
    document = read_object(path, or_nothing=has_defaults_only)
    content = document.value
    if "targets" in content and not has_cases(content):
        yield from _read_targets(path, report)
        return
    if has_defaults_only:
        report_unknown_fields(document, path, FileRecord, report)
        _, problems = read_record(path, FileRecord, EvalFileError)
        for problem in problems:
            report(problem)
        return
    inspection = _inspection(report)
    if has_cases(content):
        report_unknown_fields(document, path, EvalFileRecord, report)
    yield from read_cases(document, path, partial(_report_error, report), inspection)


def _read_jsonl(path: Path, report: Report) -> Cases:
    return read_eval_file(path, partial(_report_error, report), _inspection(report))


def _report_error(report: Report, problem: Problem) -> None:
    """Report a problem as an error, even if a run would only skip the case."""
    error = msgspec.structs.replace(problem, severity="error")
    report(error)


def _inspection(report: Report) -> Inspection:
    """Return the callbacks for the reader of cases."""
    builder = EvaluatorBuilder(only_check=True, warn=report)

    def check_draft(case: EvalCase, _is_skipped: bool) -> None:
        for problem in builder.setting_problems(case, case.target):
            report(problem)

    return Inspection(report, check_draft, runs_code=False)
