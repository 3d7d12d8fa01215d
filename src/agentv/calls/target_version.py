"""The version of a target: a digest of everything that is known to determine its answers.

It covers the settings; of a function, its module and the project's modules that this imports; of a command, the
programs and scripts that it names; and what `depends_on` names.
"""

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentv.calls.format_1 import named_files, target_version_1, work_folders
from agentv.errors import ConfigError
from agentv.files.fingerprint import digest
from agentv.files.folders import code_folders, top_folder
from agentv.files.trees import tree_digest
from agentv.hook_settings import HookFunction
from agentv.log import warn
from agentv.providers.python import PythonSettings
from agentv.providers.settings import RetrySettings, TargetSettings, cache_key_fields
from agentv.providers.user_functions import function_file
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.records import Problem
from agentv.text import path_text
from agentv.versions.commands import command_files, file_hash
from agentv.versions.python_files import parse_source, python_files


class TargetVersion(NamedTuple):
    """The version of a target and its parts."""

    digest: str
    settings: str = ""
    """The digest of the settings alone."""
    files: str = ""
    """The digest of the files and variables alone; empty if there are none."""
    parts: Mapping[str, str] = {}
    """The digest of each setting, file and variable, for reporting what has changed."""
    format_1: str | None = None
    """The version in format 1; None if it cannot be compared, because it covered files that change during a run."""

    def changes_since(self, parts: Mapping[str, str]) -> list[str]:
        """Return the names of the parts that differ from those of an earlier version."""
        names = dict.fromkeys((*parts, *self.parts))
        return [name for name in names if parts.get(name) != self.parts.get(name)]


def target_version(
    settings: TargetSettings,
    folder: Path,
    targets_file: Path | None = None,
) -> TargetVersion:
    """Return the version of a target for the eval files in a folder. It is the same on every machine."""
    known = {}
    parts = {}
    for name, value in cache_key_fields(settings).items():
        if value is not None:
            known[name] = value
            parts[f"setting {name}"] = digest(value)
    covered = covered_parts(settings, folder, targets_file)
    parts.update(covered)
    settings_digest = digest(known)
    hashes = sorted(covered.values())
    files_digest = ""
    if hashes:
        files_digest = digest(hashes)
    version = settings_digest
    if hashes or not isinstance(settings, RetrySettings):
        version = digest(known, hashes)
    return TargetVersion(
        digest=version,
        settings=settings_digest,
        files=files_digest,
        parts=parts,
        format_1=target_version_1(settings, folder, targets_file),
    )


def covered_parts(
    settings: TargetSettings,
    folder: Path,
    targets_file: Path | None,
) -> dict[str, str]:
    """Return the files and variables that the version of a target covers, by name, each with its digest."""
    parts: dict[str, str] = {}
    if not isinstance(settings, RetrySettings):
        root = top_folder(folder)
        for path, hashed in _local_files(settings, folder, targets_file).items():
            parts[f"file {_shown(path, root)}"] = hashed
        template = getattr(settings, "workspace_template", None)
        if template:
            parts[f"folder {template}"] = tree_digest(folder / Path(str(template)).expanduser())
    for path, hashed in _hook_files(settings, folder, targets_file).items():
        parts[f"file {_shown(path, top_folder(folder))}"] = hashed
    for entry in settings.depends_on or ():
        parts.update(_depended_on(entry, settings.name, folder, targets_file))
    return parts


def _shown(path: Path, root: Path) -> str:
    """Return a path for display: relative to the project if it is inside."""
    real_root = root.resolve()
    if path.is_relative_to(real_root):
        return path_text(path.relative_to(real_root))
    return path_text(path)


def _local_files(
    settings: TargetSettings,
    folder: Path,
    targets_file: Path | None,
) -> Mapping[Path, str]:
    """Return the files that determine the answers of a target that runs on this machine."""
    folders = settings.search_folders(folder, targets_file)
    if isinstance(settings, PythonSettings):
        return _function_files(settings.function, folders)
    fields = cache_key_fields(settings)
    found: dict[Path, str] = {}
    for searched in (*folders, *work_folders(fields, folder)):
        if isinstance(settings, WorkspaceSettings):
            for text in _texts(fields):
                found.update(command_files(text, searched))
        else:
            for path in named_files(fields, searched):
                found[path.resolve()] = file_hash(path)
    return found


def _hook_files(
    settings: TargetSettings,
    folder: Path,
    targets_file: Path | None,
) -> Mapping[Path, str]:
    """Return the files of the hooks that run before a target is called: they may affect its answers."""
    hooks = settings.all_hooks
    if hooks is None:
        return {}
    found: dict[Path, str] = {}
    for hook in (hooks.before_all, hooks.before_each):
        if isinstance(hook, HookFunction):
            found.update(_function_files(hook.function, code_folders(folder, targets_file)))
        else:
            for command in _texts(hook):
                found.update(command_files(command, folder))
    return found


def _function_files(function: str, folders: Sequence[Path]) -> Mapping[Path, str]:
    try:
        path = function_file(function, folders)
    except ConfigError:
        return {}  # opening the target reports it
    if path is None:
        return {}
    return python_files(path, folders)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in the value of a setting."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _depended_on(
    entry: str,
    target: str,
    folder: Path,
    targets_file: Path | None,
) -> dict[str, str]:
    """Return the variable that an entry of `depends_on` names, or the files that match its glob."""
    if entry.startswith("env:"):
        name = entry.removeprefix("env:")
        return {f"variable {name}": digest(os.environ.get(name))}
    base = folder
    if targets_file is not None:
        base = targets_file.absolute().parent
    matches = sorted(glob.glob(entry, root_dir=base, recursive=True, include_hidden=True))
    if not matches:
        warn(
            Problem(
                message=f"target {target!r}: depends_on: no file matches {entry!r}",
                severity="warning",
                file=targets_file,
                hint=f"it is relative to {base}",
            )
        )
    found = {}
    for match in matches:
        path = base / match
        if path.is_file():
            found[f"file {match}"] = _file_digest(path)
        elif path.is_dir() and "*" not in entry:
            found[f"folder {match}"] = tree_digest(path)
    return found


def _file_digest(path: Path) -> str:
    if path.suffix == ".py":
        return parse_source(path).digest
    return file_hash(path)
