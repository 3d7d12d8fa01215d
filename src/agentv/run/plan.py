"""Eval files and targets -> a plan that can be run.

All that can be wrong with it is found here, in one pass over the files, before anything is paid for.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from agentv.calls.caller import CallPolicies, CallPolicy
from agentv.cases.guidelines import guideline_patterns
from agentv.cases.read import read_eval_file
from agentv.cases.request import Files
from agentv.errors import AgentvError, ConfigError, nearest
from agentv.evaluators.build import EvaluatorBuilder
from agentv.formats.fingerprint import digest
from agentv.judges.target import JudgeTargets
from agentv.notices import note, warn
from agentv.protocols import BatchProvider, Provider
from agentv.providers.settings import TargetSettings, target_digest
from agentv.records import EvalCase, Problem
from agentv.system.entry_points import opened
from agentv.targets.read import find_targets, read_targets

MOST_PROBLEMS = 20


class Selection(NamedTuple):
    """What a user asked for, besides the eval files."""

    target: str | None = None
    targets: Path | None = None
    ids: tuple[str, ...] = ()
    limit: int | None = None
    stand_in: Provider | None = None
    """Answers in the place of every target."""
    dry_run: bool = False
    """Nobody outside is asked, the judges neither."""
    workers: int | None = None
    """How many cases may be in flight, whatever the targets say."""

    def is_selected(self, case: EvalCase) -> bool:
        return not self.ids or any(_matches(case, id_) for id_ in self.ids)

    def target_of(self, case: EvalCase) -> str:
        """`--target` unless it is `default`, else the case's own, else its file's, else `default`."""
        return self.target if self.target and self.target != "default" else case.target


class Target(NamedTuple):
    """A target that is ready to answer the cases of one eval file."""

    name: str
    provider: Provider | BatchProvider
    files: Files
    digest: str
    policy: CallPolicy
    workers: int | None = None
    is_alone: bool = False


class PlannedFile(NamedTuple):
    """An eval file with all that its cases need."""

    path: Path
    cases: int
    patterns: tuple[str, ...]
    targets: Mapping[str, Target]


class Plan(NamedTuple):
    """What a run will do."""

    files: tuple[PlannedFile, ...]
    wanted: Selection
    builder: EvaluatorBuilder
    invalid: int
    secrets: tuple[str, ...]
    folder: Path
    """The folder that the run was started in: a target may leave it."""

    @property
    def cases(self) -> int:
        return sum(file.cases for file in self.files)

    def cases_of(self, file: PlannedFile) -> Iterator[EvalCase]:
        """The planned cases of a file, read as they are asked for."""
        left = file.cases
        for case in read_eval_file(self.folder / file.path, _raise):
            if left <= 0:
                return
            if self.wanted.is_selected(case):
                left -= 1
                yield case


class PlanFailed(AgentvError):
    """The plan cannot be run; `problems` says why."""

    def __init__(self, problems: Sequence[Problem]):
        super().__init__(f"{len(problems)} problems" if len(problems) > 1 else "1 problem")
        self.problems = problems


def make_plan(paths: Sequence[Path], wanted: Selection) -> Plan:
    """The plan for these eval files; `PlanFailed` with everything that is wrong, when something is."""
    planner = _Planner(wanted)
    files = [planner.plan(path) for path in paths]
    for id_ in wanted.ids:
        if id_ not in planner.found:
            planner.report(Problem(message=f"no case has the id {id_!r}", hint="--eval-id takes an id or a glob"))
    if not planner.problems and not any(file.cases for file in files if file):
        planner.report(Problem(message="no valid case to run", file=paths[0], hint="see the warnings above"))
    if planner.problems:
        raise PlanFailed(planner.problems)
    return Plan(
        tuple(file for file in files if file and file.cases),
        wanted,
        planner.builder,
        planner.invalid,
        tuple(planner.secrets),
        Path.cwd(),
    )


class _Planner:
    def __init__(self, wanted: Selection):
        self._wanted = wanted
        self._left = wanted.limit
        self.builder = EvaluatorBuilder(dry_run=wanted.dry_run)
        self._manners = CallPolicies()
        self.problems: list[Problem] = []
        self.found: set[str] = set()
        self.invalid = 0
        self.secrets: set[str] = set()
        self._told: set[Problem] = set()

    def report(self, problem: Problem) -> None:
        """Tell of a warning, keep an error; more errors than anyone will read end the planning."""
        if problem.severity == "warning":
            warn(problem)
        elif problem not in self.problems:
            self.problems.append(problem)
            if len(self.problems) >= MOST_PROBLEMS:
                raise PlanFailed(self.problems)

    def plan(self, path: Path) -> PlannedFile | None:
        try:
            used, cases = self._pass_over(path)
            if self.problems:
                return None
            return PlannedFile(path, cases, guideline_patterns(path.parent), self._targets(path, used) if cases else {})
        except PlanFailed:
            raise
        except AgentvError as error:
            self.report(Problem.of(error))
            return None

    def _pass_over(self, path: Path) -> tuple[dict[str, EvalCase], int]:
        """The targets that the file's cases use, each with the first case that does, and how many cases there are."""
        used: dict[str, EvalCase] = {}
        cases = 0
        for case in read_eval_file(path, self._report_case):
            if not self._wanted.is_selected(case):
                continue
            self.found.update(id_ for id_ in self._wanted.ids if _matches(case, id_))
            if self._left is not None:
                if self._left <= 0:
                    continue  # not run, but still checked
                self._left -= 1
            cases += 1
            name = self._wanted.target_of(case)
            if name not in used:
                used[name] = case
            for problem in self.builder.problems(case, name):
                self.report(problem)
        return used, cases

    def _report_case(self, problem: Problem) -> None:
        if problem.severity == "warning" and not self._wanted.ids and self._left != 0:
            self.invalid += 1
        self.report(problem)

    def _targets(self, path: Path, used: Mapping[str, EvalCase]) -> dict[str, Target]:
        stand_in = self._wanted.stand_in
        lines = self.builder.lines_of(path)
        file = self._targets_file(path, needed=bool(lines))
        if file is None:
            assert stand_in is not None
            return {name: _stand_in(name, stand_in) for name in used}
        note(f"{path}: targets are read from {file}")
        folder = path.parent.absolute()
        judges = {line.asked for line in lines if line.asked}
        read = read_targets(file, os.environ, judges.union(used if stand_in is None else ()))
        self.secrets.update(read.secrets)
        for problem in read.problems:
            if problem not in self._told:  # several eval files may share a targets file
                self._told.add(problem)
                self.report(problem)
        if not self.problems:
            for problem in self.builder.connect(
                path,
                JudgeTargets(
                    read.targets,
                    lambda name: _opened(name, read.targets[name], folder, file),
                    lambda name: self._manners.of(read.targets[name], folder, limited=self._wanted.workers is None),
                ),
            ):
                self.report(problem)
        found: dict[str, Target] = {}
        for name, case in used.items():
            note(f"{path}: target {name!r}: {self._why(case)}")
            if name not in read.names and stand_in is not None and not self._wanted.dry_run:
                found[name] = _stand_in(name, stand_in)
            elif name not in read.names:
                if self.problems and not read.names:
                    continue  # the file itself is wrong, and that has been told
                message, hint = f"unknown target {name!r}: {file} has none of that name", nearest(name, read.names)
                self.report(Problem(message=message, file=path, line=case.line, column=1, hint=hint))
            elif stand_in is not None and name not in read.targets:
                found[name] = _stand_in(name, stand_in)
            elif name in read.targets:
                settings = read.targets[name]
                files = Files.REFERENCE if settings.reads_files else Files.INLINE
                workers = settings.workers if isinstance(settings.workers, int) else None
                provider = stand_in or _opened(name, settings, folder, file)
                stamp = digest("stand-in") if stand_in else target_digest(settings)  # whose answers these are
                policy = self._manners.of(settings, folder)
                found[name] = Target(name, provider, files, stamp, policy, workers, settings.is_alone)
        return found

    def _targets_file(self, path: Path, *, needed: bool) -> Path | None:
        """The targets file of an eval file. A function of the user's needs none, and a dry run can do without."""
        if self._wanted.stand_in is None or self._wanted.targets is not None or needed:
            return find_targets(path.parent, self._wanted.targets)
        try:
            return find_targets(path.parent) if self._wanted.dry_run else None
        except ConfigError:
            return None

    def _why(self, case: EvalCase) -> str:
        if self._wanted.target and self._wanted.target != "default":
            return "asked for with --target"
        return (
            f"asked for by case {case.id!r} or its file" if case.target != "default" else "nothing else was asked for"
        )


def _stand_in(name: str, provider: Provider) -> Target:
    return Target(name, provider, Files.INLINE, digest("stand-in"), CallPolicy())


def _opened(name: str, settings: TargetSettings, folder: Path, file: Path) -> Provider | BatchProvider:
    try:
        return opened(settings, folder, "invoke", "invoke_batch")  # type: ignore[no-any-return]
    except ConfigError as error:
        raise ConfigError(f"target {name!r}: {error.message}", file=file, hint=error.hint) from error


def _matches(case: EvalCase, id_: str) -> bool:
    return case.id == id_ or fnmatchcase(case.id, id_)


def _raise(problem: Problem) -> None:
    """The plan has told of all warnings; an error means that the file has changed since."""
    if problem.severity == "error":
        raise AgentvError.of(problem)
