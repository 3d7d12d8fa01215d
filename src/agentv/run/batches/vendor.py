"""All that a target is to be asked in a run -> batches at its vendor -> the answer to each request.

A reply finds its request by the custom id, which is made of the case, the trial, the role and the request itself: no
memory of the run is needed. Requests that stand in a batch of the journal are not submitted again. They wait for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from agentv.calls.cache_key import cache_key
from agentv.calls.caller import Caller, CallPolicy
from agentv.calls.retry import FailedCall
from agentv.errors import AgentvError, ProviderError
from agentv.notices import say
from agentv.providers.models.batches.api import BatchApi, BatchModel, BatchState
from agentv.records import ProviderRequest, ProviderResponse
from agentv.run.batches.journal import ID_DIGITS, Journal, JournaledBatch, NewBatch, StoredReply
from agentv.run.batches.places import ReplyPlaces
from agentv.run.batches.submission import DEADLINE_SECONDS, BatchTimes, Submission, intent_of, new_key

SHARE = 0.9
"""How much of a vendor's limits a batch makes use of."""
MAX_BATCHES = 100
"""How many batches a target may have in a run."""
OnProgress = Callable[[str], None]
Requests = AsyncIterator[tuple[str, ProviderRequest]]
"""What is to be asked, each with its custom id."""
IN_A_BATCH = ProviderResponse(text="", batch=True)
"""What is known of a request that has an error in the place of an answer."""
Answer = tuple[int, ProviderResponse | FailedCall, bool]
"""The number of the attempt, what it gave, and whether that is from the cache."""


class BatchOptions(NamedTuple):
    """What a run makes of batches at vendors."""

    deadline: float = DEADLINE_SECONDS
    """Seconds after which what is not answered is given up."""
    has_fallback: bool = True
    """Whether requests that nobody has answered are asked live; they are errors otherwise."""
    command: tuple[str, ...] = ()
    """What was typed."""


class BatchTarget(NamedTuple):
    """A target that is asked in batches."""

    name: str
    model: BatchModel
    policy: CallPolicy
    targets_file: Path | None = None
    poll_seconds: float | None = None
    """The seconds between two looks at a batch, if that is set."""
    role: str = "target"
    """What its answers are for."""


def custom_id(target: BatchTarget, request: ProviderRequest) -> str:
    """Return the name of a request in a batch: the same whenever the same is asked for the same purpose."""
    return request_id((target.role, target.name, request.dataset), target.policy, request)


def request_id(about: tuple[str, ...], policy: CallPolicy, request: ProviderRequest) -> str:
    """Return the name of a request to a target; `about` tells it from equal ones that are asked for something else."""
    text = "\0".join((*about, cache_key(policy.target_key, request)))
    return blake2b(text.encode(), digest_size=ID_DIGITS // 2).hexdigest()


def max_requests(api: BatchApi) -> int:
    """Return how many requests a run can ask of a target."""
    return MAX_BATCHES * int(SHARE * api.limits.requests)


def forget_leftovers(target: BatchTarget, ids: Callable[[], Iterable[str]]) -> None:
    """Forget what is left of batches whose requests, by these ids, all have results.

    A run that was killed may have written a result and not have noted that.
    """
    with ExitStack() as stack:
        places, found = ReplyPlaces(stack), False
        stack.callback(places.release)
        for batch in Journal().batches():
            intent = batch.intent
            if intent is None or (intent.target, intent.role) != (target.name, target.role):
                continue
            if batch.collected is not None and batch.lock():
                places.add(batch)
                found = True
        for id_ in ids() if found else ():
            if places.use(id_):
                places.deliver(id_)


class VendorBatch:
    """The requests of one target: in batches of this run, and in those of earlier ones."""

    def __init__(self, target: BatchTarget, options: BatchOptions, stack: ExitStack, on_progress: OnProgress):
        self.target, self._options, self._on_progress = target, options, on_progress
        self._api = target.model.batches()
        self._places = ReplyPlaces(stack)
        stack.callback(self._places.release)
        self._unsent: dict[str, str] = {}
        """Why a request cannot be sent, by its custom id."""
        self._in_flight: dict[int, str] = {}
        """The custom ids of the requests whose results are being made, by the identity of the request."""
        self._states: dict[str, BatchState] = {}

    async def ask(self, requests: Requests) -> None:
        """Submit what is not at the vendor yet, and wait until all is answered, or given up."""
        journal, places = Journal(), self._places
        async with journal.claim():
            new = await self._write_new(journal, requests)
            used = places.used()
            for batch in used:
                if not batch.lock():
                    hint = "wait until it has ended, or see 'agentv batch status'"
                    raise AgentvError(f"batch {batch.name} is in the hands of another agentv process", hint=hint)
        times, turn = BatchTimes(self._options.deadline, self.target.poll_seconds), asyncio.Lock()
        try:
            async with asyncio.TaskGroup() as group:
                for batch in used:
                    submission = Submission(self._api, batch, times, partial(self._show, batch))
                    group.create_task(submission.finish(turn, journal, is_new=batch in new))
        except asyncio.CancelledError:
            _tell_how_to_go_on(used)
            raise
        finally:
            self._on_progress("")
        places.open_replies()

    async def _write_new(self, journal: Journal, requests: Requests) -> list[JournaledBatch]:
        """Write the requests that are in no batch of the journal into new ones, and return these."""
        places = self._places
        for batch in journal.batches():
            if batch.intent is not None and (batch.intent.target, batch.intent.role) == self._owner:
                places.add(batch)
        new: list[JournaledBatch] = []
        part: NewBatch | None = None
        try:
            async for id_, request in requests:
                if places.use(id_) or (line := await self._line(id_, request)) is None:
                    continue
                if part is not None and self._is_full(part, line):
                    new.append(self._seal(part))
                    part = None
                if part is None:
                    part = NewBatch(journal, new_key())
                    places.begin()
                part.add(id_, line)
                places.add_request(id_)
        except BaseException:
            if part is not None:
                part.discard()
            raise
        if part is not None:
            new.append(self._seal(part))
        return new

    async def _line(self, id_: str, request: ProviderRequest) -> bytes | None:
        """Return a request as it is submitted; None if it cannot be, which is then known."""
        try:
            line = self._api.line(id_, await self.target.model.body(request))
        except ProviderError as error:
            self._unsent[id_] = error.message
            return None
        if len(line) > SHARE * self._api.limits.bytes:
            self._unsent[id_] = f"the request has {len(line)} bytes, which is too much for a batch"
            return None
        return line

    def _is_full(self, part: NewBatch, line: bytes) -> bool:
        limits = self._api.limits
        return part.count + 1 > SHARE * limits.requests or part.size + len(line) > SHARE * limits.bytes

    def _seal(self, part: NewBatch) -> JournaledBatch:
        target = self.target
        file = str(target.targets_file) if target.targets_file is not None else None
        batch = part.seal(intent_of(part, target.name, target.role, file, self._options.command))
        self._places.end(batch)
        return batch

    @property
    def _owner(self) -> tuple[str, str]:
        return self.target.name, self.target.role

    def _show(self, batch: JournaledBatch, state: BatchState) -> None:
        """Show how far the batches are, in the vendor's counts."""
        self._states[batch.folder.name] = state
        states = self._states.values()
        answered, failed, total = (sum(getattr(s, name) for s in states) for name in ("answered", "failed", "total"))
        errors = f", {failed} failed" if failed else ""
        words = f" ({state.words})" if state.words else ""
        what = batch.name if len(states) == 1 else f"{len(states)} batches"
        self._on_progress(f"{what}: {answered} of {total} answered{errors}{words}")

    def answer(self, request: ProviderRequest, caller: Caller) -> Answer | None:
        """Return the attempt, and the answer to a request or why there is none; None if it is to be asked live."""
        policy, id_ = self.target.policy, custom_id(self.target, request)
        self._in_flight[id(request)] = id_
        if (known := caller.cached(policy, request)) is not None:
            return 1, known, True
        got = self.reply_to(id_)
        if isinstance(got, ProviderResponse):
            caller.keep(policy, request, got)
        elif got is not None:
            got = got._replace(partial=got.partial or IN_A_BATCH)
        return None if got is None else (1, got, False)

    def has(self, id_: str) -> bool:
        """Return whether a request of this id was asked, or could not be."""
        return id_ in self._unsent or self._places.is_used(id_)

    def reply_to(self, id_: str) -> ProviderResponse | FailedCall | None:
        """Return the answer to a request, or why there is none; None if it is to be asked live."""
        if (unsent := self._unsent.get(id_)) is not None:
            return FailedCall(unsent)
        return self._read(*self._places.find(id_))

    def deliver(self, id_: str) -> bool:
        """Take note that a request has its result; return whether it was asked here."""
        self._places.deliver(id_)
        return self.has(id_)

    def _read(self, batch: JournaledBatch | None, reply: StoredReply | None) -> ProviderResponse | FailedCall | None:
        """Return what became of a request; None if it is to be asked live."""
        collected = batch.collected if batch is not None else None
        if reply is not None and not reply.unanswered:
            if reply.error:
                return FailedCall(reply.error)
            try:
                return self.target.model.response_to(bytes(reply.body))
            except ProviderError as error:
                return FailedCall(error.message, partial=error.partial)
        if collected is not None and collected.status == "failed":
            return FailedCall(f"the batch was refused: {collected.words or 'no reason given'}")
        if self._options.has_fallback:
            return None
        words = (reply.error if reply is not None else "") or (collected.words if collected is not None else "")
        return FailedCall(f"there is no answer in the batch: {words or 'it left the request out'}")

    def job_done(self, request: ProviderRequest | None) -> None:
        """Take note that a request has its result."""
        if request is not None and (id_ := self._in_flight.pop(id(request), None)) is not None:
            self._places.deliver(id_)


def _tell_how_to_go_on(batches: list[JournaledBatch]) -> None:
    running = [batch for batch in batches if batch.collected is None]
    if running:
        what = "1 batch is" if len(running) == 1 else f"{len(running)} batches are"
        say(f"{what} still at the vendor: go on with --resume, or fetch the answers with 'agentv batch collect'")
