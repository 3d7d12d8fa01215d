"""A target that returns stored answers: from an earlier run, a batch program or another tool. No calls are made."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

from msgspec import Meta

from agentv.errors import ConfigError, ProviderError, ResultsError
from agentv.protocols import Provider
from agentv.providers.settings import TargetSettings, Text
from agentv.records import ProviderRequest, ProviderResponse
from agentv.results.answers import NOT_ANSWERS, StoredAnswers, response_of


class ReplaySettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target whose answers are in a file."""

    takes_media: ClassVar[bool] = True
    is_free: ClassVar[bool] = True
    is_stored: ClassVar[bool] = True

    file: Annotated[
        Text,
        Meta(description="Results of agentv, or batch records; relative to the eval file's folder."),
    ]

    def open(self, folder: Path) -> Provider:
        path = folder / Path(self.file).expanduser()
        if not path.is_file():
            raise ConfigError(f"no such file: {path}", hint=NOT_ANSWERS)
        return Replay(path)


class Replay:
    """Returns the stored answer of each case."""

    def __init__(self, path: Path):
        self._path = path
        self._answers: StoredAnswers | None = None

    @property
    def check(self) -> "_ReadCheck":
        return _ReadCheck(self)

    async def load(self) -> StoredAnswers:
        """Return the answers, reading the file on the first call. Raise `ProviderError` if it cannot be used."""
        if self._answers is None:
            try:
                self._answers = await asyncio.to_thread(StoredAnswers, self._path)
            except ResultsError as error:
                message = str(error)
                if error.hint:
                    message += f" ({error.hint})"
                raise ProviderError(message) from error
        return self._answers

    async def __aenter__(self) -> Self:
        await self.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._answers is not None:
            self._answers.close()

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        answers = await self.load()
        stored = answers.find(request.dataset, request.eval_id, request.trial)
        if stored is None:
            which = repr(request.eval_id)
            if request.trial > 1:
                which = f"trial {request.trial} of {which}"
            raise ProviderError(f"{self._path.name} has no answer to {which}")
        return response_of(stored)


@dataclass(frozen=True, eq=False)
class _ReadCheck:
    """Checks before a run that the file has answers."""

    replay: Replay

    async def run(self) -> None:
        await self.replay.load()
