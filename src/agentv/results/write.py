"""Append results to a results file, one at a time.

Each result is one unbuffered `write` of a whole record: once it returns, killing the process does not lose the result.
A file is locked while a run writes to it.
"""

import contextlib
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from agentv.errors import OutputError
from agentv.files.encode import to_json
from agentv.files.locks import lock_file, release_lock
from agentv.files.state import STATE_FOLDER_VARIABLE
from agentv.records import EvalResult
from agentv.redact import Redactor
from agentv.results.formats import ResultFormat, sniff
from agentv.results.merging.stamps import ShardStamp, StampChange
from agentv.results.read import StoredResult, read_records
from agentv.results.views import TextRow


class ResultFile:
    """A results file that is open for appending."""

    def __init__(
        self,
        path: Path,
        form: ResultFormat,
        clean: Redactor,
        descriptor: int,
        replaced: int | None = None,
    ):
        self.path = path
        self._encode = form.encode
        self._clean = clean
        self._descriptor = descriptor
        self._replaced = replaced
        """The descriptor of the file that was rewritten, until the run has started."""
        self._regular = _is_regular(descriptor)
        self._lock = threading.Lock()

    def write(self, result: EvalResult) -> None:
        """Append the masked result as one record; remove a partial record if the disk is full.

        Raise `OutputError` if it cannot be written.
        """
        masked = _mask(to_json(result), self._clean)
        data = memoryview(self._encode(masked))
        with self._lock:
            written = 0
            try:
                while written < len(data):
                    written += os.write(self._descriptor, data[written:])
            except OSError as error:
                if self._regular and written:
                    self._remove_last(written)
                raise OutputError(
                    f"results cannot be written: {error.strerror}",
                    file=self.path,
                    hint="earlier results are intact; free some disk space, then continue with --resume",
                ) from error

    def undo(self, backup: Path | None) -> None:
        """Remove a new file, or restore the one that it replaced."""
        if not self._regular:
            return
        real = Path(os.path.realpath(self.path))
        with contextlib.suppress(OSError):
            if backup is not None:
                real.with_name(backup.name).replace(real)
            elif self._replaced is not None:
                _write_back(self._replaced, real)
            else:
                real.unlink()

    def forget_replaced(self) -> None:
        """Close the file that this one replaced: from here on, it cannot be restored."""
        if self._replaced is not None:
            os.close(self._replaced)
            self._replaced = None

    def _remove_last(self, size: int) -> None:
        """Remove the last `size` bytes of the file, if possible."""
        with contextlib.suppress(OSError):
            current_size = os.fstat(self._descriptor).st_size
            os.ftruncate(self._descriptor, current_size - size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget_replaced()
        if self._regular:
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)
        os.close(self._descriptor)
        release_lock(self.path)


def create(path: Path, form: ResultFormat, clean: Redactor) -> tuple[ResultFile, Path | None]:
    """Create a results file; return it and the backup of an existing regular file, or None.

    Raise `OutputError` if it cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise OutputError(
                "--out is a folder",
                file=path,
                hint=f"pass a file in it: {path / 'results.jsonl'}",
            )
        real = Path(os.path.realpath(path))  # keep symlinks: back up and replace their target
        if real.is_file():
            backup = _free_backup(real)
            with real.open("rb") as file:
                _lock(file.fileno(), real)
                real.replace(backup)
            new_file = _open(real, form, clean, os.O_CREAT, path)
            return new_file, path.with_name(backup.name)
        new_file = _open(path, form, clean, os.O_CREAT, path)
        return new_file, None
    except OSError as error:
        raise _cannot_write(error, path) from error


def open_stdout(form: ResultFormat, clean: Redactor) -> ResultFile:
    """Return a results file that writes to standard output."""
    return ResultFile(
        path=Path("-"),
        form=form,
        clean=clean,
        descriptor=os.dup(1),
    )


def _free_backup(path: Path) -> Path:
    """Return the first of `x.bak`, `x.bak.2`, `x.bak.3` ... that does not exist; backups are never overwritten."""
    numbers = itertools.count(2)
    backup = path.with_name(f"{path.name}.bak")
    while os.path.lexists(backup):
        backup = path.with_name(f"{path.name}.bak.{next(numbers)}")
    return backup


@contextlib.contextmanager
def keep_backup(path: Path) -> Iterator[Path | None]:
    """Back up a regular file while the caller replaces it, and yield the name of the backup.

    Yield None if the file does not exist. Remove the backup if the caller fails.
    """
    real = Path(os.path.realpath(path))
    if not real.is_file():
        yield None
        return
    backup = _free_backup(real)
    try:
        os.link(real, backup)
    except OSError as error:
        raise _cannot_write(error, path) from error
    try:
        yield path.with_name(backup.name)
    except BaseException:
        backup.unlink(missing_ok=True)
        raise


def create_new(
    folder: Path,
    stem: str,
    form: ResultFormat,
    clean: Redactor,
) -> ResultFile:
    """Create a results file with a unique name: `stem`, or `stem_2`, `stem_3` and so on."""
    suffix = form.suffixes[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            path = folder / f"{stem}_{number}{suffix}"
            if number == 1:
                path = folder / f"{stem}{suffix}"
            with contextlib.suppress(FileExistsError):
                return _open(path, form, clean, os.O_CREAT | os.O_EXCL, path)
    except OSError as error:
        hint = f"pass --out, or set {STATE_FOLDER_VARIABLE} to a folder that you can write to"
        raise _cannot_write(error, folder, hint) from error
    raise OutputError(
        "no unused name for a results file",
        file=folder,
        hint="choose one with --out",
    )


class EarlierFile:
    """The locked results file of an earlier run, to be read and then appended to."""

    def __init__(self, path: Path, form: ResultFormat, clean: Redactor):
        """Open and lock the file; `form` is the format of an empty file."""
        self.path = path
        self._clean = clean
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise _cannot_write(error, path) from error
        try:
            _lock(self._descriptor, path)
            start = os.pread(self._descriptor, 16, 0)
            self.form = sniff(start) or form
        except BaseException:
            os.close(self._descriptor)
            raise

    def results(self) -> Iterator[TextRow]:
        """Return an iterator over its results; a truncated result at the end is skipped."""
        return (record.view for record in self._records())

    def _records(self) -> Iterator[StoredResult[TextRow]]:
        return read_records(self.path, TextRow, self.form)

    def _stamped(self, record: StoredResult[TextRow], stamp: ShardStamp) -> bytes:
        """Return the bytes of a result, with its stamp replaced if it has one of another plan."""
        shard = record.view.shard
        plan = record.view.plan
        if shard is None or plan is None or plan == stamp.plan:
            return record.raw
        old = ShardStamp(shard, plan)
        change = StampChange(old, stamp, self.form)
        return change(record.raw)

    def close(self) -> None:
        os.close(self._descriptor)
        release_lock(self.path)

    def rewrite(
        self,
        keep: Callable[[TextRow], bool],
        needs_backup: Callable[[], bool] = lambda: False,
        stamp: ShardStamp | None = None,
    ) -> tuple[ResultFile, Path | None]:
        """Remove the results that `keep` rejects; return the file, open for appending, and its backup or None.

        With `stamp`, the remaining results get this stamp of a shard. `needs_backup` is called after all results have
        been passed to `keep`, and decides whether the old file becomes a backup. The replacement is atomic: at any
        moment the path refers to either the old or the new file, and both are locked. Raise `OutputError` on failure.
        """
        real = Path(os.path.realpath(self.path))
        beside = _beside(real)
        backup: Path | None = None
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
            descriptor = os.open(beside, flags, 0o600)
            try:
                lock_file(descriptor, real)
                old_mode = os.fstat(self._descriptor).st_mode
                os.fchmod(descriptor, stat.S_IMODE(old_mode))
                with os.fdopen(os.dup(descriptor), "ab") as file:
                    file.writelines(self._kept(keep, stamp))
                os.fsync(descriptor)
                if needs_backup():
                    backup = _free_backup(real)
                    os.link(real, backup)
                beside.replace(real)
            except BaseException:
                os.close(descriptor)
                beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            os.close(self._descriptor)
            raise _cannot_write(error, self.path) from error
        except BaseException:
            os.close(self._descriptor)
            raise
        if backup is not None:
            backup = self.path.with_name(backup.name)
        rewritten = ResultFile(
            path=self.path,
            form=self.form,
            clean=self._clean,
            descriptor=descriptor,
            replaced=self._descriptor,
        )
        return rewritten, backup

    def _kept(self, keep: Callable[[TextRow], bool], stamp: ShardStamp | None) -> Iterator[bytes]:
        """Yield the bytes of the results that `keep` accepts."""
        for record in self._records():
            if not keep(record.view):
                continue
            if stamp is None:
                yield record.raw
            else:
                yield self._stamped(record, stamp)


def _beside(path: Path) -> Path:
    """Return the file that is written before it replaces a results file."""
    return path.with_name(f"{path.name}.resuming")


def _write_back(descriptor: int, path: Path) -> None:
    """Replace a file by one with the content of an open file."""
    beside = _beside(path)
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as old, beside.open("wb") as new:
        shutil.copyfileobj(old, new)
    shutil.copymode(path, beside)
    beside.replace(path)


def _open(
    path: Path,
    form: ResultFormat,
    clean: Redactor,
    flags: int,
    shown: Path,
) -> ResultFile:
    """Open and lock a results file; `shown` is its path in messages."""
    if _is_pipe(path):
        flags = os.O_WRONLY
    else:
        flags |= os.O_RDWR | os.O_APPEND
    descriptor = os.open(path, flags, 0o644)
    try:
        if _is_regular(descriptor):
            _lock(descriptor, path)
    except OutputError:
        os.close(descriptor)
        raise
    return ResultFile(shown, form, clean, descriptor)


def _is_regular(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISREG(mode)


def _is_pipe(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _cannot_write(error: OSError, path: Path, hint: str = "") -> OutputError:
    reason = error.strerror or error
    return OutputError(f"results cannot be written there: {reason}", file=path, hint=hint)


def _mask(json: bytes, clean: Redactor) -> bytes:
    """Return the JSON with secrets masked."""
    text = json.decode()
    if clean(text) == text:
        return json  # most results have no secret, and are not encoded a second time
    fields = msgspec.json.decode(json)
    masked = clean.values(fields)
    return to_json(masked)


def _lock(descriptor: int, path: Path) -> None:
    """Lock the file; raise `OutputError` if another run has locked it."""
    try:
        lock_file(descriptor, path)
    except BlockingIOError:
        raise _busy(path) from None
    locked_inode = os.fstat(descriptor).st_ino
    if locked_inode != path.stat().st_ino:
        # another run replaced the file between our opening and locking it
        raise _busy(path)


def _busy(path: Path) -> OutputError:
    return OutputError(
        "another run is writing to this file",
        file=path,
        hint="choose another --out for this run",
    )
