"""A loopback server with the formats of language model vendors, whose answers a test chooses."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ProviderError
from agentv.files.conversion import convert
from agentv.providers import settings_type
from agentv.records import Message, ProviderRequest, ProviderResponse
from tests.kits.model_streams import event_stream
from tests.kits.processes import PATIENCE_SECONDS

VENDORS = ("openai", "azure", "anthropic", "gemini")
RESPONSES = ("openai-responses", "azure-responses")
"""The vendors that have a second API."""


class Says(NamedTuple):
    """What a model says, in nobody's format. It is given 11 tokens, of which some may be cached, and uses 7.

    `reasoning` of those are thoughts; `stop` is why it stops, in the vendor's words.
    """

    text: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    thinking: str = ""
    refusal: str = ""
    cached: int = 0
    reasoning: int = 0
    stop: str = ""


class Reply(NamedTuple):
    """What goes over the wire, be it ever so odd; `cut` ends the connection in the middle of it.

    With `pause`, only the first half is sent until that event is set.
    """

    status: int = 200
    body: Any = b""
    headers: dict[str, str] | None = None
    cut: bool = False
    pause: threading.Event | None = None


Answer = str | dict[str, Any] | int | Says | Reply
"""What is said: a text, a message in the format of the vendor, only an HTTP status, or one of the above."""


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    content: bytes


class Server:
    """Records its requests."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer], seconds: float):
        self.answer, self.seconds = answer, seconds
        self.asked: list[dict[str, Any]] = []
        self.requests: list[Asked] = []
        self.at_work = self.most = self.connections = 0
        self.lock = threading.Lock()
        self.url = ""

    def target(self, vendor: str, **settings: Any) -> dict[str, Any]:
        """The settings of a target that is this server."""
        own: dict[str, dict[str, Any]] = {
            "openai": {"model": "gpt-5", "base_url": f"{self.url}/v1"},
            "azure": {"deployment": "mine", "endpoint": self.url},
            "anthropic": {"model": "claude-5", "base_url": self.url},
            "gemini": {"base_url": self.url},
            "http": {"url": f"{self.url}/agent"},
        }
        vendor, _, api = vendor.partition("-")
        more = {"api_key": "secret-key-123"} if vendor in VENDORS else {}
        if api:
            more["api"] = api
        return {"name": "default", "provider": vendor, **own[vendor], **more, **settings}


@contextmanager
def openai_server(answer: Callable[[dict[str, Any]], Answer], seconds: float = 0.0) -> Iterator[Server]:
    """Serve answers to chat completions; the URL is that of the API."""
    with model_server(answer, seconds) as server:
        server.url += "/v1"
        yield server


@contextmanager
def model_server(answer: Callable[[dict[str, Any]], Answer], seconds: float = 0.0) -> Iterator[Server]:
    """Serve answers in the format of whichever vendor is asked; any other path is a plain JSON endpoint."""
    state = Server(answer, seconds)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            with state.lock:
                state.connections += 1

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.loads(content) if content else {}
            with state.lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                state.requests.append(Asked(self.command, self.path, headers, content))
                state.asked.append(body)
                state.at_work += 1
                state.most = max(state.most, state.at_work)
            time.sleep(state.seconds)
            reply = _reply(self.path, state.answer(body))
            if isinstance(reply.body, dict) and reply.status == 200:
                reply = streamed(self.path, body, reply)
            with state.lock:
                state.at_work -= 1
            data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **(reply.headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data) + reply.cut))
            self.end_headers()
            if reply.pause is not None:
                self.wfile.write(data[: len(data) // 2])
                data = data[len(data) // 2 :]
                reply.pause.wait(PATIENCE_SECONDS)
            self.wfile.write(data)
            self.close_connection = reply.cut

        do_GET = do_PUT = do_POST

        def log_message(self, *_: object) -> None:
            """Not to the terminal."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            """Clients may go away."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield state
        server.shutdown()
        thread.join()


@contextmanager
def nobody_there() -> Iterator[Server]:
    """An unreachable server: its port is bound, but nothing listens on it."""
    state = Server(lambda _: "never", 0.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        state.url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        yield state


def _reply(path: str, said: Answer) -> Reply:
    if isinstance(said, Reply):
        return said
    if isinstance(said, int):
        return Reply(said, {"error": {"message": "no luck"}})
    path = path.partition("?")[0]
    formats = {
        "/chat/completions": completion,
        "/responses": response_object,
        "/messages": anthropic_message,
        ":generateContent": gemini_content,
        ":streamGenerateContent": gemini_content,
    }
    speak = next((format_ for end, format_ in formats.items() if path.endswith(end)), None)
    return Reply(body=speak(said) if speak else said)


def streamed(path: str, asked: dict[str, Any], reply: Reply) -> Reply:
    """The same as a stream of events, if that was asked for."""
    if "streamGenerateContent" not in path and not asked.get("stream"):
        return reply
    headers = {"Content-Type": "text/event-stream"} | (reply.headers or {})
    return reply._replace(body=event_stream(path, reply.body), headers=headers)


def completion(said: str | dict[str, Any] | Says) -> dict[str, Any]:
    """An answer as OpenAI gives it."""
    says = Says(said) if isinstance(said, str) else said
    message: dict[str, Any] = {"role": "assistant"}
    usage: dict[str, Any] = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    if isinstance(says, dict):
        message |= says
    else:
        message |= {"content": says.text, "refusal": says.refusal or None}
        if says.thinking:
            message["reasoning_content"] = says.thinking
        if says.calls:
            message["tool_calls"] = [
                {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                for name, given in says.calls
            ]
        if says.cached:
            usage["prompt_tokens_details"] = {"cached_tokens": says.cached}
        if says.reasoning:
            usage["completion_tokens_details"] = {"reasoning_tokens": says.reasoning}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "judge",
        "choices": [{"index": 0, "message": message, "finish_reason": getattr(says, "stop", "") or "stop"}],
        "usage": usage,
    }


def response_object(said: str | dict[str, Any] | Says) -> dict[str, Any]:
    """An answer as OpenAI's Responses API gives it."""
    if isinstance(said, dict):
        return {**response_object(""), **said}
    says = Says(said) if isinstance(said, str) else said
    output: list[dict[str, Any]] = []
    if says.thinking:
        thought = {"type": "summary_text", "text": says.thinking}
        output.append({"type": "reasoning", "id": "rs_1", "summary": [thought]})
    if says.refusal:
        said_no = {"type": "refusal", "refusal": says.refusal}
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "content": [said_no]})
    elif says.text is not None:
        text = {"type": "output_text", "text": says.text, "annotations": []}
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "content": [text]})
    output += [
        {"type": "function_call", "id": "fc_1", "call_id": f"id-{name}", "name": name, "arguments": json.dumps(given)}
        for name, given in says.calls
    ]
    usage: dict[str, Any] = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    if says.cached:
        usage["input_tokens_details"] = {"cached_tokens": says.cached}
    if says.reasoning:
        usage["output_tokens_details"] = {"reasoning_tokens": says.reasoning}
    return {
        "id": "resp_1",
        "object": "response",
        "status": "incomplete" if says.stop else "completed",
        "incomplete_details": {"reason": says.stop} if says.stop else None,
        "error": None,
        "output": output,
        "usage": usage,
    }


def anthropic_message(said: str | dict[str, Any] | Says) -> dict[str, Any]:
    """An answer as Anthropic gives it."""
    if isinstance(said, dict):
        return {**anthropic_message(""), **said}
    says = Says(said) if isinstance(said, str) else said
    content: list[dict[str, Any]] = []
    if says.thinking:
        content.append({"type": "thinking", "thinking": says.thinking, "signature": "abc"})
    if says.text is not None:
        content.append({"type": "text", "text": says.text})
    content += [{"type": "tool_use", "id": f"id-{name}", "name": name, "input": given} for name, given in says.calls]
    refused = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": says.refusal}}
    usage = {"input_tokens": 11 - says.cached, "output_tokens": 7, "cache_read_input_tokens": says.cached}
    thoughts = {"output_tokens_details": {"thinking_tokens": says.reasoning}} if says.reasoning else {}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-5",
        "content": content,
        "stop_reason": says.stop or ("tool_use" if says.calls else "end_turn"),
        "usage": usage | thoughts,
        **(refused if says.refusal else {}),
    }


def gemini_content(said: str | dict[str, Any] | Says) -> dict[str, Any]:
    """An answer as Google gives it."""
    if isinstance(said, dict):
        return said
    says = Says(said) if isinstance(said, str) else said
    parts: list[dict[str, Any]] = []
    if says.thinking:
        parts.append({"text": says.thinking, "thought": True})
    if says.text is not None:
        parts.append({"text": says.text})
    parts += [{"functionCall": {"id": f"id-{name}", "name": name, "args": given}} for name, given in says.calls]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": says.stop or "STOP", "index": 0}
    rating = {"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": True}
    refused = {"finishReason": "SAFETY", "finishMessage": says.refusal, "safetyRatings": [rating], "index": 0}
    usage: dict[str, Any] = {"promptTokenCount": 11, "candidatesTokenCount": 7 - says.reasoning}
    if says.reasoning:
        usage["thoughtsTokenCount"] = says.reasoning
    if says.cached:
        usage["cachedContentTokenCount"] = says.cached
    return {"candidates": [refused if says.refusal else candidate], "usageMetadata": usage}


async def asked(target: dict[str, Any], *requests: ProviderRequest | str) -> list[ProviderResponse]:
    """The answers of a target to consecutive requests, through the client that a run would use."""
    settings: Any = convert(target, settings_type(target["provider"]))
    async with settings.open(Path()) as provider:
        return [
            await provider.invoke(request if isinstance(request, ProviderRequest) else a_request(request))
            for request in requests
        ]


def ask(target: dict[str, Any], request: ProviderRequest | str = "Capital of France?") -> ProviderResponse:
    """The answer of a target."""
    return asyncio.run(asked(target, request))[0]


def failing(target: dict[str, Any], request: ProviderRequest | str = "Capital of France?") -> ProviderError:
    """Why a target gives no answer."""
    try:
        answer = ask(target, request)
    except ProviderError as error:
        return error
    raise AssertionError(f"there is an answer: {answer}")


def a_request(question: str = "Capital of France?", *turns: Message) -> ProviderRequest:
    return ProviderRequest(eval_id="case-1", question=question, chat_prompt=turns)
