"""Open the hooks of a plan, and find those for a case."""

from pathlib import Path
from typing import NamedTuple

from agentv.files.folders import code_folders
from agentv.hooks.levels import Level, file_level, target_level
from agentv.run.jobs import Job
from agentv.run.planning.plan import Plan, PlannedFile, PlannedTarget, file_finder
from agentv.run.targets import OpenTargets


class _TargetKey(NamedTuple):
    """A target, for the eval files in a folder."""

    targets_file: Path | None
    name: str
    folder: Path


class PlanLevels:
    """The hooks of the eval files and targets of a plan, ready to run."""

    def __init__(self, plan: Plan, targets: OpenTargets):
        """Raise `ConfigError` if a hook cannot be used."""
        self._folder = plan.folder
        self._file_of = file_finder(plan)
        self._targets = targets
        self._of_files: dict[Path, Level] = {}
        self._of_targets: dict[_TargetKey, Level] = {}
        for file in plan.files:
            self._open_file(file)
            for planned in file.targets.values():
                self._open_target(file, planned)

    def of_job(self, job: Job) -> list[Level]:
        """Return the hooks for the case of a job: those of its file come first."""
        file = self._file_of(job.case)
        return self.of_target(file, job.planned)

    def of_target(self, file: PlannedFile, planned: PlannedTarget) -> list[Level]:
        """Return the hooks for the cases of a file that a target answers: those of the file come first."""
        found = []
        path = self._folder / file.path
        if path in self._of_files:
            found.append(self._of_files[path])
        key = self._target_key(file, planned)
        if key in self._of_targets:
            found.append(self._of_targets[key])
        return found

    def _open_file(self, file: PlannedFile) -> None:
        if file.hooks is None:
            return
        path = self._folder / file.path
        level = file_level(path, file.hooks)
        folders = code_folders(path.parent, file.targets_file)
        level.open(folders)
        self._of_files[path] = level
        for planned in file.targets.values():
            settings = self._targets.target(file, planned).settings
            if settings is not None:
                level.check_target(settings)

    def _open_target(self, file: PlannedFile, planned: PlannedTarget) -> None:
        key = self._target_key(file, planned)
        if key in self._of_targets or key.targets_file is None:
            return
        settings = self._targets.target(file, planned).settings
        if settings is None:
            return
        level = target_level(settings, key.targets_file, key.folder)
        if level is None:
            return
        folders = code_folders(key.folder, key.targets_file)
        level.open(folders)
        self._of_targets[key] = level

    def _target_key(self, file: PlannedFile, planned: PlannedTarget) -> _TargetKey:
        path = self._folder / file.path
        return _TargetKey(
            targets_file=file.targets_file,
            name=planned.name,
            folder=path.parent,
        )
