"""A Gemini model."""

from typing import Annotated

from msgspec import Meta

from agentv.providers.settings import LanguageModelSettings, Text


class GeminiSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Gemini model; there is a default one."""

    base_url: Annotated[Text | None, Meta(description="Another server, without a version.")] = None
