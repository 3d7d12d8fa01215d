"""Send the requests of a run to a vendor's batch API and read the answers.

A reply is matched to its request by a custom id: a digest of the case, the trial, the role and the request. A later
run computes the same id, finds the request in a batch of the journal, and waits for that batch instead of submitting
the request again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from agentv.batches.journal import ID_DIGITS, Journal, JournaledBatch, NewBatch, StoredReply
from agentv.batches.reply_index import ReplyIndex
from agentv.batches.submission import BatchTimes, Submission, intent_of, new_key
from agentv.calls.cache_key import cache_key
from agentv.calls.caller import Caller, CallPolicy
from agentv.calls.retry import FailedCall
from agentv.errors import AgentvError, ProviderError
from agentv.log import info
from agentv.providers.models.batches.api import BatchApi, BatchModel, BatchState
from agentv.providers.models.settings import LanguageModelSettings
from agentv.records import ProviderRequest, ProviderResponse
from agentv.run.jobs import BatchAnswer
from agentv.run.options import BatchOptions
from agentv.run.targets import OpenTarget
from agentv.text import plural

LIMIT_SHARE = 0.9
"""The share of a vendor's limits that a batch uses."""
MAX_BATCHES = 100
"""The number of batches that a target may have in a run."""
OnProgress = Callable[[str], None]
RequestsWithIds = AsyncIterator[tuple[str, ProviderRequest]]
"""Requests, each with its custom id."""
NO_ANSWER = ProviderResponse(text="", batch=True)
"""The response of a request that failed in a batch."""


class BatchTarget(NamedTuple):
    """A target that is called through a batch API."""

    name: str
    model: BatchModel
    policy: CallPolicy
    targets_file: Path | None = None
    poll_seconds: float | None = None
    """The seconds between two requests for the state of a batch, if set."""
    role: str = "target"
    """The purpose of the answers: `target` or `judge`."""


def batch_target_of(target: OpenTarget) -> BatchTarget:
    """Return how a target is called through its vendor's batch API."""
    settings = target.settings
    model = target.provider
    assert isinstance(settings, LanguageModelSettings)
    assert isinstance(model, BatchModel)
    poll_seconds = None
    if settings.batch_poll_seconds is not None:
        poll_seconds = float(settings.batch_poll_seconds)
    return BatchTarget(
        name=settings.name,
        model=model,
        policy=target.policy,
        targets_file=target.targets_file,
        poll_seconds=poll_seconds,
    )


def custom_id(target: BatchTarget, request: ProviderRequest) -> str:
    """Return the id of a request in a batch. Equal requests for the same purpose have equal ids."""
    about = (target.role, target.name, request.dataset)
    return request_id(about, target.policy, request)


def request_id(
    about: tuple[str, ...],
    policy: CallPolicy,
    request: ProviderRequest,
) -> str:
    """Return the id of a request to a target. `about` separates equal requests for different purposes."""
    key = cache_key(policy.target_key, request)
    text = "\0".join((*about, key))
    hashed = blake2b(text.encode(), digest_size=ID_DIGITS // 2)
    return hashed.hexdigest()


def max_requests(api: BatchApi) -> int:
    """Return how many requests of a run a target can answer."""
    return MAX_BATCHES * int(LIMIT_SHARE * api.limits.requests)


def forget_leftovers(target: BatchTarget, ids: Callable[[], Iterable[str]]) -> None:
    """Remove batches of earlier runs if all of their requests have results. `ids` yields the requests with a result.

    A killed run may have written a result without recording that in the journal.
    """
    with ExitStack() as stack:
        index = ReplyIndex(stack)
        stack.callback(index.release)
        has_batches = False
        for batch in _batches_of(Journal(), target):
            if batch.collected is not None and batch.lock():
                index.add(batch)
                has_batches = True
        if not has_batches:
            return
        for id_ in ids():
            if index.use(id_):
                index.deliver(id_)


def _batches_of(journal: Journal, target: BatchTarget) -> Iterator[JournaledBatch]:
    """Yield the batches of a target that have the same role."""
    for batch in journal.batches():
        intent = batch.intent
        if intent is None:
            continue
        if intent.target == target.name and intent.role == target.role:
            yield batch


class VendorBatch:
    """The requests of one target, in batches of this run and of earlier ones."""

    def __init__(
        self,
        target: BatchTarget,
        options: BatchOptions,
        stack: ExitStack,
        on_progress: OnProgress,
    ):
        self.target = target
        self._options = options
        self._on_progress = on_progress
        self._api = target.model.batches()
        self._index = ReplyIndex(stack)
        stack.callback(self._index.release)
        self._unsent: dict[str, str] = {}
        """Why a request cannot be sent, by its custom id."""
        self._states: dict[str, BatchState] = {}

    async def ask(self, requests: RequestsWithIds) -> None:
        """Submit the requests that are in no batch yet, and wait until all batches have ended."""
        journal = Journal()
        async with journal.claim():
            new = await self._write_new(journal, requests)
            used = self._index.used()
            for batch in used:
                if not batch.lock():
                    raise AgentvError(
                        f"batch {batch.name} is in use by another agentv process",
                        hint="wait until that process has ended, or see 'agentv batch status'",
                    )
        times = BatchTimes(self._options.deadline_seconds, self.target.poll_seconds)
        turn = asyncio.Lock()
        try:
            async with asyncio.TaskGroup() as group:
                for batch in used:
                    on_state = partial(self._show_state, batch)
                    submission = Submission(self._api, batch, times, on_state)
                    is_new = batch in new
                    group.create_task(submission.finish(turn, journal, is_new=is_new))
        except asyncio.CancelledError:
            _explain_resume(used)
            raise
        finally:
            self._on_progress("")
        self._index.open_replies()

    async def _write_new(
        self,
        journal: Journal,
        requests: RequestsWithIds,
    ) -> list[JournaledBatch]:
        """Write the requests that are not in the journal to new batches, and return these batches."""
        index = self._index
        for batch in _batches_of(journal, self.target):
            index.add(batch)
        new: list[JournaledBatch] = []
        part: NewBatch | None = None
        try:
            async for id_, request in requests:
                if index.use(id_):
                    continue
                line = await self._line(id_, request)
                if line is None:
                    continue
                if part is not None and self._is_full(part, line):
                    new.append(self._seal(part))
                    part = None
                if part is None:
                    part = NewBatch(journal, new_key())
                    index.begin()
                part.add(id_, line)
                index.add_request(id_)
        except BaseException:
            if part is not None:
                part.discard()
            raise
        if part is not None:
            new.append(self._seal(part))
        return new

    async def _line(self, id_: str, request: ProviderRequest) -> bytes | None:
        """Return a request as a line of a batch. If that fails, keep the reason and return None."""
        try:
            body = await self.target.model.body(request)
            line = self._api.line(id_, body)
        except ProviderError as error:
            self._unsent[id_] = error.message
            return None
        if len(line) > LIMIT_SHARE * self._api.limits.bytes:
            self._unsent[id_] = f"the request has {len(line)} bytes, more than a batch accepts"
            return None
        return line

    def _is_full(self, part: NewBatch, line: bytes) -> bool:
        """Return whether a batch has no room for another line."""
        limits = self._api.limits
        if part.count + 1 > LIMIT_SHARE * limits.requests:
            return True
        return part.size + len(line) > LIMIT_SHARE * limits.bytes

    def _seal(self, part: NewBatch) -> JournaledBatch:
        target = self.target
        file = None
        if target.targets_file is not None:
            file = str(target.targets_file)
        intent = intent_of(
            part,
            target=target.name,
            role=target.role,
            targets_file=file,
            command=self._options.journal_command,
        )
        batch = part.seal(intent)
        self._index.end(batch)
        return batch

    def _show_state(self, batch: JournaledBatch, state: BatchState) -> None:
        """Report the progress of all batches, as counted by the vendor."""
        self._states[batch.folder.name] = state
        states = self._states.values()
        answered = sum(each.answered for each in states)
        failed = sum(each.failed for each in states)
        total = sum(each.total for each in states)
        name = batch.name
        if len(states) > 1:
            name = f"{len(states)} batches"
        text = f"{name}: {answered} of {total} answered"
        if failed:
            text = f"{text}, {failed} failed"
        if state.words:
            text = f"{text} ({state.words})"
        self._on_progress(text)

    def answer(self, request: ProviderRequest, caller: Caller) -> BatchAnswer | None:
        """Return the answer to a request, or None if it has to be sent as a single call."""
        policy = self.target.policy
        id_ = custom_id(self.target, request)
        cached = caller.cached(policy, request)
        if cached is not None:
            return BatchAnswer(cached, attempt=1, is_cached=True)
        reply = self.reply_to(id_)
        if reply is None:
            return None
        if isinstance(reply, FailedCall):
            reply = reply._replace(partial=reply.partial or NO_ANSWER)
        else:
            caller.keep(policy, request, reply)
        return BatchAnswer(reply, attempt=1)

    def has(self, id_: str) -> bool:
        """Return whether a request is in one of the batches, or could not be sent."""
        return id_ in self._unsent or self._index.is_used(id_)

    def reply_to(self, id_: str) -> ProviderResponse | FailedCall | None:
        """Return the answer to a request or why there is none; None if it has to be sent as a single call."""
        reason = self._unsent.get(id_)
        if reason is not None:
            return FailedCall(reason)
        batch, reply = self._index.find(id_)
        if reply is not None and not reply.unanswered:
            return self._decode(reply)
        return self._missing_reply(batch, reply)

    def _decode(self, reply: StoredReply) -> ProviderResponse | FailedCall:
        if reply.error:
            return FailedCall(reply.error)
        try:
            return self.target.model.response_to(bytes(reply.body))
        except ProviderError as error:
            return FailedCall(error.message, partial=error.partial)

    def _missing_reply(
        self,
        batch: JournaledBatch | None,
        reply: StoredReply | None,
    ) -> FailedCall | None:
        """Return why a request has no answer; None if it has to be sent as a single call."""
        collected = None
        if batch is not None:
            collected = batch.collected
        if collected is not None and collected.status == "failed":
            return FailedCall(f"the batch was rejected: {collected.words or 'no reason given'}")
        if self._options.batch_fallback:
            return None
        reason = ""
        if reply is not None:
            reason = reply.error
        if not reason and collected is not None:
            reason = collected.words
        return FailedCall(f"the batch contains no answer: {reason or 'the request is missing from its output'}")

    def deliver(self, id_: str) -> bool:
        """Record that a request has its result; return whether it belongs to these batches."""
        self._index.deliver(id_)
        return self.has(id_)


def _explain_resume(batches: list[JournaledBatch]) -> None:
    """Report how to get the answers of the batches that are still running after an interrupted run."""
    running = [batch for batch in batches if batch.collected is None]
    if not running:
        return
    what = plural(len(running), "batch is", "batches are")
    info(f"{what} still at the vendor: continue with --resume, or fetch the answers with 'agentv batch collect'")
