"""Resolve the path in a file block, and read the file's text or detect its media type."""

import os
from pathlib import Path

from agentv.errors import AttachmentError
from agentv.files.folders import project_root
from agentv.files.yaml import read_error
from agentv.records import CaseFile

IMAGES_AND_PDFS = "PNG, JPEG, GIF, WebP, PDF"
MEDIA_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
MAX_PATH_BYTES = 4000
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}
"""The media type of a file by its first bytes. WebP is not listed: its signature is not contiguous."""


def find_attachment(value: str, eval_file: CaseFile) -> Path:
    """Return the path of the file that a block names.

    The path is resolved against the eval file's folder, then the project root, then the current folder. Raise
    `AttachmentError` if the file does not exist, is not a regular file, or is outside the repository.
    """
    if "\0" in value:
        raise AttachmentError("a path cannot contain a NUL character")
    if len(value.encode()) > MAX_PATH_BYTES:
        raise AttachmentError(
            f"no such file: {value[:40]}…",
            hint="the path is too long; use a text block for text",
        )
    folder = Path(os.path.abspath(eval_file.path)).parent
    path = Path(os.path.normpath(folder / value))
    if not os.path.lexists(path):
        path = _find_elsewhere(value, folder)
    _check_attachment(value, path, eval_file.root)
    return path


def _find_elsewhere(value: str, folder: Path) -> Path:
    """Return the file in the project root or in the current folder; raise `AttachmentError` if there is none."""
    folders = [folder]
    root = project_root(folder)
    if root:
        folders.append(root)
    folders.append(Path.cwd())

    paths = []
    for searched in folders:
        path = Path(os.path.normpath(searched / value))
        if os.path.lexists(path):
            return path
        paths.append(path)
    parents = dict.fromkeys(str(path.parent) for path in paths)
    places = ", ".join(parents)
    raise AttachmentError(f"no such file: {value}", hint=f"searched {places}")


def _check_attachment(value: str, path: Path, root: Path | None) -> None:
    """Raise `AttachmentError` unless the path leads to a regular file in the repository."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as problem:
        raise AttachmentError(f"cannot read the attached file: {value}", hint=_reason(problem)) from problem
    if root and not real.is_relative_to(root.resolve()):
        raise AttachmentError(f"outside the repo: {value}", hint=f"copy it to a place under {root}")
    if real.is_dir():
        raise AttachmentError(f"a folder, not a file: {value}", hint="use one block per file")
    if not real.is_file():
        raise AttachmentError(f"not a regular file: {value}", hint="pipes and devices cannot be attached")
    if not os.access(real, os.R_OK):
        raise AttachmentError(f"cannot read the attached file: {value}", hint="permission denied")


def _reason(problem: OSError | RuntimeError) -> str:
    # Path.resolve() raises RuntimeError for a symlink loop before Python 3.13, and OSError since.
    if isinstance(problem, RuntimeError):
        return "its symlinks form a loop"
    reason = problem.strerror or ""
    if "symbolic links" in reason:
        return "its symlinks form a loop"
    return reason or str(problem)


def read_attachment(value: str, path: Path) -> str:
    """Return the text of an attached file; raise `AttachmentError` if it cannot be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        hint = f"only UTF-8 text, images and PDFs ({IMAGES_AND_PDFS}) can be attached"
        raise AttachmentError(f"not a text file: {value}", hint=hint) from problem
    except OSError as problem:
        error = read_error(problem, path, AttachmentError)
        raise AttachmentError(f"{error.message}: {value}", hint=error.hint) from problem


def media_type(value: str, path: Path) -> str | None:
    """Return the media type of an image or PDF, detected from the content, or None for any other file.

    Raise `AttachmentError` if the file has the extension of an image or PDF but the content of neither: it would not
    make sense as text.
    """
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError:
        return None  # reported when the file is read as text
    found = _detect_media_type(start)
    if found is None and path.suffix.lower() in MEDIA_SUFFIXES:
        hint = f"supported types, by content: {IMAGES_AND_PDFS}"
        raise AttachmentError(f"not an image or a PDF, despite its name: {value}", hint=hint)
    return found


def _detect_media_type(start: bytes) -> str | None:
    for signature, type_ in _SIGNATURES.items():
        if start.startswith(signature):
            return type_
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image/webp"
    return None
