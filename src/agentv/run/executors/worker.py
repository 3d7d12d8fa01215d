"""The part of a run in a cluster that is in each worker: answers what the driver asks.

`distributed` gives the plugin to each worker, those that come later too. What it is asked comes through the scheduler,
as plain values: no task has a case, a setting or an answer in its name or its arguments.
"""

import asyncio
import pickle
from contextlib import suppress
from typing import Any

from distributed import Worker, get_worker, secede
from distributed.diagnostics.plugin import WorkerPlugin

from agentv.calls.slots import Share
from agentv.redact import clean
from agentv.run.executors.session import Session

OPERATION = "agentv"
FIRST_LOOK_SECONDS, FULL_SECONDS, FULL = 0.002, 0.02, 8
"""Results are sent at once; when many come at once, those of a moment are sent together."""
MOST_BYTES = 4 * 2**20
_door: "Door | None" = None
"""Of this process: a run changes its folder and its environment, so there is one at a time."""


class AgentvPlugin(WorkerPlugin):
    """Lets a worker run cases for agentv."""

    def __init__(self, run: str):
        self.name = f"agentv-{run}"

    def setup(self, worker: Worker) -> None:
        global _door  # noqa: PLW0603
        if _door is None:
            _door = Door()
        worker.handlers[OPERATION] = _door.handle

    def teardown(self, worker: Worker) -> None:
        if _door is not None:
            _door.leave(self.name.removeprefix("agentv-"))


def hold(run: str) -> None:
    """Be a task of the worker as long as the run is: a cluster that adapts does not take it for idle."""
    session = _door.session if _door is not None and _door.run == run else None
    worker = get_worker()
    assert worker is not None
    secede()  # type: ignore[no-untyped-call]
    if session is not None:
        session.wait()


class Door:
    """Answers the driver of a run."""

    def __init__(self) -> None:
        self.run = ""
        self.session: Session | None = None
        self._sent = 0
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def handle(self, run: str, do: str, **what: Any) -> dict[str, Any]:
        """Answer one message."""
        self._loop = asyncio.get_running_loop()
        if do == "start":
            return await self._start(run, what["setup"])
        session = self.session if run == self.run else None
        if session is None:
            return {"state": "unknown"}
        if do == "poll":
            return await self._poll(session, **what)
        if do == "give":
            session.give([(first, end) for first, end in what["ranges"]])
        elif do == "take":
            return {"state": session.state, "ranges": session.take(what["count"])}
        elif do == "stop":
            self.leave(run)
        return {"state": session.state}

    async def _start(self, run: str, setup: bytes) -> dict[str, Any]:
        """Begin a run; another one that is still alive, with a driver that is there, comes first."""
        earlier = self.session
        if earlier is not None and earlier.is_alive:
            if earlier.has_lease and self.run != run:
                return {"state": "busy"}
            earlier.stop()
            for _ in range(100):
                if not earlier.is_alive:
                    break
                await asyncio.sleep(0.1)
            else:
                return {"state": "busy"}
        try:
            found = pickle.loads(setup)
        except Exception as error:  # such as a function whose module is not there
            return {"state": "failed", "problem": clean(f"{type(error).__name__}: {error}")}
        self.run, self._sent = run, 0
        self.session = Session(found, self._tell_news)
        self.session.start()
        return self._report(self.session)  # which may have failed already

    async def _poll(
        self, session: Session, ack: int, share: tuple[int, int], wait: float, drop: bool
    ) -> dict[str, Any]:
        """Return what is new, as soon as there is anything; what was sent before and is acknowledged is forgotten."""
        session.hear(Share(*share), min(ack, self._sent))
        if drop:
            session.take(1 << 60)
        self._sent = 0
        state = session.state
        self._news.clear()
        if not session.unsent and session.state == state:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news.wait()
            await asyncio.sleep(FIRST_LOOK_SECONDS)
        if len(session.unsent) >= FULL:
            await asyncio.sleep(FULL_SECONDS)
        return self._report(session)

    def _report(self, session: Session) -> dict[str, Any]:
        running = list(session.running.values())
        results: list[tuple[int, bytes, bytes]] = []
        size = 0
        for sent in list(session.unsent):
            size += len(sent[1]) + len(sent[2])
            if results and size > MOST_BYTES:
                break
            results.append(sent)
        self._sent = len(results)
        warnings = [session.warnings.pop(0) for _ in range(len(session.warnings))] if session.state == "ready" else []
        notes = [session.notes.popleft() for _ in range(len(session.notes))]
        return {
            "state": session.state,
            "problem": session.problem,
            "results": results,
            "running": running,
            "waiting": session.waiting,
            "notes": notes,
            "warnings": [clean(problem.message) for problem in warnings],
            "cache_hits": session.cache_hits,
        }

    def _tell_news(self) -> None:
        """Wake up who waits for news; called in the thread of the session."""
        loop = self._loop
        if loop is not None and not self._news.is_set():
            with suppress(RuntimeError):  # the worker is closing
                loop.call_soon_threadsafe(self._news.set)

    def leave(self, run: str) -> None:
        """End a run."""
        if self.run == run and self.session is not None:
            self.session.stop()
