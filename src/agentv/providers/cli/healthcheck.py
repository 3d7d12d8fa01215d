"""Health checks of a target, run before the first case is sent. Equal checks are run once."""

import asyncio
import os
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ProviderError
from agentv.processes.command import CommandTemplate, expect_success
from agentv.processes.threads import run_in_thread
from agentv.redact import secrets_in_url

PLACEHOLDER_VALUES = {
    "PROMPT": "healthcheck",
    "GUIDELINES": "",
    "EVAL_ID": "healthcheck",
    "ATTEMPT": "1",
    "FILES": "",
    "OUTPUT_FILE": os.devnull,
    "PROMPT_FILE": os.devnull,
}
"""The values of placeholders in the command of a health check, which has no case."""


class CommandHealthcheck(NamedTuple):
    """The target is ready if a command succeeds."""

    template: str
    cwd: Path
    seconds: float
    environment: tuple[tuple[bytes, bytes], ...] = ()

    async def run(self) -> None:
        environment = dict(self.environment or os.environb)
        command = CommandTemplate(
            self.template,
            PLACEHOLDER_VALUES,
            self.cwd,
            environment=environment,
        )
        try:
            async with asyncio.timeout(self.seconds):
                finished = await command.run(PLACEHOLDER_VALUES)
                expect_success(finished)
        except TimeoutError:
            raise ProviderError(f"the command timed out after {self.seconds:g} s") from None


class HttpHealthcheck(NamedTuple):
    """The target is ready if a URL responds with a success status."""

    url: str
    seconds: float

    async def run(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                problem = await run_in_thread(self._problem)
        except TimeoutError:
            problem = f"no answer after {self.seconds:g} s"
        if problem:
            raise ProviderError(f"{self.url}: {problem}")

    def _problem(self) -> str:
        """Return why the URL does not respond, or "" if it does."""
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import urlopen

        try:
            with urlopen(self._request(), timeout=self.seconds):
                return ""
        except HTTPError as error:
            return f"status {error.code} {error.reason}"
        except URLError as error:
            return str(error.reason)
        except (OSError, ValueError, HTTPException) as error:
            return str(error) or type(error).__name__

    def _request(self) -> Any:
        """Return a request for the URL. Credentials in the URL are sent as a header, as other tools do."""
        from urllib.parse import urlsplit
        from urllib.request import Request

        parts = urlsplit(self.url)
        server = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=server).geturl()
        headers = {}
        secrets = secrets_in_url(self.url)
        if secrets:
            authorization = secrets[-1]  # user and password, as Basic authorization sends them
            headers["Authorization"] = f"Basic {authorization}"
        return Request(url, headers=headers)
