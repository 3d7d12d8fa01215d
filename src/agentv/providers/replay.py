"""Answers that are there already: of an earlier run, of a batch program, of another tool. Nobody is asked."""

import asyncio
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

    file: Annotated[Text, Meta(description="Results of agentv, or batch records; relative to the eval file's folder.")]

    def open(self, folder: Path) -> Provider:
        path = folder / Path(self.file).expanduser()
        if not path.is_file():
            raise ConfigError(f"no such file: {path}", hint=NOT_ANSWERS)
        return Replay(path)


class Replay:
    """Gives the answers of a file, each to the case that it answered."""

    def __init__(self, path: Path):
        self._path = path
        self._answers: StoredAnswers | None = None

    @property
    def check(self) -> "_IsReadable":
        return _IsReadable(self)

    async def load(self) -> StoredAnswers:
        """Return the answers; raise `ProviderError` if there is something wrong with the file."""
        if self._answers is None:
            try:
                self._answers = await asyncio.to_thread(StoredAnswers, self._path)
            except ResultsError as error:
                raise ProviderError(f"{error}{f' ({error.hint})' if error.hint else ''}") from error
        return self._answers

    async def __aenter__(self) -> Self:
        await self.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._answers is not None:
            self._answers.close()

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        answers = await self.load()
        found = answers.find(request.dataset, request.eval_id, request.trial)
        if found is None:
            which = f"trial {request.trial} of {request.eval_id!r}" if request.trial > 1 else f"{request.eval_id!r}"
            raise ProviderError(f"{self._path.name} has no answer to {which}")
        return response_of(found)


class _IsReadable:
    """Finds out whether the file has answers, before a run starts."""

    def __init__(self, replay: Replay):
        self._replay = replay

    async def run(self) -> None:
        await self._replay.load()
