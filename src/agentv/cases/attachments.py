"""The path in a file block -> the file, and its text or what kind of image it is."""

import os
from pathlib import Path

from agentv.errors import AttachmentError
from agentv.formats.yaml import read_error
from agentv.records import EvalFile
from agentv.system.folders import project_root

IMAGES_AND_PDFS = "PNG, JPEG, GIF, WebP, PDF"
MEDIA_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
_STARTS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def find_attachment(value: str, eval_file: EvalFile) -> Path:
    """Return the file that a block names, relative to the eval file, to the project's root or to the current folder.

    Raise `AttachmentError` if there is none, if it is not a file, or if it is outside the repo.
    """
    if "\0" in value:
        raise AttachmentError("a file's path cannot hold a NUL character")
    if len(value.encode()) > 4000:
        raise AttachmentError(f"no such file: {value[:40]}…", hint="the path is too long; text goes into a text block")
    beside = Path(os.path.abspath(eval_file.path)).parent
    path = Path(os.path.normpath(beside / value))
    if not os.path.lexists(path):
        path = _find_elsewhere(value, beside)
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as problem:
        raise AttachmentError(f"not a file that can be read: {value}", hint=_reason(problem)) from problem
    if eval_file.root and not real.is_relative_to(eval_file.root.resolve()):
        raise AttachmentError(f"outside the repo: {value}", hint=f"copy it to a place under {eval_file.root}")
    if real.is_dir():
        raise AttachmentError(f"a folder, not a file: {value}", hint="name each file in a block of its own")
    if not real.is_file():
        raise AttachmentError(f"not a regular file: {value}", hint="a pipe or a device cannot go into a prompt")
    return path


def _find_elsewhere(value: str, folder: Path) -> Path:
    """Return the file in the project's root or in the current folder; raise `AttachmentError` if there is none."""
    root = project_root(folder)
    paths = [Path(os.path.normpath(place / value)) for place in (folder, *([root] if root else []), Path.cwd())]
    path = next((path for path in paths if os.path.lexists(path)), None)
    if path is None:
        places = ", ".join(dict.fromkeys(str(path.parent) for path in paths))
        raise AttachmentError(f"no such file: {value}", hint=f"looked in {places}")
    return path


def read_attachment(value: str, path: Path) -> str:
    """Return the text of an attached file; raise `AttachmentError` if it cannot be read, or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        hint = f"only UTF-8 text, images and PDFs ({IMAGES_AND_PDFS}) can go into a prompt"
        raise AttachmentError(f"not a text file: {value}", hint=hint) from problem
    except OSError as problem:
        error = read_error(problem, path, AttachmentError)
        raise AttachmentError(f"{error.message}: {value}", hint=error.hint) from problem


def media_type(value: str, path: Path) -> str | None:
    """Return what kind of image or PDF a file is, by how it begins; None if it is none.

    Raise `AttachmentError` if it only has the name of one: what is in it would make no sense as text.
    """
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError:
        return None  # which is told by who reads it
    found = next((type_ for sign, type_ in _STARTS if start.startswith(sign)), None)
    if found is None and start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        found = "image/webp"
    if found is None and path.suffix.lower() in MEDIA_SUFFIXES:
        hint = f"its content is not that of any of these: {IMAGES_AND_PDFS}"
        raise AttachmentError(f"not an image or a PDF, whatever its name says: {value}", hint=hint)
    return found


def _reason(problem: OSError | RuntimeError) -> str:
    if isinstance(problem, RuntimeError) or "symbolic links" in (problem.strerror or ""):
        return "its symbolic links lead in a circle"
    return problem.strerror or str(problem)
