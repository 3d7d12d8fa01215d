"""Check what an eval file needs: the evaluators of its cases, then the targets and judges that they use.

Planning a run and `agentv validate` share these checks and their messages. The subclasses of `TargetCheck` differ in
how far they check a target, and in which settings of an invalid target they use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import msgspec

from agentv.cases.attached_files import AttachmentCheck
from agentv.cases.expand import Report
from agentv.cases.media import has_files, media_problem
from agentv.cases.origin import case_problem
from agentv.errors import AgentvError, ConfigError, SettingError, nearest
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judging.target import JudgeRef, NeededJudges, judge_name
from agentv.placeholders import VARS, UnknownName, lookup
from agentv.providers.settings import TargetSettings
from agentv.providers.workspaces.settings import has_workspaces
from agentv.records import DEFAULT_TARGET, EvalCase, Problem
from agentv.targets.read import TargetEntry, TargetList
from agentv.text import plural, short_path

FindSettings = Callable[[str], TargetSettings | None]
"""Return the settings of the target with this name, or None if they are not known."""


@dataclass
class MissingVariable:
    """A variable in the settings of a target that some of its cases do not have."""

    unknown: UnknownName
    """The error for the first of these cases."""
    case: EvalCase
    others: int = 0
    """The number of the other cases."""

    def error(self, *steps: str | int) -> SettingError:
        """Return the error for the setting to which these steps lead."""
        named = self.unknown.of_case(self.case.id)
        message = str(named)
        if self.others:
            message += f" and {plural(self.others, 'other case')}"
        return SettingError(message, *steps, hint=self.unknown.hint)


@dataclass
class Needs:
    """What the cases of one eval file need."""

    path: Path
    """The eval file."""
    targets: dict[str, EvalCase] = field(default_factory=dict)
    """The targets that answer the cases, each with the first case that uses it."""
    judges: NeededJudges = field(default_factory=NeededJudges)
    missing: dict[str, dict[str, MissingVariable]] = field(default_factory=dict)
    """By target, the variables that its cases do not have, by their placeholders."""
    workspaces: dict[str, dict[Problem, None]] = field(default_factory=dict)
    """The problems of evaluators if a target, by name, has no workspaces."""

    def workspace_problems(self, target: str) -> list[Problem]:
        """Return the problems that evaluators have if a target has no workspaces."""
        return list(self.workspaces.get(target, ()))


@dataclass
class CaseCheck:
    """Report the problems of cases, one case at a time, and collect what the cases need."""

    needs: Needs
    builder: EvaluatorBuilder
    find_settings: FindSettings
    report: Report
    attachments: AttachmentCheck | None = None
    """How attached files are checked; None if they are not needed."""
    _placeholders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By target, the placeholders in its settings."""

    def check(self, case: EvalCase, target: str) -> None:
        """Report the problems of a case that the target with this name answers."""
        if self.attachments is not None:
            self.attachments.check(case)
        self.check_evaluators(case, target)
        self.check_media(case, target)

    def check_evaluators(self, case: EvalCase, target: str) -> None:
        """Report the problems of a case's evaluators, and collect the target and the workspace that the case needs."""
        needs = self.needs
        if target not in needs.targets:
            needs.targets[target] = case
        self._collect_missing(case, target)
        for problem in self.builder.problems(case, target):
            self.report(problem)
        needed = self.builder.workspace_problems(case, target)
        if needed:
            problems = needs.workspaces.setdefault(target, {})
            problems.update(dict.fromkeys(needed))

    def _collect_missing(self, case: EvalCase, target: str) -> None:
        """Collect the variables in the settings of the target that the case does not have."""
        if target not in self._placeholders:
            self._placeholders[target] = self._placeholders_of(target)
        for name in self._placeholders[target]:
            try:
                lookup(name, VARS, case.vars)
            except UnknownName as unknown:
                missing = self.needs.missing.setdefault(target, {})
                if name in missing:
                    missing[name].others += 1
                else:
                    missing[name] = MissingVariable(unknown, case)

    def _placeholders_of(self, target: str) -> tuple[str, ...]:
        """Return the distinct placeholders in the settings of a target, as far as these are known."""
        try:
            settings = self.find_settings(target)
        except AgentvError:  # reported when the targets are checked
            return ()
        if settings is None:
            return ()
        names = dict.fromkeys(name for _, name in settings.placeholders())
        return tuple(names)

    def check_media(self, case: EvalCase, target: str) -> None:
        """Report if the target, judging by its known settings, does not accept the images and PDFs of a case."""
        if not has_files(case):
            return
        settings = self.find_settings(target)
        if settings is None:
            return
        problem = media_problem(case, settings)
        if problem is not None:
            self.report(problem)


@dataclass(kw_only=True)
class TargetCheck(ABC):
    """Check the targets that the cases of an eval file use, and the targets that judge their answers."""

    needs: Needs
    file: Path
    """The targets file."""
    read: TargetList
    report: Report
    judges: dict[JudgeRef, str] = field(default_factory=dict)
    """The judges that were found, by what the cases ask for."""
    checks_variables: ClassVar[bool] = True
    """Whether the settings of targets are used, so that the cases need the variables in them."""

    def run(self, judges: Mapping[JudgeRef, EvalCase]) -> None:
        """Report the problems of the judges, then of the targets, then of evaluators that lack a workspace.

        `judges` are the judges that are needed, each with the first case that needs it.
        """
        for ref, case in judges.items():
            self._resolve_judge(ref, case)
        used = self.used_targets()
        for name, case in used.items():
            self.check_target(name, case)
        for name in used:
            if not self.lacks_workspaces(name):
                continue
            for problem in self.needs.workspace_problems(name):
                self.report(problem)

    @property
    def folder(self) -> Path:
        """The folder of the eval file, to which the paths of targets are relative."""
        return self.needs.path.parent.absolute()

    @cached_property
    def settings(self) -> dict[str, TargetSettings]:
        """The usable settings of the targets in the file, by name."""
        settings: dict[str, TargetSettings] = {}
        for entry in self.read.entries:
            usable = self.usable_settings(entry)
            if usable is not None:
                settings.setdefault(entry.name, usable)
        return settings

    @abstractmethod
    def usable_settings(self, entry: TargetEntry) -> TargetSettings | None:
        """Return the settings of a target that this check relies on."""

    @abstractmethod
    def check_judge(self, name: str, case: EvalCase) -> bool:
        """Return whether a target can judge; report it, or raise `ConfigError`, if it cannot."""

    @abstractmethod
    def check_entry(self, entry: TargetEntry, case: EvalCase) -> None:
        """Report the problems of a target that is used, first by this case."""

    def can_resolve(self, ref: JudgeRef) -> bool:
        """Return whether enough is known to find a judge."""
        return True

    def used_targets(self) -> Mapping[str, EvalCase]:
        """Return the targets to check once the judges are known, each with the first case that uses it."""
        return self.needs.targets

    def check_target(self, name: str, case: EvalCase) -> None:
        """Report the problems of a target, or that the file does not contain it."""
        entry = self.read.entry(name)
        if entry is None:
            self.check_missing(name, case)
        else:
            self.check_entry(entry, case)
            if self.checks_variables:
                self._check_variables(entry)

    def _check_variables(self, entry: TargetEntry) -> None:
        """Report the variables in the settings of a target that its cases do not have."""
        settings = self.usable_settings(entry)
        if settings is None:
            return
        missing = self.needs.missing.get(entry.name, {})
        for steps, name in settings.placeholders():
            if name in missing:
                error = missing[name].error(*steps)
                self.report(entry.problem(self.file, error))

    def check_missing(self, name: str, case: EvalCase) -> None:
        """Report a target that the file does not contain."""
        if not self.read.names:
            return  # the file itself is invalid, which has been reported
        hint = nearest(name, self.read.names, "targets")
        if name == DEFAULT_TARGET:
            names = ", ".join(self.read.names)
            hint = f"choose a target with --target, or with 'execution: {{target: NAME}}' in the eval file: {names}"
        unknown = Problem(
            message=f"unknown target {name!r}: not in {short_path(self.file)}",
            hint=hint,
        )
        if not self.is_requested(name):
            unknown = msgspec.structs.replace(unknown, file=self.needs.path, line=case.line, column=1)
        self.report(unknown)

    def is_requested(self, name: str) -> bool:
        """Return whether the user requested this target for all cases, so that no eval file is to blame."""
        return False

    def check_draft(self, entry: TargetEntry, draft: TargetSettings) -> None:
        """Report why a target could not be opened, as far as this can be checked without running the user's code."""
        try:
            draft.check_for(self.folder, self.file)
        except ConfigError as error:
            self.report(self.opening_problem(entry, error))

    def opening_problem(self, entry: TargetEntry, error: ConfigError) -> Problem:
        """Return an error that prevents a target from being opened, as a problem in the targets file."""
        return entry.problem(self.file, error)

    def lacks_workspaces(self, name: str) -> bool:
        """Return whether a target is known to have no workspaces."""
        entry = self.read.entry(name)
        if entry is None:
            return False
        settings = self.usable_settings(entry)
        if settings is None:
            return False
        return not has_workspaces(settings)

    def _resolve_judge(self, ref: JudgeRef, case: EvalCase) -> None:
        if not self.can_resolve(ref):
            return
        try:
            name = judge_name(ref, self.settings, case)
            can_judge = self.check_judge(name, case)
        except ConfigError as error:
            problem = Problem.of(error)
            if error.file is None:
                problem = case_problem(case, error.message, error.hint)
            self.report(problem)
            return
        if can_judge:
            self.judges[ref] = name
