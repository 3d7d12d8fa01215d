"""A target's settings -> what is sent with every request, for the names of cache entries."""

import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any

from agentv.providers.settings import RetrySettings, TargetSettings

NOT_SENT = frozenset((*RetrySettings.__struct_fields__, "api_key", "timeout_seconds")) - {"provider"}
"""Settings that do not change what a target is sent, and the secret one."""
_WORD = re.compile(r"[^\s'\":;|&<>(){}$`]+")


def sent_with_every_request(settings: TargetSettings, folder: Path) -> Any:
    """Return what every request to a target carries: its settings, and the content of files that they name."""
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in NOT_SENT}
    if isinstance(settings, RetrySettings):
        return fields
    at_work = [folder / str(fields[name]) for name in ("cwd", "workspace_template") if fields.get(name)]
    found = [fingerprint for place in (folder, *at_work) for fingerprint in _contents(fields, place)]
    if settings.reads_files:  # what an agent works on is part of what it is asked
        found += [fingerprint for place in at_work for fingerprint in _tree(place)]
    return [fields, str(folder), found]


def _contents(fields: Any, folder: Path) -> Iterator[str]:
    """Yield fingerprints of the files that settings name, such as the file of a function."""
    if isinstance(fields, str):
        for word in _WORD.findall(fields):
            for place in (folder / word, folder / f"{word.replace('.', '/')}.py"):
                with suppress(OSError, ValueError):
                    yield from _fingerprint(place)
    elif isinstance(fields, dict | list | tuple):
        for inner in fields.values() if isinstance(fields, dict) else fields:
            yield from _contents(inner, folder)


def _tree(folder: Path) -> Iterator[str]:
    """Yield the names and fingerprints of all files in a folder, those of Git aside."""
    for path in sorted(folder.rglob("*")):
        if ".git" not in path.parts:
            with suppress(OSError):
                yield str(path.relative_to(folder))
                yield from _fingerprint(path)


def _fingerprint(path: Path) -> Iterator[str]:
    if path.is_file():
        with path.open("rb") as file:
            yield file_digest(file, "blake2b").hexdigest()
