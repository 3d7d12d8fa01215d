"""Access tokens printed by a command. A token is reused for a while; it is a secret and is never shown."""

import asyncio
import time
from pathlib import Path

from agentv.errors import ProviderError
from agentv.processes.child import ProcessResult
from agentv.processes.command import CommandTemplate, describe_exit, output_tail
from agentv.processes.streams import Capture, StreamOutput
from agentv.redact import NamedSecret, clean

SECONDS = 60.0
"""The timeout of the command."""
LIFETIME = 300.0
"""Seconds after which a new token is fetched. Tokens of Entra ID are valid for about an hour."""
MAX_TOKEN_BYTES = 1 << 16
SETTING = "token_command"


class TokenCommand:
    """Runs the command when a token is needed, unless a current one is known. Concurrent callers share one run."""

    def __init__(self, command: str, folder: Path):
        self._command = CommandTemplate(command, (), folder)
        self._known: str | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    @property
    def known(self) -> str | None:
        """The current token; None if there is none or it is too old."""
        if time.monotonic() < self._until:
            return self._known
        return None

    def forget(self, token: str) -> None:
        """Discard a token that was refused, so that the next request fetches another."""
        if self._known == token:
            self._known = None
            self._until = 0.0

    async def token(self) -> str:
        """Return a token. Raise `ProviderError` if the command prints none."""
        async with self._lock:
            known = self.known
            if known is not None:
                return known
            token = await self._fetch()
            clean.learn([NamedSecret(token, SETTING)])  # masked from now on
            self._known = token
            self._until = time.monotonic() + LIFETIME
            return token

    async def _fetch(self) -> str:
        try:
            async with asyncio.timeout(SECONDS):
                finished = await self._command.run({}, stdout=Capture(MAX_TOKEN_BYTES))
        except TimeoutError:
            raise ProviderError(f"{SETTING}: the command timed out after {SECONDS:g} s") from None
        except ProviderError as error:
            raise ProviderError(f"{SETTING}: {error.message}", may_pass=error.may_pass) from error
        if finished.code:
            without_stdout = ProcessResult(
                finished.code, StreamOutput(), finished.stderr
            )  # stdout may contain a secret
            shown = output_tail(without_stdout)
            raise ProviderError(f"{SETTING}: the command {describe_exit(finished.code)}{shown}")
        return _parse_token(finished.stdout)


def _parse_token(stdout: StreamOutput) -> str:
    """Return the token that a command printed. Raise `ProviderError` if it printed something else."""
    words = stdout.data.decode("utf-8", "replace").split()
    if not words:
        raise ProviderError(f"{SETTING}: the command printed nothing")
    if not stdout.is_complete:
        raise ProviderError(f"{SETTING}: the command printed too much")
    token = words[0]
    if len(words) > 1 or not token.isascii() or not token.isprintable():
        raise ProviderError(
            f"{SETTING}: the command printed {len(words)} words instead of a token"
            " (it must print only the token, as 'az account get-access-token --query accessToken -o tsv' does)"
        )
    return token
