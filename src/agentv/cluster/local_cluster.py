"""A cluster on this machine for one run: a scheduler in this process, and worker processes that are restarted.

Run as a module, this is one of the workers. A worker exits when its driver does, so that a killed run leaves no
processes behind, and it writes only to the folder that it is given.
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
from agentv.files.temporary import make_folder, remove_folder
from agentv.processes.interrupts import cleanup
from agentv.processes.machine import file_limit_of_children, keep_file_limit_of_children

MAX_FAILED_STARTS = 5
"""A worker that exits this often in a row before it is ready is not restarted."""
THREADS = 2
STOP_SECONDS = 3
"""How long workers may take to exit before they are killed."""


class LocalCluster:
    """A scheduler and a fixed number of workers."""

    def __init__(self, workers: int):
        self.count = workers
        self._scheduler: Any = None
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: set[asyncio.subprocess.Process] = set()
        self._folder: Path | None = None
        self._cleanup = cleanup(self._kill)
        self.failure: AgentvError | None = None
        """Why a worker is no longer restarted."""

    async def __aenter__(self) -> Self:
        import dask
        from distributed import Scheduler

        self._folder = make_folder()
        # Keep one connection per worker instead of opening one for each message.
        dask.config.set({"distributed.scheduler.reuse-broadcast-comm": True})
        self._scheduler = await Scheduler(
            host="127.0.0.1",
            port=0,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
        )
        self._cleanup.__enter__()
        for number in range(self.count):
            task = asyncio.create_task(self._keep_worker(f"worker-{number + 1}"))
            self._tasks.append(task)
        return self

    @property
    def url(self) -> str:
        """The address of the scheduler."""
        return str(self._scheduler.address)

    async def _keep_worker(self, name: str) -> None:
        """Start a worker, and restart it when it exits."""
        failed_starts = 0
        while True:
            process = await self._start_worker(name)
            self._processes.add(process)
            code = await process.wait()
            self._processes.discard(process)
            # A worker that was killed by a signal did not fail to start.
            if code >= 0 and not self._was_ready(name):
                failed_starts += 1
            else:
                failed_starts = 0
            if failed_starts == MAX_FAILED_STARTS:
                self.failure = ConfigError(f"{name} of the local cluster exited immediately with code {code}")
                return

    async def _start_worker(self, name: str) -> asyncio.subprocess.Process:
        # Standard output is for results, so workers write only to standard error.
        output = 2
        if sys.stderr is None:
            output = asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "agentv.cluster.local_cluster",
            self.url,
            str(self._folder),
            name,
            str(file_limit_of_children()),
            stdin=asyncio.subprocess.PIPE,  # never written to: it is closed when this process ends
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the driver, which ends the workers
        )

    def _was_ready(self, name: str) -> bool:
        """Return whether the last worker of this name was ready, and reset that for the next one."""
        assert self._folder is not None
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _kill(self) -> None:
        """Kill the workers. The processes that they have started end with them."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        processes = list(self._processes)
        for process in processes:
            with suppress(ProcessLookupError):
                process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
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
    """Suppress the logs of `distributed`, which must be imported already. agentv reports problems itself."""
    names = ("distributed", "distributed.client", "tornado", "asyncio")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


async def _serve(url: str, folder: str, name: str) -> None:
    """Run a worker until the scheduler closes it or SIGTERM arrives."""
    from distributed import Worker

    options: dict[str, Any] = {
        "nthreads": THREADS,
        "name": name,
        "local_directory": folder,
        "memory_limit": 0,
        "host": "127.0.0.1",
        "dashboard": False,
    }
    async with Worker(url, **options) as worker:
        Path(folder, name).touch()  # it is ready
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await worker.finished()


def _exit_with_driver(pipe: int) -> None:
    """Exit when the driver closes the pipe, which it does at the latest when it ends."""
    os.read(pipe, 1)
    os._exit(0)


def _main() -> None:
    pipe = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(
        target=_exit_with_driver,
        args=(pipe,),
        daemon=True,
    ).start()
    keep_file_limit_of_children(int(sys.argv[4]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module("distributed")  # sets the levels of its loggers, so it comes before `silent_logs`
    with silent_logs(), suppress(OSError, asyncio.CancelledError):  # OSError: the scheduler is gone
        asyncio.run(_serve(*sys.argv[1:4]))
    os._exit(0)  # threads of user code may never end


if __name__ == "__main__":
    _main()
