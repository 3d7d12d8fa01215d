"""Cache keys and target versions in format 1, which results and caches of earlier versions of agentv contain.

Format 1 covered every file that the settings of a local target name, and nothing that these files import.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any

from agentv.files.fingerprint import digest
from agentv.files.trees import tree_digest
from agentv.providers.settings import RetrySettings, TargetSettings, cache_key_fields
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.text import path_text
from agentv.versions.commands import SOURCES

REQUEST_FIELDS = ("eval_id", "question", "guidelines", "chat_prompt", "attempt", "trial", "response_schema")
"""The fields of a request that are always part of a cache key."""
_NEW_SETTINGS = ("depends_on", "hooks", "config", "batch_on_missing", "output_format")
"""Settings that format 1 did not have. They are part of a key if they are set."""
_FOLDER_SETTINGS = ("cwd", "workspace_template")
_WRITTEN = re.compile(r"(?:>>?|\btee(?:\s+-a)?)\s*([^\s'\":;|&<>(){}$`]+)")
"""A file that a shell command writes to."""
_PATH_LIKE = re.compile(r"[^\s'\":;|&<>(){}$`]+")


def settings_in_key(settings: TargetSettings) -> dict[str, Any]:
    """Return the settings that are part of a cache key."""
    fields = {}
    for name, value in cache_key_fields(settings).items():
        if value is not None or name not in _NEW_SETTINGS:
            fields[name] = value
    return fields


def target_key_1(
    settings: TargetSettings,
    folder: Path,
    targets_file: Path | None = None,
) -> Any:
    """Return the `target_key` in format 1; None if that is the same as now, or cannot be used."""
    if isinstance(settings, RetrySettings) or settings.depends_on:
        return None
    fields = settings_in_key(settings)
    folders = work_folders(fields, folder)
    search_folders = settings.search_folders(folder, targets_file)
    hashes = _hashes_of_named_files(fields, search_folders, folders)
    if settings.reads_files:
        for work_folder in folders:
            hashes.append(tree_digest(work_folder))
    return [fields, path_text(folder), hashes]


def target_version_1(
    settings: TargetSettings,
    folder: Path,
    targets_file: Path | None = None,
) -> str | None:
    """Return the version of a target in format 1; None if it covered files that may change during a run."""
    known = {}
    for name, value in cache_key_fields(settings).items():
        if value is not None:
            known[name] = value
    if isinstance(settings, RetrySettings):
        return digest(known)
    folders = work_folders(known, folder)
    search_folders = settings.search_folders(folder, targets_file)
    if isinstance(settings, WorkspaceSettings) and _names_data(known, (*search_folders, *folders)):
        return None
    hashes = _hashes_of_named_files(known, search_folders, folders)
    template = known.get("workspace_template")
    if template:
        template_folder = folder / Path(str(template)).expanduser()
        hashes.append(tree_digest(template_folder))
    return digest(known, hashes)


def _names_data(fields: Mapping[str, Any], folders: Sequence[Path]) -> bool:
    """Return whether settings name a file that is not a source file."""
    for folder in folders:
        for path in named_files(fields, folder):
            if path.suffix.lower() not in SOURCES:
                return True
    return False


def work_folders(fields: Mapping[str, Any], folder: Path) -> list[Path]:
    """Return the folders that the settings name, relative to `folder`."""
    found = []
    for name in _FOLDER_SETTINGS:
        value = fields.get(name)
        if value:
            path = Path(str(value)).expanduser()
            found.append(folder / path)
    return found


def _hashes_of_named_files(
    fields: Mapping[str, Any],
    search_folders: Sequence[Path],
    folders: Sequence[Path],
) -> list[str]:
    """Return the hashes of the files that settings name.

    These are the files in the first search folder that has any of them, and those in each work folder.
    """
    hashes: list[str] = []
    for folder in search_folders:
        hashes = _hashes(fields, folder)
        if hashes:
            break
    for folder in folders:
        hashes.extend(_hashes(fields, folder))
    return hashes


def _hashes(fields: Mapping[str, Any], folder: Path) -> list[str]:
    found = []
    for path in named_files(fields, folder):
        with suppress(OSError), path.open("rb") as file:
            found.append(file_digest(file, "blake2b").hexdigest())
    return found


def named_files(value: Any, folder: Path) -> Iterator[Path]:
    """Yield the files that texts in `value` name, by path or as Python modules."""
    if isinstance(value, str):
        yield from _files_named_in_text(value, folder)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from named_files(inner, folder)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from named_files(inner, folder)


def _files_named_in_text(text: str, folder: Path) -> Iterator[Path]:
    # A file that the command writes, such as a log, changes with each call and must not count.
    written = set(_WRITTEN.findall(text))
    for word in _PATH_LIKE.findall(text):
        if word in written:
            continue
        module = word.replace(".", "/")
        for path in (folder / word, folder / f"{module}.py"):
            with suppress(OSError, ValueError):
                if path.is_file():
                    yield path
