"""The plugin that each worker of a cluster runs: it answers the messages of the driver.

`distributed` installs the plugin on all current and future workers. Messages come through the scheduler as plain
values: no task has a case, a setting or an answer in its name or its arguments.
"""

import asyncio
import pickle
from contextlib import suppress
from typing import Any

from distributed import Worker, get_worker, secede
from distributed.diagnostics.plugin import WorkerPlugin

from agentv.calls.slots import Share
from agentv.cluster.session import Session, UnsentResult
from agentv.cluster.setup import PickledSetup
from agentv.redact import clean

OPERATION = "agentv"
MERGE_SECONDS = 0.002
"""How long a report waits for further results after the first one."""
MANY_RESULTS = 8
MERGE_MANY_SECONDS = 0.02
"""How long a report waits for further results if there are many already."""
MAX_REPORT_BYTES = 4 * 2**20
STOP_CHECKS = 100
STOP_CHECK_SECONDS = 0.1
_endpoint: "WorkerEndpoint | None" = None
"""The endpoint of this process. A run changes the current folder and the environment, so there is one at a time."""


class AgentvPlugin(WorkerPlugin):
    """Lets a worker run cases for agentv."""

    def __init__(self, run_id: str):
        self.name = f"agentv-{run_id}"

    def setup(self, worker: Worker) -> None:
        global _endpoint  # noqa: PLW0603
        if _endpoint is None:
            _endpoint = WorkerEndpoint()
        worker.handlers[OPERATION] = _endpoint.handle

    def teardown(self, worker: Worker) -> None:
        if _endpoint is not None:
            _endpoint.stop(self.name.removeprefix("agentv-"))


def wait_for_session(run_id: str) -> None:
    """Keep a task running until the session of a run ends, so that an adaptive cluster does not retire the worker."""
    session = None
    if _endpoint is not None and _endpoint.run_id == run_id:
        session = _endpoint.session
    worker = get_worker()
    assert worker is not None
    secede()  # type: ignore[no-untyped-call]
    if session is not None:
        session.wait()


class WorkerEndpoint:
    """Answers the driver of a run."""

    def __init__(self) -> None:
        self.run_id = ""
        self.session: Session | None = None
        self._sent = 0
        """How many results the last report contained."""
        self._has_news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def handle(self, run: str, do: str, **content: Any) -> dict[str, Any]:
        """Answer one message."""
        self._loop = asyncio.get_running_loop()
        if do == "start":
            return await self._start(run, content["setup"])
        session = self.session
        if session is None or run != self.run_id:
            return {"state": "unknown"}
        if do == "poll":
            return await self._poll(session, **content)
        if do == "take":
            return {"state": session.state, "ranges": session.take(content["count"])}
        if do == "give":
            session.give([(first, end) for first, end in content["ranges"]])
        elif do == "stop":
            self.stop(run)
        return {"state": session.state}

    async def _start(self, run_id: str, pickled: PickledSetup) -> dict[str, Any]:
        """Start a run. If another run is still active and its driver is alive, the worker is busy."""
        earlier = self.session
        if earlier is not None and earlier.is_alive:
            if earlier.has_lease and self.run_id != run_id:
                return {"state": "busy"}
            earlier.stop()
            if not await _has_ended(earlier):
                return {"state": "busy"}
        try:
            setup = pickle.loads(pickled.data)
        except Exception as error:  # such as a function whose module is missing here
            return {"state": "failed", "problem": clean(f"{type(error).__name__}: {error}")}
        self.run_id = run_id
        self._sent = 0
        self.session = Session(setup, self._notify)
        self.session.start()
        return self._report(self.session)  # it may have failed already

    async def _poll(
        self,
        session: Session,
        ack: int,
        share: tuple[int, int],
        wait: float,
        drop: bool,
    ) -> dict[str, Any]:
        """Return a report when there is news, or after `wait` seconds. Results that are acknowledged are dropped."""
        session.hear(Share(*share), min(ack, self._sent))
        if drop:
            session.drop_waiting()
        self._sent = 0
        state = session.state
        self._has_news.clear()
        if not session.unsent and session.state == state:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._has_news.wait()
            await asyncio.sleep(MERGE_SECONDS)
        if len(session.unsent) >= MANY_RESULTS:
            await asyncio.sleep(MERGE_MANY_SECONDS)
        return self._report(session)

    def _report(self, session: Session) -> dict[str, Any]:
        # Cases in flight are read before the results, so that a case that ends in between is in both, not in neither.
        running = list(session.running.values())
        results = _first_results(session)
        self._sent = len(results)
        warnings = []
        if session.state == "ready":
            # The session may add further ones meanwhile, from its thread.
            for _ in range(len(session.warnings)):
                problem = session.warnings.pop(0)
                warnings.append(clean(problem.message))
        notes = []
        for _ in range(len(session.notes)):
            notes.append(session.notes.popleft())
        return {
            "state": session.state,
            "problem": session.problem,
            "results": results,
            "running": running,
            "waiting": session.waiting,
            "notes": notes,
            "warnings": warnings,
            "cache_hits": session.cache_hits,
        }

    def _notify(self) -> None:
        """Wake up the poll that waits for news. Called in the thread of the session."""
        loop = self._loop
        if loop is not None and not self._has_news.is_set():
            with suppress(RuntimeError):  # the worker is closing
                loop.call_soon_threadsafe(self._has_news.set)

    def stop(self, run_id: str) -> None:
        """Stop a run if it is the current one."""
        if self.run_id == run_id and self.session is not None:
            self.session.stop()


async def _has_ended(session: Session) -> bool:
    """Wait some seconds for a session that was stopped; return whether it has ended."""
    for _ in range(STOP_CHECKS):
        if not session.is_alive:
            return True
        await asyncio.sleep(STOP_CHECK_SECONDS)
    return False


def _first_results(session: Session) -> list[UnsentResult]:
    """Return the results for the next report: at least one if there are any, as long as they are not too large."""
    results: list[UnsentResult] = []
    size = 0
    for unsent in list(session.unsent):
        _, result, answer = unsent
        size += len(result) + len(answer)
        if results and size > MAX_REPORT_BYTES:
            break
        results.append(unsent)
    return results
