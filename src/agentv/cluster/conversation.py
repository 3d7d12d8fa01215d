"""The driver's side of a run on a cluster: one conversation with each worker, while workers join and leave."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from agentv.cluster.connection import WORKER_SILENT_SECONDS, ClusterError, Connection, Unreachable
from agentv.cluster.dispatch import Dispatch, Load
from agentv.cluster.numbering import Numbering
from agentv.cluster.offered import decode_answer
from agentv.log import info, warn
from agentv.records import EvalResult, Exchange, Problem
from agentv.run.jobs import IsDone, JobStream
from agentv.run.local import log_cache_hits
from agentv.run.progress import ClusterState
from agentv.run.run import Run
from agentv.run.targets import most_workers
from agentv.text import plural

POLL_SECONDS = 0.5
MEMBERS_SECONDS = 1.0
"""How often the driver looks for workers that have joined or left."""
NO_WORKER_SECONDS = 60.0
"""The run ends when the cluster has had no workers for this long."""
MAX_EMPTY_POLLS = 4
"""A worker that reports no cases this often in a row did not receive those that it was sent."""
_RESULT_DECODER = msgspec.json.Decoder(EvalResult)


@dataclass(eq=False)
class RemoteWorker:
    """The driver's state for one worker."""

    url: str
    name: str
    load: Load = field(default_factory=Load)
    is_ready: bool = False
    is_silent: bool = False
    is_idle: bool = False
    must_drop: bool = False
    """Whether the next message asks it to drop the cases that it has not started."""
    received: int = 0
    """How many results of its last report the next message acknowledges."""
    empty_polls: int = 0
    cache_hits: int = 0
    conversation: "asyncio.Task[None] | None" = None
    placeholder: Any = None
    """The future of a task that runs on the worker as long as the run."""


class WorkerPool(Protocol):
    """Prepares workers for a run."""

    async def join(self, url: str, name: str) -> RemoteWorker | None:
        """Prepare a worker that joined the cluster during the run; return None if it cannot take part."""
        ...

    async def prepare(self, worker: RemoteWorker) -> str:
        """Prepare a worker; return why that failed, or an empty string."""
        ...


class ClusterRun:
    """Sends the case runs of a plan to workers and takes their results."""

    def __init__(self, pool: WorkerPool, connection: Connection, run: Run):
        self._pool = pool
        self._connection = connection
        self._run = run
        self._progress = run.progress
        self._slots = run.targets.workers
        self._max_workers = most_workers(run.plan)
        self._numbering = Numbering(run.plan, run.options.trials)
        self._dispatch = _new_dispatch(self._numbering, run.is_done, self._slots)
        self._stream = JobStream(run.plan, run.targets, None)
        self._workers: dict[str, RemoteWorker] = {}
        """By address."""
        self._joining: set[str] = set()
        self._join_tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()
        self._ended = asyncio.Event()
        self._is_closing = False
        """Whether no further case may start."""
        self._lost_workers = 0
        self._lost_in_flight = 0
        self._cache_hits = 0
        """Cache hits of workers that have left."""

    async def run(self, workers: list[RemoteWorker]) -> None:
        """Run all cases that are not done, beginning with these workers."""
        try:
            if self._dispatch.unfinished:
                async with self._group:
                    for worker in workers:
                        self._add(worker)
                    self._group.create_task(self._watch_members())
        finally:
            self._log_summary()

    def _log_summary(self) -> None:
        cache_hits = self._cache_hits
        for worker in self._workers.values():
            cache_hits += worker.cache_hits
        log_cache_hits(cache_hits)
        if not self._lost_workers:
            return
        workers = plural(self._lost_workers, "worker was", "workers were")
        cases = plural(self._lost_in_flight, "case")
        info(f"{workers} lost with {cases} in flight; these may have been paid for twice")

    # ---- workers that join and leave ----

    def _add(self, worker: RemoteWorker) -> None:
        self._workers[worker.url] = worker
        self._dispatch.loads.append(worker.load)
        worker.placeholder = self._connection.submit_placeholder(worker.url)
        worker.conversation = self._group.create_task(self._converse(worker))
        self._show_progress()

    @property
    def _active(self) -> list[RemoteWorker]:
        """The workers that get cases. There are at most as many as can share the limits of the targets."""
        available = []
        for worker in self._workers.values():
            if worker.is_ready and not worker.is_silent:
                available.append(worker)
        if self._max_workers is None or len(available) <= self._max_workers:
            return available
        # Workers that already have cases keep them.
        available.sort(key=_has_no_cases)
        return available[: self._max_workers]

    async def _watch_members(self) -> None:
        """Add workers that join and remove those that leave, until the run has ended."""
        loop = asyncio.get_running_loop()
        last_active = loop.time()
        while not self._ended.is_set():
            members = await self._connection.workers()
            self._update_members(members)
            if self._active:
                last_active = loop.time()
            elif loop.time() - last_active > NO_WORKER_SECONDS:
                hint = "finished cases are in the results; continue with --resume when there are workers"
                raise ClusterError(f"the cluster has had no workers for {NO_WORKER_SECONDS:g} s", hint=hint)
            try:
                async with asyncio.timeout(MEMBERS_SECONDS):
                    await self._ended.wait()
            except TimeoutError:
                continue
        for task in self._join_tasks:
            task.cancel()

    def _update_members(self, members: dict[str, str]) -> None:
        self._joining &= members.keys()
        for url, worker in list(self._workers.items()):
            if url not in members:
                self._remove(worker)
        for url, name in members.items():
            if url in self._workers or url in self._joining:
                continue
            self._joining.add(url)
            task = self._group.create_task(self._join(url, name))
            self._join_tasks.append(task)

    async def _join(self, url: str, name: str) -> None:
        worker = await self._pool.join(url, name)
        if worker is None:
            return  # the address stays in `_joining`: the worker is not asked again
        if url not in self._workers and not self._ended.is_set():
            self._joining.discard(url)
            self._add(worker)

    def _remove(self, worker: RemoteWorker) -> None:
        """Remove a worker that has left the cluster."""
        if self._workers.pop(worker.url, None) is None:
            return
        self._dispatch.loads.remove(worker.load)
        self._cache_hits += worker.cache_hits
        conversation = worker.conversation
        if conversation is not None and conversation is not asyncio.current_task():
            conversation.cancel()
        worker.placeholder.release()
        if not worker.is_silent:  # a silent worker was already counted as lost
            self._reassign_cases(worker, died=True)

    def _reassign_cases(self, worker: RemoteWorker, *, died: bool) -> None:
        """Count a worker as lost and let other workers run its cases."""
        self._lost_workers += 1
        in_flight = self._dispatch.lose(worker.load, died=died)
        self._lost_in_flight += in_flight
        self._progress.worker_lost(worker.name, in_flight)
        self._fail_deadly_cases()
        self._show_progress()
        self._end_when_done()

    def _end_when_done(self) -> None:
        if not self._dispatch.unfinished:
            self._ended.set()
        if not self._is_closing:
            return
        for worker in self._workers.values():
            if not worker.is_idle and not worker.is_silent:
                return
        self._ended.set()

    def _fail_deadly_cases(self) -> None:
        """Write an error result for each case that killed its workers."""
        while self._dispatch.deadly:
            number = self._dispatch.deadly.pop()
            file, case, trial = self._numbering.find(number)
            deaths = self._dispatch.deaths(number)
            error = (
                f"the case crashes its worker: {deaths} workers were lost while it ran, "
                "the last of them while it ran alone; it is not retried"
            )
            job = self._stream.job(file, case, trial)
            result = self._run.failed_result(job, error)
            no_worker = Load()  # the case is not assigned to a worker
            self._take_result(no_worker, number, result)

    # ---- the conversation with one worker ----

    async def _converse(self, worker: RemoteWorker) -> None:
        """Send cases to a worker and take its results, until the run has ended or the worker has left."""
        while not self._ended.is_set():
            try:
                report = await self._poll(worker)
                if report["state"] != "unknown":
                    self._take_report(worker, report)
                if report["state"] == "ready":
                    await self._send_cases(worker)
                else:
                    await self._restart_session(worker, report)
            except Unreachable:
                members = await self._connection.workers()
                self._update_members(members)
                if worker.url not in members:
                    return
                await asyncio.sleep(POLL_SECONDS)

    async def _poll(self, worker: RemoteWorker) -> dict[str, Any]:
        """Return the worker's next report. It waits without a timeout, but the cases of a silent worker go to others.

        Raise `Unreachable` if the worker is silent when the run has ended.
        """
        sent_drop = worker.must_drop
        loop = asyncio.get_running_loop()
        started = loop.time()
        answer = asyncio.ensure_future(
            self._connection.ask(
                worker.url,
                "poll",
                timeout=None,
                ack=worker.received,
                share=self._share(worker),
                wait=POLL_SECONDS,
                drop=sent_drop,
            )
        )
        try:
            done, _ = await asyncio.wait({answer}, timeout=WORKER_SILENT_SECONDS)
            if not done:
                if not worker.is_silent:  # a silent worker was already counted as lost
                    worker.is_silent = True
                    self._reassign_cases(worker, died=False)
                await self._wait_for_silent_worker(answer)
            report = answer.result()
        finally:
            answer.cancel()
        if worker.is_silent:
            # Its cases were sent to others in the meantime.
            worker.must_drop = True
            worker.is_silent = False
        elif sent_drop:
            worker.must_drop = False
        if worker.load.chunks:
            worker.load.busy_seconds += loop.time() - started
        return report

    async def _wait_for_silent_worker(self, answer: "asyncio.Future[dict[str, Any]]") -> None:
        """Wait for the answer of a silent worker; raise `Unreachable` if the run ends first."""
        ended = asyncio.ensure_future(self._ended.wait())
        futures: set[asyncio.Future[Any]] = {answer, ended}
        try:
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not answer.done():
            raise Unreachable("it does not respond, and the run has ended")

    def _share(self, worker: RemoteWorker) -> tuple[int, int]:
        """Return the worker's share of the limits: its position among the active workers, and their number."""
        active = self._active
        if worker in active:
            return active.index(worker), len(active)
        return 0, max(1, len(active))

    async def _restart_session(self, worker: RemoteWorker, report: dict[str, Any]) -> None:
        """Prepare a worker that has lost the run; raise `ClusterError` if that fails."""
        worker.is_ready = False
        worker.received = 0
        if report["state"] == "failed":
            raise ClusterError(f"worker {worker.name}: {report['problem']}", hint="continue with --resume")
        if worker.load.chunks:
            # A process that does not know the run has replaced the one that ran the cases.
            self._reassign_cases(worker, died=report["state"] == "unknown")
        problem = await self._pool.prepare(worker)
        if not problem:
            return
        if worker.url in await self._connection.workers():
            raise ClusterError(problem, hint="continue with --resume")

    def _take_report(self, worker: RemoteWorker, report: dict[str, Any]) -> None:
        load = worker.load
        results = report["results"]
        worker.received = len(results)
        worker.cache_hits = report["cache_hits"]
        load.running = report["running"]
        load.waiting = report["waiting"]
        for what, attempt, reason in report["notes"]:
            self._progress.retried(what, attempt, reason)
        for message in report["warnings"]:
            text = f"worker {worker.name}: {message}"
            warn(Problem(message=text, severity="warning"))
        for number, line, answer in results:
            result = _RESULT_DECODER.decode(line)
            self._take_result(load, number, result, answer)
        worker.is_idle = not (results or report["running"] or report["waiting"])
        if worker.is_idle and load.chunks:
            worker.empty_polls += 1
        else:
            worker.empty_polls = 0
        if worker.empty_polls >= MAX_EMPTY_POLLS:  # a message with cases was lost
            self._dispatch.lose(load, died=False)
        self._show_progress()
        self._end_when_done()

    def _take_result(
        self,
        load: Load,
        number: int,
        result: EvalResult,
        answer: bytes = b"",
    ) -> None:
        """Take a result if it is the first one for its number. `answer` is empty unless it may be judged again."""
        if not self._dispatch.record_result(load, number):
            return
        result = self._run.results.take(result)
        if answer:
            self._offer_answer(number, result, answer)
        self._progress.finished(0, result)
        if self._run.stopped_by and not self._is_closing:
            # Cases in flight are finished.
            self._is_closing = True
            for worker in self._workers.values():
                worker.must_drop = True

    def _offer_answer(
        self,
        number: int,
        result: EvalResult,
        answer: bytes,
    ) -> None:
        """Offer an answer to the check of the judges."""
        file, case, trial = self._numbering.find(number)
        job = self._stream.job(file, case, trial)
        if job.request is None:
            return
        exchange = Exchange(
            case=job.case,
            request=job.request,
            response=decode_answer(answer),
        )
        from agentv.trust.extension import Judging  # a worker has sent an answer, so judges are checked

        for extension in self._run.extensions:
            if isinstance(extension, Judging):
                extension.offer(exchange, job.planned.name, result.evaluator_results)

    async def _send_cases(self, worker: RemoteWorker) -> None:
        """Send a worker as many cases as it may have; if all are assigned, take some from the busiest worker."""
        active = self._active
        if self._is_closing or worker not in active or worker.must_drop:
            return
        busiest = self._dispatch.busiest_other(worker.load)
        if busiest is not None:
            await self._take_back_cases(busiest)
        while True:
            chunk = self._dispatch.next_chunk(worker.load, len(active))
            if chunk is None:
                return
            await self._connection.ask(worker.url, "give", ranges=chunk.ranges)

    async def _take_back_cases(self, load: Load) -> None:
        """Take half of the waiting cases from the worker with this load."""
        owner = next(worker for worker in self._workers.values() if worker.load is load)
        count = max(1, load.waiting // 2)
        answer = await self._connection.ask(owner.url, "take", count=count)
        self._dispatch.take_back(load, answer.get("ranges", ()))
        load.waiting = max(0, load.waiting - count)

    def _show_progress(self) -> None:
        in_flight = {}
        for worker in sorted(self._workers.values(), key=_name):
            if not worker.is_silent:
                in_flight[worker.name] = min(self._slots, worker.load.outstanding)
        state = ClusterState(in_flight, self._lost_workers, self._dispatch.sent_again)
        self._progress.cluster_changed(state)


def _new_dispatch(
    numbering: Numbering,
    is_done: IsDone | None,
    slots: int,
) -> Dispatch:
    """Return a dispatch of all case runs that are not done. Without `is_done`, no file is read."""
    if is_done is None:
        return Dispatch(numbering.total, (), slots)
    done = _done_numbers(numbering, is_done)
    return Dispatch(numbering.total, done, slots)


def _done_numbers(numbering: Numbering, is_done: IsDone) -> Iterator[int]:
    for number, case, trial in numbering.all():
        if is_done(case, trial):
            yield number


def _has_no_cases(worker: RemoteWorker) -> bool:
    return not worker.load.chunks


def _name(worker: RemoteWorker) -> str:
    return worker.name
