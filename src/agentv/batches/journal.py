"""The journal of batches that were sent to vendors. Each step is on disk before the next one starts.

Each batch has a folder that only its owner can read, since it contains unmasked prompts and answers. The folder is
removed once all requests of the batch have a result, or after `MAX_DAYS`.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Self

import msgspec

from agentv.errors import OutputError
from agentv.files.atomic_files import sync_folder
from agentv.files.encode import to_json
from agentv.files.state import state_folder
from agentv.providers.models.batches.api import BatchReply, BatchStatus

MAX_DAYS = 35
"""How long a batch stays in the journal. No vendor keeps its answers for longer."""
SECONDS_PER_DAY = 86_400
JOURNAL = "journal.jsonl"
REQUESTS = "requests.jsonl"
IDS = "ids"
REPLIES = "replies.jsonl"
DELIVERED = "delivered"
_NEW_PREFIX = "new-"
_BATCH_PREFIX = "vendor-"
_LOCK = ".lock"
_LOCK_POLL_SECONDS = 0.05
_BUFFER_BYTES = 2**18
ID_DIGITS = 40


class _Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="step"):
    at: float
    """When it happened, in seconds since 1970."""


class Intent(_Step, frozen=True, kw_only=True, tag="intent"):
    """The requests are on disk. From now on, the vendor may have them."""

    key: str
    """Identifies the batch at the vendor."""
    target: str
    role: str = "target"
    """The purpose of the answers: `target` or `judge`."""
    targets_file: str | None = None
    requests: int
    command: tuple[str, ...] = ()
    """The command line of the run, without secrets."""
    first: float | None = None
    """When it was first submitted, if the vendor had no room for it then."""
    not_ours: tuple[str, ...] = ()
    """Batches at the vendor that were mistaken for this one."""


class Uploaded(_Step, frozen=True, kw_only=True, tag="uploaded"):
    """The file with the requests has been uploaded to the vendor."""

    file: str


class Created(_Step, frozen=True, kw_only=True, tag="created"):
    """The batch has been created at the vendor."""

    batch: str
    is_found: bool = False
    """Whether it was found at the vendor after a run was killed. It may then be the batch of another run."""


class CancelRequested(_Step, frozen=True, kw_only=True, tag="cancelled"):
    """The vendor was asked to cancel the batch."""


class Collected(_Step, frozen=True, kw_only=True, tag="collected"):
    """The batch has ended, and all of its replies are on disk."""

    status: Literal["ended", "failed", "gone"]
    replies: int = 0
    answered: int = 0
    """As counted by the vendor."""
    failed: int = 0
    """As counted by the vendor."""
    words: str = ""
    """The vendor's description of the status."""


Step = Intent | Uploaded | Created | CancelRequested | Collected
_decode_step = msgspec.json.Decoder(Step).decode


class StoredReply(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The outcome of one request, as stored on disk. The id comes first and always has the same length."""

    id: str
    body: msgspec.Raw = msgspec.Raw()
    error: str = ""
    unanswered: bool = False


decode_reply = msgspec.json.Decoder(StoredReply).decode
_ID_START = len(b'{"id":"')
_ID_END = _ID_START + ID_DIGITS


class JournaledBatch:
    """A batch in the journal."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.intent: Intent | None = None
        self.uploaded: Uploaded | None = None
        self.created: Created | None = None
        self.cancel_requested: CancelRequested | None = None
        self.collected: Collected | None = None
        self._lock: int | None = None
        self._delivered: int | None = None
        self._read()

    def _read(self) -> None:
        for step in _read_steps(self.folder / JOURNAL):
            self._apply(step)

    def __repr__(self) -> str:
        return f"JournaledBatch({str(self.folder)!r})"

    @property
    def requests(self) -> Path:
        """The file that is submitted."""
        return self.folder / REQUESTS

    @property
    def name(self) -> str:
        """The vendor's name for the batch, or our key until the batch is created."""
        if self.created is not None:
            return self.created.batch
        if self.intent is not None:
            return self.intent.key
        return self.folder.name

    def record(self, step: Step) -> None:
        """Write a step to the journal. It is on disk when this returns; raise `OutputError` if that fails."""
        path = self.folder / JOURNAL
        line = to_json(step) + b"\n"
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            descriptor = os.open(path, flags, 0o600)
            try:
                _cut_truncated_line(descriptor)
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _cannot_write(error, path) from error
        self._apply(step)

    def _apply(self, step: Step) -> None:
        match step:
            case Intent():
                # A second intent means that the batch is submitted again.
                self.intent = step
                self.uploaded = None
                self.created = None
                self.cancel_requested = None
            case Uploaded():
                self.uploaded = step
            case Created():
                self.created = step
            case CancelRequested():
                self.cancel_requested = step
            case Collected():
                self.collected = step

    def forget_upload(self) -> None:
        """Forget the uploaded file, which the vendor may have deleted, so that it is uploaded again."""
        self.uploaded = None

    def ids(self) -> Iterator[str]:
        """Yield the custom ids of the requests."""
        path = self.folder / IDS
        with path.open("r", encoding="ascii") as file:
            for line in file:
                yield line[:ID_DIGITS]

    def delivered(self) -> Iterator[str]:
        """Yield the custom ids of the requests that have a result. Skip a truncated last line."""
        path = self.folder / DELIVERED
        with contextlib.suppress(FileNotFoundError), path.open("r", encoding="ascii") as file:
            for line in file:
                if len(line) > ID_DIGITS:
                    yield line[:ID_DIGITS]

    def mark_delivered(self, custom_id: str) -> None:
        """Record that a request has a result."""
        path = self.folder / DELIVERED
        line = f"{custom_id}\n".encode()
        try:
            if self._delivered is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._delivered = os.open(path, flags, 0o600)
            os.write(self._delivered, line)
        except OSError as error:
            raise _cannot_write(error, path) from error

    def reply_offsets(self) -> Iterator[tuple[str, int]]:
        """Yield the custom id of each reply, and its offset in the file of replies."""
        path = self.folder / REPLIES
        offset = 0
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            for line in file:
                custom_id = line[_ID_START:_ID_END].decode()
                yield custom_id, offset
                offset += len(line)

    async def store_replies(self, replies: AsyncIterator[BatchReply]) -> int:
        """Write all replies to disk, replacing those of an earlier attempt, and return their number."""
        path = self.folder / f"{REPLIES}.new"
        count = 0
        with _private_file(path) as file:
            async for reply in replies:
                file.write(_stored(reply))
                count += 1
            file.flush()
            os.fsync(file.fileno())
        path.replace(self.folder / REPLIES)
        sync_folder(self.folder)
        return count

    def lock(self) -> bool:
        """Lock the batch and read its journal again; return whether this process has the lock now.

        Another process may have the lock, or may have removed the batch.
        """
        if self._lock is not None:
            return True
        try:
            self._lock = _try_lock(self.folder / _LOCK)
        except FileNotFoundError:
            return False  # the batch was removed: all of its requests have a result
        if self._lock is None:
            return False
        self._read()
        return True

    def release(self) -> None:
        """Unlock the batch and close its files."""
        for descriptor in (self._lock, self._delivered):
            if descriptor is not None:
                os.close(descriptor)
        self._lock = None
        self._delivered = None

    def remove(self) -> None:
        """Remove the batch from the journal and from disk."""
        removed = self.folder.with_name(_NEW_PREFIX + self.folder.name)
        with contextlib.suppress(OSError):
            # Renaming is atomic. A folder that is only partly removed must not look like a batch.
            self.folder.rename(removed)
            shutil.rmtree(removed)
        self.release()


def _stored(reply: BatchReply) -> bytes:
    """Return a reply as a line of the file of replies. The body is copied without decoding it."""
    error = reply.error
    body = reply.body
    if body is not None:
        start = b'{"id":"%s","body":' % reply.custom_id.encode()
        if b"\n" not in body:
            return start + body + b"}\n"
        try:
            one_line = msgspec.json.format(body, indent=-1)
            return start + one_line + b"}\n"
        except msgspec.DecodeError:
            error = "the reply is not valid JSON"
    stored = StoredReply(
        reply.custom_id,
        error=error,
        unanswered=reply.is_unanswered,
    )
    return to_json(stored) + b"\n"


class NewBatch:
    """A batch whose requests are being written. `seal` adds it to the journal."""

    def __init__(self, journal: "Journal", key: str):
        self.key = key
        self.count = 0
        self.size = 0
        """In bytes."""
        self._folder = journal.folder / f"{_NEW_PREFIX}{key}"
        try:
            self._folder.mkdir(mode=0o700)
            self._requests = _private_file(self._folder / REQUESTS)
            self._ids = _private_file(self._folder / IDS)
        except OSError as error:
            raise _cannot_write(error, self._folder) from error

    def add(self, custom_id: str, line: bytes) -> None:
        """Write a request."""
        try:
            self._requests.write(line)
            self._ids.write(f"{custom_id}\n".encode())
        except OSError as error:
            raise _cannot_write(error, self._folder) from error
        self.count += 1
        self.size += len(line)

    def discard(self) -> None:
        """Remove the requests without submitting them."""
        for file in (self._requests, self._ids):
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def seal(self, intent: Intent) -> JournaledBatch:
        """Add the batch to the journal and return it, locked by this process and ready to be submitted."""
        try:
            for file in (self._requests, self._ids):
                file.flush()
                os.fsync(file.fileno())
                file.close()
            batch = JournaledBatch(self._folder)
            batch.lock()
            batch.record(intent)
            sync_folder(self._folder)
            final_folder = self._folder.with_name(_BATCH_PREFIX + self.key)
            batch.folder = self._folder.rename(final_folder)
            sync_folder(batch.folder.parent)
        except OSError as error:
            raise _cannot_write(error, self._folder) from error
        return batch


class Journal:
    """The batches of a project."""

    def __init__(self, folder: Path | None = None):
        self.folder = (folder or state_folder("batches")).absolute()

    def batches(self) -> list[JournaledBatch]:
        """Return all sealed batches, oldest first."""
        found: list[tuple[float, str, JournaledBatch]] = []
        for path in self.folder.glob(f"{_BATCH_PREFIX}*"):
            if not path.is_dir():
                continue
            batch = JournaledBatch(path)
            if batch.intent is not None:
                entry = (batch.intent.at, path.name, batch)
                found.append(entry)
        found.sort()  # the names of folders are unique, so that batches themselves are never compared
        return [batch for _, _, batch in found]

    @contextlib.asynccontextmanager
    async def claim(self) -> AsyncIterator[Self]:
        """Lock the journal, so that no two processes submit the same requests."""
        lock = self.folder / _LOCK
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = _try_lock(lock)
            while descriptor is None:
                await asyncio.sleep(_LOCK_POLL_SECONDS)
                descriptor = _try_lock(lock)
        except OSError as error:
            raise _cannot_write(error, self.folder) from error
        try:
            self._remove_old()
            yield self
        finally:
            os.close(descriptor)

    def _remove_old(self) -> None:
        """Remove batches that were never sealed, and batches older than `MAX_DAYS`."""
        for folder in self.folder.glob(f"{_NEW_PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)
        oldest = time.time() - MAX_DAYS * SECONDS_PER_DAY
        for batch in self.batches():
            is_old = batch.intent is not None and batch.intent.at < oldest
            if is_old and batch.lock():
                batch.remove()


def _read_steps(path: Path) -> Iterator[Step]:
    """Yield the steps of a journal. Skip invalid lines, and a truncated last one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            continue
        with contextlib.suppress(msgspec.MsgspecError):
            yield _decode_step(line)


def _cut_truncated_line(descriptor: int) -> None:
    """Remove an incomplete last line, so that the next line does not become part of it."""
    size = os.fstat(descriptor).st_size
    if not size:
        return
    last_byte = os.pread(descriptor, 1, size - 1)
    if last_byte == b"\n":
        return
    content = os.pread(descriptor, size, 0)
    end = content.rfind(b"\n") + 1
    os.ftruncate(descriptor, end)


def _try_lock(path: Path) -> int | None:
    """Lock a file; return its descriptor, or None if another process has the lock. Closing it releases the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _private_file(path: Path) -> BinaryIO:
    """Create a file that only its owner can read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    descriptor = os.open(path, flags, 0o600)
    return os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES)


def _cannot_write(error: OSError, path: Path) -> OutputError:
    reason = error.strerror or error
    return OutputError(
        f"the batch journal cannot be written: {reason}",
        file=path,
        hint="submitted batches are in the journal; free some disk space, then continue with --resume",
    )


def status_of(status: BatchStatus) -> Literal["ended", "failed", "gone"]:
    """Return the status of a batch that has ended, as the journal spells it."""
    if status is BatchStatus.FAILED:
        return "failed"
    if status is BatchStatus.GONE:
        return "gone"
    return "ended"
