"""Judges that are asked in batches: round after round, until no case waits for a judgement.

A case whose judge is asked in a batch has no result yet. What its target answered, and what the other evaluators
found, is on disk meanwhile: it is paid for, and a kill does not lose it.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from agentv.calls.caller import Caller, CallPolicy
from agentv.calls.retry import FailedCall
from agentv.errors import OutputError, ProviderError
from agentv.judges.deferral import CaseJudging, DeferredJudgement, place
from agentv.judges.metering import MeterState
from agentv.records import EvalCase, EvaluatorResult, ProviderRequest, ProviderResponse
from agentv.results.runs import Process
from agentv.run.batches.batch_files import BATCHES
from agentv.run.batches.journal import Journal
from agentv.run.batches.places import ReplyPlaces
from agentv.run.batches.vendor import BatchOptions, BatchTarget, VendorBatch, request_id
from agentv.system.compact_sets import HashSet

PENDING, _NEW = BATCHES / "pending", ".new"
Changed = Callable[[str, str], None]


class PendingCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A case that waits for a judgement."""

    attempt: int
    response: ProviderResponse
    is_cached: bool = False
    trace_id: str | None = None
    answered_at: str | None = None
    fence: str
    evaluators: str
    """The digest of how it is scored."""
    results: dict[str, EvaluatorResult] = {}
    replies: dict[str, ProviderResponse] = {}
    used: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    """The ids of what its judges have yet to answer."""
    metered: MeterState = MeterState()

    def judging(self, dataset: str, evaluators: str) -> CaseJudging:
        """Return what is known of its judgements; what other evaluators found does not count."""
        known = CaseJudging(dataset, self.fence, self.metered)
        if evaluators == self.evaluators:
            known.results.update(self.results)
        known.replies.update(self.replies)
        known.used += self.used
        return known


_decode = msgspec.json.Decoder(PendingCase).decode
_encode = msgspec.json.Encoder(enc_hook=str).encode
_decode_request = msgspec.json.Decoder(tuple[str, ProviderRequest], dec_hook=lambda type_, value: type_(value)).decode


def pending_key(target: str, digest: str, policy: CallPolicy, request: ProviderRequest) -> str:
    """Return the name of what is known of a case: the same whenever the same is asked of the same target."""
    return request_id(("pending", target, digest, request.dataset), policy, request)


class PendingCases:
    """The cases that wait for judgements: a file for each, which only its owner can read."""

    def __init__(self, folder: Path = PENDING):
        self._folder = folder.absolute()

    def has(self, key: str) -> bool:
        """Return whether anything is known of a case."""
        return self._path(key).exists()

    def find(self, key: str) -> PendingCase | None:
        """Return what is known of a case; None if that is nothing, or cannot be read."""
        try:
            return _decode(self._path(key).read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, key: str, pending: PendingCase) -> None:
        """Write down what is known; it is there as a whole, or not at all."""
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}{_NEW}")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(_encode(pending))
            new.replace(path)
        except OSError as error:
            hint = "make room, and go on with --resume"
            raise OutputError(f"cannot be written: {error.strerror}", file=path, hint=hint) from error

    @property
    def has_any(self) -> bool:
        """Whether a case waits, or has waited."""
        return self._folder.exists()

    def remove(self, key: str) -> None:
        """Forget a case: it has its result."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.unlink()
        for folder in (path.parent, self._folder):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def tidy(self) -> None:
        """Remove what a kill has left in the middle of a step: files that are not whole, and empty folders."""
        for path in self._folder.glob(f"*/*{_NEW}"):
            writer = path.name.split(".")[-2]
            if not (writer.isdecimal() and Process(pid=int(writer)).is_alive):
                path.unlink(missing_ok=True)
        for folder in (*self._folder.glob("*"), self._folder):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


class JudgeRounds:
    """Gathers what judges are to be asked, asks it in batches, and gives the replies."""

    def __init__(self, options: BatchOptions, on_progress: Changed):
        self._options, self._on_progress, self._stack = options, on_progress, ExitStack()
        self.pending = PendingCases()
        self._spools: dict[BatchTarget, IO[bytes]] = {}
        self._answered: dict[BatchTarget, list[VendorBatch]] = {}
        self._deferred = HashSet()
        self._last = HashSet()
        self._earlier: ReplyPlaces | None = None

    def close(self) -> None:
        """Close all files, and let others have the batches that are left."""
        self._earlier = None
        self._stack.close()

    @property
    def has_requests(self) -> bool:
        """Whether something is to be asked."""
        return bool(self._spools)

    def defer(self, case: EvalCase, trial: int, key: str, pending: PendingCase, judging: CaseJudging) -> None:
        """Let a case wait for the judges that have not answered."""
        self.pending.put(key, pending)
        self._deferred.add((case.file.path, case.id, trial))
        for target, id_, request in judging.asked:
            if target not in self._spools:
                self._spools[target] = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
            self._spools[target].write(_encode((id_, request)) + b"\n")

    def is_settled(self, case: EvalCase, trial: int) -> bool:
        """Return whether a case has not waited for the last round."""
        return (case.file.path, case.id, trial) not in self._last

    async def ask(self) -> None:
        """Ask the judges all that was gathered, and wait for their replies."""
        spools, self._spools = self._spools, {}
        self._last, self._deferred = self._deferred, HashSet()
        async with asyncio.TaskGroup() as group:
            for target, spool in spools.items():
                shown = partial(self._on_progress, f"{target.name} (judge)")
                batch = VendorBatch(target, self._options, self._stack, shown)
                self._answered.setdefault(target, []).append(batch)
                group.create_task(batch.ask(_read(spool)))
        for spool in spools.values():
            spool.close()

    def reply(
        self, judging: CaseJudging, target: BatchTarget, id_: str, request: ProviderRequest, caller: Caller
    ) -> ProviderResponse | None:
        """Return what a judge said; None if it is to be asked at once.

        Raise `DeferredJudgement` if it has not been asked yet, and `ProviderError` if it gave no answer.
        """
        if (known := caller.cached(target.policy, request)) is not None:
            return known
        for batch in self._answered.get(target, ()):
            if batch.has(id_):
                got, is_new = batch.reply_to(id_), id_ not in judging.used
                if is_new:
                    judging.used.append(id_)
                if is_new and got is not None:
                    judging.meter.called(target.name)
                if isinstance(got, FailedCall):
                    if is_new and got.partial is not None:
                        judging.meter.answered(target.name, got.partial)
                    raise ProviderError(got.error)
                if got is not None:
                    if is_new:
                        judging.meter.answered(target.name, got)
                    caller.keep(target.policy, request, got)
                return got
        judging.asked.append((target, id_, request))
        raise DeferredJudgement

    def settle(self, key: str, judging: CaseJudging) -> None:
        """Take note that a case has its result: all that is known of its judgements can be forgotten."""
        batches = [batch for batches in self._answered.values() for batch in batches]
        for id_ in judging.used:
            if not any(batch.deliver(id_) for batch in batches):
                self._deliver_earlier(id_)
        self.pending.remove(key)

    def forget(self, key: str) -> None:
        """Forget a case that has its result, though a run that was killed has not noted that."""
        if (known := self.pending.find(key)) is not None:
            for id_ in (*known.used, *known.asked):
                self._deliver_earlier(id_)
            self.pending.remove(key)

    def _deliver_earlier(self, id_: str) -> None:
        """Take note that a request has its result which an earlier process had asked and read the reply to."""
        if self._earlier is None:
            self._earlier = ReplyPlaces(self._stack)
            self._stack.callback(self._earlier.release)
            for batch in Journal().batches():
                if batch.intent is not None and batch.intent.role == "judge" and batch.collected and batch.lock():
                    self._earlier.add(batch)
        self._earlier.use(id_)
        self._earlier.deliver(id_)


def judge_request_id(judging: CaseJudging, name: str, policy: CallPolicy, request: ProviderRequest) -> str:
    """Return the id of a request to a judge: of the case, the trial, the evaluator that asks, and what it asks."""
    return request_id(("judge", name, judging.dataset, place.get()), policy, request)


async def _read(spool: IO[bytes]) -> AsyncIterator[tuple[str, ProviderRequest]]:
    """Yield the requests of a file, with their ids."""
    spool.seek(0)
    for line in spool:
        yield _decode_request(line)
