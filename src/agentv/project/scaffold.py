"""Create the files of a new project from a template. Existing files are never changed.

Templates are folders in `templates/`; the files in `common` belong to every project. If a file is in both, the new
file starts with the template's part, followed by the common part.
"""

import json
from pathlib import Path
from typing import NamedTuple

from agentv.cases.read import READERS
from agentv.errors import OutputError
from agentv.project.schema import json_schema
from agentv.targets.find import TARGETS_NAMES

TEMPLATES_FOLDER = Path(__file__).parent / "templates"
COMMON = "common"
DEFAULT = "python"
TEMPLATES = (DEFAULT, "cli", "openai", "batch")
SCHEMAS = ("eval", "sidecar", "targets")
"""The kinds of files in a new project that editors can check against a schema."""


class ScaffoldResult(NamedTuple):
    """The files that were written, those that already existed, and the next steps for the user."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    next_steps: str


def scaffold(folder: Path, template: str) -> ScaffoldResult:
    """Write the files of a project that do not exist yet; raise `OutputError` if a file cannot be written."""
    files = _files(template)
    if folder.exists() and not folder.is_dir():
        raise OutputError(
            "a file, not a folder",
            file=folder,
            hint="choose a new or existing folder",
        )
    # Look for existing files before anything is written: the new files conflict with each other.
    new: dict[Path, str] = {}
    kept: dict[Path, None] = {}
    for name, text in sorted(files.items()):
        existing = _existing_file(folder, name)
        if existing is None:
            new[folder / name] = text
        else:
            kept[existing] = None
    for path, text in new.items():
        _write(path, text)
    next_steps = TEMPLATES_FOLDER / template / "next.txt"
    return ScaffoldResult(
        written=tuple(new),
        kept=tuple(kept),
        next_steps=next_steps.read_text(encoding="utf-8"),
    )


def missing_lines(path: Path) -> list[str]:
    """Return the lines of the common template file with the same name that a file lacks."""
    existing: list[str] = []
    if path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
        existing = text.splitlines()
    template_file = TEMPLATES_FOLDER / COMMON / path.name
    template = template_file.read_text(encoding="utf-8")
    missing = []
    for line in template.splitlines():
        if line not in existing:
            missing.append(line)
    return missing


def _files(template: str) -> dict[str, str]:
    """Return the content of each file of a new project, by its path in the project."""
    files = _texts(TEMPLATES_FOLDER / template / "files")
    common = _texts(TEMPLATES_FOLDER / COMMON)
    for name, text in common.items():
        files[name] = files.get(name, "") + text
    for kind in SCHEMAS:
        name = f".agentv/schemas/{kind}.schema.json"
        schema = json_schema(kind)
        text = json.dumps(schema, indent=2)
        files[name] = text + "\n"
    return files


def _texts(folder: Path) -> dict[str, str]:
    """Return the content of each file below a folder, by its path in the folder."""
    texts = {}
    for path in folder.rglob("*"):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        relative = path.relative_to(folder)
        name = relative.as_posix()
        texts[name] = path.read_text(encoding="utf-8")
    return texts


def _existing_file(folder: Path, name: str) -> Path | None:
    """Return the existing file that prevents a new one from being written, or None."""
    for path in _conflicting_paths(folder, name):
        if path.exists() or path.is_symlink():
            return path
    return None


def _conflicting_paths(folder: Path, name: str) -> list[Path]:
    """Return the paths that must not exist if a file is to be written: its own, and those with the same purpose.

    These are other targets files, and eval files of the same name, for which a new file would be a sidecar.
    """
    path = folder / name
    paths = [path]
    if name in TARGETS_NAMES:
        for other in TARGETS_NAMES:
            paths.append(folder / other)
    elif path.suffix in READERS:
        for suffix in READERS:
            paths.append(path.with_suffix(suffix))
    return paths


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OutputError(
            f"cannot be written: {error.strerror}",
            file=path,
            hint="check the permissions, or choose another folder",
        ) from error
