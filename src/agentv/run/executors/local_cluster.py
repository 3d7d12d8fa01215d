"""A cluster on this machine, for one run: a scheduler in this process, and worker processes that are started again.

Run as a module this is one of the workers. It ends when its driver does, so nothing is left of a run that was killed,
and it has no folder but the one that it is given.
"""

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentv.errors import AgentvError, ConfigError
from agentv.processes.interrupts import cleanup
from agentv.system.temporary import make_folder, remove_folder

MOST_FAILURES = 5
"""So many workers in a row that end before they are ready are too many."""
THREADS = 2


class LocalCluster:
    """A scheduler, and so many workers."""

    def __init__(self, workers: int):
        self.count = workers
        self._scheduler: Any = None
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: set[asyncio.subprocess.Process] = set()
        self._folder: Path | None = None
        self._cleanup = cleanup(self._kill)
        self.failure: AgentvError | None = None
        """Why there will be no more workers."""

    async def __aenter__(self) -> Self:
        import dask
        from distributed import Scheduler

        self._folder = make_folder()
        # one connection to each worker is kept, in the place of a new one for each message
        dask.config.set({"distributed.scheduler.reuse-broadcast-comm": True})
        self._scheduler = await Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0")
        self._cleanup.__enter__()
        self._tasks = [asyncio.create_task(self._keep_worker(number)) for number in range(self.count)]
        return self

    @property
    def url(self) -> str:
        """The address of the scheduler."""
        return str(self._scheduler.address)

    async def _keep_worker(self, number: int) -> None:
        """Start a worker, and another one when it is dead."""
        failures, name = 0, f"worker-{number + 1}"
        errors = 2 if sys.stderr is not None else asyncio.subprocess.DEVNULL
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "agentv.run.executors.local_cluster", self.url, str(self._folder), name),
                stdin=asyncio.subprocess.PIPE,  # which nobody writes to: it ends when this process does
                stdout=errors,  # stdout is for results
                stderr=errors,
                start_new_session=True,  # a Ctrl-C is for the driver, which ends the workers
            )
            self._processes.add(process)
            code = await process.wait()
            self._processes.discard(process)
            failures = failures + 1 if code >= 0 and not self._was_ready(name) else 0
            if failures == MOST_FAILURES:
                self.failure = ConfigError(f"{name} of the local cluster ends at once, with code {code}")
                return

    def _was_ready(self, name: str) -> bool:
        """Return whether the last worker of this name was ready, and forget it."""
        assert self._folder is not None
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _kill(self) -> None:
        """Kill the workers, and with them what they have started."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        processes = list(self._processes)
        for process in processes:
            with suppress(ProcessLookupError):
                process.terminate()
        try:
            async with asyncio.timeout(3):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            self._kill()
        for process in processes:
            await process.wait()
        await self._scheduler.close()
        self._cleanup.__exit__(None, None, None)
        if self._folder is not None:
            remove_folder(self._folder)


@contextmanager
def silent_logs() -> Iterator[None]:
    """Keep what `distributed`, once it is imported, logs from the terminal: what goes wrong is told by us."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


async def _serve(url: str, folder: str, name: str) -> None:
    from distributed import Worker

    own: dict[str, Any] = {
        "nthreads": THREADS,
        "name": name,
        "local_directory": folder,
        "memory_limit": 0,
        "host": "127.0.0.1",
    }
    async with Worker(url, dashboard=False, **own) as worker:
        Path(folder, name).touch()
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await worker.finished()


def _end_with_the_driver(pipe: int) -> None:
    os.read(pipe, 1)
    os._exit(0)


def _main() -> None:
    pipe = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with_the_driver, args=(pipe,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module("distributed")  # it sets the levels of its logs, so this comes first
    with silent_logs(), suppress(OSError, asyncio.CancelledError):  # the scheduler is gone
        asyncio.run(_serve(*sys.argv[1:4]))
    os._exit(0)  # threads of users' code may never end


if __name__ == "__main__":
    _main()
