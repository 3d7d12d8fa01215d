"""A canned answer, for trying things out without an agent."""

from typing import Annotated

from msgspec import Meta

from agentv.providers.settings import Amount, TargetSettings


class MockSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that always answers the same."""

    response: Annotated[str | None, Meta(description="The answer.")] = None
    delay_ms: Annotated[Amount | None, Meta(description="How long it takes to answer.")] = None
    delay_min_ms: Annotated[Amount | None, Meta(description="The shortest random delay.")] = None
    delay_max_ms: Annotated[Amount | None, Meta(description="The longest random delay.")] = None
