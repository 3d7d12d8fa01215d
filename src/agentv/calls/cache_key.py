"""A target and a request -> the key under which the answer is cached: it stands for all that decides the answer."""

import re
from collections.abc import Iterator, Sequence
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
"""A file that a command writes to."""
_PATH_LIKE = re.compile(r"[^\s'\":;|&<>(){}$`]+")


def cache_key(target: Any, request: ProviderRequest) -> str:
    """Return the key of a request to a target, whose `target_key` is given.

    The content of attached files counts, not where they are. Each trial and each further attempt of a judge has a
    key of its own, since it wants another answer.
    """
    fields = {name: getattr(request, name) for name in request.__struct_fields__ if name not in NOT_SENT}
    files = [(path.name, _file_hash(path)) for path in (*request.input_files, *request.guideline_files)]
    encoded = _ENCODE([target, fields, files])
    if request.fence:  # which is random, and another in every call
        encoded = encoded.replace(request.fence.encode(), b"")
    return blake2b(encoded, digest_size=20).hexdigest()


def target_key(settings: TargetSettings, folder: Path, targets_file: Path | None = None) -> Any:
    """Return the part of a cache key that all requests to a target share; `folder` is the eval file's.

    A target that runs on this machine is more than its settings: the content of the files that they name counts as
    well, and for an agent all that is in the folder that it works in.
    """
    fields = cache_key_fields(settings)
    if isinstance(settings, RetrySettings):
        return fields
    work_folders = [folder / Path(str(fields[name])).expanduser() for name in FOLDER_SETTINGS if fields.get(name)]
    hashes = _first_files(fields, settings.search_folders(folder, targets_file))
    hashes += [found for place in work_folders for found in _named_files(fields, place)]
    if settings.reads_files:
        hashes += map(tree_digest, work_folders)
    return [fields, str(folder), hashes]


def target_version(settings: TargetSettings, folder: Path, targets_file: Path | None = None) -> str:
    """Return a digest of all that decides a target's answers, for results; it is the same on every machine.

    It covers what a cache key covers, but for where things are, and for a folder that a command merely runs in.
    """
    fields = cache_key_fields(settings)
    known = {name: value for name, value in fields.items() if value is not None}
    if isinstance(settings, RetrySettings):
        return digest(known)
    work_folders = [folder / Path(str(known[name])).expanduser() for name in FOLDER_SETTINGS if known.get(name)]
    hashes = _first_files(known, settings.search_folders(folder, targets_file))
    hashes += [found for place in work_folders for found in _named_files(known, place)]
    if template := known.get("workspace_template"):
        hashes.append(tree_digest(folder / Path(str(template)).expanduser()))
    return digest(known, hashes)


def _first_files(value: Any, folders: Sequence[Path]) -> list[str]:
    """Return the hashes of the files that are named, in the first folder that has one of them."""
    return next((found for folder in folders if (found := [*_named_files(value, folder)])), [])


def _named_files(value: Any, folder: Path) -> Iterator[str]:
    """Yield the hash of each file that a text in `value` names: by its path, or as a Python module."""
    if isinstance(value, str):
        written = set(_WRITTEN.findall(value))  # such as a log, which is another after each call
        for word in _PATH_LIKE.findall(value):
            if word in written:
                continue
            for path in (folder / word, folder / f"{word.replace('.', '/')}.py"):
                with suppress(OSError, ValueError):
                    if path.is_file():
                        yield _large_file_hash(path)
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _named_files(inner, folder)


def _large_file_hash(path: Path) -> str:
    """Return a hash of a file's content; the file is never held as a whole."""
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()


def _file_hash(path: Path) -> str:
    """Return a hash of an attached file's content, or nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file_digest(file, lambda: blake2b(digest_size=20)).hexdigest()
    except OSError:
        return ""
