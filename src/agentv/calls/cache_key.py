"""Cache keys and target versions: digests of everything that determines an answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import msgspec

from agentv.formats.fingerprint import digest
from agentv.providers.settings import RetrySettings, TargetSettings, cache_key_fields
from agentv.records import ProviderRequest
from agentv.system.trees import tree_digest

FILE_FIELDS = ("input_files", "guideline_files", "media")
NOT_SENT = (*FILE_FIELDS, "dataset", "workspace", "telemetry", "fence")
FOLDER_SETTINGS = ("cwd", "workspace_template")
_ENCODE = msgspec.json.Encoder(enc_hook=str, order="sorted").encode
_WRITTEN = re.compile(r"(?:>>?|\btee(?:\s+-a)?)\s*([^\s'\":;|&<>(){}$`]+)")
"""A file that a shell command writes to."""
_PATH_LIKE = re.compile(r"[^\s'\":;|&<>(){}$`]+")


def cache_key(target: Any, request: ProviderRequest) -> str:
    """Return the key of a request to the target with this `target_key`.

    Attached files count by content, not by location. Each trial, and each repeated judge call, has a key of its own:
    it needs an independent answer.
    """
    fields = {}
    for name in request.__struct_fields__:
        if name not in NOT_SENT:
            fields[name] = getattr(request, name)
    files = []
    for path in (*request.input_files, *request.guideline_files):
        files.append((path.name, _file_hash(path)))
    encoded = _ENCODE([target, fields, files])
    if request.fence:
        # The fence is random and differs in every call.
        encoded = encoded.replace(request.fence.encode(), b"")
    return blake2b(encoded, digest_size=20).hexdigest()


def target_key(settings: TargetSettings, folder: Path, targets_file: Path | None = None) -> Any:
    """Return the part of a cache key that all requests to a target share; `folder` is that of the eval file.

    For a target that runs on this machine, the content of the files that its settings name counts as well, and for
    an agent, the content of the folder that it works in.
    """
    fields = cache_key_fields(settings)
    if isinstance(settings, RetrySettings):
        return fields
    work_folders = _work_folders(fields, folder)
    search_folders = settings.search_folders(folder, targets_file)
    hashes = _hashes_of_named_files(fields, search_folders, work_folders)
    if settings.reads_files:
        for work_folder in work_folders:
            hashes.append(tree_digest(work_folder))
    return [fields, str(folder), hashes]


def target_version(settings: TargetSettings, folder: Path, targets_file: Path | None = None) -> str:
    """Return a digest of everything that determines a target's answers. It is the same on every machine.

    The version covers what a cache key covers, except for locations, and except for the content of a folder that a
    command only runs in.
    """
    fields = cache_key_fields(settings)
    known = {name: value for name, value in fields.items() if value is not None}
    if isinstance(settings, RetrySettings):
        return digest(known)
    work_folders = _work_folders(known, folder)
    search_folders = settings.search_folders(folder, targets_file)
    hashes = _hashes_of_named_files(known, search_folders, work_folders)
    template = known.get("workspace_template")
    if template:
        template_folder = folder / Path(str(template)).expanduser()
        hashes.append(tree_digest(template_folder))
    return digest(known, hashes)


def _work_folders(fields: Mapping[str, Any], folder: Path) -> list[Path]:
    """Return the folders that the settings name, relative to `folder`."""
    found = []
    for name in FOLDER_SETTINGS:
        value = fields.get(name)
        if value:
            found.append(folder / Path(str(value)).expanduser())
    return found


def _hashes_of_named_files(
    fields: Mapping[str, Any],
    search_folders: Sequence[Path],
    work_folders: Sequence[Path],
) -> list[str]:
    """Return the hashes of the files that settings name.

    These are the files in the first search folder that has any of them, and those in each work folder.
    """
    hashes: list[str] = []
    for folder in search_folders:
        hashes = list(_named_files(fields, folder))
        if hashes:
            break
    for folder in work_folders:
        hashes.extend(_named_files(fields, folder))
    return hashes


def _named_files(value: Any, folder: Path) -> Iterator[str]:
    """Yield the hash of each file that a text in `value` names, by path or as a Python module."""
    if isinstance(value, str):
        yield from _files_named_in_text(value, folder)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _named_files(inner, folder)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named_files(inner, folder)


def _files_named_in_text(text: str, folder: Path) -> Iterator[str]:
    # A file that the command writes, such as a log, changes with each call and must not count.
    written = set(_WRITTEN.findall(text))
    for word in _PATH_LIKE.findall(text):
        if word in written:
            continue
        module = word.replace(".", "/")
        for path in (folder / word, folder / f"{module}.py"):
            with suppress(OSError, ValueError):
                if path.is_file():
                    yield _large_file_hash(path)


def _large_file_hash(path: Path) -> str:
    """Return a hash of a file's content without loading the whole file into memory."""
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()


def _file_hash(path: Path) -> str:
    """Return a hash of an attached file's content; empty if the file cannot be read."""
    try:
        with path.open("rb") as file:
            content = file_digest(file, lambda: blake2b(digest_size=20))
    except OSError:
        return ""
    return content.hexdigest()
