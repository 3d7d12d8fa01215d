"""A command that prints a token -> the token, kept for a while. The token is a secret, and is never shown."""

import asyncio
import time
from pathlib import Path

from agentv.errors import ProviderError
from agentv.processes.child import ProcessResult
from agentv.processes.command import Command, describe_exit, output_tail
from agentv.processes.streams import Capture, Output
from agentv.redact import clean

SECONDS = 60.0
"""How long the command may take."""
LIFETIME = 300.0
"""Seconds after which a token is asked for again; those of Entra ID are good for an hour or so."""
MAX_TOKEN_BYTES = 1 << 16
SETTING = "token_command"


class TokenCommand:
    """Runs the command when a token is needed and none is known, once for all who wait for it."""

    def __init__(self, command: str, folder: Path):
        self._command = Command(command, (), folder)
        self._known: str | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    @property
    def known(self) -> str | None:
        """The token, unless there is none or it is too old."""
        return self._known if time.monotonic() < self._until else None

    def forget(self, token: str) -> None:
        """Fetch another token for the next request: this one was refused."""
        if self._known == token:
            self._known, self._until = None, 0.0

    async def token(self) -> str:
        """Return a token; raise `ProviderError` if the command gives none."""
        async with self._lock:
            if (known := self.known) is not None:
                return known
            token = await self._fetch()
            clean.learn([token])
            self._known, self._until = token, time.monotonic() + LIFETIME
            return token

    async def _fetch(self) -> str:
        try:
            async with asyncio.timeout(SECONDS):
                finished = await self._command.run({}, stdout=Capture(MAX_TOKEN_BYTES))
        except TimeoutError:
            raise ProviderError(f"{SETTING}: the command has not ended after {SECONDS:g} s") from None
        except ProviderError as error:
            raise ProviderError(f"{SETTING}: {error.message}", may_pass=error.may_pass) from error
        if finished.code:
            shown = output_tail(ProcessResult(finished.code, Output(), finished.stderr))  # stdout may hold a secret
            raise ProviderError(f"{SETTING}: the command {describe_exit(finished.code)}{shown}")
        words = finished.stdout.data.decode("utf-8", "replace").split()
        if not words or not finished.stdout.is_complete:
            raise ProviderError(f"{SETTING}: the command printed {'too much' if words else 'nothing'}")
        if len(words) > 1 or not words[0].isascii() or not words[0].isprintable():
            raise ProviderError(
                f"{SETTING}: the command printed {len(words)} words, and no token"
                " (let it print the token alone, as 'az account get-access-token --query accessToken -o tsv' does)"
            )
        return words[0]
