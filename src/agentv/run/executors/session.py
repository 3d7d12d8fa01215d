"""One run, inside a worker of a cluster: agentv's own runner in a thread of its own, fed with numbers of cases.

The worker's own event loop stays free, so that it answers while the code of a user does not. The driver has to be
heard: without a word from it no further case is started, and after a while all is given up.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.calls.caller import Caller
from agentv.calls.slots import Share
from agentv.errors import AgentvError, ConfigError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.notices import collect_warnings
from agentv.records import EvalResult, Problem
from agentv.redact import clean, secrets_in
from agentv.run.case import CaseRunner
from agentv.run.executors.dispatch import SHORT_SECONDS, Range
from agentv.run.executors.numbering import Numbering
from agentv.run.executors.offered import OfferedAnswers
from agentv.run.executors.setup import Setup, plan_here
from agentv.run.extensions import Results
from agentv.run.jobs import Job, JobStream
from agentv.run.output import mask_result
from agentv.run.plan import Plan
from agentv.run.runner import JobRunner
from agentv.run.targets import OpenTargets, RunJudges
from agentv.run.watching.watcher import Silence
from agentv.system.temporary import remove_stale

LEASE_SECONDS = 10.0
"""No case is started when the driver has been silent for so long."""
GIVE_UP_SECONDS = 60.0
"""All is given up when the driver has been silent for so long."""
LOOK_SECONDS = 0.25
MOST_UNSENT = 2000
"""No case is started while so many results wait to be fetched."""


class Session:
    """The run of a plan in this process. All methods but `run` are called by the worker's event loop."""

    def __init__(self, setup: Setup, on_result: Callable[[], None]):
        self._setup, self._on_result = setup, on_result
        self.state, self.problem = "preparing", ""
        self._queue: deque[Range] = deque()
        self._lock = threading.Lock()
        self.running: dict[int, int] = {}
        """The number that each slot is on."""
        self.unsent: deque[tuple[int, bytes, bytes]] = deque()
        """Of each result its number, the result, and the answer, if that is wanted."""
        self._offered = OfferedAnswers() if setup.checks_judges else None
        self._written = self._acknowledged = 0
        self._started: dict[int, float] = {}
        self._awaited: dict[int, int] = {}
        """How many results the driver must have before a slot goes on."""
        self.notes: deque[tuple[str, int, str]] = deque(maxlen=100)
        """What was tried again: what, the attempt, the reason."""
        self.warnings: list[Problem] = []
        """What is to be told the user. The driver has told what planning finds."""
        self.share = Share()
        self._heard = time.monotonic()
        self._is_over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._caller: Caller | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="agentv-session")

    def start(self) -> None:
        """Begin to get ready."""
        self._thread.start()

    @property
    def has_lease(self) -> bool:
        """Whether the driver was heard lately."""
        return time.monotonic() - self._heard < LEASE_SECONDS

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def hear(self, share: Share, acknowledged: int) -> None:
        """Take note that the driver is there and has so many results, and of this worker's share of the limits."""
        for _ in range(acknowledged):
            self.unsent.popleft()
        self._acknowledged += acknowledged
        self.share, self._heard = share, time.monotonic()
        self._wake()

    def give(self, ranges: Iterable[Range]) -> None:
        """Run these, too."""
        with self._lock:
            self._queue.extend(ranges)
        self._wake()

    def take(self, count: int) -> list[Range]:
        """Give back so many numbers that are not started, or as many as there are: the last ones."""
        taken: list[Range] = []
        with self._lock:
            while count and self._queue:
                first, end = self._queue.pop()
                at = max(first, end - count)
                if at > first:
                    self._queue.append((first, at))
                taken.append((at, end))
                count -= end - at
        return taken

    @property
    def cache_hits(self) -> int:
        """How many answers came from the cache."""
        return self._caller.cache_hits if self._caller is not None else 0

    @property
    def waiting(self) -> int:
        """How many numbers are not started."""
        with self._lock:
            return sum(end - first for first, end in self._queue)

    def stop(self) -> None:
        """Give up all that is under way."""
        self._is_over.set()
        self._wake()

    def wait(self) -> None:
        """Wait until the session is over."""
        self._thread.join()

    def _wake(self) -> None:
        loop, changed = self._loop, self._changed
        if loop is not None and changed is not None:
            with suppress(RuntimeError):  # it is over already
                loop.call_soon_threadsafe(changed.set)

    # ---- in the thread ----

    def _run(self) -> None:
        folder, environment = os.getcwd(), dict(os.environ)
        try:
            _enter(self._setup.folder)
            for name, value in self._setup.environment.items():
                os.environ.setdefault(name, value)
            clean.learn(secrets_in(self._setup.environment))
            with collect_warnings() as self.warnings:
                asyncio.run(self._main())
        except AgentvError as error:
            self.problem = f"{error}{f' ({error.hint})' if error.hint else ''}"
        except _Over:
            pass
        except BaseException as error:  # whatever it is, the driver has to know
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self.problem = clean(self.problem)
            self.state = "failed" if self.problem else "ended"  # last: who reads it may read the problem next
            os.chdir(folder)
            for name in set(os.environ) - set(environment):
                del os.environ[name]
            self._on_result()

    async def _main(self) -> None:
        setup = self._setup
        plan = plan_here(setup)
        remove_stale()
        async with OpenTargets(plan, setup.options, self.share) as targets:
            await targets.check()
            judges = RunJudges(plan, targets, self._watcher)
            builder = EvaluatorBuilder(judges, dry_run=plan.dry_run, warn=_ignore, targets=setup.plan_options.targets)
            cases = CaseRunner(plan, targets, builder, self._watcher, check=self._offered)
            await targets.start()
            try:
                await self._work(plan, targets, cases)
            except* AgentvError as group:
                raise _first(group) from None
            except* _Over:
                pass

    async def _work(self, plan: Plan, targets: OpenTargets, cases: CaseRunner) -> None:
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        numbering, stream = Numbering(plan, targets.options.trials), JobStream(plan, targets, None)
        self.warnings.clear()
        self.state, self._caller = "ready", targets.caller
        self._on_result()
        async with asyncio.TaskGroup() as tasks:
            for number in range(targets.workers):
                slot = _Slot(self, number, numbering, stream)
                runner = JobRunner(cases, Results(slot), self._watcher, targets.options.trials, self.stop)
                tasks.create_task(runner.work(slot, number))
            while True:
                if self._is_over.is_set() or time.monotonic() - self._heard > GIVE_UP_SECONDS:
                    raise _Over
                targets.rebalance(self.share)
                await asyncio.sleep(LOOK_SECONDS)

    @property
    def _watcher(self) -> "_Notes":
        return _Notes(self.notes)

    async def next_number(self, slot: int) -> int:
        """Return the next number to run, once there is one and the driver is there."""
        assert self._changed is not None
        self.running.pop(slot, None)
        while True:
            is_known = self._awaited.get(slot, 0) <= self._acknowledged
            if is_known and self.has_lease and len(self.unsent) < MOST_UNSENT:
                with self._lock:
                    if self._queue:
                        first, end = self._queue.popleft()
                        if first + 1 < end:
                            self._queue.appendleft((first + 1, end))
                        self.running[slot], self._started[slot] = first, time.monotonic()
                        return first
            self._changed.clear()
            await self._changed.wait()

    def write(self, slot: int, result: EvalResult) -> None:
        """Keep a result until the driver has it."""
        answer = self._offered.take(result) if self._offered is not None else b""
        self.unsent.append((self.running[slot], _encode(mask_result(result, clean)), answer))
        self._written += 1
        is_short = time.monotonic() - self._started[slot] < SHORT_SECONDS
        self._awaited[slot] = 0 if is_short else self._written
        self._on_result()


class _Slot:
    """One of the cases that run at once: takes jobs, and keeps their results."""

    def __init__(self, session: Session, slot: int, numbering: Numbering, stream: JobStream):
        self._session, self._slot, self._numbering, self._stream = session, slot, numbering, stream

    async def next(self) -> Job:
        number = await self._session.next_number(self._slot)
        return self._stream.job(*self._numbering.find(number))

    def write(self, result: EvalResult) -> None:
        self._session.write(self._slot, result)


class _Notes(Silence):
    """Keeps what was tried again."""

    def __init__(self, notes: deque[tuple[str, int, str]]):
        self._notes = notes

    def retried(self, what: str, attempt: int, reason: str) -> None:
        self._notes.append((clean(what), attempt, clean(reason)))


class _Over(Exception):
    """The session was stopped."""


def _first(group: BaseExceptionGroup[AgentvError]) -> AgentvError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, AgentvError)
    return error


def _enter(folder: Path) -> None:
    """Make it the current folder, as it is the driver's."""
    try:
        os.chdir(folder)
    except OSError as error:
        hint = "the project must be in the same folder on all machines"
        raise ConfigError(f"cannot be entered: {error.strerror}", file=folder, hint=hint) from error


def _ignore(_warning: Problem) -> None:
    """Planning has told the warnings, on the driver."""


_encode = msgspec.json.Encoder(enc_hook=str).encode
