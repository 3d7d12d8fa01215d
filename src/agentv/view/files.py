"""The files and folders that a viewer was started with -> the results files in them, by opaque ids.

An id is all that a browser can ask for: no request holds a path. A link counts as what it leads to: one that leads
out of the folders is as if it were not there.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentv.errors import AgentvError
from agentv.results.formats import DECODE_ERRORS, FORMATS, JSONL, YAML, sniff
from agentv.results.views import ResultView

DEFAULT = Path(".agentv/results")
MAX_FILES = 5000
MAX_FOLDERS = 2000
"""Of a whole disk, not all is searched: the list is made anew every few seconds."""
_START_BYTES = 1 << 16
Stamp = tuple[int, int, int]
_SUFFIXES = tuple(suffix for form in FORMATS.values() for suffix in form.suffixes)


class ResultsFile(NamedTuple):
    """A results file that may be shown."""

    id: str
    path: Path
    """As it is shown to people."""
    real: Path
    """As it is opened."""


class Catalog:
    """Finds results files in what was named."""

    def __init__(self, named: Sequence[Path]):
        """Raise `AgentvError` if something is not there, or nothing is in it."""
        self.named = tuple(named) or (DEFAULT,)
        self._is_default = not named
        for path in self.named:
            _check(path, is_default=not named)
        self._roots = [(path, Path(os.path.realpath(path))) for path in self.named]
        self._is_results: dict[Path, bool] = {}
        self._found: dict[str, ResultsFile] = {}
        if not self.files():
            hint = "'agentv eval' writes them; or name a results file"
            raise AgentvError("there are no results in this folder", file=self.named[0], hint=hint)

    @property
    def only(self) -> ResultsFile | None:
        """The results file, if a single one was named."""
        if len(self.named) == 1 and self.named[0].is_file():
            return next(iter(self.files().values()), None)
        return None

    @property
    def named_files(self) -> list[ResultsFile]:
        """The results files that were named themselves, and not the folder that they are in."""
        named = {id_of(real) for path, real in self._roots if real.is_file()}
        return [file for file in self.files().values() if file.id in named]

    @property
    def reviewed(self) -> list[ResultsFile]:
        """The results files whose answers are labelled: all that were named, else the newest."""
        files = list(self.files().values())
        return [max(files, key=_written)] if self._is_default and files else files

    @property
    def folders(self) -> list[Path]:
        """The folders that may hold records of the runs, next to `.agentv`: those around what was named."""
        return list(dict.fromkeys(parent for _, real in self._roots for parent in real.parents))

    def files(self) -> dict[str, ResultsFile]:
        """Return the results files that are there now, by their ids."""
        found: dict[str, ResultsFile] = {}
        for path, real in self._roots:
            for shown, inside in _walk(path, real):
                if len(found) < MAX_FILES and (inside == real or self._has_results(inside)):
                    found[id_of(inside)] = ResultsFile(id_of(inside), shown, inside)
        self._found = found
        return found

    def find(self, run: str) -> ResultsFile | None:
        """Return a results file by its id; None if there is none, or it was never among those named."""
        file = self._found.get(run)
        if file is not None and file.real.is_file() and os.path.realpath(file.real) == str(file.real):
            return file
        return self.files().get(run)

    def _has_results(self, path: Path) -> bool:
        """Whether a file in a folder begins as results do; eval files may stand beside them."""
        if path not in self._is_results:
            found = begins_with_results(path)
            if found is None:
                return path.name.startswith("eval_")  # nothing is in it yet
            self._is_results[path] = found
        return self._is_results[path]


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes when a file does: inode, time, size; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _written(file: ResultsFile) -> float:
    try:
        return file.real.stat().st_mtime
    except OSError:
        return 0.0


def id_of(path: Path) -> str:
    """Return the id of a file, from which nobody can tell its path."""
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def _check(path: Path, *, is_default: bool) -> None:
    if path.is_dir():
        return
    if is_default:
        hint = "'agentv eval' writes them to .agentv/results; or name a results file, or a folder with some"
        raise AgentvError("there are no results here", file=path, hint=hint)
    if not path.exists():
        raise AgentvError("no such file or folder", file=path, hint="check the path and the folder you are in")
    if not path.is_file():
        raise AgentvError("this is neither a file nor a folder", file=path, hint="name a results file")


def _walk(path: Path, real: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files that may be results, as they are shown and where they really are."""
    if not real.is_dir():
        if real.is_file():
            yield path, real
        return
    for number, (folder, folders, names) in enumerate(os.walk(real)):
        if number >= MAX_FOLDERS:
            return
        folders[:] = sorted(name for name in folders if not name.startswith((".", "node_modules")) or name == ".agentv")
        for name in sorted(names):
            inside = Path(folder) / name
            if name.endswith(_SUFFIXES) and not name.startswith("."):
                target = Path(os.path.realpath(inside))
                if target.is_relative_to(real) and target.is_file():
                    yield path / inside.relative_to(real), target


def begins_with_results(path: Path) -> bool | None:
    """Whether the first record of a file is a result; None if that is not known yet, or it cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
    except OSError:
        return None
    if not start.strip():
        return None
    form = sniff(start)
    if form is JSONL:
        line, _, rest = start.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
        try:
            JSONL.decoder(ResultView)(line)
        except DECODE_ERRORS:
            if rest:
                return False
            return True if line.startswith(JSONL.start) else None  # it may not be written to its end
        return True
    return form is YAML and (start.startswith(YAML.start) or (b"\neval_id:" in start and b"\nscore:" in start))
