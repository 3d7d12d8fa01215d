"""What all targets on the network share: a client of their own, and errors that say what became of a request.

A client belongs to the event loop that made it: it is made when it is first needed, and closed when its provider is
left. Whoever runs an evaluation opens a target once, so that all who ask it share its connections.
"""

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
from agentv.system.extras import install_command
from agentv.system.threads import describe_error

RETRYABLE = (408, 429, 500, 502, 503, 504, 529)
MAX_EXCERPT = 1000


class PackageCheck(NamedTuple):
    """Checks that a package can be imported."""

    package: str
    extra: str

    async def run(self) -> None:
        try:
            importlib.import_module(self.package)
        except Exception as error:
            hint = install_command(self.extra, upgrade=True)
            reason = f"the {self.package!r} package cannot be imported: {describe_error(error)} ({hint})"
            raise ProviderError(reason) from error


class NetworkProvider(ABC):
    """A target on the network. It may be entered several times; the last to leave closes the client."""

    package: ClassVar[str]
    """The package that the client comes from. It is imported when the provider is entered, and not before."""

    extra: ClassVar[str]
    """The extra of agentv that installs the package."""

    def __init__(self, settings: RetrySettings):
        if not _is_installed(self.package):
            hint = install_command(self.extra)
            raise ConfigError(f"this target needs the {self.package!r} package", hint=hint)
        codes = settings.retryable_status_codes
        self._retryable = RETRYABLE if codes is None else codes
        self._users = 0
        self._client: Any = None

    async def __aenter__(self) -> Self:
        self.module()
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users and self._client is not None:
            client, self._client = self._client, None
            await self.close(client)

    def module(self) -> Any:
        """Import the package and return it."""
        return importlib.import_module(self.package)

    @property
    def check(self) -> PackageCheck:
        """Checks, before anything is asked, that the package is in order."""
        return PackageCheck(self.package, self.extra)

    def client(self) -> Any:
        """Return the client; the first call makes it."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    @abstractmethod
    def connect(self) -> Any:
        """Return a new client; raise `ProviderError` if there can be none, as without a key."""

    @abstractmethod
    async def close(self, client: Any) -> None:
        """Close a client."""

    def status_error(
        self, status: int, body: bytes, headers: Mapping[str, str], retry_after: float | None = None
    ) -> ProviderError:
        """Return the error for a status other than success, with the message of the server."""
        wait = parse_retry_after(headers)
        return ProviderError(
            f"status {status}: {server_message(body) or 'no reason given'}",
            may_pass=status in self._retryable,
            status=status,
            retry_after=retry_after if wait is None else wait,
        )


def connection_error(error: BaseException) -> ProviderError:
    """Return the error for a connection that broke or could not be made; it may pass unless the request is bad."""
    kind = type(error).__name__
    may_pass = kind not in ("UnsupportedProtocol", "LocalProtocolError")
    return ProviderError(f"the connection failed: {excerpt(str(error)) or kind}", may_pass=may_pass)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait before the next request, if it does."""
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


def server_message(body: bytes) -> str:
    """Return the message in a server's reply to a bad request: that in its JSON, else the start of the body."""
    text = body.decode("utf-8", "replace")
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return excerpt(text)
    reply = reply[0] if isinstance(reply, list) and reply else reply
    for name in ("error", "message"):
        if isinstance(reply, dict) and reply.get(name):
            reply = reply[name]
    return excerpt(reply if isinstance(reply, str) else text)


def excerpt(text: str) -> str:
    """Return the text as one line, without secrets, cut to a readable length."""
    line = " ".join(clean(text).split())
    return line if len(line) <= MAX_EXCERPT else f"{line[:MAX_EXCERPT]}…"


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even what the package is a part of
        return False
