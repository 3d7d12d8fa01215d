"""Check and plan the targets of a run: those that answer themselves, and those that a stand-in answers for."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agentv.calls.target_version import TargetVersion, target_version
from agentv.cases.request import Files
from agentv.errors import ConfigError
from agentv.log import debug
from agentv.protocols import BatchProvider, Provider
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase
from agentv.registry import open_settings
from agentv.run.planning.check import TargetCheck
from agentv.run.planning.plan import PlannedTarget, Selection
from agentv.targets.read import TargetEntry


@dataclass
class TargetVersions:
    """Cache of target versions. The files of a target are read once for all eval files in a folder."""

    versions: dict[tuple[Path, Path, str], TargetVersion] = field(default_factory=dict)

    def get(self, settings: TargetSettings, folder: Path, file: Path) -> TargetVersion:
        key = (file, folder, settings.name)
        if key not in self.versions:
            self.versions[key] = target_version(settings, folder, file)
        return self.versions[key]


@dataclass(kw_only=True)
class RunTargets(TargetCheck):
    """Check the targets of a run and plan the usable ones. Only valid settings count."""

    selection: Selection
    versions: TargetVersions
    stand_in_version: TargetVersion
    stand_in: Provider | None
    targets: dict[str, PlannedTarget] = field(default_factory=dict)
    """The targets that answer cases, by name."""

    def usable_settings(self, entry: TargetEntry) -> TargetSettings | None:
        return entry.settings

    def is_requested(self, name: str) -> bool:
        return self.selection.target == name

    def check_judge(self, name: str, case: EvalCase) -> bool:
        provider = self.open(name)
        if isinstance(provider, BatchProvider):
            raise ConfigError(
                f"target {name!r} cannot be a judge: it answers in batches",
                hint="set 'judge_target' to another target",
            )
        return provider is not None

    def check_target(self, name: str, case: EvalCase) -> None:
        debug(f"{self.needs.path}: target {name!r}: {self.selection.reason_for(case)}")
        super().check_target(name, case)

    def open(self, name: str) -> Provider | BatchProvider | None:
        """Return the provider of a valid target, or None if it cannot be opened, which is reported."""
        try:
            return _open(self.settings[name], self.folder, self.file)
        except ConfigError as error:
            entry = self.read.entry(name)
            assert entry is not None  # it has settings
            self.report(self.opening_problem(entry, error))
            return None


class _OpenedTargets(RunTargets):
    """Targets that answer themselves: each is opened."""

    def check_entry(self, entry: TargetEntry, case: EvalCase) -> None:
        settings = entry.settings
        if settings is None:
            if entry.draft is not None:
                self.check_draft(entry, entry.draft)  # to find its other problems
            return
        if self.open(entry.name) is None:
            return
        self.targets[entry.name] = PlannedTarget(
            name=entry.name,
            settings=settings,
            version=self.versions.get(settings, self.folder, self.file),
            files=_file_form(settings),
            takes_guidelines=settings.takes_guidelines(self.folder, self.file),
            uses=settings.uses(self.folder, self.file),
        )


class _ReplacedTargets(RunTargets):
    """Targets that a stand-in answers for. They may be invalid or missing, and have no workspaces."""

    checks_variables = False

    def check_entry(self, entry: TargetEntry, case: EvalCase) -> None:
        target = replaced_target(entry.name, self.stand_in, self.stand_in_version)
        if entry.settings is not None:
            target = target._replace(
                settings=entry.settings,
                files=_file_form(entry.settings),
            )
        self.targets[entry.name] = target

    def check_missing(self, name: str, case: EvalCase) -> None:
        self.targets[name] = replaced_target(name, self.stand_in, self.stand_in_version)

    def lacks_workspaces(self, name: str) -> bool:
        return True


class _DryRunTargets(_ReplacedTargets):
    """Targets of a dry run, which must exist. Evaluators that need a workspace are not run."""

    checks_variables = True

    def check_entry(self, entry: TargetEntry, case: EvalCase) -> None:
        super().check_entry(entry, case)
        if entry.settings is None:
            return
        # Prompts are those that the target itself would receive.
        with suppress(ConfigError):
            takes_guidelines = entry.settings.takes_guidelines(self.folder, self.file)
            self.targets[entry.name] = self.targets[entry.name]._replace(
                takes_guidelines=takes_guidelines,
                uses=entry.settings.uses(self.folder, self.file),
            )

    def check_missing(self, name: str, case: EvalCase) -> None:
        TargetCheck.check_missing(self, name, case)

    def lacks_workspaces(self, name: str) -> bool:
        return False


def replaced_target(name: str, stand_in: Provider | None, version: TargetVersion) -> PlannedTarget:
    """Return a target for which the stand-in answers."""
    takes_guidelines = getattr(stand_in, "takes_guidelines", True)
    uses: frozenset[str] = getattr(stand_in, "uses", frozenset())
    return PlannedTarget(name, None, version, takes_guidelines=takes_guidelines, uses=uses)


def check_targets_of(*, dry_run: bool, stand_in: Provider | None) -> type[RunTargets]:
    """Return the check of the targets of a run."""
    if dry_run:
        return _DryRunTargets
    if stand_in is not None:
        return _ReplacedTargets
    return _OpenedTargets


def _file_form(settings: TargetSettings) -> Files:
    if settings.reads_files:
        return Files.REFERENCE
    return Files.INLINE


def open_provider(
    name: str,
    settings: TargetSettings,
    folder: Path,
    file: Path | None,
) -> Provider | BatchProvider:
    """Return the provider of a target for the eval files in a folder; raise `ConfigError` if it cannot be opened."""
    try:
        return _open(settings, folder, file)
    except ConfigError as error:
        raise ConfigError(
            f"target {name!r}: {error.message}",
            file=file,
            hint=error.hint,
        ) from error


def _open(settings: TargetSettings, folder: Path, file: Path | None) -> Provider | BatchProvider:
    opener = partial(settings.open_for, folder, file)
    return open_settings(settings, opener, "invoke", "invoke_batch")  # type: ignore[no-any-return]
