"""A target with a canned answer, to try out evals without an agent."""

import asyncio
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.protocols import Provider
from agentv.providers.settings import Amount, TargetSettings
from agentv.records import Json, ProviderRequest, ProviderResponse

DEFAULT_TEXT = "Mock response"


class MockSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that always answers the same."""

    takes_media: ClassVar[bool] = True
    is_free: ClassVar[bool] = True

    response: Annotated[
        str | None,
        Meta(description="The answer."),
    ] = None
    metadata: Annotated[
        Json | None,
        Meta(description="The metadata of the answer, for evaluators."),
    ] = None
    delay_ms: Annotated[
        Amount | None,
        Meta(description="The delay before it answers."),
    ] = None
    delay_min_ms: Annotated[
        Amount | None,
        Meta(description="The shortest random delay."),
    ] = None
    delay_max_ms: Annotated[
        Amount | None,
        Meta(description="The longest random delay."),
    ] = None

    def open(self, folder: Path) -> Provider:
        return Mock(self)


class Mock:
    """Returns the same answer for every request, after a fixed or a random delay."""

    def __init__(self, settings: MockSettings):
        fixed_ms = settings.delay_ms or 0
        min_ms = _first_set(settings.delay_min_ms, fixed_ms)
        max_ms = _first_set(settings.delay_max_ms, fixed_ms)
        self._min_seconds = min_ms / 1000
        self._max_seconds = max(min_ms, max_ms) / 1000
        self._metadata = settings.metadata
        self.waits = self._max_seconds > 0
        self._text = DEFAULT_TEXT if settings.response is None else settings.response

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        if self.waits:
            from random import uniform

            await asyncio.sleep(uniform(self._min_seconds, self._max_seconds))
        return ProviderResponse(text=self._text, metadata=self._metadata)


def _first_set(value: float | str | None, default: float | str) -> float:
    """Return the value as a number, or the default if it is not set."""
    if value is None:
        return float(default)
    return float(value)
