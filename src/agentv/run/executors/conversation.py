"""The driver's side of a run in a cluster: one conversation with each worker, as workers come and go."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from agentv.notices import say, warn
from agentv.records import EvalResult, Exchange, Problem
from agentv.run.case import CaseRunner
from agentv.run.executors.connection import SILENT_SECONDS, ClusterError, Connection, Unreachable
from agentv.run.executors.dispatch import Dispatch, Load
from agentv.run.executors.local import tell_cache_hits
from agentv.run.executors.numbering import Numbering
from agentv.run.executors.offered import decode_answer
from agentv.run.extensions import Results
from agentv.run.jobs import IsDone, JobStream
from agentv.run.plan import Plan
from agentv.run.targets import OpenTargets, most_workers
from agentv.run.watching.watcher import ClusterView, Watcher

POLL_SECONDS = 0.5
LOOK_SECONDS = 1.0
NO_WORKER_SECONDS = 60.0
EMPTY_POLLS = 4
"""A worker that says so often that it has nothing, has nothing."""


@dataclass(eq=False)
class Link:
    """One worker, as the driver knows it."""

    url: str
    name: str
    load: Load = field(default_factory=Load)
    is_ready: bool = False
    is_silent: bool = False
    drop: bool = False
    """Whether it has to be told to forget what it has not started."""
    ack: int = 0
    empty_polls: int = 0
    cache_hits: int = 0
    is_idle: bool = False
    task: "asyncio.Task[None] | None" = None
    hold: Any = None


class Workers(Protocol):
    """Gets workers ready."""

    async def join(self, url: str, name: str) -> Link | None: ...

    async def prepare(self, link: Link) -> str: ...


class ClusterRun:
    """Deals out the runs of a plan to workers, and takes their results."""

    def __init__(  # noqa: PLR0913
        self,
        workers: Workers,
        plan: Plan,
        targets: OpenTargets,
        cases: CaseRunner,
        *,
        results: Results,
        watcher: Watcher,
    ):
        self._workers = workers
        self._cases = cases
        self._results = results
        self._watcher = watcher
        self._slots = targets.workers
        self._most = most_workers(plan)
        self._numbering = Numbering(plan, targets.options.trials)
        self._stream = JobStream(plan, targets, None)
        self._links: dict[str, Link] = {}
        self._joining: set[str] = set()
        self._join_tasks: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._is_closing = False
        self._lost = self._in_flight = 0
        self._cache_hits = 0

    async def run(self, connection: Connection, run: str, links: list[Link], is_done: IsDone | None) -> None:
        """Run all that is not done."""
        self._connection, self._run = connection, run
        done = (number for number, case, trial in self._numbering.all() if is_done is not None and is_done(case, trial))
        self._dispatch = Dispatch(self._numbering.total, done if is_done is not None else (), self._slots)
        try:
            if self._dispatch.left:
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    for link in links:
                        self._add(link)
                    group.create_task(self._watch_members())
        finally:
            self._tell()

    def _tell(self) -> None:
        tell_cache_hits(self._cache_hits + sum(link.cache_hits for link in self._links.values()))
        if self._lost:
            workers = "1 worker was" if self._lost == 1 else f"{self._lost} workers were"
            cases = "1 case was" if self._in_flight == 1 else f"{self._in_flight} cases were"
            say(f"{workers} lost, and {cases} in flight there: at most so many were paid for twice")

    # ---- who is there ----

    def _add(self, link: Link) -> None:
        self._links[link.url] = link
        self._dispatch.loads.append(link.load)
        link.hold = self._connection.hold(link.url, self._run)
        link.task = self._group.create_task(self._converse(link))
        self._show()

    @property
    def _active(self) -> list[Link]:
        """The workers that get cases: no more than the limits of the targets can be divided among."""
        there = [link for link in self._links.values() if link.is_ready and not link.is_silent]
        if self._most is None or len(there) <= self._most:
            return there
        return sorted(there, key=lambda link: not link.load.chunks)[: self._most]  # who has cases goes on

    async def _watch_members(self) -> None:
        """Take note of workers that come and go, until the run is over."""
        now = asyncio.get_running_loop().time
        alive = now()
        while not self._over.is_set():
            members = await self._connection.workers()
            self._notice(members)
            if self._active:
                alive = now()
            elif now() - alive > NO_WORKER_SECONDS:
                hint = "what has arrived is in the results; go on with --resume when there are workers"
                raise ClusterError(f"the cluster has had no worker for {NO_WORKER_SECONDS:g} s", hint=hint)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._over.wait()
            except TimeoutError:
                continue
        for task in self._join_tasks:
            task.cancel()

    def _notice(self, members: dict[str, str]) -> None:
        self._joining &= members.keys()
        for url in [url for url in self._links if url not in members]:
            self._remove(self._links[url])
        for url, name in members.items():
            if url not in self._links and url not in self._joining:
                self._joining.add(url)
                self._join_tasks.append(self._group.create_task(self._join(url, name)))

    async def _join(self, url: str, name: str) -> None:
        link = await self._workers.join(url, name)
        if link is not None and url not in self._links and not self._over.is_set():
            self._joining.discard(url)  # else it is not asked again
            self._add(link)

    def _remove(self, link: Link) -> None:
        """A worker is gone."""
        if self._links.pop(link.url, None) is None:
            return
        self._dispatch.loads.remove(link.load)
        self._cache_hits += link.cache_hits
        if link.task is not None and link.task is not asyncio.current_task():
            link.task.cancel()
        link.hold.release()
        if not link.is_silent:  # else it is counted already
            self._lose(link, died=True)

    def _lose(self, link: Link, *, died: bool) -> None:
        """Send what a worker has to others."""
        self._lost += 1
        in_flight = self._dispatch.lose(link.load, died=died)
        self._in_flight += in_flight
        self._watcher.worker_lost(link.name, in_flight)
        self._condemn()
        self._show()
        self._end_when_done()

    def _end_when_done(self) -> None:
        is_idle = all(link.is_idle or link.is_silent for link in self._links.values())
        if not self._dispatch.left or (self._is_closing and is_idle):
            self._over.set()

    def _condemn(self) -> None:
        """Write the results of the cases that killed their workers."""
        while self._dispatch.condemned:
            number = self._dispatch.condemned.pop()
            file, case, trial = self._numbering.find(number)
            deaths = self._dispatch.deaths(number)
            error = (
                f"the case ends the process that runs it: {deaths} workers were lost while it ran, "
                "the last of them while it ran alone; it is not tried again"
            )
            self._take(Load(), number, self._cases.failed_result(self._stream.job(file, case, trial), error))

    # ---- what is said ----

    async def _converse(self, link: Link) -> None:
        """Send cases to a worker and take its results, until the run is over or the worker is gone."""
        while not self._over.is_set():
            try:
                got = await self._poll(link)
                if got["state"] != "unknown":
                    self._take_report(link, got)
                if got["state"] == "ready":
                    await self._deal(link)
                else:
                    await self._begin_again(link, got)
            except Unreachable:
                members = await self._connection.workers()
                self._notice(members)
                if link.url not in members:
                    return
                await asyncio.sleep(POLL_SECONDS)

    async def _poll(self, link: Link) -> dict[str, Any]:
        """Return the worker's report, however long it is silent; then what it has goes to others.

        Raise `Unreachable` if it is silent when the run is over.
        """
        message = {"ack": link.ack, "share": self._share(link), "wait": POLL_SECONDS, "drop": link.drop}
        began = asyncio.get_running_loop().time()
        asked = asyncio.ensure_future(self._connection.ask(link.url, None, run=self._run, do="poll", **message))
        try:
            done, _ = await asyncio.wait({asked}, timeout=SILENT_SECONDS)
            if not done:
                if not link.is_silent:  # else it is counted already
                    link.is_silent = True
                    self._lose(link, died=False)
                await self._wait_until_over(asked)
            got = asked.result()
        finally:
            asked.cancel()
        link.drop = link.is_silent or (link.drop and not message["drop"])
        link.is_silent = False
        if link.load.chunks:
            link.load.busy_seconds += asyncio.get_running_loop().time() - began
        return got

    async def _wait_until_over(self, asked: "asyncio.Future[dict[str, Any]]") -> None:
        """Wait for the answer of a silent worker; raise `Unreachable` if the run is over before it comes."""
        over = asyncio.ensure_future(self._over.wait())
        futures: set[asyncio.Future[Any]] = {asked, over}
        try:
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        if not asked.done():
            raise Unreachable("it is silent, and the run is over")

    def _share(self, link: Link) -> tuple[int, int]:
        active = self._active
        return (active.index(link), len(active)) if link in active else (0, max(1, len(active)))

    async def _begin_again(self, link: Link, got: dict[str, Any]) -> None:
        """Get a worker ready that has lost the run; end the run if it cannot be."""
        link.is_ready, link.ack = False, 0
        if got["state"] == "failed":
            raise ClusterError(f"worker {link.name}: {got['problem']}", hint="go on with --resume")
        if link.load.chunks:
            self._lose(link, died=got["state"] == "unknown")  # then it is another process
        problem = await self._workers.prepare(link)
        if problem and link.url in await self._connection.workers():
            raise ClusterError(problem, hint="go on with --resume")

    def _take_report(self, link: Link, got: dict[str, Any]) -> None:
        link.ack = len(got["results"])
        link.cache_hits = got["cache_hits"]
        link.load.running, link.load.waiting = got["running"], got["waiting"]
        for what, attempt, reason in got["notes"]:
            self._watcher.retried(what, attempt, reason)
        for message in got["warnings"]:
            warn(Problem(message=f"worker {link.name}: {message}", severity="warning"))
        for number, line, answer in got["results"]:
            self._take(link.load, number, _DECODER.decode(line), answer)
        link.is_idle = not (got["results"] or got["running"] or got["waiting"])
        link.empty_polls = link.empty_polls + 1 if link.is_idle and link.load.chunks else 0
        if link.empty_polls >= EMPTY_POLLS:  # a message with cases got lost
            self._dispatch.lose(link.load, died=False)
        self._show()
        self._end_when_done()

    def _take(self, load: Load, number: int, result: EvalResult, answer: bytes = b"") -> None:
        """Take a result if it is the first of its job; the check of judges may want its answer."""
        if not self._dispatch.arrive(load, number):
            return
        result = self._results.take(result)
        if answer:
            self._offer(number, result, answer)
        self._watcher.finished(0, result)
        if self._results.stopped_by and not self._is_closing:
            self._is_closing = True  # cases in flight are finished
            for link in self._links.values():
                link.drop = True

    def _offer(self, number: int, result: EvalResult, answer: bytes) -> None:
        job = self._stream.job(*self._numbering.find(number))
        if self._cases.check is not None and job.request is not None:
            exchange = Exchange(case=job.case, request=job.request, response=decode_answer(answer))
            self._cases.check.offer(exchange, job.planned.name, result.evaluator_results)

    async def _deal(self, link: Link) -> None:
        """Give a worker as much as it may have; when there is nothing left, take it from who has the most."""
        active = self._active
        if self._is_closing or link not in active or link.drop:
            return
        if (victim := self._dispatch.victim(link.load)) is not None:
            owner = next(other for other in self._links.values() if other.load is victim)
            count = max(1, victim.waiting // 2)
            got = await self._connection.ask(owner.url, run=self._run, do="take", count=count)
            self._dispatch.give_back(victim, got.get("ranges", ()))
            victim.waiting = max(0, victim.waiting - count)
        while (chunk := self._dispatch.next_chunk(link.load, len(active))) is not None:
            await self._connection.ask(link.url, run=self._run, do="give", ranges=chunk.ranges)

    def _show(self) -> None:
        links = self._links.values()
        loads = {link.name: link.load.outstanding for link in sorted(links, key=_name) if not link.is_silent}
        in_flight = {name: min(self._slots, outstanding) for name, outstanding in loads.items()}
        self._watcher.cluster_changed(ClusterView(in_flight, self._lost, self._dispatch.sent_again))


def _name(link: Link) -> str:
    return link.name


_DECODER = msgspec.json.Decoder(EvalResult)
