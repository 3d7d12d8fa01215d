"""Judges that are called through their vendors' batch APIs.

A call of such a judge is slow: the case waits for its reply, and meanwhile another case runs. Once all open cases are
waiting, the requests gathered so far are submitted as one batch. The answer of a waiting case is on disk, so that a
killed run does not have to pay for it again.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from agentv.batches.journal import Journal
from agentv.batches.reply_index import ReplyIndex
from agentv.batches.vendor import (
    BatchTarget,
    RequestsWithIds,
    VendorBatch,
    batch_target_of,
    request_id,
)
from agentv.calls.caller import CallPolicy
from agentv.calls.retry import FailedCall
from agentv.errors import OutputError, ProviderError
from agentv.evaluators.judging.metering import judge_meter
from agentv.evaluators.judging.prompt import case_fence, random_fence
from agentv.evaluators.score import evaluator_place
from agentv.files.encode import to_json
from agentv.files.state import state_folder
from agentv.records import EvalResult, Exchange, ProviderRequest, ProviderResponse, ResultKey
from agentv.results.runs import RunProcess
from agentv.run.extensions import Ask, Scope
from agentv.run.features import Opening
from agentv.run.jobs import Job
from agentv.run.outcome import Outcome, exchange_of
from agentv.run.targets import OpenTarget
from agentv.text import timestamp_now

PENDING = "pending"
"""The folder of waiting answers in that of the batches."""
_NEW = ".new"
MAX_WAITING = 2000
"""How many cases may wait for judges at once. Each takes about 20 kB of memory, 40 MB in total."""
IDLE_SECONDS = 0.02
"""How long all cases must have been waiting before a batch is submitted: a case that resumes may send more requests."""


class PendingCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a case that waits for its judges, as stored on disk."""

    attempt: int
    response: ProviderResponse
    is_cached: bool = False
    trace_id: str | None = None
    answered_at: str | None = None
    fence: str = ""
    """The mark around the text of the agent in the requests to its judges."""
    replies: dict[str, ProviderResponse] = {}
    """The replies of judges that were called live, by the id of the request."""
    used: tuple[str, ...] = ()
    """The ids of requests that were answered in a batch. Only files of earlier versions contain them."""
    asked: tuple[str, ...] = ()
    """The ids of the requests that were sent in a batch."""


_decode = msgspec.json.Decoder(PendingCase).decode


class PendingCases:
    """The stored cases that wait for judges, one file per case. Only the owner can read the files."""

    def __init__(self, folder: Path | None = None):
        if folder is None:
            folder = state_folder("batches") / PENDING
        self._folder = folder.absolute()

    def has(self, key: str) -> bool:
        """Return whether a case is stored."""
        return self._path(key).exists()

    def find(self, key: str) -> PendingCase | None:
        """Return a stored case, or None if it does not exist or cannot be read."""
        path = self._path(key)
        try:
            return _decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, key: str, pending: PendingCase) -> None:
        """Store a case atomically. Raise `OutputError` if it cannot be written."""
        path = self._path(key)
        new = path.with_suffix(f".{os.getpid()}{_NEW}")
        content = to_json(pending)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(new, flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            new.replace(path)
        except OSError as error:
            raise OutputError(
                f"cannot be written: {error.strerror}",
                file=path,
                hint="free some disk space, then continue with --resume",
            ) from error

    @property
    def has_any(self) -> bool:
        """Whether the folder of stored cases exists."""
        return self._folder.exists()

    def remove(self, key: str) -> None:
        """Remove a case that has its result."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.unlink()
        _remove_if_empty(path.parent)
        _remove_if_empty(self._folder)

    def tidy(self) -> None:
        """Remove incomplete files and empty folders, which a killed process may have left behind."""
        for path in self._folder.glob(f"*/*{_NEW}"):
            if not _is_being_written(path):
                path.unlink(missing_ok=True)
        for folder in self._folder.glob("*"):
            _remove_if_empty(folder)
        _remove_if_empty(self._folder)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_being_written(path: Path) -> bool:
    """Return whether the process that writes an incomplete file is still running. Its id is part of the file's name."""
    parts = path.name.split(".")
    writer = parts[-2]
    if not writer.isdecimal():
        return False
    process = RunProcess(pid=int(writer))
    return process.is_alive


Reply = ProviderResponse | FailedCall | None
"""The reply of a judge in a batch, or why there is none. None means that the judge is called live."""


@dataclass(eq=False)
class _Case:
    """A case that is being judged."""

    key: str
    """The name of its file."""
    pending: PendingCase | None = None
    """The content of its file, once it exists."""
    replied: dict[str, VendorBatch] = field(default_factory=dict)
    """The batch in which each request was sent, by the id of the request."""
    waiting_calls: int = 0


@dataclass(eq=False)
class _Call:
    """A request to a judge, and the future that receives the reply."""

    case: _Case
    id: str
    request: ProviderRequest
    reply: asyncio.Future[Reply]


_case: ContextVar[_Case | None] = ContextVar("judged_case", default=None)
"""The case that is being judged in the current task."""


class JudgeBatches:
    """Collects requests to judges, submits them in batches, and returns the replies."""

    open_cases = MAX_WAITING

    def __init__(self, opening: Opening, stack: ExitStack):
        """`stack` closes the files of batches at the end of the run."""
        targets = opening.targets
        options = targets.options
        self._options = options.batches
        self._has_times = options.otel
        self._run_id = options.run_id
        self._has_stand_in = opening.plan.stand_in is not None
        self._progress = opening.progress
        self._caller = targets.caller
        self._stack = stack
        self._store = PendingCases()
        self._cases: dict[ResultKey, _Case] = {}
        self._turns = _Turns(targets.workers, self._submit)
        self._gathered: dict[BatchTarget, list[_Call]] = {}
        self._answered: dict[BatchTarget, list[VendorBatch]] = {}
        """The ended batches of this run. They hold the locks on batches of earlier runs whose replies they use."""
        self._tasks: asyncio.TaskGroup | None = None
        self._earlier: ReplyIndex | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Set the task group in which batches are submitted."""
        self._tasks = tasks

    async def take_turn(self) -> None:
        """Wait until one more case may run."""
        await self._turns.take()

    def give_turn_back(self) -> None:
        """Let another case run instead."""
        self._turns.give_back()

    # ---- answers on disk ----

    def _key(self, job: Job, request: ProviderRequest) -> str:
        """Return the name of a case's file. It depends only on the request and the target, so a later run finds it."""
        digest = job.planned.digest
        if self._has_stand_in:
            digest = f"{digest} {self._run_id}"
        policy = job.target.policy
        about = ("pending", job.planned.name, digest, request.dataset)
        return request_id(about, policy, request)

    def is_answered(self, job: Job, request: ProviderRequest) -> bool:
        """Return whether the answer of a case is stored."""
        key = self._key(job, request)
        return self._store.has(key)

    def known_outcome(self, job: Job, request: ProviderRequest) -> Outcome | None:
        """Return the stored answer of a case."""
        key = self._key(job, request)
        pending = self._store.find(key)
        if pending is None:
            return None
        case = self._cases.get(job.key)
        if case is not None:
            case.pending = pending
        exchange = exchange_of(job, pending.response)
        return Outcome(
            pending.attempt,
            exchange,
            is_cached=pending.is_cached,
            trace_id=pending.trace_id,
            answered_at=pending.answered_at,
        )

    def scope(self, job: Job) -> Scope | None:
        """Return the scope that stores the answer of a case."""
        assert job.request is not None
        key = self._key(job, job.request)
        case = _Case(key)
        self._cases[job.key] = case
        return _PendingScope(case, self._store, has_times=self._has_times)

    def written(self, key: ResultKey) -> None:
        """Remove the stored answer of a case that has its result, and let another case run."""
        self._turns.give_back()
        case = self._cases.pop(key, None)
        if case is None:
            return
        for id_, batch in case.replied.items():
            batch.deliver(id_)
        if case.pending is not None:
            delivered = case.replied.keys()
            self._deliver_earlier(case.pending, except_for=delivered)
        self._store.remove(case.key)

    def forget_leftovers(self, jobs: Iterable[Job]) -> None:
        """Remove the stored answers of jobs that have results. A killed run may have left them behind."""
        if not self._store.has_any:
            return
        for job in jobs:
            if job.request is None:
                continue
            key = self._key(job, job.request)
            pending = self._store.find(key)
            if pending is not None:
                self._deliver_earlier(pending)
                self._store.remove(key)
        self._store.tidy()

    def _deliver_earlier(
        self,
        pending: PendingCase,
        except_for: Collection[str] = (),
    ) -> None:
        """Mark the replies to requests of an earlier process as delivered."""
        ids = []
        for id_ in (*pending.used, *pending.asked):
            if id_ not in except_for:
                ids.append(id_)
        if not ids:
            return
        if self._earlier is None:
            self._earlier = self._index_earlier()
        for id_ in ids:
            self._earlier.use(id_)
            self._earlier.deliver(id_)

    def _index_earlier(self) -> ReplyIndex:
        """Return an index of the batches in the journal that judges have answered. Lock these batches."""
        index = ReplyIndex(self._stack)
        self._stack.callback(index.release)
        for batch in Journal().batches():
            if batch.intent is None or batch.intent.role != "judge":
                continue
            if batch.collected and batch.lock():
                index.add(batch)
        return index

    # ---- calls ----

    async def ask(
        self,
        target: OpenTarget,
        request: ProviderRequest,
        ask: Ask,
    ) -> ProviderResponse:
        """Return the reply of a judge, which `ask` calls live. Raise `ProviderError` if there is none."""
        case = _case.get()
        if case is None or case.pending is None:
            return await ask(request)
        id_ = _judge_request_id(target.name, target.policy, request)
        stored = case.pending.replies.get(id_)
        if stored is not None:
            _count(target.name, stored)
            return stored
        if target.uses_batch_api:
            batch_target = _judge_target(target)
            got = await self._ask_in_batch(case, batch_target, id_, request)
            if got is not None:
                return got
        reply = await ask(request)
        # Stored so that it is not paid for again if the run is killed while the case waits for another judge.
        replies = {**case.pending.replies, id_: reply}
        self._store_pending(case, replies=replies)
        return reply

    async def _ask_in_batch(
        self,
        case: _Case,
        target: BatchTarget,
        id_: str,
        request: ProviderRequest,
    ) -> ProviderResponse | None:
        """Return a reply from the cache or from a batch, or None if the judge has to be called live."""
        cached = self._caller.cached(target.policy, request)
        if cached is not None:
            return cached
        assert case.pending is not None
        if id_ not in case.pending.asked:
            asked = (*case.pending.asked, id_)
            self._store_pending(case, asked=asked)
        got = await self._wait(case, target, id_, request)
        if got is None:
            return None
        if isinstance(got, FailedCall):
            _count(target.name, got.partial)
            raise ProviderError(got.error)
        _count(target.name, got)
        self._caller.keep(target.policy, request, got)
        return got

    async def _wait(
        self,
        case: _Case,
        target: BatchTarget,
        id_: str,
        request: ProviderRequest,
    ) -> Reply:
        """Wait for a reply in a batch. Other cases may run during the wait."""
        for batch in self._answered.get(target, ()):
            if batch.has(id_):
                case.replied[id_] = batch
                return batch.reply_to(id_)
        loop = asyncio.get_running_loop()
        call = _Call(case, id_, request, reply=loop.create_future())
        calls = self._gathered.setdefault(target, [])
        calls.append(call)
        case.waiting_calls += 1
        if case.waiting_calls == 1:
            self._turns.give_back()
        else:
            # Other calls of the case have already given up its turn, and their batch may have been submitted.
            self._turns.check_later()
        reply = await call.reply
        case.waiting_calls -= 1
        if case.waiting_calls == 0:
            await self._turns.take()
        return reply

    def _store_pending(self, case: _Case, **changes: object) -> None:
        assert case.pending is not None
        case.pending = msgspec.structs.replace(case.pending, **changes)
        self._store.put(case.key, case.pending)

    def _submit(self) -> None:
        """Submit all requests that were gathered. Called when all open cases are waiting."""
        assert self._tasks is not None
        gathered = self._gathered
        self._gathered = {}
        for target, calls in gathered.items():
            asking = self._ask_vendor(target, calls)
            self._tasks.create_task(asking)

    async def _ask_vendor(self, target: BatchTarget, calls: list[_Call]) -> None:
        """Send requests in one batch, and hand out the replies."""
        on_progress = partial(self._progress.batch_changed, f"{target.name} (judge)")
        batch = VendorBatch(target, self._options, self._stack, on_progress)
        await batch.ask(_requests(calls))
        self._answered.setdefault(target, []).append(batch)
        for call in calls:
            call.case.replied[call.id] = batch
            if not call.reply.done():  # it is done if the case was cancelled
                reply = batch.reply_to(call.id)
                call.reply.set_result(reply)


class _Turns:
    """Limits the cases that run at once to the workers of the run. A waiting case does not count."""

    def __init__(self, workers: int, on_idle: Callable[[], None]):
        """`on_idle` is called after no case has run for `IDLE_SECONDS`."""
        self._free = asyncio.Semaphore(workers)
        self._on_idle = on_idle
        self._running = 0
        self._queued = 0

    async def take(self) -> None:
        """Wait until a case may run."""
        self._queued += 1
        try:
            await self._free.acquire()
        finally:
            self._queued -= 1
        self._running += 1

    def give_back(self) -> None:
        """Let another case run."""
        self._running -= 1
        self._free.release()
        self.check_later()

    def check_later(self) -> None:
        """Check after `IDLE_SECONDS` whether no case is running."""
        if not self._running:
            loop = asyncio.get_running_loop()
            loop.call_later(IDLE_SECONDS, self._check)

    def _check(self) -> None:
        if not self._running and not self._queued:
            self._on_idle()


class _PendingScope(Scope):
    """Stores the answer of a case before its judges are called."""

    def __init__(self, case: _Case, store: PendingCases, *, has_times: bool):
        self._case = case
        self._store = store
        self._has_times = has_times
        self._attempts = 0

    async def enter(self, request: ProviderRequest) -> ProviderRequest:
        self._attempts += 1
        return request

    async def answered(self, exchange: Exchange) -> Exchange:
        case = self._case
        if case.pending is None:
            case.pending = self._pending(exchange)
            self._store.put(case.key, case.pending)
        _case.set(case)
        case_fence.set(case.pending.fence)
        return exchange

    def _pending(self, exchange: Exchange) -> PendingCase:
        answered_at = None
        if self._has_times:
            answered_at = timestamp_now()
        return PendingCase(
            attempt=max(1, self._attempts),
            response=exchange.response,
            is_cached=self._attempts == 0,
            answered_at=answered_at,
            fence=random_fence(),
        )

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        _case.set(None)
        case_fence.set("")
        return result


def _judge_target(target: OpenTarget) -> BatchTarget:
    """Return how a judge is called through its vendor's batch API."""
    batch_target = batch_target_of(target)
    return batch_target._replace(role="judge")


def _judge_request_id(
    name: str,
    policy: CallPolicy,
    request: ProviderRequest,
) -> str:
    """Return the id of a request to a judge. It depends on the case, the trial, the evaluator and the request."""
    about = ("judge", name, request.dataset, evaluator_place.get())
    return request_id(about, policy, request)


def _count(judge: str, response: ProviderResponse | None) -> None:
    """Add a call of a judge and its cost to the case that is being scored."""
    meter = judge_meter.get()
    if meter is None:
        return
    meter.called(judge)
    if response is not None:
        meter.answered(judge, response)


async def _requests(calls: Iterable[_Call]) -> RequestsWithIds:
    for call in calls:
        yield call.id, call.request
