"""A model deployed on Azure OpenAI."""

from typing import Annotated

from msgspec import Meta

from agentv.providers.settings import LanguageModelSettings, Text


class AzureSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model deployed on Azure; `model` and `deployment` mean the same, and so do the two versions."""

    endpoint: Annotated[Text, Meta(description="https://RESOURCE.openai.azure.com")]
    deployment: Annotated[Text | None, Meta(description="The deployment's name.")] = None
    version: Annotated[Text | None, Meta(description="The API version.")] = None
    api_version: Annotated[Text | None, Meta(description="The API version.")] = None
