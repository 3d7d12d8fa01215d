"""A template -> the files of a new project. What is there already is never touched.

Templates are files in `templates/`: those in `common` belong to every project. One that a template has as well
is put together from both, the template's part first.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentv.cases.read import READERS
from agentv.errors import OutputError
from agentv.project.schema import json_schema
from agentv.targets.read import TARGETS_NAMES

HOME = Path(__file__).parent / "templates"
COMMON = "common"
DEFAULT = "python"
TEMPLATES = (DEFAULT, "cli", "openai", "batch")
SCHEMAS = ("eval", "sidecar", "targets")
"""The kinds of files in a new project that editors can check."""


class Scaffolded(NamedTuple):
    """What was written, what was there already, and what to do next."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    next_steps: str


def scaffold(folder: Path, template: str) -> Scaffolded:
    """Write the project's files that are not there yet; `OutputError` when that cannot be done."""
    files = dict(sorted(_files(template)))
    if folder.exists() and not folder.is_dir():
        raise OutputError("a file, and no folder", file=folder, hint="name a folder, new or old")
    there = {name: next(filter(_is_there, _places(folder, name)), None) for name in files}
    written = [folder / name for name, place in there.items() if place is None]
    kept = dict.fromkeys(place for place in there.values() if place is not None)
    for path in written:
        _write(path, files[path.relative_to(folder).as_posix()])
    return Scaffolded(tuple(written), tuple(kept), (HOME / template / "next.txt").read_text(encoding="utf-8"))


def missing_lines(path: Path) -> list[str]:
    """The lines of ours that a file of the same name lacks."""
    own = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    ours = (HOME / COMMON / path.name).read_text(encoding="utf-8").splitlines()
    return [line for line in ours if line not in own]


def _files(template: str) -> Iterator[tuple[str, str]]:
    own, common = _texts(HOME / template / "files"), _texts(HOME / COMMON)
    for name in {**own, **common}:
        yield name, own.get(name, "") + common.get(name, "")
    for kind in SCHEMAS:
        yield f".agentv/schemas/{kind}.schema.json", json.dumps(json_schema(kind), indent=2) + "\n"


def _texts(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _places(folder: Path, name: str) -> list[Path]:
    """Where a file would be in the way: its own place, a targets file's, a dataset's that would get a new sidecar."""
    if name in TARGETS_NAMES:
        return [folder / name, *(folder / other for other in TARGETS_NAMES)]
    path = folder / name
    return [path, *(path.with_suffix(suffix) for suffix in READERS)] if path.suffix in READERS else [path]


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        hint = "see who may write there, or name another folder"
        raise OutputError(f"cannot be written: {error.strerror}", file=path, hint=hint) from error
