"""A language model: a request goes out, an answer with its costs comes back.

The vendors' SDKs differ in how they are called; `sdk.py` has what OpenAI's and Anthropic's share.
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
"""The name of the message that holds what a model thought before it answered."""
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
"""The reasons to stop, from the vendors' words to ours; any other is `other`. Compatible servers mix them."""


class LanguageModel(NetworkProvider, Generic[S]):
    """Sends the chat turns to a vendor's model, once: repeating what failed is the caller's task."""

    def __init__(self, settings: S):
        super().__init__(settings)
        self.settings = settings

    @abstractmethod
    async def ask(self, client: Any, prompt: Prompt) -> Completion:
        """Return what the model answers; raise `ProviderError` if it does not."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        client = self.client()
        prompt = await self.prompt(request)
        start = time.perf_counter()
        answer = await self.ask(client, prompt)
        duration_ms = _milliseconds(start, time.perf_counter())
        first = answer.first_token_at
        return self._response(answer, duration_ms, None if first is None else _milliseconds(start, first))

    @abstractmethod
    def batches(self) -> BatchApi:
        """Return the vendor's batch API."""

    @abstractmethod
    async def body(self, request: ProviderRequest) -> Json:
        """Return what is sent for a request that is not streamed."""

    @abstractmethod
    def completion(self, reply: bytes) -> Completion:
        """Return the completion in the body of a reply; raise `ProviderError` if there is none."""

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
        usage, pricing = answer.usage, self.settings.pricing
        cost = answer.cost_usd if usage is None or pricing is None else pricing.cost(usage, batch=batch)
        if refusal := answer.refusal or _emptiness(answer):
            paid = ProviderResponse(text="", token_usage=usage, cost_usd=cost, batch=True if batch else None)
            raise ProviderError(refusal, partial=None if usage is None and cost is None else paid)
        reasoning = (Message(role="assistant", name=REASONING, content=answer.reasoning),) if answer.reasoning else ()
        message = Message(role="assistant", content=answer.text or None, tool_calls=answer.calls or None)
        return ProviderResponse(
            text=answer.text,
            output_messages=(*reasoning, message),
            token_usage=usage,
            cost_usd=cost,
            duration_ms=duration_ms,
            ttft_ms=ttft_ms,
            stop_reason=_stop_reason(answer),
            batch=True if batch else None,
        )

    async def prompt(self, request: ProviderRequest) -> Prompt:
        """Return what the model is asked."""
        system = self.settings.system_prompt
        start = [Turn("system", system)] if system else []
        return Prompt([*start, *turns_of(request, await load_media(request))], request.response_schema)


def _milliseconds(start: float, end: float) -> float:
    return round((end - start) * 1000, 3)


def _emptiness(answer: Completion) -> str:
    """Return that an answer is empty; nothing if it is not."""
    if answer.text.strip() or answer.calls:
        return ""
    why = f" (it stopped for the reason {answer.stop_reason!r})" if answer.stop_reason else ""
    return f"the model gave an empty answer{why}"


def _stop_reason(answer: Completion) -> str | None:
    """Return why the model stopped, in the words that are the same for all vendors."""
    if not answer.stop_reason:
        return None
    reason = STOP_REASONS.get(answer.stop_reason, "other")
    return "tool_calls" if reason == "stop" and answer.calls else reason
