"""Check the targets that an eval file uses, and the targets that judge their answers. No user code is run."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from agentv.cases.expand import Report
from agentv.config import guideline_patterns
from agentv.errors import AgentvError, ConfigError, MissingProgram
from agentv.evaluators.judging.target import JudgeRef
from agentv.files.folders import code_folders
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, Problem
from agentv.redact import clean
from agentv.run.planning.check import Needs, TargetCheck
from agentv.targets.dotenv import load_env
from agentv.targets.find import find_targets
from agentv.targets.read import TargetEntry, TargetList, read_targets

if TYPE_CHECKING:  # hooks are imported only if a file or a target has some
    from agentv.hooks.levels import Level


class FoundTargets(NamedTuple):
    """A targets file, and its targets or the reason why it cannot be read."""

    file: Path
    read: TargetList | AgentvError


class TargetFiles:
    """Find and read the targets files of eval files, each once."""

    def __init__(self, in_project: Collection[Path] = ()) -> None:
        """`in_project` are the eval files that need a targets file; others are checked on their own without one."""
        self._in_project = in_project
        self._missing: set[str] = set()
        """The messages about missing targets files that were reported."""
        self._by_folder: dict[Path, FoundTargets | ConfigError] = {}
        self._by_file: dict[Path, FoundTargets] = {}

    def find(self, folder: Path) -> FoundTargets | ConfigError:
        """Return the targets for the eval files in a folder, or the error if the targets file is missing."""
        if folder not in self._by_folder:
            self._by_folder[folder] = self._find(folder)
        return self._by_folder[folder]

    def find_settings(self, folder: Path, target: str) -> TargetSettings | None:
        """Return the settings of a target for the eval files in a folder, or None if they are not known."""
        found = self.find(folder)
        if isinstance(found, ConfigError) or isinstance(found.read, AgentvError):
            return None
        entry = found.read.entry(target)
        if entry is None:
            return None
        return entry.draft

    def report_missing(self, error: ConfigError, path: Path, report: Report) -> None:
        """Report that an eval file has no targets file, once for all eval files of a folder."""
        if path not in self._in_project or error.message in self._missing:
            return
        self._missing.add(error.message)
        missing = Problem(
            message=error.message,
            file=path,
            line=1,
            column=1,
            hint=error.hint.partition(",")[0],  # the example is omitted because it has several lines
        )
        report(missing)

    def _find(self, folder: Path) -> FoundTargets | ConfigError:
        try:
            path = find_targets(folder)
        except ConfigError as error:
            return error
        file = _short(path)
        if file not in self._by_file:
            read = _read(file)
            self._by_file[file] = FoundTargets(file, read)
        return self._by_file[file]


def _read(file: Path) -> TargetList | AgentvError:
    environment = dict(os.environ)
    try:
        load_env([file.parent], environment)
        read = read_targets(file, environment)
    except AgentvError as error:
        return error
    clean.learn(read.secrets)
    return read


def check_needs(needs: Needs, targets: TargetFiles, report: Report) -> None:
    """Report the problems outside of the cases that would stop a run of an eval file."""
    folder = needs.path.parent
    _check_config(folder, report)
    found = targets.find(folder)
    if isinstance(found, ConfigError):
        targets.report_missing(found, needs.path, report)
        return
    if isinstance(found.read, AgentvError):
        problem = Problem.of(found.read)
        report(problem)
        return
    for problem in found.read.file_problems:
        report(problem)
    check = SettingsCheck(
        needs=needs,
        file=found.file,
        read=found.read,
        report=report,
    )
    check.run(needs.judges.cases)
    first_case = next(iter(needs.targets.values()))
    check.check_file_hooks(first_case)


def _check_config(folder: Path, report: Report) -> None:
    try:
        guideline_patterns(folder)
    except ConfigError as error:
        problem = Problem.of(error)
        if problem.file is not None:
            file = _short(problem.file)
            problem = msgspec.structs.replace(problem, file=file)
        report(problem)


@dataclass(kw_only=True)
class SettingsCheck(TargetCheck):
    """Check targets by their settings, without opening them. Invalid targets are checked as far as possible."""

    judging: dict[str, EvalCase] = field(default_factory=dict)
    """The targets that judge, each with the first case that needs it."""

    def usable_settings(self, entry: TargetEntry) -> TargetSettings | None:
        return entry.draft

    def can_resolve(self, ref: JudgeRef) -> bool:
        # An unknown target, or one without usable settings, is reported elsewhere.
        if ref.target not in self.settings:
            return False
        if ref.name in self.settings:
            return True
        return ref.name not in self.read.names

    def check_judge(self, name: str, case: EvalCase) -> bool:
        self.judging.setdefault(name, case)
        return True

    def used_targets(self) -> Mapping[str, EvalCase]:
        used = dict(self.needs.targets)
        for name, case in self.judging.items():
            used.setdefault(name, case)
        return used

    def check_entry(self, entry: TargetEntry, case: EvalCase) -> None:
        for problem in entry.problems:
            message = f"{entry.title}: {problem.message}"
            titled = msgspec.structs.replace(problem, message=message)
            self.report(titled)
        if entry.draft is not None and not entry.has_unset_variables:
            self.check_draft(entry, entry.draft)
            self.check_target_hooks(entry.draft)

    def check_target_hooks(self, settings: TargetSettings) -> None:
        """Report the problems of the hooks of a target."""
        if settings.all_hooks is None:
            return
        from agentv.hooks.levels import target_level

        level = target_level(settings, self.file, self.folder)
        if level is not None:
            self.check_hooks(level)

    def check_file_hooks(self, case: EvalCase) -> None:
        """Report the problems of the hooks of the case's eval file."""
        if case.file.hooks is None:
            return
        from agentv.hooks.levels import file_level

        level = file_level(self.needs.path, case.file.hooks)
        answering = [self.settings[name] for name in self.needs.targets if name in self.settings]
        self.check_hooks(level, answering)

    def check_hooks(self, level: "Level", targets: Sequence[TargetSettings] = ()) -> None:
        """Report a function of hooks that cannot be loaded, and the first of these targets that cannot have them."""
        try:
            level.check(code_folders(self.folder, self.file))
            for settings in targets:
                level.check_target(settings)
        except ConfigError as error:
            self.report(Problem.of(error))

    def opening_problem(self, entry: TargetEntry, error: ConfigError) -> Problem:
        problem = super().opening_problem(entry, error)
        if isinstance(error, MissingProgram):
            # The program may be installed on the machine where the target runs.
            return msgspec.structs.replace(problem, severity="warning")
        return problem


def _short(path: Path) -> Path:
    """Return the path relative to the current folder if it is in there, else the absolute path."""
    absolute = Path(os.path.abspath(path))
    current = Path.cwd()
    if absolute.is_relative_to(current):
        return absolute.relative_to(current)
    return absolute
