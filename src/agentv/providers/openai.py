"""An OpenAI model, or one behind any server that speaks the same language."""

from typing import Annotated

from msgspec import Meta

from agentv.providers.settings import LanguageModelSettings, Text


class OpenAISettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI model, or one behind a compatible server."""

    model: Annotated[Text, Meta(description="The model's name, as the vendor calls it.")]
    base_url: Annotated[Text | None, Meta(description="A compatible server, with its /v1.")] = None
