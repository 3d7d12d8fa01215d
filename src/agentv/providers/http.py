"""A JSON endpoint."""

from typing import Annotated, Any

from msgspec import Meta

from agentv.providers.settings import Amount, RetrySettings, Text


class HttpSettings(RetrySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that takes JSON and answers with JSON."""

    url: Annotated[Text, Meta(description="May hold {{ question }}, {{ guidelines }}, {{ eval_id }}.")]
    method: Annotated[Text | None, Meta(description="POST if left out.")] = None
    headers: Annotated[dict[str, str] | None, Meta(description="Sent with every request.")] = None
    body: Annotated[Any, Meta(description="A JSON value; its strings may hold {{ question }} and others.")] = None
    response_path: Annotated[Text | None, Meta(description="The way to the answer: choices[0].message.content")] = None
    timeout_seconds: Annotated[Amount | None, Meta(description="How long one case may take.")] = None
