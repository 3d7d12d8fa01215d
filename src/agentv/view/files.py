"""Finds the results files that a viewer shows, and assigns opaque ids to them.

A browser can only request ids: no request contains a path. Symlinks are resolved. Those that point outside the
folders are ignored.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentv.errors import AgentvError
from agentv.files.state import state_folder
from agentv.results.formats import DECODE_ERRORS, FORMATS, JSONL, YAML, sniff
from agentv.results.views import ResultRow

MAX_FILES = 5000
MAX_FOLDERS = 2000
"""Limits for the search, which is repeated every few seconds, even if the folder is a whole disk."""
_START_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"
_SUFFIXES = tuple(suffix for form in FORMATS.values() for suffix in form.suffixes)


class Stamp(NamedTuple):
    """What changes with a file."""

    inode: int
    modified_ns: int
    size: int


class ResultsFile(NamedTuple):
    """A results file that may be shown."""

    id: str
    path: Path
    """The path to show."""
    real: Path
    """The path to open, with symlinks resolved."""


class Catalog:
    """Finds the results files in the given files and folders."""

    def __init__(self, named: Sequence[Path]):
        """Raise `AgentvError` if a path does not exist or contains no results."""
        self.named = tuple(named) or (state_folder("results"),)
        self._is_default = not named
        for path in self.named:
            _check(path, is_default=self._is_default)
        self._roots = [(path, Path(os.path.realpath(path))) for path in self.named]
        self._is_results: dict[Path, bool] = {}
        self._found: dict[str, ResultsFile] = {}
        if not self.files():
            raise AgentvError(
                "the folder contains no results",
                file=self.named[0],
                hint="run 'agentv eval' first, or pass a results file",
            )

    @property
    def only(self) -> ResultsFile | None:
        """The results file, if the viewer was started with a single file."""
        if len(self.named) != 1 or not self.named[0].is_file():
            return None
        files = list(self.files().values())
        if not files:
            return None
        return files[0]

    @property
    def named_files(self) -> list[ResultsFile]:
        """The results files that were given as files, not as part of a folder."""
        named = {file_id(real) for _, real in self._roots if real.is_file()}
        return [file for file in self.files().values() if file.id in named]

    @property
    def reviewed(self) -> list[ResultsFile]:
        """The results files whose answers are labelled: all that were given; by default, the newest one."""
        files = list(self.files().values())
        if self._is_default and files:
            newest = max(files, key=_modified)
            return [newest]
        return files

    @property
    def folders(self) -> list[Path]:
        """The folders whose `.agentv` may contain records of the runs: all parents of the given paths."""
        folders: dict[Path, None] = {}
        for _, real in self._roots:
            folders.update(dict.fromkeys(real.parents))
        return list(folders)

    def files(self) -> dict[str, ResultsFile]:
        """Search for results files and return them by id."""
        found: dict[str, ResultsFile] = {}
        for path, real in self._roots:
            for shown, inside in _walk(path, real):
                if len(found) >= MAX_FILES:
                    break
                if inside == real or self._has_results(inside):
                    id_ = file_id(inside)
                    found[id_] = ResultsFile(id_, shown, inside)
        self._found = found
        return found

    def find(self, run: str) -> ResultsFile | None:
        """Return a results file by its id; None if it is not among the given files and folders."""
        file = self._found.get(run)
        if file is not None and _is_unchanged(file.real):
            return file
        return self.files().get(run)

    def _has_results(self, path: Path) -> bool:
        """Return whether a file in a folder starts with a result. The folder may contain eval files too."""
        known = self._is_results.get(path)
        if known is not None:
            return known
        found = begins_with_results(path)
        if found is None:
            # A run creates its file before the first result.
            return path.name.startswith("eval_")
        self._is_results[path] = found
        return found


def _is_unchanged(real: Path) -> bool:
    """Return whether a resolved path is still a file, and not a symlink to another one."""
    return real.is_file() and os.path.realpath(real) == str(real)


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, which changes with the file, or None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(
        inode=status.st_ino,
        modified_ns=status.st_mtime_ns,
        size=status.st_size,
    )


def _modified(file: ResultsFile) -> float:
    try:
        return file.real.stat().st_mtime
    except OSError:
        return 0.0


def file_id(path: Path) -> str:
    """Return the id of a file, a hash of its path."""
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def _check(path: Path, *, is_default: bool) -> None:
    """Raise `AgentvError` if a path is neither a file nor a folder."""
    if path.is_dir():
        return
    if is_default:
        raise AgentvError(
            "no results found",
            file=path,
            hint="run 'agentv eval' first, which writes to .agentv/results, or pass a results file or folder",
        )
    if not path.exists():
        raise AgentvError(
            "no such file or folder",
            file=path,
            hint="check the path and the current folder",
        )
    if not path.is_file():
        raise AgentvError(
            "neither a file nor a folder",
            file=path,
            hint="pass a results file",
        )


def _walk(path: Path, real: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files that may contain results: the path to show, and the path with symlinks resolved."""
    if not real.is_dir():
        if real.is_file():
            yield path, real
        return
    for number, (folder, folders, names) in enumerate(os.walk(real)):
        if number >= MAX_FOLDERS:
            return
        # Assigned in place, so that `os.walk` descends in this order, and only into these.
        folders[:] = sorted(filter(_is_searched, folders))
        for name in sorted(names):
            if name.startswith(".") or not name.endswith(_SUFFIXES):
                continue
            inside = Path(folder) / name
            target = Path(os.path.realpath(inside))
            if target.is_relative_to(real) and target.is_file():
                yield path / inside.relative_to(real), target


def _is_searched(folder: str) -> bool:
    if folder == ".agentv":
        return True
    return not folder.startswith((".", "node_modules"))


def begins_with_results(path: Path) -> bool | None:
    """Return whether the first record of a file is a result; None if it is incomplete, or cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
    except OSError:
        return None
    if not start.strip():
        return None
    form = sniff(start)
    if form is JSONL:
        return _is_result_line(start)
    if form is not YAML:
        return False
    if start.startswith(YAML.start):
        return True
    return b"\neval_id:" in start and b"\nscore:" in start


def _is_result_line(start: bytes) -> bool | None:
    """Return whether the first line is a result; None if it is incomplete and may become anything."""
    text = start.removeprefix(_BOM).lstrip()
    line, _, rest = text.partition(b"\n")
    try:
        JSONL.decoder(ResultRow)(line)
    except DECODE_ERRORS:
        if rest:
            return False
        if line.startswith(JSONL.start):
            return True
        return None
    return True
