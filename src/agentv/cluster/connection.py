"""A connection to the scheduler of a Dask cluster: lists its workers and sends messages to them.

`distributed` is an extra and slow to import: only a run with `--cluster` imports it.
"""

import asyncio
import pickle
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from agentv import __version__
from agentv.cluster.address import Address, LocalAddress
from agentv.cluster.local_cluster import LocalCluster, silent_logs
from agentv.errors import AgentvError, ConfigError
from agentv.extras import install_command

CONNECT_SECONDS = 10.0
SCHEDULER_LOST_SECONDS = 20.0
"""A scheduler that has not answered for this long is lost."""
WORKER_SILENT_SECONDS = 30.0
"""The cases of a worker that has not answered for this long go to other workers."""
CLOSE_SECONDS = 5.0
WORKERS_SECONDS = 10.0
"""How long to wait for the first worker of a cluster."""
LOCAL_WORKERS_SECONDS = 120.0
"""How long to wait for all workers of a local cluster."""


class ClusterError(AgentvError):
    """The cluster was lost while cases ran."""


class Unreachable(Exception):
    """A worker did not answer."""


class Connection:
    """Sends the messages of one run to workers. They go through the scheduler: workers need not be reachable."""

    def __init__(
        self,
        client: Any,
        url: str,
        run_id: str,
        local: LocalCluster | None = None,
    ):
        self._client = client
        self.url = url
        self._run_id = run_id
        self._local = local
        self._last_answer = asyncio.get_running_loop().time()

    @property
    def expected_workers(self) -> int:
        """The number of workers to wait for before the run starts."""
        if self._local is None:
            return 1
        return self._local.count

    @property
    def wait_seconds(self) -> float:
        """How long to wait for the expected workers."""
        if self._local is None:
            return WORKERS_SECONDS
        return LOCAL_WORKERS_SECONDS

    async def workers(self) -> dict[str, str]:
        """Return the names of the workers by address; raise `ClusterError` if the scheduler is lost."""
        if self._local is not None and self._local.failure is not None:
            raise self._local.failure
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(SCHEDULER_LOST_SECONDS / 2):
                    identity = await self._client.scheduler.identity()
            except Exception as error:  # as in `ask`
                silent_seconds = loop.time() - self._last_answer
                if silent_seconds > SCHEDULER_LOST_SECONDS or "closed" in str(self._client.status):
                    hint = "finished cases are in the results; continue with --resume when the cluster is back"
                    raise ClusterError(f"lost the connection to the scheduler at {self.url}", hint=hint) from error
                await asyncio.sleep(1)
                continue
            self._last_answer = loop.time()
            return _names_of_running(identity["workers"])

    async def version(self, worker: str) -> str | None:
        """Return the version of agentv on a worker, or None if it is not installed; raise `Unreachable`."""
        try:
            async with asyncio.timeout(WORKER_SILENT_SECONDS):
                # A function of the standard library: one of agentv could not be unpickled without agentv.
                versions = await self._client.run(
                    pkgutil.resolve_name,
                    "agentv:__version__",
                    workers=[worker],
                    on_error="return",
                )
            version = versions[worker]
        except Exception as error:  # as in `ask`
            raise Unreachable(_reason(error)) from error
        if isinstance(version, str):
            return version
        if isinstance(version, Exception) and not isinstance(version, ImportError | AttributeError):
            raise Unreachable(_reason(version))
        return None

    async def install_plugin(self) -> None:
        """Install the plugin on all current and future workers; raise `Unreachable` if that fails on one."""
        from agentv.cluster.worker import AgentvPlugin

        try:
            async with asyncio.timeout(WORKER_SILENT_SECONDS):
                await self._client.register_plugin(AgentvPlugin(self._run_id))
        except Exception as error:  # as in `ask`
            raise Unreachable(_reason(error)) from error

    async def remove_plugin(self) -> None:
        """Remove the plugin from the workers."""
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.unregister_worker_plugin(f"agentv-{self._run_id}")

    async def ask(
        self,
        worker: str,
        do: str,
        *,
        timeout: float | None = WORKER_SILENT_SECONDS,
        **content: Any,
    ) -> dict[str, Any]:
        """Send a message to a worker and return its answer; raise `Unreachable` if there is none in time."""
        message = {"op": "agentv", "run": self._run_id, "do": do, **content}
        try:
            async with asyncio.timeout(timeout):
                answers = await self._client.scheduler.broadcast(
                    msg=message,
                    workers=[worker],
                    on_error="return_pickle",
                )
        except Exception as error:  # a client that has lost its scheduler raises errors of many types
            raise Unreachable(_reason(error)) from error
        answer = answers.get(worker)
        if isinstance(answer, bytes):
            raise Unreachable(_unpickled_reason(answer))
        if not isinstance(answer, dict) or "state" not in answer:
            raise Unreachable(f"unexpected reply: {answer!r}")
        return answer

    def submit_placeholder(self, worker: str) -> Any:
        """Start a task on a worker that ends with the run; return its future, which must be kept until then."""
        from agentv.cluster.worker import wait_for_session

        return self._client.submit(
            wait_for_session,
            self._run_id,
            key=f"agentv-{self._run_id}-{worker}",
            workers=[worker],
            pure=False,
            retries=0,
        )


def _names_of_running(workers: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the names of the workers that are not starting or closing, by address."""
    names = {}
    for url, worker in workers.items():
        if worker["status"] in ("running", "paused"):
            names[url] = str(worker["name"])
    return names


def _unpickled_reason(raw: bytes) -> str:
    """Return the message of an error on a worker. Its type may not exist in this process."""
    try:
        return _reason(pickle.loads(raw))
    except Exception as error:
        return f"an error that cannot be decoded: {type(error).__name__}: {error}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {WORKER_SILENT_SECONDS:g} s"
    return str(error)


def version_problem(name: str, version: str | None) -> str:
    """Return why a worker with this version of agentv cannot take part; empty if it can."""
    if version is None:
        return f"worker {name} has no agentv: install version {__version__} there"
    if version != __version__:
        return f"worker {name} has agentv {version}, but this is {__version__}: install the same version there"
    return ""


@asynccontextmanager
async def connect(address: Address, run_id: str) -> AsyncIterator[Connection]:
    """Connect to a cluster, or start one; raise `ConfigError` if that fails."""
    distributed = _import_distributed()
    with silent_logs():
        if isinstance(address, LocalAddress):
            async with (
                LocalCluster(address.workers) as local,
                _open_client(distributed, local.url) as client,
            ):
                yield Connection(client, local.url, run_id, local)
        else:
            async with _open_client(distributed, address.url) as client:
                yield Connection(client, address.url, run_id)


def _import_distributed() -> Any:
    """Return the `distributed` package; raise `ConfigError` if it is not installed."""
    try:
        import distributed
    except ImportError as error:
        hint = f"install it with: {install_command('dask')}"
        raise ConfigError("--cluster requires the 'distributed' package", hint=hint) from error
    return distributed


@asynccontextmanager
async def _open_client(distributed: Any, url: str) -> AsyncIterator[Any]:
    client = None
    try:
        client = distributed.Client(
            url,
            asynchronous=True,
            timeout=CONNECT_SECONDS,
            set_as_default=False,
        )
        async with asyncio.timeout(CONNECT_SECONDS):
            await client
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        message = f"no Dask scheduler responds at {url} within {CONNECT_SECONDS:g} s"
        if not isinstance(error, OSError):
            message = f"{message}: {error}"
        if client is not None:
            # An open client would try to close itself after the loop has ended, and Python would warn about it.
            await _close(client)
        hint = "check that it is running at this address; configure TLS in Dask's configuration"
        raise ConfigError(message, hint=hint) from error
    try:
        yield client
    finally:
        await _close(client)


async def _close(client: Any) -> None:
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()
