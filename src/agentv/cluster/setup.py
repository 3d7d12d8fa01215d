"""What a worker of a cluster needs to run cases. It makes its own plan from its own files and environment.

Settings of targets are never sent, so no secrets are. A file or variable that a worker lacks is reported in the same
words as by the driver.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from agentv.cases.attachments import find_attachment
from agentv.cases.read import sidecar_of
from agentv.errors import AgentvError, ConfigError
from agentv.records import EvalCase, FileBlock
from agentv.redact import clean
from agentv.run.options import RunOptions
from agentv.run.planning.plan import Plan, PlannedFile
from agentv.run.planning.planner import PlanOptions, make_plan
from agentv.targets.dotenv import load_env
from agentv.targets.read import VARIABLE

BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Setup:
    """What is sent to a worker when a run starts."""

    paths: tuple[Path, ...]
    folder: Path
    plan_options: PlanOptions
    options: RunOptions
    manifest: "Manifest"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the worker may lack; empty unless the connection is private."""
    checks_judges: bool = False
    """Whether the driver judges some answers a second time, so that workers send them along with their results."""


@dataclass(frozen=True)
class PickledSetup:
    """A setup on its way to a worker. Dask logs messages at level debug, so its text does not show the content."""

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Manifest:
    """What must be the same on every machine."""

    files: Mapping[Path, str]
    """The digest or the size of each file that contains cases or is attached to one."""
    targets: tuple[tuple[Path, int, Mapping[str, str]], ...]
    """For each eval file: its path, the number of its cases, and the digests of its targets by name."""


def manifest_of(plan: Plan) -> Manifest:
    """Return what workers must find unchanged."""
    files: dict[Path, str] = {}
    targets = []
    for file in plan.files:
        for path in _files_to_compare(plan, file):
            if path.is_file():
                files[path] = _digest(path)
        files.update(_attachments(plan, file))
        digests = {target.name: target.digest for target in file.targets.values()}
        targets.append((file.path, file.cases, digests))
    return Manifest(files, tuple(targets))


def _files_to_compare(plan: Plan, file: PlannedFile) -> list[Path]:
    """Return the paths of an eval file, its sidecar and its price list."""
    path = plan.folder / file.path
    paths = [path, sidecar_of(path)]
    if file.prices is not None:
        paths.append(plan.folder / file.prices)
    return paths


def _attachments(plan: Plan, file: PlannedFile) -> Iterator[tuple[Path, str]]:
    """Yield the files that are attached to cases, each with its size. Skip those that cannot be read."""
    for case in plan.cases_of(file):
        for block in _file_blocks(case):
            try:
                found = find_attachment(block.value, case.file)
                yield found, _size(found)
            except (AgentvError, OSError):
                continue  # an error for that case, wherever it runs


def _file_blocks(case: EvalCase) -> Iterator[FileBlock]:
    for message in case.input_messages:
        if not isinstance(message.content, tuple):
            continue
        for block in message.content:
            if isinstance(block, FileBlock):
                yield block


def environment_of(plan: Plan) -> dict[str, str]:
    """Return the variables that the targets and the `.env` files of a plan name, with their values here."""
    folders = [(plan.folder / file.path).parent for file in plan.files]
    names: set[str] = set()
    for variables in load_env(folders).values():
        names.update(variables)
    targets_files = {file.targets_file for file in plan.files}
    for path in targets_files:
        if path is None:
            continue
        text = path.read_text(errors="replace")
        names.update(VARIABLE.findall(text))
    return {name: os.environ[name] for name in names if name in os.environ}


def plan_here(setup: Setup) -> Plan:
    """Return the plan of a run on this machine; raise `AgentvError` if something is missing or different.

    Masks the secrets of the project from then on.
    """
    _check_files(setup)
    folders = [setup.folder / path.parent for path in setup.paths]
    load_env(folders)
    plan, secrets = make_plan(setup.paths, setup.plan_options)
    clean.learn(secrets)
    _check_targets(plan, setup.manifest)
    return plan


def _check_targets(plan: Plan, manifest: Manifest) -> None:
    """Raise `ConfigError` if the cases or the targets of a plan are not those of the driver."""
    if len(plan.files) != len(manifest.targets):
        found = len(plan.files)
        expected = len(manifest.targets)
        raise ConfigError(f"the worker found cases to run in {found} eval files, this machine in {expected}")
    for file, (path, cases, digests) in zip(plan.files, manifest.targets, strict=True):
        if file.path != path or file.cases != cases:
            raise ConfigError(f"the worker found {file.cases} cases to run in {path}, this machine {cases}")
        for target in file.targets.values():
            if digests.get(target.name) != target.digest:
                raise ConfigError(
                    f"target {target.name!r} differs from the one on this machine",
                    file=path,
                    hint="the target must use the same files and variables on all machines",
                )


def _check_files(setup: Setup) -> None:
    """Raise `ConfigError` if a file is missing or differs from that of the driver."""
    for path, expected in setup.manifest.files.items():
        try:
            is_size = expected.endswith(" bytes")  # that of an attached file; other files have a digest
            if is_size:
                found = _size(path)
            else:
                found = _digest(path)
        except OSError as error:
            raise ConfigError(
                f"cannot be read: {error.strerror}",
                file=path,
                hint="the project must be in the same folder on all machines",
            ) from error
        if found != expected:
            raise ConfigError(
                "differs from the file on this machine",
                file=path,
                hint="copy the project to all machines",
            )


def _digest(path: Path) -> str:
    hashed = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            hashed.update(block)
    return hashed.hexdigest()


def _size(path: Path) -> str:
    return f"{path.stat().st_size} bytes"
