"""Models deployed on Azure OpenAI, through OpenAI's SDK, with a dated version of the API or its v1."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.errors import ProviderError
from agentv.files.conversion import Misfit
from agentv.protocols import Provider
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.batches.openai import AZURE_LIMITS, OpenAIBatches
from agentv.providers.models.conversation import Completion, Prompt
from agentv.providers.models.openai import OpenAIFamilySettings
from agentv.providers.models.sdk import Format, SdkModel
from agentv.providers.models.token_command import TokenCommand
from agentv.providers.settings import NOT_IN_CACHE_KEY, Text
from agentv.records import Json

VERSION = "2024-10-21"
"""The newest dated version that is not a preview."""
V1 = "v1"
"""The API without dated versions, at /openai/v1/."""
UNAUTHORIZED = 401
KEY_VARIABLES = ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN")


class AzureSettings(OpenAIFamilySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model deployed on Azure; `model` and `deployment` mean the same, and so do the two versions."""

    requires_one_of: ClassVar[tuple[str, ...]] = ("deployment", "model")

    endpoint: Annotated[
        Text,
        Meta(description="https://RESOURCE.openai.azure.com"),
    ]
    deployment: Annotated[
        Text | None,
        Meta(description="The deployment's name."),
    ] = None
    version: Annotated[
        Text | None,
        Meta(description=f"The API version: v1, or a date. Defaults to {VERSION}, or to v1 for responses."),
    ] = None
    api_version: Annotated[
        Text | None,
        Meta(description="Alias of version."),
    ] = None
    token_command: Annotated[
        Text | None,
        Meta(description="A command that prints an Entra ID token."),
        NOT_IN_CACHE_KEY,
    ] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.model is None and self.deployment is None:
            yield Misfit(
                (),
                "missing deployment",
                "set the name of the Azure deployment as 'deployment' or 'model'",
            )
        if self.version and self.api_version and self.version != self.api_version:
            yield Misfit(
                ("api_version",),
                "'version' has a different value",
                "remove one of them",
            )
        if self.api_key and self.token_command:
            yield Misfit(
                ("token_command",),
                "'api_key' is set as well",
                "remove one of them",
            )

    @property
    def used_version(self) -> str:
        """The version of the API that is used."""
        given = self.version or self.api_version
        if given:
            return given
        if self.api == "responses" or self._is_v1_address:
            return V1
        return VERSION

    @property
    def base_url(self) -> str:
        """The URL of the v1 API, which the endpoint may already include."""
        endpoint = self.endpoint.rstrip("/")
        if self._is_v1_address:
            return endpoint
        return f"{endpoint}/openai/{V1}"

    @property
    def _is_v1_address(self) -> bool:
        return self.endpoint.rstrip("/").endswith(f"/openai/{V1}")

    def open(self, folder: Path) -> Provider:
        tokens = None
        if self.token_command:
            tokens = TokenCommand(self.token_command, folder)
        return Azure(self, self.format(), tokens)


class Azure(SdkModel[AzureSettings]):
    """Calls a deployment on Azure."""

    package = "openai"
    extra = "openai"

    def __init__(self, settings: AzureSettings, format_: Format, tokens: TokenCommand | None):
        super().__init__(settings, format_)
        self._tokens = tokens

    @property
    def model(self) -> str | None:
        return self.settings.model or self.settings.deployment

    def new_client(self, sdk: Any, common: Json) -> Any:
        settings = self.settings
        token_provider = self._tokens.token if self._tokens else None
        if settings.used_version == V1:
            key = token_provider or settings.api_key or _key_from_environment()
            if key is None:  # without a key, the SDK would send the one for OpenAI
                raise ProviderError(f"no credentials: set api_key, token_command or {' or '.join(KEY_VARIABLES)}")
            return sdk.AsyncOpenAI(api_key=key, base_url=settings.base_url, **common)
        return sdk.AsyncAzureOpenAI(
            api_key=settings.api_key,
            azure_ad_token_provider=token_provider,
            azure_endpoint=settings.endpoint,
            azure_deployment=settings.deployment or settings.model,
            api_version=settings.used_version,
            **common,
        )

    def batches(self) -> BatchApi:
        path = self._format.path
        # the dated versions have an address of their own for chat completions
        is_dated = self.settings.used_version != V1 and self.settings.api != "responses"
        if not is_dated:
            path = f"/v1{path}"
        return OpenAIBatches(self, path, AZURE_LIMITS, _processes_files=True)

    async def ask(self, client: Any, prompt: Prompt) -> Completion:
        """Return the answer. If a known token is refused, retry once with a new one: it may have expired."""
        known = self._tokens.known if self._tokens else None
        try:
            return await super().ask(client, prompt)
        except ProviderError as error:
            if self._tokens is None or known is None or error.status != UNAUTHORIZED:
                raise
            self._tokens.forget(known)
        return await super().ask(client, prompt)


def _key_from_environment() -> str | None:
    for name in KEY_VARIABLES:
        key = os.environ.get(name)
        if key:
            return key
    return None
