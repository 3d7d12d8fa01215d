"""What all targets on the network share: one client for all who ask, and what became of a request, in words.

A client belongs to the event loop that made it. It is made when it is first needed, and closed by the last to leave.
"""

import asyncio
import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from agentv.errors import ConfigError, ProviderError
from agentv.providers.settings import RetrySettings
from agentv.redact import clean
from agentv.system.threads import describe_error

RETRYABLE = (408, 429, 500, 502, 503, 504, 529)
MOST_WORDS = 1000


class _Line:
    """A client, and how many use it."""

    users = 0
    client: Any = None


_lines: dict[tuple[asyncio.AbstractEventLoop, type, bytes], _Line] = {}


class Importable(NamedTuple):
    """Finds out whether a package can be imported."""

    package: str
    extra: str

    async def run(self) -> None:
        try:
            importlib.import_module(self.package)
        except Exception as error:
            hint = f"pip install --upgrade 'agentv[{self.extra}]'"
            reason = f"the {self.package!r} package cannot be imported: {describe_error(error)} ({hint})"
            raise ProviderError(reason) from error


class Networked(ABC):
    """A target on the network. Those that are set up alike share one client, in whatever files their cases stand."""

    package: ClassVar[str]
    """What the client comes from: imported when the first cases are about to be asked, and not before."""

    extra: ClassVar[str]
    """With which extra of ours the package comes."""

    def __init__(self, settings: RetrySettings):
        if not _is_installed(self.package):
            hint = f"pip install 'agentv[{self.extra}]'"
            raise ConfigError(f"this target needs the {self.package!r} package", hint=hint)
        self._codes = RETRYABLE if settings.retryable_status_codes is None else settings.retryable_status_codes
        self._set_up = msgspec.json.encode(settings)

    async def __aenter__(self) -> Self:
        self.module()
        _lines.setdefault(self._key(), _Line()).users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        line = _lines[self._key()]
        line.users -= 1
        if not line.users:
            del _lines[self._key()]
            if line.client is not None:
                await self.close(line.client)

    def module(self) -> Any:
        """The package, imported."""
        return importlib.import_module(self.package)

    @property
    def check(self) -> "Importable":
        """Whether its package is in order, which is found out before anything is asked."""
        return Importable(self.package, self.extra)

    def client(self) -> Any:
        """The client that all share."""
        line = _lines[self._key()]
        if line.client is None:
            line.client = self.connect()
        return line.client

    @abstractmethod
    def connect(self) -> Any:
        """A new client; `ProviderError` when there can be none."""

    @abstractmethod
    async def close(self, client: Any) -> None:
        """Let go of a client."""

    def status_error(
        self, status: int, body: bytes, headers: Mapping[str, str], retry_after: float | None = None
    ) -> ProviderError:
        """What a status other than success means, in the words of the server."""
        wait = waiting_time(headers)
        return ProviderError(
            f"status {status}: {words_in(body) or 'no reason given'}",
            may_pass=status in self._codes,
            status=status,
            retry_after=retry_after if wait is None else wait,
        )

    def _key(self) -> tuple[asyncio.AbstractEventLoop, type, bytes]:
        return asyncio.get_running_loop(), type(self), self._set_up


def connection_error(error: BaseException) -> ProviderError:
    """What a connection that broke, or never was, means: it may be there again, unless the fault is ours."""
    kind = type(error).__name__
    may_pass = kind not in ("UnsupportedProtocol", "LocalProtocolError")
    return ProviderError(f"the connection failed: {beginning(str(error)) or kind}", may_pass=may_pass)


def waiting_time(headers: Mapping[str, str]) -> float | None:
    """For how many seconds a server wants to be left alone, if it says so."""
    for name, scale in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) / scale
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
    try:
        date = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


def words_in(body: bytes) -> str:
    """What a server says of an error: the message in its JSON, else the beginning of whatever it sent."""
    text = body.decode("utf-8", "replace")
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return beginning(text)
    said = said[0] if isinstance(said, list) and said else said
    for name in ("error", "message"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    return beginning(said if isinstance(said, str) else text)


def beginning(text: str) -> str:
    """The text in one line, without secrets, cut to a readable length."""
    line = " ".join(clean(text).split())
    return line if len(line) <= MOST_WORDS else f"{line[:MOST_WORDS]}…"


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even what the package is a part of
        return False
