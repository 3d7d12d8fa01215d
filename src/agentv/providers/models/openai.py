"""An OpenAI model, or one behind any server that speaks the same language, through OpenAI's own SDK."""

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from agentv.protocols import Provider
from agentv.providers.models.chat_completions import ChatCompletions
from agentv.providers.settings import LanguageModelSettings, Text


class OpenAISettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI model, or one behind a compatible server."""

    model: Annotated[Text, Meta(description="The model's name, as the vendor calls it.")]
    base_url: Annotated[Text | None, Meta(description="A compatible server, with its /v1.")] = None

    def open(self, folder: Path) -> Provider:
        return OpenAI(self)


class OpenAI(ChatCompletions[OpenAISettings]):
    """Asks OpenAI, or whoever is at `base_url`."""

    def new_client(self, sdk: Any, common: dict[str, Any]) -> Any:
        # a server of the user's own needs no key, and must not get the one for OpenAI
        key = self.settings.api_key or ("none" if self.settings.base_url else None)
        return sdk.AsyncOpenAI(api_key=key, base_url=self.settings.base_url, **common)
