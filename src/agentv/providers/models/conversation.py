"""What language models share: the turns that are sent, the answer that comes back, and what it cost.

Each vendor has its own form of a conversation; a `Turn` is what they have in common.
"""

import importlib
import itertools
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.formats.wire import mended_json
from agentv.providers.network import Networked, beginning, connection_error
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


class Said(NamedTuple):
    """What a model answered; `stopped` is why it went no further, in the vendor's words."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    stopped: str = ""


class LanguageModel(Networked, Generic[S]):
    """Asks a vendor's model once, with the chat turns. Who repeats what failed is somebody else."""

    def __init__(self, settings: S):
        super().__init__(settings)
        self.settings = settings

    @abstractmethod
    async def ask(self, client: Any, request: ProviderRequest) -> Said:
        """What the model says; `ProviderError` when that is nothing."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        client = self.client()
        start = time.perf_counter()
        said = await self.ask(client, request)
        took = round((time.perf_counter() - start) * 1000, 3)
        if not said.text.strip() and not said.calls:
            why = f" (it stopped for the reason {said.stopped!r})" if said.stopped else ""
            raise ProviderError(f"the model gave an empty answer{why}")
        thought = (Message(role="assistant", name=REASONING, content=said.reasoning),) if said.reasoning else ()
        spoken = Message(role="assistant", content=said.text or None, tool_calls=said.calls or None)
        cost = _cost(said.usage, self.settings.pricing)
        return ProviderResponse(
            text=said.text,
            output_messages=(*thought, spoken),
            token_usage=said.usage,
            cost_usd=said.cost_usd if cost is None else cost,
            duration_ms=took,
        )

    def alone(self) -> dict[str, Any]:
        """How OpenAI's and Anthropic's clients are made: they repeat nothing themselves, and wait as long as we do."""
        http = self.module().DefaultAsyncHttpxClient(timeout=None, transport=make_transport(self._httpx()))
        return {"max_retries": 0, "timeout": None, "http_client": http}

    def _httpx(self) -> Any:
        """Whichever httpx the SDK is built on."""
        kinds = self.module().DefaultAsyncHttpxClient.__mro__
        (package,) = {kind.__module__ for kind in kinds if kind.__name__ == "AsyncClient"}
        return importlib.import_module(package.partition(".")[0])

    async def posted(self, client: Any, path: str, body: Json, sdk_error: type[Exception]) -> bytes:
        """The body of the answer to a body. OpenAI's and Anthropic's SDKs come from one generator.

        Their methods for each kind of request would look at all that is sent, against types that they know, for as
        long as all the rest takes.
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
        except (sdk_error, ValueError, TypeError) as error:  # such as no key, or options that are no JSON
            raise ProviderError(beginning(str(error)) or type(error).__name__) from error


def turns_of(request: ProviderRequest) -> list[Turn]:
    """The turns of a request. What a tool said without having been called is told by the user."""
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


def with_system(request: ProviderRequest, system_prompt: str | None) -> tuple[str, list[Turn]]:
    """The system's words and the turns of the others, for vendors who keep the two apart.

    They want somebody to have spoken: with nobody else there, what the system said last is the user's.
    """
    turns = turns_of(request)
    spoken = [turn for turn in turns if turn.role != "system"]
    own = [turn.text for turn in turns if turn.role == "system"]
    if not spoken:
        spoken = [Turn("user", own.pop())]
    return "\n\n".join(filter(None, [system_prompt, *own])), spoken


def value_of(text: str) -> Any:
    """The JSON value that a text is, else the text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def decoded(body: bytes, type_: type[T]) -> T:
    """The answer in its vendor's form; `ProviderError` when it has not got it."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise ProviderError(f"the model's answer is malformed: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        if (mended := mended_json(body)) is not None:
            return decoded(mended, type_)
        shown = beginning(body.decode("utf-8", "replace"))
        raise ProviderError(f"the model's answer is no JSON: {shown or 'it is empty'}") from error


def _text(content: Any) -> str:
    """The content of a message, or the output of a tool, as text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(hasattr(block, "value") for block in content):
        return "\n".join(block.value for block in content)
    return msgspec.json.encode(content).decode()


def _cost(usage: TokenUsage | None, pricing: Pricing | None) -> float | None:
    """What the tokens cost, where prices are known; cached ones at their own price, if they have one."""
    if usage is None or pricing is None:
        return None
    cached = usage.cached or 0
    fresh = (usage.input or 0) - cached
    price = float(pricing.input or 0)
    of_cached = price if pricing.cached is None else float(pricing.cached)
    return (fresh * price + cached * of_cached + (usage.output or 0) * float(pricing.output or 0)) / 1_000_000
