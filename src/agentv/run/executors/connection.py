"""A connection to the scheduler of a Dask cluster: which workers there are, and what they answer.

`distributed` is an extra and slow to import: only a run with `--cluster` imports it.
"""

import asyncio
import pickle
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from agentv import __version__
from agentv.errors import AgentvError, ConfigError
from agentv.run.executors.address import Address, LocalAddress
from agentv.run.executors.local_cluster import LocalCluster, silent_logs
from agentv.system.extras import install_command

CONNECT_SECONDS = 10.0
LOST_SECONDS = 20.0
"""A scheduler that has not answered for so long is lost."""
SILENT_SECONDS = 30.0
"""A worker that has not answered for so long is done without."""
CLOSE_SECONDS = 5.0
WORKER_SECONDS = 10.0
"""How long a cluster without workers is waited for."""
LOCAL_SECONDS = 120.0


class ClusterError(AgentvError):
    """The cluster is gone while cases run."""


class Unreachable(Exception):
    """A worker did not answer."""


class Connection:
    """Speaks with the workers of a cluster, always through its scheduler: only that has to be in reach."""

    def __init__(self, client: Any, url: str, local: LocalCluster | None = None):
        self._client, self.url, self._local = client, url, local
        self._heard = asyncio.get_running_loop().time()

    @property
    def expected(self) -> tuple[int, float]:
        """How many workers there will be, and in how many seconds."""
        return (self._local.count, LOCAL_SECONDS) if self._local is not None else (1, WORKER_SECONDS)

    async def workers(self) -> dict[str, str]:
        """Return the names of the workers by address; raise `ClusterError` when the scheduler is gone."""
        if self._local is not None and self._local.failure is not None:
            raise self._local.failure
        now = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout(LOST_SECONDS / 2):
                    found = await self._client.scheduler.identity()
            except Exception as error:  # as in `ask`
                if now() - self._heard > LOST_SECONDS or "closed" in str(self._client.status):
                    hint = "what has arrived is in the results; go on with --resume when the cluster is back"
                    raise ClusterError(f"the scheduler at {self.url} is gone", hint=hint) from error
                await asyncio.sleep(1)
                continue
            self._heard = now()
            return {url: str(worker["name"]) for url, worker in found["workers"].items() if _is_up(worker)}

    async def version(self, worker: str) -> str | None:
        """Return the version of agentv on a worker, None where it is not installed; raise `Unreachable`."""
        look = self._client.run  # with a function that every Python has
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                found = await look(pkgutil.resolve_name, "agentv:__version__", workers=[worker], on_error="return")
            version = found[worker]
        except Exception as error:  # as below
            raise Unreachable(_reason(error)) from error
        if isinstance(version, Exception) and not isinstance(version, ImportError | AttributeError):
            raise Unreachable(_reason(version))
        return version if isinstance(version, str) else None

    async def install(self, run: str) -> None:
        """Give our plugin to all workers, those that come later too; raise `Unreachable` if one does not take it."""
        from agentv.run.executors.worker import AgentvPlugin

        try:
            async with asyncio.timeout(SILENT_SECONDS):
                await self._client.register_plugin(AgentvPlugin(run))
        except Exception as error:  # as below
            raise Unreachable(_reason(error)) from error

    async def ask(self, worker: str, seconds: float | None = SILENT_SECONDS, **message: Any) -> dict[str, Any]:
        """Return the answer of a worker to a message; raise `Unreachable` if there is none in so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                got = await self._client.scheduler.broadcast(
                    msg={"op": "agentv", **message}, workers=[worker], on_error="return_pickle"
                )
        except Exception as error:  # a client that has lost its scheduler raises all sorts of things
            raise Unreachable(_reason(error)) from error
        answer = got.get(worker)
        if isinstance(answer, bytes):
            raise Unreachable(_unpickled_reason(answer))
        if not isinstance(answer, dict) or "state" not in answer:
            raise Unreachable(f"it gave no answer of ours: {answer!r}")
        return answer

    def hold(self, worker: str, run: str) -> Any:
        """Let a task stand for the run on a worker, until the run is over; return what has to be kept for that."""
        from agentv.run.executors.worker import hold

        key = f"agentv-{run}-{worker}"
        return self._client.submit(hold, run, key=key, workers=[worker], pure=False, retries=0)

    async def leave(self, run: str) -> None:
        """Take the plugin from the workers."""
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.unregister_worker_plugin(f"agentv-{run}")


def _unpickled_reason(raw: bytes) -> str:
    """Return what went wrong on a worker; its error may be of a kind that is not known here."""
    try:
        return _reason(pickle.loads(raw))
    except Exception as error:
        return f"an error that cannot be read here: {type(error).__name__}: {error}"


def _reason(error: Exception) -> str:
    return f"no answer in {SILENT_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)


def _is_up(worker: dict[str, Any]) -> bool:
    return worker["status"] in ("running", "paused")


def check_version(name: str, version: str | None) -> str:
    """Return what is wrong with the agentv of a worker, if anything is."""
    if version is None:
        return f"worker {name} has no agentv: install version {__version__} there"
    if version != __version__:
        return f"worker {name} has agentv {version}, and this is {__version__}: install the same version there"
    return ""


@asynccontextmanager
async def connect(address: Address) -> AsyncIterator[Connection]:
    """Connect to a cluster, or start one; raise `ConfigError` if that cannot be done."""
    distributed = _distributed()
    with silent_logs():
        if isinstance(address, LocalAddress):
            async with LocalCluster(address.workers) as local, _client(distributed, local.url) as client:
                yield Connection(client, local.url, local)
        else:
            async with _client(distributed, address.url) as client:
                yield Connection(client, address.url)


def _distributed() -> Any:
    """Return the `distributed` package; raise `ConfigError` if it is not installed."""
    try:
        import distributed
    except ImportError as error:
        hint = f"install it with: {install_command('dask')}"
        raise ConfigError("--cluster needs the 'distributed' package", hint=hint) from error
    return distributed


@asynccontextmanager
async def _client(distributed: Any, url: str) -> AsyncIterator[Any]:
    client = None
    try:
        client = distributed.Client(url, asynchronous=True, timeout=CONNECT_SECONDS, set_as_default=False)
        async with asyncio.timeout(CONNECT_SECONDS):
            await client
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        reason = "" if isinstance(error, OSError) else f": {error}"
        hint = "is it running, and is this its address? TLS is set up in Dask's configuration"
        message = f"no Dask scheduler answers at {url} within {CONNECT_SECONDS:g} s{reason}"
        if client is not None:
            await _close(client)  # else it would try to when the loop is gone, and Python would warn of that
        raise ConfigError(message, hint=hint) from error
    try:
        yield client
    finally:
        await _close(client)


async def _close(client: Any) -> None:
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()
