"""One run inside a worker of a cluster: agentv's own runner in a thread, which receives numbers of case runs.

The worker's event loop stays free, so that it answers messages while user code blocks the thread. A session needs
regular messages from its driver: without them it starts no further case, and after a while it gives up.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agentv.calls.caller import Caller
from agentv.calls.slots import Share
from agentv.cluster.dispatch import SHORT_CASE_SECONDS, Range
from agentv.cluster.numbering import Numbering
from agentv.cluster.offered import OfferedAnswers
from agentv.cluster.setup import Setup, plan_here
from agentv.errors import AgentvError, ConfigError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.files.encode import to_json
from agentv.files.temporary import remove_stale
from agentv.log import collect_warnings, ignore
from agentv.records import EvalResult, Problem
from agentv.redact import clean, secrets_in
from agentv.run.dumps import CaseDumps
from agentv.run.features import Opening, join_worker
from agentv.run.jobs import Job, JobStream
from agentv.run.judges import RunJudges
from agentv.run.output import mask_result
from agentv.run.progress import Progress
from agentv.run.run import Results, Run
from agentv.run.runner import work
from agentv.run.targets import OpenTargets

LEASE_SECONDS = 10.0
"""No case starts after the driver has been silent for this long."""
GIVE_UP_SECONDS = 60.0
"""The session ends after the driver has been silent for this long."""
CHECK_SECONDS = 0.25
MAX_UNSENT = 2000
"""No case starts while this many results have not been fetched."""
UnsentResult = tuple[int, bytes, bytes]
"""A number, its encoded result, and its encoded answer, which is empty unless the driver may judge it again."""


class Session:
    """The run of a plan in this process. Public methods are called in the worker's event loop.

    `next_number` and `write` are the exception: the slots of this session call them in its thread.
    """

    def __init__(self, setup: Setup, notify: Callable[[], None]):
        """Call `notify`, in the thread of the session, when the driver should fetch a report."""
        self._setup = setup
        self._notify = notify
        self.state = "preparing"
        self.problem = ""
        self._queue: deque[Range] = deque()
        self._lock = threading.Lock()
        """Guards the queue."""
        self.running: dict[int, int] = {}
        """The number that each slot runs."""
        self.unsent: deque[UnsentResult] = deque()
        """The results that the driver has not acknowledged."""
        self._offered: OfferedAnswers | None = None
        if setup.checks_judges:
            self._offered = OfferedAnswers()
        self._written = 0
        self._acknowledged = 0
        self._started: dict[int, float] = {}
        """When each slot started its case."""
        self._awaited: dict[int, int] = {}
        """How many results the driver must acknowledge before a slot starts its next case."""
        self.notes: deque[tuple[str, int, str]] = deque(maxlen=100)
        """Retried calls: what was called, the number of the attempt, the reason."""
        self.warnings: list[Problem] = []
        """Warnings for the user. Those of planning are reported by the driver."""
        self.share = Share()
        self._last_heard = time.monotonic()
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._caller: Caller | None = None
        self._progress = _RetryProgress(self.notes)
        self._thread = threading.Thread(
            target=self._run,
            daemon=True,
            name="agentv-session",
        )

    def start(self) -> None:
        """Start to prepare the run."""
        self._thread.start()

    @property
    def has_lease(self) -> bool:
        """Whether the driver was heard recently."""
        return time.monotonic() - self._last_heard < LEASE_SECONDS

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def hear(self, share: Share, acknowledged: int) -> None:
        """Record a message of the driver: the worker's share of the limits, and how many results have arrived."""
        for _ in range(acknowledged):
            self.unsent.popleft()
        self._acknowledged += acknowledged
        self.share = share
        self._last_heard = time.monotonic()
        self._wake()

    def give(self, ranges: Iterable[Range]) -> None:
        """Add numbers to run."""
        with self._lock:
            self._queue.extend(ranges)
        self._wake()

    def take(self, count: int) -> list[Range]:
        """Remove and return up to `count` numbers that are not started, beginning with the last ones."""
        taken: list[Range] = []
        with self._lock:
            while count and self._queue:
                first, end = self._queue.pop()
                split = max(first, end - count)
                if split > first:
                    self._queue.append((first, split))
                taken.append((split, end))
                count -= end - split
        return taken

    def drop_waiting(self) -> None:
        """Remove all numbers that are not started."""
        with self._lock:
            self._queue.clear()

    @property
    def cache_hits(self) -> int:
        """How many answers came from the cache."""
        if self._caller is None:
            return 0
        return self._caller.cache_hits

    @property
    def waiting(self) -> int:
        """How many numbers are not started."""
        with self._lock:
            return sum(end - first for first, end in self._queue)

    def stop(self) -> None:
        """Give up all cases, including those in flight."""
        self._stopped.set()
        self._wake()

    def wait(self) -> None:
        """Wait until the session has ended."""
        self._thread.join()

    def _wake(self) -> None:
        """Wake the slots that wait for a case."""
        loop = self._loop
        changed = self._changed
        if loop is not None and changed is not None:
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(changed.set)

    # ---- in the thread ----

    def _run(self) -> None:
        folder_before = os.getcwd()
        names_before = set(os.environ)
        try:
            _change_folder(self._setup.folder)
            for name, value in self._setup.environment.items():
                os.environ.setdefault(name, value)
            clean.learn(secrets_in(self._setup.environment))
            with collect_warnings() as self.warnings:
                asyncio.run(self._main())
        except AgentvError as error:
            self.problem = str(error)
            if error.hint:
                self.problem = f"{error} ({error.hint})"
        except _SessionStopped:
            pass
        except BaseException as error:  # the driver must be informed about any error
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self.problem = clean(self.problem)
            # The state comes after the problem: a reader of the state may read the problem next.
            if self.problem:
                self.state = "failed"
            else:
                self.state = "ended"
            os.chdir(folder_before)
            for name in set(os.environ) - names_before:
                del os.environ[name]
            self._notify()

    async def _main(self) -> None:
        setup = self._setup
        plan = plan_here(setup)
        remove_stale()
        async with AsyncExitStack() as stack:
            targets = await stack.enter_async_context(OpenTargets(plan, setup.options, self.share))
            opening = Opening(plan=plan, targets=targets, progress=self._progress, stack=stack)
            extensions = await join_worker(opening)
            if self._offered is not None:
                extensions.append(self._offered)
            await targets.check()
            judges = RunJudges(plan, targets, self._progress, extensions=extensions)
            builder = EvaluatorBuilder(
                judges,
                dry_run=plan.dry_run,
                warn=ignore,
                targets=setup.plan_options.project.targets,
            )
            run = Run(
                plan=plan,
                targets=targets,
                evaluators=builder,
                progress=self._progress,
                results=Results(None),
                extensions=tuple(extensions),
                dumps=CaseDumps.open(setup.options, plan),
            )
            await targets.start()
            try:
                await self._work(run)
            except* AgentvError as group:
                raise _first_error(group) from None
            except* _SessionStopped:
                pass

    async def _work(self, run: Run) -> None:
        """Run cases in all slots until the session is stopped or the driver is silent."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        targets = run.targets
        self._caller = targets.caller
        numbering = Numbering(run.plan, targets.options.trials)
        self.warnings.clear()
        self.state = "ready"
        self._notify()
        async with asyncio.TaskGroup() as tasks:
            for number in range(targets.workers):
                slot = _Slot(self, number, numbering, run.jobs)
                slot_run = replace(run, results=Results(slot))
                tasks.create_task(work(slot_run, slot, number, self.stop))
            while True:
                silent_seconds = time.monotonic() - self._last_heard
                if self._stopped.is_set() or silent_seconds > GIVE_UP_SECONDS:
                    raise _SessionStopped
                targets.rebalance(self.share)
                await asyncio.sleep(CHECK_SECONDS)

    async def next_number(self, slot: int) -> int:
        """Wait until a slot may start a case, and return its number."""
        assert self._changed is not None
        self.running.pop(slot, None)
        while True:
            number = self._start_next(slot)
            if number is not None:
                return number
            self._changed.clear()
            await self._changed.wait()

    def _start_next(self, slot: int) -> int | None:
        """Take the next number from the queue; return None if there is none, or if no case may start."""
        if self._awaited.get(slot, 0) > self._acknowledged:
            return None
        if not self.has_lease or len(self.unsent) >= MAX_UNSENT:
            return None
        with self._lock:
            if not self._queue:
                return None
            first, end = self._queue.popleft()
            if first + 1 < end:
                self._queue.appendleft((first + 1, end))
            # Still locked: a number is always either waiting or running.
            self.running[slot] = first
            self._started[slot] = time.monotonic()
            return first

    def write(self, slot: int, result: EvalResult) -> None:
        """Keep a result until the driver has it."""
        answer = b""
        if self._offered is not None:
            answer = self._offered.take(result)
        encoded = to_json(mask_result(result, clean))
        self.unsent.append((self.running[slot], encoded, answer))
        self._written += 1
        if time.monotonic() - self._started[slot] < SHORT_CASE_SECONDS:
            self._awaited[slot] = 0
        else:
            self._awaited[slot] = self._written
        self._notify()


@dataclass
class _Slot:
    """Runs one case at a time: gets its jobs from the session and gives their results to it."""

    session: Session
    number: int
    numbering: Numbering
    stream: JobStream

    async def next(self) -> Job:
        number = await self.session.next_number(self.number)
        file, case, trial = self.numbering.find(number)
        return self.stream.job(file, case, trial)

    def write(self, result: EvalResult) -> None:
        self.session.write(self.number, result)


class _RetryProgress(Progress):
    """Keeps retries for the driver and ignores everything else."""

    def __init__(self, notes: deque[tuple[str, int, str]]):
        self._notes = notes

    def retried(self, what: str, attempt: int, reason: str) -> None:
        self._notes.append((clean(what), attempt, clean(reason)))


class _SessionStopped(Exception):
    """The session was stopped, or its driver was silent for too long."""


def _first_error(group: BaseExceptionGroup[AgentvError]) -> AgentvError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, AgentvError)
    return error


def _change_folder(folder: Path) -> None:
    """Make the driver's current folder the current one here."""
    try:
        os.chdir(folder)
    except OSError as error:
        hint = "the project must be in the same folder on all machines"
        raise ConfigError(f"cannot change to this folder: {error.strerror}", file=folder, hint=hint) from error
