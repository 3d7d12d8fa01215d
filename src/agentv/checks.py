"""Whether a target is ready, found out before the first case is sent. Equal checks are made once."""

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from agentv.commands import Command, expect_success
from agentv.errors import ProviderError

NO_CASE = {
    "PROMPT": "healthcheck",
    "GUIDELINES": "",
    "EVAL_ID": "healthcheck",
    "ATTEMPT": "1",
    "FILES": "",
    "OUTPUT_FILE": os.devnull,
    "PROMPT_FILE": os.devnull,
}
"""What a command gets where a case would give it more."""


class CommandSucceeds(NamedTuple):
    """Ready when a command succeeds."""

    template: str
    cwd: Path
    seconds: float

    async def run(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                expect_success(await Command(self.template, NO_CASE, self.cwd).run(NO_CASE))
        except TimeoutError:
            raise ProviderError(f"the command has not ended after {self.seconds:g} s") from None


class AddressAnswers(NamedTuple):
    """Ready when a URL answers with a status of success."""

    url: str
    seconds: float

    async def run(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                problem = await asyncio.to_thread(self._problem)
        except TimeoutError:
            problem = f"no answer after {self.seconds:g} s"
        if problem:
            raise ProviderError(f"{self.url}: {problem}")

    def _problem(self) -> str:
        from urllib.error import HTTPError, URLError
        from urllib.request import urlopen

        try:
            with urlopen(self.url, timeout=self.seconds):
                return ""
        except HTTPError as error:
            return f"status {error.code} {error.reason}"
        except URLError as error:
            return str(error.reason)
        except (OSError, ValueError) as error:
            return str(error)
