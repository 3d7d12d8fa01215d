"""A template -> the files of a new project. Files that exist are never changed.

Templates are folders in `templates/`; the files in `common` belong to every project. A file that is in both is joined,
the template's part first.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentv.cases.read import READERS
from agentv.errors import OutputError
from agentv.project.schema import json_schema
from agentv.targets.read import TARGETS_NAMES

TEMPLATES_FOLDER = Path(__file__).parent / "templates"
COMMON = "common"
DEFAULT = "python"
TEMPLATES = (DEFAULT, "cli", "openai", "batch")
SCHEMAS = ("eval", "sidecar", "targets")
"""The kinds of files in a new project that editors can check."""


class ScaffoldResult(NamedTuple):
    """The files that were written, those that existed already, and what to do next."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    next_steps: str


def scaffold(folder: Path, template: str) -> ScaffoldResult:
    """Write those files of a project that do not exist; raise `OutputError` if that is not possible."""
    files = dict(sorted(_files(template)))
    if folder.exists() and not folder.is_dir():
        raise OutputError("a file, and no folder", file=folder, hint="name a folder, new or old")
    existing = {name: next(filter(_exists, _rivals(folder, name)), None) for name in files}
    written = [folder / name for name, path in existing.items() if path is None]
    kept = dict.fromkeys(path for path in existing.values() if path is not None)
    for path in written:
        _write(path, files[path.relative_to(folder).as_posix()])
    return ScaffoldResult(
        tuple(written), tuple(kept), (TEMPLATES_FOLDER / template / "next.txt").read_text(encoding="utf-8")
    )


def missing_lines(path: Path) -> list[str]:
    """Return the lines of our template that a file of the same name does not have."""
    own = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    ours = (TEMPLATES_FOLDER / COMMON / path.name).read_text(encoding="utf-8").splitlines()
    return [line for line in ours if line not in own]


def _files(template: str) -> Iterator[tuple[str, str]]:
    own, common = _texts(TEMPLATES_FOLDER / template / "files"), _texts(TEMPLATES_FOLDER / COMMON)
    for name in {**own, **common}:
        yield name, own.get(name, "") + common.get(name, "")
    for kind in SCHEMAS:
        yield f".agentv/schemas/{kind}.schema.json", json.dumps(json_schema(kind), indent=2) + "\n"


def _texts(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _rivals(folder: Path, name: str) -> list[Path]:
    """Return the paths of which none may exist if a file is to be written: its own, and those that do the same work.

    These are other targets files, and eval files of the same name, which a new file would be a sidecar of.
    """
    if name in TARGETS_NAMES:
        return [folder / name, *(folder / other for other in TARGETS_NAMES)]
    path = folder / name
    return [path, *(path.with_suffix(suffix) for suffix in READERS)] if path.suffix in READERS else [path]


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        hint = "see who may write there, or name another folder"
        raise OutputError(f"cannot be written: {error.strerror}", file=path, hint=hint) from error
