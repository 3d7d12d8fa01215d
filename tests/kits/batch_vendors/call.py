"""The HTTP requests and responses that all vendors have in common."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.kits.batch_vendors.store import Reply, Store

NAME = r"([^/?:]+)"
"""A name in a path."""


class Call(NamedTuple):
    """A request over HTTP."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    content: bytes
    url: str
    """Of the server."""

    def json(self) -> Any:
        return json.loads(self.content)


PAGE = 3
"""How many batches a page of their list has at most: so few that there are several pages."""
Route = Callable[[Store, Call, str], Reply]
"""What is done for a request; the text is the name in its path."""


def echo(body: Any) -> str:
    """The answer to a request in the format of any vendor: the last text that the user has written."""
    turns = body.get("messages") or body.get("input") or body.get("contents") or []
    if isinstance(turns, str):
        return f"echo: {turns}"
    said = [turn for turn in turns if turn.get("role", "user") == "user"]
    content = said[-1].get("content") or said[-1].get("parts") if said else ""
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    return f"echo: {''.join(parts)}"


def live(speak: Callable[[str], dict[str, Any]]) -> Route:
    def answer(store: Store, call: Call, _: str) -> Reply:
        said = echo(call.json())
        store.live[said.removeprefix("echo: ")] += 1
        return Reply(speak(said))

    return answer
