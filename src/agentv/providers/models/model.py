"""The base of all language models: sends a request and returns the answer with its cost.

The vendors' SDKs are called in different ways; `sdk.py` has what OpenAI's and Anthropic's share.
"""

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from agentv.errors import ProviderError
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.conversation import Completion, Prompt, Turn, turns_of
from agentv.providers.models.media import load_media
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import NetworkProvider
from agentv.records import Json, Message, ProviderRequest, ProviderResponse

S = TypeVar("S", bound=LanguageModelSettings)
REASONING = "reasoning"
"""The name of the message that has the reasoning of a model."""
STOP_REASONS: Mapping[str, str] = {
    "stop": "stop",
    "STOP": "stop",
    "completed": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "refusal",
    "refusal": "refusal",
}
"""Our stop reason for each of the vendors'; any other is `other`. Compatible servers mix the vendors' terms."""


class LanguageModel(NetworkProvider, Generic[S]):
    """Sends the turns of a chat to a vendor's model. Retries are the responsibility of the caller."""

    def __init__(self, settings: S):
        super().__init__(settings)
        self.settings = settings

    @abstractmethod
    async def ask(self, client: Any, prompt: Prompt) -> Completion:
        """Return the model's answer. Raise `ProviderError` if there is none."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        client = self.client()
        prompt = await self.prompt(request)
        start = time.perf_counter()
        answer = await self.ask(client, prompt)
        duration_ms = _milliseconds(start, time.perf_counter())
        ttft_ms = None
        if answer.first_token_at is not None:
            ttft_ms = _milliseconds(start, answer.first_token_at)
        return self._response(answer, duration_ms, ttft_ms)

    @abstractmethod
    def batches(self) -> BatchApi:
        """Return the vendor's batch API."""

    @abstractmethod
    async def body(self, request: ProviderRequest) -> Json:
        """Return the body of a request that is not streamed."""

    @abstractmethod
    def completion(self, reply: bytes) -> Completion:
        """Return the completion in the body of a reply. Raise `ProviderError` if it has none."""

    def response_to(self, reply: bytes) -> ProviderResponse:
        return self._response(self.completion(reply), batch=True)

    def _response(
        self,
        answer: Completion,
        duration_ms: float | None = None,
        ttft_ms: float | None = None,
        *,
        batch: bool = False,
    ) -> ProviderResponse:
        """Return the response. Raise `ProviderError`, with what the answer cost, if it is refused or empty."""
        cost = self._cost(answer, batch=batch)
        refusal = answer.refusal or _emptiness(answer)
        if refusal:
            raise ProviderError(refusal, partial=_paid(answer, cost, batch=batch))
        messages = []
        if answer.reasoning:
            messages.append(Message(role="assistant", name=REASONING, content=answer.reasoning))
        message = Message(
            role="assistant",
            content=answer.text or None,
            tool_calls=answer.calls or None,
        )
        messages.append(message)
        return ProviderResponse(
            text=answer.text,
            output_messages=tuple(messages),
            token_usage=answer.usage,
            cost_usd=cost,
            duration_ms=duration_ms,
            ttft_ms=ttft_ms,
            stop_reason=_stop_reason(answer),
            batch=batch or None,
        )

    def _cost(self, answer: Completion, *, batch: bool) -> float | None:
        """Return the cost by the prices in the settings, or as the server reports it."""
        pricing = self.settings.pricing
        if pricing is None or answer.usage is None:
            return answer.cost_usd
        return pricing.cost(answer.usage, batch=batch)

    async def prompt(self, request: ProviderRequest) -> Prompt:
        """Return the prompt for a request."""
        turns = turns_of(request, await load_media(request))
        if self.settings.system_prompt:
            turns.insert(0, Turn("system", self.settings.system_prompt))
        return Prompt(turns, request.response_schema)


def client_key(api_key: str | None, base_url: str | None) -> str | None:
    """Return the API key to create a client with; for None, an SDK uses the environment.

    A server at `base_url` needs no key, and must not get the vendor's key from the environment.
    """
    if api_key:
        return api_key
    if base_url:
        return "none"
    return None


def _milliseconds(start: float, end: float) -> float:
    return round((end - start) * 1000, 3)


def _paid(answer: Completion, cost: float | None, *, batch: bool) -> ProviderResponse | None:
    """Return the tokens and the cost of an answer that cannot be used, if they are known."""
    if answer.usage is None and cost is None:
        return None
    return ProviderResponse(
        text="",
        token_usage=answer.usage,
        cost_usd=cost,
        batch=batch or None,
    )


def _emptiness(answer: Completion) -> str:
    """Return an error message if an answer is empty, or "" if it is not."""
    if answer.text.strip() or answer.calls:
        return ""
    message = "the model returned an empty answer"
    if answer.stop_reason:
        message += f" (stop reason: {answer.stop_reason})"
    return message


def _stop_reason(answer: Completion) -> str | None:
    """Return why the model stopped, in terms that are the same for all vendors."""
    if not answer.stop_reason:
        return None
    reason = STOP_REASONS.get(answer.stop_reason, "other")
    if reason == "stop" and answer.calls:
        return "tool_calls"
    return reason
