"""A canned answer, for trying things out without an agent."""

import asyncio
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.protocols import Provider
from agentv.providers.settings import Amount, TargetSettings
from agentv.records import ProviderRequest, ProviderResponse


class MockSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that always answers the same."""

    takes_media: ClassVar[bool] = True
    is_free: ClassVar[bool] = True

    response: Annotated[str | None, Meta(description="The answer.")] = None
    delay_ms: Annotated[Amount | None, Meta(description="How long it takes to answer.")] = None
    delay_min_ms: Annotated[Amount | None, Meta(description="The shortest random delay.")] = None
    delay_max_ms: Annotated[Amount | None, Meta(description="The longest random delay.")] = None

    def open(self, folder: Path) -> Provider:
        return Mock(self)


class Mock:
    """Answers the same to everything, after a fixed or a random delay."""

    def __init__(self, settings: MockSettings):
        fixed = float(settings.delay_ms or 0)
        shortest = fixed if settings.delay_min_ms is None else float(settings.delay_min_ms)
        longest = max(shortest, fixed if settings.delay_max_ms is None else float(settings.delay_max_ms))
        self._delays = shortest / 1000, longest / 1000
        self._text = "Mock response" if settings.response is None else settings.response

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        shortest, longest = self._delays
        if longest > 0:
            from random import uniform

            await asyncio.sleep(uniform(shortest, longest))
        return ProviderResponse(text=self._text)
