"""The base of all targets on the network: a client of their own, and errors that explain failed requests.

A client belongs to the event loop that created it. It is created on first use and closed when its provider is exited. A
run opens each target once, so that all its cases share the target's connections.
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
from agentv.extras import install_command
from agentv.processes.threads import describe_error
from agentv.providers.network_settings import CA_FILE, check_ca_file, check_proxies, has_proxies, proxy_of
from agentv.providers.settings import RetrySettings
from agentv.redact import clean
from agentv.text import truncate

RETRYABLE = (408, 429, 500, 502, 503, 504, 529)
MAX_EXCERPT = 1000


class NetworkCheck(NamedTuple):
    """Checks that a package can be imported, and the settings of the network in the environment."""

    package: str
    extra: str
    uses_tls: bool

    async def run(self) -> None:
        try:
            importlib.import_module(self.package)
        except Exception as error:
            hint = install_command(self.extra, upgrade=True)
            reason = f"the {self.package!r} package cannot be imported: {describe_error(error)} ({hint})"
            raise ProviderError(reason) from error
        check_proxies()
        # With proxies, httpx reads the certificates even if it does not need them.
        if self.uses_tls or has_proxies():
            check_ca_file()


class NetworkProvider(ABC):
    """A target on the network. It may be entered several times; the last exit closes the client."""

    package: ClassVar[str]
    """The package that provides the client. It is imported when the provider is entered, not before."""

    extra: ClassVar[str]
    """The extra of agentv that installs the package."""

    def __init__(self, settings: RetrySettings):
        if not _is_installed(self.package):
            hint = install_command(self.extra)
            raise ConfigError(f"this target requires the {self.package!r} package", hint=hint)
        self._retryable: tuple[int, ...] = RETRYABLE
        if settings.retryable_status_codes is not None:
            self._retryable = settings.retryable_status_codes
        self._uses_tls = not _address(settings).startswith("http://")
        self._users = 0
        self._client: Any = None

    async def __aenter__(self) -> Self:
        self.module()
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self._users or self._client is None:
            return
        # reset before the wait below, so that a request that starts during it gets a new client
        client = self._client
        self._client = None
        await self.close(client)

    def module(self) -> Any:
        """Import and return the package."""
        return importlib.import_module(self.package)

    @property
    def check(self) -> NetworkCheck:
        """A check, made before the first request, of the package and of the network's settings."""
        return NetworkCheck(self.package, self.extra, self._uses_tls)

    def client(self) -> Any:
        """Return the client; the first call creates it."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    @abstractmethod
    def connect(self) -> Any:
        """Return a new client. Raise `ProviderError` if it cannot be made, for example without an API key."""

    @abstractmethod
    async def close(self, client: Any) -> None:
        """Close a client."""

    def status_error(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str],
        retry_after: float | None = None,
    ) -> ProviderError:
        """Return the error for an HTTP status that is not a success, with the server's message.

        A wait in the headers takes precedence over `retry_after`.
        """
        wait = parse_retry_after(headers)
        if wait is None:
            wait = retry_after
        reason = server_message(body) or "no reason given"
        if 300 <= status < 400 and "location" in headers:
            reason = f"redirects to {excerpt(headers['location'])}, which is not followed"
        return ProviderError(
            f"status {status}: {reason}",
            may_pass=status in self._retryable,
            status=status,
            retry_after=wait,
        )


def connection_error(error: BaseException) -> ProviderError:
    """Return the error for a failed connection. It is temporary unless the request itself is invalid."""
    kind = type(error).__name__
    may_pass = kind not in ("UnsupportedProtocol", "LocalProtocolError")
    message = f"the connection failed: {excerpt(str(error)) or kind}"
    if "CERTIFICATE_VERIFY_FAILED" in message:
        may_pass = False
        message = f"{message}; if you trust the server, set {CA_FILE} to a file with the certificate of its CA"
    # An error that was raised outside of a request has none.
    with suppress(AttributeError, RuntimeError):
        request: Any = error.request  # type: ignore[attr-defined]
        proxy = proxy_of(str(request.url))
        if proxy is not None:
            message = f"{message} (through the proxy {proxy})"
    return ProviderError(message, may_pass=may_pass)


def _address(settings: RetrySettings) -> str:
    """Return the address in the settings of a target; empty if it is the default of its SDK."""
    for name in ("url", "base_url", "endpoint"):
        address = getattr(settings, name, None)
        if address:
            return str(address)
    return ""


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the server asks to wait before the next request, or None if it does not say."""
    for name, scale in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) / scale
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
    try:
        date = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    if not date.tzinfo:
        date = date.replace(tzinfo=UTC)
    wait = date - datetime.now(UTC)
    return max(0.0, wait.total_seconds())


def server_message(body: bytes) -> str:
    """Return the error message in the body of a reply: the one in its JSON, or the start of the body."""
    text = body.decode("utf-8", "replace")
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return excerpt(text)
    if isinstance(reply, list) and reply:
        reply = reply[0]
    # {"error": {"message": …}}, {"error": …} and {"message": …} are all in use
    for name in ("error", "message"):
        if isinstance(reply, dict) and reply.get(name):
            reply = reply[name]
    if isinstance(reply, str):
        return excerpt(reply)
    return excerpt(text)


def excerpt(text: str) -> str:
    """Return the text as one line, with secrets masked and truncated to `MAX_EXCERPT` characters."""
    line = " ".join(clean(text).split())
    return truncate(line, MAX_EXCERPT)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent of a package such as google.genai is missing
        return False
