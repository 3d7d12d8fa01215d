"""OpenAI models, and models behind OpenAI-compatible servers, through OpenAI's SDK."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from agentv.protocols import Provider
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.batches.openai import OpenAIBatches
from agentv.providers.models.chat_completions import ChatCompletions
from agentv.providers.models.model import client_key
from agentv.providers.models.responses import Responses
from agentv.providers.models.sdk import Format, SdkModel
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import Text
from agentv.records import Json

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MAX_MEDIA_BYTES = 50_000_000
"""OpenAI's limit for all images and PDFs of one request."""
Api = Literal["chat", "responses"]


class OpenAIFamilySettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model with one of OpenAI's APIs."""

    takes_media: ClassVar[bool] = True
    efforts: ClassVar[tuple[str, ...]] = EFFORTS
    max_media_bytes: ClassVar[int] = MAX_MEDIA_BYTES

    api: Annotated[
        Api | None,
        Meta(description="The API to use. Defaults to chat completions."),
    ] = None

    def format(self) -> Format:
        """Return the format of the API that is used."""
        if self.api == "responses":
            return Responses()
        return ChatCompletions()


class OpenAISettings(OpenAIFamilySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI model, or one behind a compatible server."""

    model: Annotated[
        Text,
        Meta(description="The vendor's name of the model."),
    ]
    base_url: Annotated[
        Text | None,
        Meta(description="The URL of a compatible server, including /v1."),
    ] = None

    @property
    def may_report_cost(self) -> bool:
        """Whether the server is not OpenAI's: some other servers report the cost of an answer."""
        return self.base_url is not None

    def open(self, folder: Path) -> Provider:
        return OpenAI(self, self.format())


class OpenAI(SdkModel[OpenAISettings]):
    """Calls OpenAI, or the server at `base_url`."""

    package = "openai"
    extra = "openai"

    def new_client(self, sdk: Any, common: Json) -> Any:
        base_url = self.settings.base_url
        key = client_key(self.settings.api_key, base_url)
        return sdk.AsyncOpenAI(api_key=key, base_url=base_url, **common)

    def batches(self) -> BatchApi:
        return OpenAIBatches(self, f"/v1{self._format.path}")
