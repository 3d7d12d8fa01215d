"""A server on loopback that speaks OpenAI's wire format, with answers that a test chooses."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = str | dict[str, Any] | int
"""What is said: a text, a message, or only an HTTP status."""


class Server:
    """Remembers what it was asked."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer], seconds: float):
        self.answer, self.seconds = answer, seconds
        self.asked: list[dict[str, Any]] = []
        self.at_work = self.most = 0
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def openai_server(answer: Callable[[dict[str, Any]], Answer], seconds: float = 0.0) -> Iterator[Server]:
    """Serve answers to chat completions."""
    state = Server(answer, seconds)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                state.asked.append(body)
                state.at_work += 1
                state.most = max(state.most, state.at_work)
            time.sleep(state.seconds)
            said = state.answer(body)
            status = said if isinstance(said, int) else 200
            data = json.dumps(
                completion(said) if not isinstance(said, int) else {"error": {"message": "no luck"}}
            ).encode()
            with state.lock:
                state.at_work -= 1
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Not to the terminal."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Clients may go away."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield state
        server.shutdown()
        thread.join()


def completion(said: str | dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": said} if isinstance(said, str) else {"role": "assistant", **said}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "judge",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
