"""What is known of the batches at vendors: each step is on disk before the next is taken.

Each batch has a folder of its own, which only its owner can read: prompts are in it as they are sent, and answers as
they came. It is removed when all of its requests have a result, and after so many days in any case.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal, Self

import msgspec

from agentv.errors import OutputError
from agentv.providers.models.batches.api import BatchReply, BatchStatus
from agentv.run.batches.batch_files import BATCHES

MAX_DAYS = 35
"""After so many days no vendor has a batch's answers any more."""
JOURNAL, REQUESTS, IDS, REPLIES, DELIVERED = "journal.jsonl", "requests.jsonl", "ids", "replies.jsonl", "delivered"
_NEW, _VENDOR = "new-", "vendor-"
_LOCK = ".lock"
ID_DIGITS = 40
_LOCK_SECONDS = 0.05
_encode = msgspec.json.encode


class _Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="step"):
    at: float
    """When it was taken, in seconds since 1970."""


class Intent(_Step, frozen=True, kw_only=True, tag="intent"):
    """The requests are on disk; from now on the vendor may have them."""

    key: str
    """Marks the batch as ours at the vendor."""
    target: str
    role: str = "target"
    """What the answers are for: `target` or `judge`."""
    targets_file: str | None = None
    requests: int
    command: tuple[str, ...] = ()
    """What was typed, without its secrets."""
    first: float | None = None
    """When it was meant to be submitted for the first time, if the vendor had no room for it then."""
    not_ours: tuple[str, ...] = ()
    """Batches at the vendor that were taken for this one."""


class Uploaded(_Step, frozen=True, kw_only=True, tag="uploaded"):
    """The vendor has the file."""

    file: str


class Created(_Step, frozen=True, kw_only=True, tag="created"):
    """The vendor has the batch."""

    batch: str
    is_found: bool = False
    """Whether it was found at the vendor, after a kill: some vendors cannot tell for sure that it is ours."""


class CancelAsked(_Step, frozen=True, kw_only=True, tag="cancelled"):
    """The vendor is asked to end the batch."""


class Collected(_Step, frozen=True, kw_only=True, tag="collected"):
    """All the replies that there will ever be are on disk."""

    status: Literal["ended", "failed", "gone"]
    replies: int = 0
    answered: int = 0
    failed: int = 0
    """These are the vendor's counts."""
    words: str = ""
    """What the vendor said."""


Step = Intent | Uploaded | Created | CancelAsked | Collected
_decode_step = msgspec.json.Decoder(Step).decode


class StoredReply(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of one request, as it is on disk. The id comes first, and is always as long."""

    id: str
    body: msgspec.Raw = msgspec.Raw()
    error: str = ""
    unanswered: bool = False


decode_reply = msgspec.json.Decoder(StoredReply).decode
_ID = slice(len(b'{"id":"'), len(b'{"id":"') + ID_DIGITS)


class JournaledBatch:
    """A batch at a vendor, as far as the journal knows."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.intent: Intent | None = None
        self.uploaded: Uploaded | None = None
        self.created: Created | None = None
        self.cancel_asked: CancelAsked | None = None
        self.collected: Collected | None = None
        self._lock: int | None = None
        self._delivered: int | None = None
        self._read()

    def _read(self) -> None:
        for step in _read_steps(self.folder / JOURNAL):
            self._take(step)

    def __repr__(self) -> str:
        return f"JournaledBatch({str(self.folder)!r})"

    @property
    def requests(self) -> Path:
        """The file that is submitted."""
        return self.folder / REQUESTS

    @property
    def name(self) -> str:
        """What the vendor calls it; how we do, as long as the vendor has not got it."""
        if self.created is not None:
            return self.created.batch
        return self.intent.key if self.intent is not None else self.folder.name

    def record(self, step: Step) -> None:
        """Write a step down; it is on disk when this returns."""
        path = self.folder / JOURNAL
        line = _encode(step) + b"\n"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                _cut_torn_line(descriptor)
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _cannot_write(error, path) from error
        self._take(step)

    def _take(self, step: Step) -> None:
        match step:
            case Intent():  # also of requests that are submitted once more
                self.intent, self.uploaded, self.created, self.cancel_asked = step, None, None, None
            case Uploaded():
                self.uploaded = step
            case Created():
                self.created = step
            case CancelAsked():
                self.cancel_asked = step
            case Collected():
                self.collected = step

    def forget_upload(self) -> None:
        """Upload the file once more: the vendor does not know it any more."""
        self.uploaded = None

    def ids(self) -> Iterator[str]:
        """Yield the custom ids of the requests."""
        with (self.folder / IDS).open("r", encoding="ascii") as file:
            for line in file:
                yield line[:ID_DIGITS]

    def delivered(self) -> Iterator[str]:
        """Yield the custom ids of the requests whose answers are in results already."""
        with contextlib.suppress(FileNotFoundError), (self.folder / DELIVERED).open("r", encoding="ascii") as file:
            for line in file:
                if len(line) > ID_DIGITS:
                    yield line[:ID_DIGITS]

    def mark_delivered(self, custom_id: str) -> None:
        """Note that a result has the answer to a request, or says why there is none."""
        try:
            if self._delivered is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._delivered = os.open(self.folder / DELIVERED, flags, 0o600)
            os.write(self._delivered, f"{custom_id}\n".encode())
        except OSError as error:
            raise _cannot_write(error, self.folder / DELIVERED) from error

    def reply_places(self) -> Iterator[tuple[str, int]]:
        """Yield the custom id of each reply, and where it is in the file of replies."""
        at = 0
        with contextlib.suppress(FileNotFoundError), (self.folder / REPLIES).open("rb") as file:
            for line in file:
                yield line[_ID].decode(), at
                at += len(line)

    async def store_replies(self, replies: AsyncIterator[BatchReply]) -> int:
        """Write all replies to disk and return how many there are; those of an earlier try are replaced."""
        path, count = self.folder / f"{REPLIES}.new", 0
        with _private_file(path) as file:
            async for reply in replies:
                file.write(_stored(reply))
                count += 1
            file.flush()
            os.fsync(file.fileno())
        path.replace(self.folder / REPLIES)
        _sync_folder(self.folder)
        return count

    def lock(self) -> bool:
        """Return whether this process has the batch for itself now; another one may be at work on it, or be done.

        What others have done with it until now is known from here on.
        """
        if self._lock is None:
            with contextlib.suppress(FileNotFoundError):  # all of its requests have got their results
                self._lock = _try_lock(self.folder / _LOCK)
            if self._lock is not None:
                self._read()
        return self._lock is not None

    def release(self) -> None:
        """Let others have the batch."""
        for descriptor in (self._lock, self._delivered):
            if descriptor is not None:
                os.close(descriptor)
        self._lock = self._delivered = None

    def remove(self) -> None:
        """Forget the batch."""
        gone = self.folder.with_name(_NEW + self.folder.name)
        with contextlib.suppress(OSError):
            self.folder.rename(gone)  # in one step: half of a folder would be taken for a batch
            shutil.rmtree(gone)
        self.release()


def _stored(reply: BatchReply) -> bytes:
    """Return a reply as a line."""
    error, body = reply.error, reply.body
    if body is not None:
        start = b'{"id":"%s","body":' % reply.custom_id.encode()
        if b"\n" not in body:
            return start + body + b"}\n"
        try:
            return start + msgspec.json.format(body, indent=-1) + b"}\n"
        except msgspec.DecodeError:
            error = "the reply is no JSON"
    return _encode(StoredReply(reply.custom_id, error=error, unanswered=reply.is_unanswered)) + b"\n"


class NewBatch:
    """The requests of a batch, as they are written. It counts from `seal` on, and not before."""

    def __init__(self, journal: "Journal", key: str):
        self.key, self._folder = key, journal.folder / f"{_NEW}{key}"
        try:
            self._folder.mkdir(mode=0o700)
            self._requests, self._ids = _private_file(self._folder / REQUESTS), _private_file(self._folder / IDS)
        except OSError as error:
            raise _cannot_write(error, self._folder) from error
        self.count = self.size = 0

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
        """Forget the requests: they are not to be submitted."""
        for file in (self._requests, self._ids):
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def seal(self, intent: Intent) -> JournaledBatch:
        """Make it a batch of the journal, which is to be submitted. This process has it for itself."""
        try:
            for file in (self._requests, self._ids):
                file.flush()
                os.fsync(file.fileno())
                file.close()
            batch = JournaledBatch(self._folder)
            batch.lock()
            batch.record(intent)
            _sync_folder(self._folder)
            batch.folder = self._folder.rename(self._folder.with_name(_VENDOR + self.key))
            _sync_folder(batch.folder.parent)
        except OSError as error:
            raise _cannot_write(error, self._folder) from error
        return batch


class Journal:
    """The batches of a project."""

    def __init__(self, folder: Path = BATCHES):
        self.folder = folder.absolute()

    def batches(self) -> list[JournaledBatch]:
        """Return all batches that were meant to be submitted, oldest first."""
        found = [JournaledBatch(path) for path in self.folder.glob(f"{_VENDOR}*") if path.is_dir()]
        known = [(batch.intent.at, batch.folder.name, batch) for batch in found if batch.intent is not None]
        return [batch for *_, batch in sorted(known, key=lambda each: each[:2])]

    @contextlib.asynccontextmanager
    async def claim(self) -> AsyncIterator[Self]:
        """Keep others from submitting as long as this is open, so that no two submit the same requests."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            while (descriptor := _try_lock(self.folder / _LOCK)) is None:
                await asyncio.sleep(_LOCK_SECONDS)
        except OSError as error:
            raise _cannot_write(error, self.folder) from error
        try:
            self._clear()
            yield self
        finally:
            os.close(descriptor)

    def _clear(self) -> None:
        """Remove what was begun and never submitted, and what no vendor knows any more."""
        for folder in self.folder.glob(f"{_NEW}*"):
            shutil.rmtree(folder, ignore_errors=True)
        for batch in self.batches():
            if batch.intent is not None and batch.intent.at < time.time() - MAX_DAYS * 86_400 and batch.lock():
                batch.remove()


def _read_steps(path: Path) -> Iterator[Step]:
    """Yield the steps of a journal; a torn last line was never taken."""
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines(keepends=True):
            with contextlib.suppress(msgspec.MsgspecError):
                if line.endswith(b"\n"):
                    yield _decode_step(line)


def _cut_torn_line(descriptor: int) -> None:
    """Cut off a last line that is not whole, so that the next one stands alone."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        whole = os.pread(descriptor, size, 0)
        os.ftruncate(descriptor, whole.rfind(b"\n") + 1)


def _try_lock(path: Path) -> int | None:
    """Return the descriptor of a file that is locked as long as it is open; None if another process has the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _private_file(path: Path):  # type: ignore[no-untyped-def]
    """Return a new file that only its owner can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=1 << 18)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(error: OSError, path: Path) -> OutputError:
    hint = "what was submitted before is in the journal; make room and go on with --resume"
    return OutputError(f"the journal of batches cannot be written: {error.strerror or error}", file=path, hint=hint)


def status_of(status: BatchStatus) -> Literal["ended", "failed", "gone"]:
    """Return how a batch that gives no more answers is called in the journal."""
    if status is BatchStatus.FAILED:
        return "failed"
    return "gone" if status is BatchStatus.GONE else "ended"
