"""An Anthropic model."""

from typing import Annotated

from msgspec import Meta

from agentv.providers.settings import LanguageModelSettings, Text


class AnthropicSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Anthropic model."""

    model: Annotated[Text, Meta(description="The model's name, as the vendor calls it.")]
    base_url: Annotated[Text | None, Meta(description="Another server, without /v1.")] = None
