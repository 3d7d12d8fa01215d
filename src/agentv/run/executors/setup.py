"""What a worker of a cluster needs to run cases: it plans for itself, from its own files and its own environment.

No setting of a target travels, so no secret does; and whatever a worker lacks is found as it would be found here.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from agentv.cases.attachments import find_attachment
from agentv.cases.read import sidecar_of
from agentv.errors import AgentvError, ConfigError
from agentv.records import FileBlock
from agentv.redact import clean, secrets_in
from agentv.run.plan import Plan, RunOptions
from agentv.run.planner import PlanOptions, make_plan
from agentv.system.dotenv import load_env
from agentv.targets.read import VARIABLE


@dataclass(frozen=True)
class Setup:
    """What is sent to a worker when a run starts."""

    paths: tuple[Path, ...]
    folder: Path
    plan_options: PlanOptions
    options: RunOptions
    manifest: "Manifest"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the worker may lack; empty unless nobody can listen."""
    checks_judges: bool = False
    """Whether the driver wants some answers along with their results, to have them judged again."""


@dataclass(frozen=True)
class Manifest:
    """What must be the same on every machine."""

    files: Mapping[Path, str]
    """The digest or the size of each file that cases are in or refer to."""
    targets: tuple[tuple[Path, int, Mapping[str, str]], ...]
    """For each eval file: its path, the number of its cases, and the digests of its targets."""


def manifest_of(plan: Plan) -> Manifest:
    """Return what workers must find as it is here."""
    files = {}
    for file in plan.files:
        path = plan.folder / file.path
        beside = (sidecar_of(path), *([plan.folder / file.prices] if file.prices is not None else []))
        files.update({each: _digest(each) for each in (path, *beside) if each.is_file()})
        files.update(_attachments(plan, file.path))
    targets = tuple(
        (file.path, file.cases, {target.name: target.digest for target in file.targets.values()}) for file in plan.files
    )
    return Manifest(files, targets)


def _attachments(plan: Plan, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that cases attach, as far as they are there, each with its size."""
    file = next(file for file in plan.files if file.path == path)
    for case in plan.cases_of(file):
        for message in case.input_messages:
            for block in message.content if isinstance(message.content, tuple) else ():
                if isinstance(block, FileBlock):
                    try:
                        found = find_attachment(block.value, case.file)
                        yield found, _size(found)
                    except (AgentvError, OSError):
                        continue  # an error of its case, wherever that runs


def environment_of(plan: Plan) -> dict[str, str]:
    """Return the variables that the targets and the `.env` files of a plan name, with their values here."""
    names = {name for found in load_env(_folders(plan)).values() for name in found}
    for path in {file.targets_file for file in plan.files if file.targets_file is not None}:
        names.update(VARIABLE.findall(path.read_text(errors="replace")))
    return {name: os.environ[name] for name in names if name in os.environ}


def plan_here(setup: Setup) -> Plan:
    """Return the plan of a run as it is on this machine; raise `AgentvError` if something is missing or different.

    From here on the secrets of the project are masked.
    """
    _check_files(setup)
    for variables in load_env([setup.folder / path.parent for path in setup.paths]).values():
        clean.learn(secrets_in(variables))
    plan, secrets = make_plan(setup.paths, setup.plan_options)
    clean.learn(secrets)
    if len(plan.files) != len(setup.manifest.targets):
        raise ConfigError(f"{len(plan.files)} eval files have cases to run there, {len(setup.manifest.targets)} here")
    for file, (path, cases, digests) in zip(plan.files, setup.manifest.targets, strict=True):
        if (file.path, file.cases) != (path, cases):
            raise ConfigError(f"{path} has {file.cases} cases to run there and {cases} here")
        for target in file.targets.values():
            if digests.get(target.name) != target.digest:
                hint = "the files and variables that the target uses must be the same on all machines"
                raise ConfigError(f"target {target.name!r} is another one there than here", file=path, hint=hint)
    return plan


def _check_files(setup: Setup) -> None:
    for path, stamp in setup.manifest.files.items():
        try:
            found = _size(path) if stamp.endswith(" bytes") else _digest(path)
        except OSError as error:
            hint = "the project must be in the same folder on all machines"
            raise ConfigError(f"cannot be read: {error.strerror}", file=path, hint=hint) from error
        if found != stamp:
            hint = "copy the project to all machines again"
            raise ConfigError("is another file there than here", file=path, hint=hint)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        hashed = blake2b(digest_size=16)
        while block := file.read(2**20):
            hashed.update(block)
    return hashed.hexdigest()


def _size(path: Path) -> str:
    return f"{path.stat().st_size} bytes"


def _folders(plan: Plan) -> list[Path]:
    return [(plan.folder / file.path).parent for file in plan.files]
