"""EvalResults -> a results file, one at a time.

A result is one `write` of one whole record, straight to the file: once it has been written, a kill of this process
cannot undo it. A file is locked while a run writes to it.
"""

import contextlib
import fcntl
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from agentv.errors import OutputError
from agentv.records import EvalResult
from agentv.redact import Redactor
from agentv.results.formats import ResultFormat, sniff
from agentv.results.merging.stamps import ShardStamp, StampChange
from agentv.results.read import Record, read_records
from agentv.results.views import EarlierView

_to_json = msgspec.json.Encoder(enc_hook=str).encode


class ResultFile:
    """A results file that is being written to."""

    def __init__(self, path: Path, form: ResultFormat, clean: Redactor, descriptor: int):
        self.path = path
        self._encode, self._clean, self._descriptor = form.encode, clean, descriptor
        self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._lock = threading.Lock()

    def write(self, result: EvalResult) -> None:
        """Append the result, without secrets, as one whole; if there is no room for it, leave nothing of it behind."""
        data = memoryview(self._encode(_mask(_to_json(result), self._clean)))
        with self._lock:
            written = 0
            try:
                while written < len(data):
                    written += os.write(self._descriptor, data[written:])
            except OSError as error:
                if self._regular and written:
                    with contextlib.suppress(OSError):
                        os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
                hint = "what was written before is intact; make room and go on with --resume"
                raise OutputError(f"results cannot be written: {error.strerror}", file=self.path, hint=hint) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._regular:
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)
        os.close(self._descriptor)


def create(path: Path, form: ResultFormat, clean: Redactor) -> tuple[ResultFile, Path | None]:
    """Create a results file; return it, and the new name of a regular file that was there already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise OutputError("--out is a folder", file=path, hint=f"name a file in it: {path / 'results.jsonl'}")
        real = Path(os.path.realpath(path))  # a symlink stays, and so does what else it is the name of
        if real.is_file():
            backup = _free_backup(real)
            with real.open("rb") as file:
                _lock(file.fileno(), real)
                real.replace(backup)
            return _open(real, form, clean, os.O_CREAT, path), path.with_name(backup.name)
        return _open(path, form, clean, os.O_CREAT, path), None
    except OSError as error:
        raise _cannot_write(error, path) from error


def open_stdout(form: ResultFormat, clean: Redactor) -> ResultFile:
    """Return a results file that is standard output."""
    return ResultFile(Path("-"), form, clean, os.dup(1))


def _free_backup(path: Path) -> Path:
    """Return the first of `x.bak`, `x.bak.2`, `x.bak.3` ... that is not there: no backup is overwritten."""
    numbers = itertools.count(2)
    backup = path.with_name(f"{path.name}.bak")
    while os.path.lexists(backup):
        backup = path.with_name(f"{path.name}.bak.{next(numbers)}")
    return backup


@contextlib.contextmanager
def keep_backup(path: Path) -> Iterator[Path | None]:
    """Keep a regular file that is about to be replaced under another name, which is given; not if that fails."""
    real = Path(os.path.realpath(path))
    backup = _free_backup(real) if real.is_file() else None
    try:
        if backup is not None:
            os.link(real, backup)
    except OSError as error:
        raise _cannot_write(error, path) from error
    try:
        yield path.with_name(backup.name) if backup is not None else None
    except BaseException:
        if backup is not None:
            backup.unlink(missing_ok=True)
        raise


def create_new(folder: Path, stem: str, form: ResultFormat, clean: Redactor) -> ResultFile:
    """Create a results file under a name that no other run has."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            name = f"{stem if number == 1 else f'{stem}_{number}'}{form.suffixes[0]}"
            with contextlib.suppress(FileExistsError):
                path = folder / name
                return _open(path, form, clean, os.O_CREAT | os.O_EXCL, path)
    except OSError as error:
        raise _cannot_write(error, folder) from error
    raise OutputError("no free name for a results file", file=folder, hint="name one with --out")


class EarlierFile:
    """The results file of an earlier run, locked, to be read and then appended to."""

    def __init__(self, path: Path, form: ResultFormat, clean: Redactor):
        """Open and lock the file; `form` is its format if it is empty."""
        self.path, self._clean = path, clean
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise _cannot_write(error, path) from error
        try:
            _lock(self._descriptor, path)
            self.form = sniff(os.pread(self._descriptor, 16, 0)) or form
        except BaseException:
            os.close(self._descriptor)
            raise

    def results(self) -> Iterator[EarlierView]:
        """Yield its results; one at the end that was torn by a kill is skipped."""
        return (record.view for record in self._records())

    def _records(self) -> Iterator[Record[EarlierView]]:
        return read_records(self.path, EarlierView, self.form)

    def _stamped(self, record: Record[EarlierView], stamp: ShardStamp) -> bytes:
        shard, plan = record.view.shard, record.view.plan
        if shard is None or plan is None or plan == stamp.plan:
            return record.raw
        return StampChange(ShardStamp(shard, plan), stamp, self.form)(record.raw)

    def close(self) -> None:
        os.close(self._descriptor)

    def rewrite(
        self,
        keep: Callable[[EarlierView], bool],
        needs_backup: Callable[[], bool] = lambda: False,
        stamp: ShardStamp | None = None,
    ) -> tuple[ResultFile, Path | None]:
        """Take out the results that `keep` rejects; return the file, open for more, and the name of a backup.

        Those that stay get the stamp of the shard, if there is one.

        The old file becomes a backup if `needs_backup` says so once all results have been seen. All this is one step:
        at any moment the path names either the old file or the new one, and both are locked.
        """
        real = Path(os.path.realpath(self.path))
        beside = real.with_name(f"{real.name}.resuming")
        try:
            descriptor = os.open(beside, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                _lock(descriptor, beside)
                os.fchmod(descriptor, stat.S_IMODE(os.fstat(self._descriptor).st_mode))
                with os.fdopen(os.dup(descriptor), "ab") as file:
                    records = (record for record in self._records() if keep(record.view))
                    file.writelines(record.raw if stamp is None else self._stamped(record, stamp) for record in records)
                os.fsync(descriptor)
                backup = _free_backup(real) if needs_backup() else None
                if backup is not None:
                    os.link(real, backup)
                beside.replace(real)
            except BaseException:
                os.close(descriptor)
                beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _cannot_write(error, self.path) from error
        finally:
            os.close(self._descriptor)
        shown = self.path.with_name(backup.name) if backup is not None else None
        return ResultFile(self.path, self.form, self._clean, descriptor), shown


def _open(path: Path, form: ResultFormat, clean: Redactor, flags: int, shown: Path) -> ResultFile:
    """Open a results file, which messages call `shown`."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | flags if not _is_pipe(path) else os.O_WRONLY, 0o644)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _lock(descriptor, path)
    except OutputError:
        os.close(descriptor)
        raise
    return ResultFile(shown, form, clean, descriptor)


def _is_pipe(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _cannot_write(error: OSError, path: Path) -> OutputError:
    return OutputError(f"results cannot be written there: {error.strerror or error}", file=path)


def _mask(json: bytes, clean: Redactor) -> bytes:
    """Return the JSON without secrets."""
    text = json.decode()
    return json if clean(text) == text else _to_json(clean.values(msgspec.json.decode(json)))


def _lock(descriptor: int, path: Path) -> None:
    """Lock the file; raise `OutputError` if another run has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(path) from None
    if os.fstat(descriptor).st_ino != path.stat().st_ino:  # another run has just put a new file in its place
        raise _busy(path)


def _busy(path: Path) -> OutputError:
    hint = "give this run an --out of its own"
    return OutputError("another run is writing to this file", file=path, hint=hint)
