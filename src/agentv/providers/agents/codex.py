"""Codex, through `codex exec --json`, which tells what it does as a stream of JSON events."""

import json
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.formats.wire import text_of
from agentv.protocols import Provider
from agentv.providers.agents.agent import CodingAgent, CodingAgentSettings
from agentv.providers.agents.transcript import AgentFailure, InnerRetry, Transcript, may_pass
from agentv.providers.network import server_message
from agentv.providers.pricing import Pricing
from agentv.providers.settings import IS_PRICE
from agentv.records import Json, ProviderRequest, TokenUsage

INPUTS = {
    "command_execution": "command",
    "file_change": "changes",
    "web_search": "query",
    "todo_list": "items",
    "collab_tool_call": "prompt",
}
"""The items that are tools of Codex's own, and what each is given. The rest of an item is what came of it."""
TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cached_input_tokens",
    "cache_write": "cache_write_input_tokens",
    "reasoning": "reasoning_output_tokens",
}
FAILED, DECLINED = "failed", "declined"
BAD_REQUEST = 400
_RECONNECTING = re.compile(r"Reconnecting\.\.\. (\d+)/\d+(?: \((.*)\))?\s*", re.DOTALL)
_STATUS = re.compile(r"(?:^|unexpected status |last status: |HTTP error: )([45]\d\d)\b")
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_QUOTED = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.DOTALL)
_SHELL = re.compile(r"(?:\S*/)?(?:ba|z|da|k)?sh")


class CodexSettings(CodingAgentSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Codex."""

    kind: ClassVar[str] = "codex"
    program: ClassVar[str] = "codex"
    install: ClassVar[str] = "npm install -g @openai/codex"

    price_prefix: ClassVar[str] = "openai"
    """Price lists have Codex's models as OpenAI's."""

    pricing: Annotated[Pricing | None, Meta(description="What tokens cost, to report what a run cost."), IS_PRICE] = (
        None
    )

    def open(self, folder: Path) -> Provider:
        return Codex(self, folder)


class Codex(CodingAgent):
    """Runs `codex exec` for each request."""

    def __init__(self, settings: CodexSettings, folder: Path):
        super().__init__(settings, folder)
        self._model, self._system_prompt = settings.model, settings.system_prompt
        self._keep_sessions, self._pricing = settings.keep_sessions is True, settings.pricing

    def arguments(self, request: ProviderRequest, extra: tuple[str, ...]) -> list[str]:
        arguments = ["exec", "--json"]
        if not self._keep_sessions and "--ephemeral" not in extra:
            arguments.append("--ephemeral")
        if self._model:
            arguments += ["--model", self._model]
        if self._system_prompt:
            arguments += ["-c", f"developer_instructions={_toml(self._system_prompt)}"]
        if self.workspaces.are_fresh and "--skip-git-repo-check" not in extra:
            arguments.append("--skip-git-repo-check")  # else it works in repos only
        end = () if "--" in extra else ("--",)  # an option that takes several values would take the dash as well
        return [*arguments, *extra, *end, "-"]

    def transcript(self) -> Transcript:
        return CodexTranscript(self._pricing)


def _toml(text: str) -> str:
    """Return a text as a string in TOML, which is one in JSON but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class CodexTranscript(Transcript):
    """The items of a thread of Codex: messages, and calls of tools."""

    def __init__(self, pricing: Pricing | None = None) -> None:
        super().__init__()
        self._pricing = pricing

    def cost(self, usage: TokenUsage | None) -> float | None:
        return None if usage is None or self._pricing is None else self._pricing.cost(usage)

    def add(self, event: Json) -> str:
        match event:
            case {"type": "item.started" | "item.updated" | "item.completed" as kind, "item": {"type": str()} as item}:
                return self._item(item, event, is_completed=kind == "item.completed")
            case {"type": "turn.completed"}:
                self.failure, self.retry, self.is_complete = None, None, True  # whatever went wrong on the way
                self._count(event.get("usage"))
                return f"turn.completed: {text_of(event.get('usage'))}"
            case {"type": "turn.failed"}:
                return self._fail("turn.failed", event.get("error"))
            case {"type": "error"}:
                return self._add_retry(event) or self._fail("error", event.get("message", event))
            case {"type": str(kind)}:
                return kind
        return ""

    def _item(self, item: Json, event: Json, *, is_completed: bool) -> str:
        if (kind := item["type"]) != "error":
            self.retry = None  # it has gone on
        match item:
            case {"type": "agent_message" | "reasoning" | "error"}:
                text = item.get("message" if kind == "error" else "text")
                if not is_completed or not isinstance(text, str):
                    return ""
                if kind == "agent_message":
                    self.add_message(text)
                    self.answer = text
                return f"{kind}: {text}"
            case {"type": "mcp_tool_call", "server": str(server), "tool": str(tool)}:
                output = item.get("error") or item.get("result")
                return self._add_tool_use(f"{server}.{tool}", item.get("arguments"), output, event, agent_tool=kind)
            case _ if kind in INPUTS:
                return self._add_own_tool(kind, item, event)
        self.add_unknown(kind, item.get("id"))
        return f"{kind}: {text_of(item)}"

    def _add_own_tool(self, kind: str, item: Json, event: Json) -> str:
        """Add the use of a tool of Codex's own."""
        name, tool, metadata = INPUTS[kind], kind, {}
        input_ = item.get(name)
        if kind == "collab_tool_call" and isinstance(item.get("tool"), str):
            tool, metadata = item["tool"], {"agent_tool": kind}
        elif kind == "command_execution" and isinstance(input_, str) and (script := shell_script(input_)) is not None:
            input_, metadata = script, {"raw_command": input_}
        left_out = ("id", "type", name, *(("tool",) if kind == "collab_tool_call" else ()))
        output = {key: item[key] for key in item if key not in left_out}
        return self._add_tool_use(tool, {name: input_}, output or None, event, **metadata)

    def _add_tool_use(self, tool: str, input_: Any, output: Any, event: Json, **metadata: Any) -> str:
        """Add the use of a tool. An item without an id is only added once it is complete."""
        item, is_completed = event["item"], event["type"] == "item.completed"
        status = item.get("status")
        if is_completed or isinstance(item.get("id"), str):
            is_known = self.has_call(item.get("id"))
            call = self.add_call(tool, input_, item.get("id"), event, **metadata)
            call["output"] = output
            if is_completed:
                self.end_call(call, output, event if is_known else None, is_error=status in (FAILED, DECLINED))
        if status == DECLINED:
            self.add_denied(item.get("id"), tool, input_)
        return f"{tool}: {text_of(input_)}" + (f" gave: {text_of(output)}" if is_completed else "")

    def _add_retry(self, event: Json) -> str:
        """Add a request that Codex repeats, if an event tells of one; return what it means."""
        message = event.get("message")
        found = _RECONNECTING.fullmatch(message) if isinstance(message, str) else None
        if found is None:
            return ""
        reason = found[2] or "a failure that it does not name"
        status = _status(reason)
        self.retry = InnerRetry(int(found[1]), reason, may_pass(status, reason), status)
        return f"retry: {reason}"

    def _fail(self, kind: str, error: Any) -> str:
        message = error.get("message") if isinstance(error, dict) else error
        text = "" if message is None else text_of(message)
        status = _status(text)
        if text.startswith("{") and isinstance(message, str):  # what the server answered to a bad request
            text, status = server_message(text.encode()), BAD_REQUEST
        self.failure, self.retry = AgentFailure(text, may_pass(status, text), status), None
        return f"{kind}: {text}"

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.figures = {"token_usage": {name: usage.get(key) for name, key in TOKENS.items()}}


def _status(message: str) -> int | None:
    """Return the status of the HTTP request that a message tells of, if it does."""
    found = _STATUS.search(message)
    return int(found[1]) if found else None


def shell_script(command: str) -> str | None:
    """Return the script of a command that only has a shell run one: `ls` of `/bin/bash -lc ls`; None for another."""
    words = _WORD.findall(command)
    if len(words) != 3 or words[1] not in ("-lc", "-c") or not _SHELL.fullmatch(words[0]):
        return None
    if "".join(_WORD.split(command)).strip():
        return None  # a quote is left open
    return _QUOTED.sub(_unquote, words[2])


def _unquote(quoted: re.Match[str]) -> str:
    """Return what a shell makes of a quoted part of a word."""
    single, double, escaped = quoted.groups()
    if double is not None:
        return re.sub(r'\\([$`"\\])', r"\1", double.replace("\\\n", ""))
    return single if single is not None else "" if escaped == "\n" else escaped
