"""Submit a batch, wait for it and store its replies. Continue where an earlier process stopped."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from agentv.batches.journal import (
    CancelRequested,
    Collected,
    Created,
    Intent,
    Journal,
    JournaledBatch,
    NewBatch,
    Uploaded,
    status_of,
)
from agentv.errors import AgentvError, ProviderError
from agentv.providers.models.batches.api import BatchApi, BatchState, BatchStatus
from agentv.redact import clean
from agentv.run.options import BATCH_DEADLINE_SECONDS

FIRST_POLL_SECONDS = 1.0
MAX_POLL_SECONDS = 30.0
POLL_GROWTH = 1.5
CANCEL_SECONDS = 900.0
"""How long a vendor may take to cancel a batch."""
CLOCK_SECONDS = 60.0
"""How far a vendor's clock may be behind ours."""
OnState = Callable[[BatchState], None]


class BatchTimes(NamedTuple):
    """How long to wait for a batch, and how often to ask the vendor about it."""

    deadline: float = BATCH_DEADLINE_SECONDS
    """Seconds after which a batch that has not ended is cancelled."""
    poll: float | None = None
    """Seconds between two requests for the state. If not set, the interval grows."""

    def waits(self) -> Iterator[float]:
        """Yield the seconds to wait before each further request."""
        seconds = self.poll or FIRST_POLL_SECONDS
        while True:
            yield seconds
            if self.poll is None:
                seconds = min(MAX_POLL_SECONDS, seconds * POLL_GROWTH)


def new_key() -> str:
    """Return a unique key for a batch."""
    return f"agentv-{secrets.token_hex(16)}"


def _ignore_state(_state: BatchState) -> None:
    pass


class Submission:
    """Submits a batch, waits for it and stores its replies. This process must have locked the batch."""

    def __init__(
        self,
        api: BatchApi,
        batch: JournaledBatch,
        times: BatchTimes,
        on_state: OnState = _ignore_state,
    ):
        self._api = api
        self._batch = batch
        self._times = times
        self._on_state = on_state
        self._resubmit_waits = times.waits()
        """The seconds to wait before each further submission, if the vendor has no room for the batch."""

    async def finish(
        self,
        turn: asyncio.Lock,
        journal: Journal,
        *,
        is_new: bool,
    ) -> None:
        """Submit the batch unless the vendor has it, wait until it has ended, and store its replies.

        Batches that share a `turn` are submitted one after another. `is_new` means that it was never submitted. Raise
        `AgentvError` if the vendor does not return the state; the batch then keeps running at the vendor.
        """
        batch = self._batch
        while batch.collected is None:
            if batch.created is None:
                async with turn:
                    await self._submit(journal, is_new=is_new)
                continue
            state = await self._wait_until_ended()
            if _may_be_resubmitted(state):
                await self._prepare_to_resubmit(state)
                is_new = True
            else:
                await self._collect(state)

    async def collect_if_ended(self, journal: Journal) -> BatchState | None:
        """Store the replies if the batch has ended; return its state, or None if the vendor does not have it."""
        batch = self._batch
        if batch.created is None and not await self.find(journal):
            return None
        assert batch.created is not None
        state = await self._api.state(batch.created.batch)
        if state.status is not BatchStatus.RUNNING and not _may_be_resubmitted(state):
            await self._collect(state, is_patient=False)
        return state

    async def _submit(self, journal: Journal, *, is_new: bool) -> None:
        """Submit the requests, unless the vendor has them already."""
        batch = self._batch
        intent = batch.intent
        assert intent is not None
        waits = self._times.waits()
        may_be_there = not is_new or bool(intent.not_ours)
        has_old_upload = batch.uploaded is not None
        while True:
            try:
                if may_be_there and await self.find(journal):
                    return
                await self._upload_and_create(intent)
                return
            except ProviderError as error:
                if not error.may_pass and has_old_upload:
                    batch.forget_upload()  # the vendor may have deleted it
                    has_old_upload = False
                elif not error.may_pass or self._is_late(intent.at):
                    self._give_up(error)
                    return
                else:
                    # After errors other than 429, the vendor may have created the batch nevertheless.
                    may_be_there = may_be_there or error.status != HTTPStatus.TOO_MANY_REQUESTS
                    self._report_running(f"not accepted yet: {error.message}")
                    await _sleep(waits, error)

    async def _upload_and_create(self, intent: Intent) -> None:
        batch = self._batch
        if batch.uploaded is None:
            file = await self._api.upload(batch.requests, intent.key)
            batch.record(Uploaded(at=time.time(), file=file))
        assert batch.uploaded is not None
        name = await self._api.create(batch.requests, batch.uploaded.file, intent.key)
        batch.record(Created(at=time.time(), batch=name))

    def _give_up(self, error: ProviderError) -> None:
        """Record that the vendor did not accept the batch."""
        status = BatchStatus.FAILED
        if error.may_pass:
            status = BatchStatus.GONE  # not rejected: the vendor may accept its requests later
        step = Collected(
            at=time.time(),
            status=status_of(status),
            words=error.message,
        )
        self._batch.record(step)

    async def find(self, journal: Journal) -> bool:
        """Look for the batch at the vendor and record it; return whether it was found.

        A killed process may have submitted the batch without recording that.
        """
        intent = self._batch.intent
        assert intent is not None
        excluded = set(intent.not_ours)
        for other in journal.batches():
            if other.created is not None:
                excluded.add(other.created.batch)
        since = intent.at - CLOCK_SECONDS
        name = await self._api.find(
            intent.key,
            self._batch.ids(),
            since,
            excluded,
        )
        if name is None:
            return False
        self._batch.record(
            Created(
                at=intent.at,
                batch=name,
                is_found=True,
            )
        )
        return True

    async def _prepare_to_resubmit(self, state: BatchState) -> None:
        """Wait, then prepare a batch that the vendor had no room for to be submitted again. Give up at the deadline."""
        intent = self._batch.intent
        assert intent is not None
        first = intent.first or intent.at
        if self._is_late(first):
            await self._collect(state._replace(status=BatchStatus.GONE))
            return
        self._report_running("not accepted yet: the vendor's queue is full")
        await asyncio.sleep(next(self._resubmit_waits))
        new_intent = msgspec.structs.replace(
            intent,
            at=time.time(),
            key=new_key(),
            first=first,
        )
        self._batch.record(new_intent)

    async def _wait_until_ended(self) -> BatchState:
        """Wait until the batch has ended, and return its last state. Cancel the batch at the deadline."""
        batch = self._batch
        assert batch.created is not None
        waits = self._times.waits()
        while True:
            state = await self._get_state()
            self._on_state(state)
            if state.status is not BatchStatus.RUNNING:
                return state
            if batch.cancel_requested is None and self._is_late(batch.created.at):
                await self._cancel()
            if batch.cancel_requested is not None and time.time() > batch.cancel_requested.at + CANCEL_SECONDS:
                return BatchState(BatchStatus.GONE, words=f"cancelling: {state.words}")
            await asyncio.sleep(self._until_deadline(next(waits)))

    async def _get_state(self) -> BatchState:
        """Return the state of the batch. Retry after temporary errors, but not beyond the deadline."""
        created = self._batch.created
        assert created is not None
        waits = self._times.waits()
        while True:
            try:
                return await self._api.state(created.batch)
            except ProviderError as error:
                if not error.may_pass:
                    raise self._unknown_state(error) from error
                words = f"status unknown: {error.message}"
                if self._is_late(created.at):
                    return BatchState(BatchStatus.RUNNING, words=words)
                self._report_running(words)
                await _sleep(waits, error)

    async def _cancel(self) -> None:
        batch = self._batch
        assert batch.created is not None
        batch.record(CancelRequested(at=time.time()))
        try:
            await self._api.cancel(batch.created.batch)
        except ProviderError as error:
            if not error.may_pass:
                raise self._unknown_state(error) from error
            batch.cancel_requested = None  # try again after the next request for the state

    async def _collect(self, state: BatchState, *, is_patient: bool = True) -> None:
        """Store the replies and record the end of the batch. If `is_patient`, retry after temporary errors."""
        batch = self._batch
        assert batch.created is not None
        waits = self._times.waits()
        count = 0
        while state.status is BatchStatus.ENDED:
            try:
                count = await batch.store_replies(self._api.replies(batch.created.batch))
                break
            except ProviderError as error:
                if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
                    state = BatchState(BatchStatus.GONE, words=error.message)
                elif not error.may_pass or not is_patient:
                    raise self._unknown_state(error) from error
                else:
                    self._on_state(state._replace(words=f"cannot be read: {error.message}"))
                    await _sleep(waits, error)
        if count and batch.created.is_found and not self._has_our_reply():
            self._reject_found_batch()
            return
        step = Collected(
            at=time.time(),
            status=status_of(state.status),
            replies=count,
            answered=state.answered,
            failed=state.failed,
            words=clean(state.words),
        )
        batch.record(step)

    def _has_our_reply(self) -> bool:
        """Return whether any reply belongs to one of our requests."""
        ours = set(self._batch.ids())
        return any(custom_id in ours for custom_id, _ in self._batch.reply_offsets())

    def _reject_found_batch(self) -> None:
        """Record that the batch found at the vendor is not this one, so that it is looked for again."""
        intent = self._batch.intent
        created = self._batch.created
        assert intent is not None
        assert created is not None
        not_ours = (*intent.not_ours, created.batch)
        self._batch.record(msgspec.structs.replace(intent, not_ours=not_ours))

    def _report_running(self, words: str) -> None:
        self._on_state(BatchState(BatchStatus.RUNNING, words=words))

    def _is_late(self, start: float) -> bool:
        return time.time() >= start + self._times.deadline

    def _until_deadline(self, seconds: float) -> float:
        """Return the seconds, or fewer if the deadline comes first."""
        assert self._batch.created is not None
        if self._batch.cancel_requested is not None:
            return seconds
        left = self._batch.created.at + self._times.deadline - time.time()
        return max(0.01, min(seconds, left))

    def _unknown_state(self, error: ProviderError) -> AgentvError:
        hint = "nothing is lost: the batch continues at the vendor; fix the problem, then continue with --resume"
        return AgentvError(f"batch {self._batch.name} cannot be polled: {error.message}", hint=hint)


def _may_be_resubmitted(state: BatchState) -> bool:
    """Return whether the vendor refused a batch that it may accept later."""
    return state.status is BatchStatus.FAILED and state.may_pass


async def _sleep(waits: Iterator[float], error: ProviderError) -> None:
    """Sleep for the next interval, or longer if the vendor asks for it."""
    await asyncio.sleep(max(next(waits), error.retry_after or 0))


def intent_of(
    part: NewBatch,
    target: str,
    role: str,
    targets_file: str | None,
    command: tuple[str, ...],
) -> Intent:
    """Return the first step of a new batch."""
    return Intent(
        at=time.time(),
        key=part.key,
        target=target,
        role=role,
        targets_file=targets_file,
        requests=part.count,
        command=tuple(clean(argument) for argument in command),
    )
