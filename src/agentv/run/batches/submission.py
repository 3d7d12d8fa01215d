"""One batch, from the requests on disk to the replies on disk, wherever an earlier process was stopped."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from agentv.errors import AgentvError, ProviderError
from agentv.providers.models.batches.api import BatchApi, BatchState, BatchStatus
from agentv.redact import clean
from agentv.run.batches.journal import (
    CancelAsked,
    Collected,
    Created,
    Intent,
    Journal,
    JournaledBatch,
    NewBatch,
    Uploaded,
    status_of,
)

DEADLINE_SECONDS = 86_400.0
FIRST_POLL_SECONDS, LAST_POLL_SECONDS, GROWTH = 1.0, 30.0, 1.5
CANCEL_SECONDS = 900.0
"""How long a vendor may take to end a batch that is cancelled."""
CLOCK_SECONDS = 60.0
"""By how much a vendor's clock may be behind ours."""
BUSY, NOT_FOUND, GONE = 429, 404, 410
OnState = Callable[[BatchState], None]


class BatchTimes(NamedTuple):
    """How long a batch is waited for, and how often it is looked at."""

    deadline: float = DEADLINE_SECONDS
    """Seconds after which a batch that has not ended is given up."""
    poll: float | None = None
    """Seconds between two looks; if this is not set they grow."""

    def waits(self) -> Iterator[float]:
        """Yield the seconds before each further look."""
        seconds = self.poll or FIRST_POLL_SECONDS
        while True:
            yield seconds
            if self.poll is None:
                seconds = min(LAST_POLL_SECONDS, seconds * GROWTH)


def new_key() -> str:
    """Return a name that no other batch has."""
    return f"agentv-{secrets.token_hex(16)}"


class Submission:
    """Sees a batch through: submits it, waits for it, stores its replies. Only one process may, which has its lock."""

    def __init__(self, api: BatchApi, batch: JournaledBatch, times: BatchTimes, on_state: OnState = lambda _: None):
        self._api, self.batch, self._times, self._on_state = api, batch, times, on_state
        self._later = times.waits()
        """The seconds before the requests are submitted once more."""

    async def finish(self, turn: asyncio.Lock, journal: Journal, *, is_new: bool) -> None:
        """Store the replies. `turn` lets one batch after another be submitted; a new one is at no vendor yet.

        Raise `AgentvError` if the vendor cannot be asked about it: nothing is known then, and nothing is lost.
        """
        batch = self.batch
        while batch.collected is None:
            if batch.created is None:
                async with turn:
                    await self._submit(journal, is_new=is_new)
                continue
            state = await self._wait()
            if state.status is BatchStatus.FAILED and state.may_pass:
                await self._submit_later(state)
                is_new = True
            else:
                await self._collect(state)

    async def look(self, journal: Journal) -> BatchState | None:
        """Return how far the batch is, and store its replies if it has ended; None if the vendor does not have it."""
        if self.batch.created is None and not await self.find(journal):
            return None
        assert self.batch.created is not None
        state = await self._api.state(self.batch.created.batch)
        if state.status is not BatchStatus.RUNNING and not (state.status is BatchStatus.FAILED and state.may_pass):
            await self._collect(state, is_patient=False)
        return state

    async def _submit(self, journal: Journal, *, is_new: bool) -> None:
        """Give the requests to the vendor, unless it has them already."""
        batch, waits = self.batch, self._times.waits()
        assert batch.intent is not None
        may_be_there = not is_new or bool(batch.intent.not_ours)
        has_old_upload = batch.uploaded is not None
        while True:
            try:
                if may_be_there and await self.find(journal):
                    return
                if batch.uploaded is None:
                    file = await self._api.upload(batch.requests, batch.intent.key)
                    batch.record(Uploaded(at=time.time(), file=file))
                assert batch.uploaded is not None
                name = await self._api.create(batch.requests, batch.uploaded.file, batch.intent.key)
                batch.record(Created(at=time.time(), batch=name))
                return
            except ProviderError as error:
                if not error.may_pass and has_old_upload:
                    batch.forget_upload()  # which the vendor may have thrown away
                    has_old_upload = False
                elif not error.may_pass or self._is_late(batch.intent.at):
                    status = BatchStatus.GONE if error.may_pass else BatchStatus.FAILED
                    batch.record(Collected(at=time.time(), status=status_of(status), words=error.message))
                    return
                else:
                    may_be_there = may_be_there or error.status != BUSY
                    self._on_state(BatchState(BatchStatus.RUNNING, words=f"not taken yet: {error.message}"))
                    await asyncio.sleep(max(next(waits), error.retry_after or 0))

    async def find(self, journal: Journal) -> bool:
        """Return whether the vendor has the batch, though that is not in the journal."""
        intent = self.batch.intent
        assert intent is not None
        others = [other.created.batch for other in journal.batches() if other.created is not None]
        since = intent.at - CLOCK_SECONDS
        name = await self._api.find(intent.key, self.batch.ids(), since, {*others, *intent.not_ours})
        if name is None:
            return False
        self.batch.record(Created(at=intent.at, batch=name, is_found=True))
        return True

    async def _submit_later(self, state: BatchState) -> None:
        """Start again with a batch that the vendor had no room for, or give it up at the deadline."""
        intent = self.batch.intent
        assert intent is not None
        first = intent.first or intent.at
        if self._is_late(first):
            await self._collect(state._replace(status=BatchStatus.GONE))
            return
        self._on_state(BatchState(BatchStatus.RUNNING, words="not taken yet: the vendor has no room for it"))
        await asyncio.sleep(next(self._later))
        self.batch.record(msgspec.structs.replace(intent, at=time.time(), key=new_key(), first=first))

    async def _wait(self) -> BatchState:
        """Return the last state of the batch: it has ended, or was cancelled at the deadline."""
        batch, waits = self.batch, self._times.waits()
        assert batch.created is not None
        while True:
            state = await self._ask_state()
            self._on_state(state)
            if state.status is not BatchStatus.RUNNING:
                return state
            if batch.cancel_asked is None and self._is_late(batch.created.at):
                await self._cancel()
            if batch.cancel_asked is not None and time.time() > batch.cancel_asked.at + CANCEL_SECONDS:
                return BatchState(BatchStatus.GONE, words=f"cancelled, and not ended: {state.words}")
            await asyncio.sleep(self._until_deadline(next(waits)))

    async def _ask_state(self) -> BatchState:
        """Return how far the batch is; wait as long as the vendor cannot tell, but not beyond the deadline."""
        created, waits = self.batch.created, self._times.waits()
        assert created is not None
        while True:
            try:
                return await self._api.state(created.batch)
            except ProviderError as error:
                if not error.may_pass:
                    raise self._unknown(error) from error
                unknown = BatchState(BatchStatus.RUNNING, words=f"cannot be asked: {error.message}")
                if self._is_late(created.at):
                    return unknown
                self._on_state(unknown)
                await asyncio.sleep(max(next(waits), error.retry_after or 0))

    async def _cancel(self) -> None:
        assert self.batch.created is not None
        self.batch.record(CancelAsked(at=time.time()))
        try:
            await self._api.cancel(self.batch.created.batch)
        except ProviderError as error:
            if error.may_pass:
                self.batch.cancel_asked = None  # and asked once more after the next look
            else:
                raise self._unknown(error) from error

    async def _collect(self, state: BatchState, *, is_patient: bool = True) -> None:
        """Store the replies that there are; wait, if asked to, as long as they cannot be read."""
        assert self.batch.created is not None
        count, waits = 0, self._times.waits()
        while state.status is BatchStatus.ENDED:
            try:
                count = await self.batch.store_replies(self._api.replies(self.batch.created.batch))
                break
            except ProviderError as error:
                if error.status in (NOT_FOUND, GONE):
                    state = BatchState(BatchStatus.GONE, words=error.message)
                elif not error.may_pass or not is_patient:
                    raise self._unknown(error) from error
                else:
                    self._on_state(state._replace(words=f"cannot be read: {error.message}"))
                    await asyncio.sleep(max(next(waits), error.retry_after or 0))
        if count and self.batch.created.is_found and not self._has_ours():
            self._let_go()
            return
        counts = {"replies": count, "answered": state.answered, "failed": state.failed}
        self.batch.record(Collected(at=time.time(), status=status_of(state.status), **counts, words=clean(state.words)))

    def _has_ours(self) -> bool:
        """Return whether a reply is to one of our requests."""
        ours = set(self.batch.ids())
        return any(id_ in ours for id_, _ in self.batch.reply_places())

    def _let_go(self) -> None:
        """Look for the batch once more: the one that was found answers the requests of somebody else."""
        intent, created = self.batch.intent, self.batch.created
        assert intent is not None
        assert created is not None
        self.batch.record(msgspec.structs.replace(intent, not_ours=(*intent.not_ours, created.batch)))

    def _is_late(self, start: float) -> bool:
        return time.time() >= start + self._times.deadline

    def _until_deadline(self, seconds: float) -> float:
        """Return the seconds, fewer if the deadline comes first."""
        assert self.batch.created is not None
        if self.batch.cancel_asked is not None:
            return seconds
        return max(0.01, min(seconds, self.batch.created.at + self._times.deadline - time.time()))

    def _unknown(self, error: ProviderError) -> AgentvError:
        hint = "nothing is lost: the batch goes on at the vendor; mend this and go on with --resume"
        return AgentvError(f"batch {self.batch.name} cannot be asked about: {error.message}", hint=hint)


def intent_of(part: NewBatch, target: str, role: str, targets_file: str | None, command: tuple[str, ...]) -> Intent:
    """Return the first step of a new batch."""
    return Intent(
        at=time.time(),
        key=part.key,
        target=target,
        role=role,
        targets_file=targets_file,
        requests=part.count,
        command=tuple(map(clean, command)),
    )
