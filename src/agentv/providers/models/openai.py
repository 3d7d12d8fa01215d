"""An OpenAI model, or one behind any server that speaks the same language, through OpenAI's own SDK."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from agentv.protocols import Provider
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.batches.openai import OpenAIBatches
from agentv.providers.models.chat_completions import ChatCompletions
from agentv.providers.models.responses import Responses
from agentv.providers.models.sdk import Format, SdkModel
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import Text
from agentv.records import Json

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MAX_MEDIA_BYTES = 50_000_000
"""What OpenAI takes in the files of one request, images and PDFs alike."""
Api = Literal["chat", "responses"]


class OpenAIFamilySettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that is asked as OpenAI's are."""

    takes_media: ClassVar[bool] = True
    efforts: ClassVar[tuple[str, ...]] = EFFORTS
    max_media_bytes: ClassVar[int] = MAX_MEDIA_BYTES

    api: Annotated[Api | None, Meta(description="chat completions, unless it is responses.")] = None

    def format(self) -> Format:
        """Return the format of the API that is asked."""
        return Responses() if self.api == "responses" else ChatCompletions()


class OpenAISettings(OpenAIFamilySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI model, or one behind a compatible server."""

    model: Annotated[Text, Meta(description="The model's name, as the vendor calls it.")]
    base_url: Annotated[Text | None, Meta(description="A compatible server, with its /v1.")] = None

    @property
    def may_report_cost(self) -> bool:
        """Whether it is another server than OpenAI's: some of those say what an answer costs."""
        return self.base_url is not None

    def open(self, folder: Path) -> Provider:
        return OpenAI(self, self.format())


class OpenAI(SdkModel[OpenAISettings]):
    """Asks OpenAI, or whoever is at `base_url`."""

    package, extra = "openai", "openai"

    def new_client(self, sdk: Any, common: Json) -> Any:
        # a server of the user's own needs no key, and must not get the one for OpenAI
        key = self.settings.api_key or ("none" if self.settings.base_url else None)
        return sdk.AsyncOpenAI(api_key=key, base_url=self.settings.base_url, **common)

    def batches(self) -> BatchApi:
        return OpenAIBatches(self, f"/v1{self._format.path}")
