"""A model deployed on Azure OpenAI, through OpenAI's own SDK."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.formats.conversion import Misfit
from agentv.protocols import Provider
from agentv.providers.models.chat_completions import ChatCompletions
from agentv.providers.settings import LanguageModelSettings, Text
from agentv.records import ProviderRequest

VERSION = "2024-10-21"
"""The newest dated version that is no preview."""


class AzureSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model deployed on Azure; `model` and `deployment` mean the same, and so do the two versions."""

    requires_one_of: ClassVar[tuple[str, ...]] = ("deployment", "model")

    endpoint: Annotated[Text, Meta(description="https://RESOURCE.openai.azure.com")]
    deployment: Annotated[Text | None, Meta(description="The deployment's name.")] = None
    version: Annotated[Text | None, Meta(description=f"The API version; {VERSION} if left out.")] = None
    api_version: Annotated[Text | None, Meta(description="The same as version.")] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.model is None and self.deployment is None:
            yield Misfit((), "missing deployment", "name the deployment on Azure with 'deployment' or 'model'")
        if self.version and self.api_version and self.version != self.api_version:
            yield Misfit(("api_version",), "another version than in 'version'", "leave one of them out")

    def open(self, folder: Path) -> Provider:
        return Azure(self)


class Azure(ChatCompletions[AzureSettings]):
    """Asks a deployment on Azure."""

    def new_client(self, sdk: Any, common: dict[str, Any]) -> Any:
        settings = self.settings
        return sdk.AsyncAzureOpenAI(
            api_key=settings.api_key,
            azure_endpoint=settings.endpoint,
            azure_deployment=settings.deployment or settings.model,
            api_version=settings.version or settings.api_version or VERSION,
            **common,
        )

    def body(self, request: ProviderRequest) -> dict[str, Any]:
        return super().body(request) | {"model": self.settings.model or self.settings.deployment}
