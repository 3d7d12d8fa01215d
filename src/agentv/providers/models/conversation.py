"""What language models share: the turns that are sent, the answer that comes back, and what it cost.

Each vendor has its own form of a conversation; a `Turn` is what they have in common.
"""

import importlib
import itertools
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.formats.wire import mended_json
from agentv.providers.network import NetworkProvider, connection_error, excerpt
from agentv.providers.settings import LanguageModelSettings, Pricing
from agentv.providers.transport import make_transport
from agentv.records import Json, Message, ProviderRequest, ProviderResponse, Role, TokenUsage, ToolCall

T = TypeVar("T")
S = TypeVar("S", bound=LanguageModelSettings)
REASONING = "reasoning"
"""The name of the message that holds what a model thought before it answered."""


class Turn(NamedTuple):
    """One turn of a conversation. Calls of tools have ids; a turn of a tool says which call it answers."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: ToolCall | None = None


class Completion(NamedTuple):
    """What a model answered."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    stop_reason: str = ""
    """Why it went no further, in the vendor's words."""


class LanguageModel(NetworkProvider, Generic[S]):
    """Sends the chat turns to a vendor's model, once: repeating what failed is the caller's task."""

    stop_reasons: ClassVar[Mapping[str, str]]
    """The reasons to stop, from the vendor's words to ours; any other is `other`."""

    def __init__(self, settings: S):
        super().__init__(settings)
        self.settings = settings

    @abstractmethod
    async def ask(self, client: Any, request: ProviderRequest) -> Completion:
        """Return what the model answers; raise `ProviderError` if it does not."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        client = self.client()
        start = time.perf_counter()
        answer = await self.ask(client, request)
        duration_ms = round((time.perf_counter() - start) * 1000, 3)
        if not answer.text.strip() and not answer.calls:
            why = f" (it stopped for the reason {answer.stop_reason!r})" if answer.stop_reason else ""
            raise ProviderError(f"the model gave an empty answer{why}")
        reasoning = (Message(role="assistant", name=REASONING, content=answer.reasoning),) if answer.reasoning else ()
        message = Message(role="assistant", content=answer.text or None, tool_calls=answer.calls or None)
        cost = _cost(answer.usage, self.settings.pricing)
        return ProviderResponse(
            text=answer.text,
            output_messages=(*reasoning, message),
            token_usage=answer.usage,
            cost_usd=answer.cost_usd if cost is None else cost,
            duration_ms=duration_ms,
            stop_reason=self._stop_reason(answer),
        )

    def _stop_reason(self, answer: Completion) -> str | None:
        """Return why the model stopped, in the words that are the same for all vendors."""
        if not answer.stop_reason:
            return None
        reason = self.stop_reasons.get(answer.stop_reason, "other")
        return "tool_calls" if reason == "stop" and answer.calls else reason

    def client_options(self) -> dict[str, Any]:
        """Return options for OpenAI's and Anthropic's clients: no retries and no timeouts, which are the caller's."""
        http = self.module().DefaultAsyncHttpxClient(timeout=None, transport=make_transport(self._httpx()))
        return {"max_retries": 0, "timeout": None, "http_client": http}

    def _httpx(self) -> Any:
        """Return the httpx that the SDK is built on."""
        kinds = self.module().DefaultAsyncHttpxClient.__mro__
        (package,) = {kind.__module__ for kind in kinds if kind.__name__ == "AsyncClient"}
        return importlib.import_module(package.partition(".")[0])

    async def post(self, client: Any, path: str, body: Json, sdk_error: type[Exception]) -> bytes:
        """Return the body of the reply; raise `ProviderError` for any other than success.

        OpenAI's and Anthropic's SDKs come from one generator, so this serves both. Their methods for each kind of
        request check all that is sent against their types, which takes as long as all the rest.
        """
        sdk = self.module()
        more = {"extra_json": self.settings.options} if self.settings.options else {}
        try:
            response = await client.post(path, body=body, cast_to=self._httpx().Response, options=more)
            return response.content  # type: ignore[no-any-return]
        except sdk.APIStatusError as error:
            raise self.status_error(error.status_code, error.response.content, error.response.headers) from error
        except sdk.APIConnectionError as error:
            raise connection_error(error.__cause__ or error) from error
        except (sdk_error, ValueError, TypeError) as error:  # no key, or options that are no JSON
            raise ProviderError(excerpt(str(error)) or type(error).__name__) from error


def turns_of(request: ProviderRequest) -> list[Turn]:
    """Return the turns of a request. What a tool said without having been called becomes a turn of the user."""
    turns: list[Turn] = []
    unanswered: list[ToolCall] = []
    numbers = itertools.count(1)
    for message in request.chat_prompt or (Message(role="user", content=request.question),):
        text = _text(message.content)
        if message.role == "tool":
            call = next((call for call in unanswered if message.name in (None, call.tool, call.id)), None)
            if call is not None:
                unanswered.remove(call)
            turns.append(Turn("tool", text, answers=call) if call else Turn("user", f"@[Tool]:\n{text}"))
            continue
        calls = tuple(
            msgspec.structs.replace(call, id=call.id or f"call_{next(numbers)}") for call in message.tool_calls or ()
        )
        unanswered += [call for call in calls if call.output is None]
        turns.append(Turn(message.role, text, calls))
        turns += [Turn("tool", _text(call.output), answers=call) for call in calls if call.output is not None]
    return turns


def split_system(request: ProviderRequest, system_prompt: str | None) -> tuple[str, list[Turn]]:
    """Return the system prompt and the other turns, for vendors whose requests keep the two apart.

    Such a request needs a turn: if there are only system messages, the last one is sent as the user's.
    """
    turns = turns_of(request)
    others = [turn for turn in turns if turn.role != "system"]
    system = [turn.text for turn in turns if turn.role == "system"]
    if not others:
        others = [Turn("user", system.pop())]
    return "\n\n".join(filter(None, [system_prompt, *system])), others


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; any other text as it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def decode(body: bytes, type_: type[T]) -> T:
    """Return the body of a reply as a `type_`; raise `ProviderError` if it is none."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise ProviderError(f"the model's answer is malformed: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        if (mended := mended_json(body)) is not None:
            return decode(mended, type_)
        shown = excerpt(body.decode("utf-8", "replace"))
        raise ProviderError(f"the model's answer is no JSON: {shown or 'it is empty'}") from error


def _text(content: Any) -> str:
    """Return the content of a message, or the output of a tool, as text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(hasattr(block, "value") for block in content):
        return "\n".join(block.value for block in content)
    return msgspec.json.encode(content).decode()


def _cost(usage: TokenUsage | None, pricing: Pricing | None) -> float | None:
    """Return what the tokens cost in USD, if prices are set; cached tokens may have a price of their own."""
    if usage is None or pricing is None:
        return None
    cached = usage.cached or 0
    fresh = (usage.input or 0) - cached
    price = float(pricing.input or 0)
    cached_price = price if pricing.cached is None else float(pricing.cached)
    return (fresh * price + cached * cached_price + (usage.output or 0) * float(pricing.output or 0)) / 1_000_000
