"""Codex, run as `codex exec --json`, which reports its work as a stream of JSON events."""

import json
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.files.wire import text_of
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
"""The items that are Codex's own tools, and the field with the input of each. The other fields are its output."""
COMPLETED = "item.completed"
FAILED = "failed"
DECLINED = "declined"
BAD_REQUEST = 400
_RECONNECTING = re.compile(r"Reconnecting\.\.\. (\d+)/\d+(?: \((.*)\))?\s*", re.DOTALL)
_STATUS = re.compile(r"(?:^|unexpected status |last status: |HTTP error: )([45]\d\d)\b")
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_QUOTED = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.DOTALL)
_ESCAPED_IN_DOUBLE_QUOTES = re.compile(r'\\([$`"\\])')
_SHELL = re.compile(r"(?:\S*/)?(?:ba|z|da|k)?sh")


class CodexSettings(CodingAgentSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Codex."""

    kind: ClassVar[str] = "codex"
    program: ClassVar[str] = "codex"
    install: ClassVar[str] = "npm install -g @openai/codex"

    price_prefix: ClassVar[str] = "openai"
    """Price lists contain Codex's models under OpenAI."""

    pricing: Annotated[
        Pricing | None,
        Meta(description="Token prices, to report the cost of a run."),
        IS_PRICE,
    ] = None

    def open(self, folder: Path) -> Provider:
        return Codex(self, folder)


class Codex(CodingAgent):
    """Runs `codex exec` for each request."""

    def __init__(self, settings: CodexSettings, folder: Path):
        super().__init__(settings, folder)
        self._model = settings.model
        self._system_prompt = settings.system_prompt
        self._keep_sessions = settings.keep_sessions is True
        self._pricing = settings.pricing

    def arguments(self, request: ProviderRequest, extra: tuple[str, ...]) -> list[str]:
        arguments = ["exec", "--json"]
        if not self._keep_sessions and "--ephemeral" not in extra:
            arguments.append("--ephemeral")
        if self._model:
            arguments += ["--model", self._model]
        if self._system_prompt:
            arguments += ["-c", f"developer_instructions={_toml(self._system_prompt)}"]
        if self.workspaces.are_fresh and "--skip-git-repo-check" not in extra:
            arguments.append("--skip-git-repo-check")  # without it, Codex works in Git repositories only
        arguments += extra
        if "--" not in extra:
            arguments.append("--")  # otherwise an option with several values would consume the "-"
        arguments.append("-")
        return arguments

    def transcript(self) -> Transcript:
        return CodexTranscript(self._pricing)


def _toml(text: str) -> str:
    """Return the text as a TOML string. JSON strings are valid TOML except for the DEL character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class CodexTranscript(Transcript):
    """The items of a Codex thread: messages and tool calls."""

    def __init__(self, pricing: Pricing | None = None) -> None:
        super().__init__()
        self._pricing = pricing

    def cost(self, usage: TokenUsage | None) -> float | None:
        if usage is None or self._pricing is None:
            return None
        return self._pricing.cost(usage)

    def add(self, event: Json) -> str:
        match event:
            case {"type": "item.started" | "item.updated" | "item.completed", "item": {"type": str()} as item}:
                return self._add_item(item, event)
            case {"type": "turn.completed"}:
                # failures and retries before the end no longer matter
                self.failure = None
                self.retry = None
                self.is_complete = True
                self._add_usage(event.get("usage"))
                return f"turn.completed: {text_of(event.get('usage'))}"
            case {"type": "turn.failed"}:
                return self._fail("turn.failed", event.get("error"))
            case {"type": "error"}:
                return self._add_retry(event) or self._fail("error", event.get("message", event))
            case {"type": str(kind)}:
                return kind
        return ""

    def _add_item(self, item: Json, event: Json) -> str:
        kind = item["type"]
        if kind != "error":
            self.retry = None  # Codex has continued
        match item:
            case {"type": "agent_message" | "reasoning" | "error"}:
                return self._add_text(kind, item, event)
            case {"type": "mcp_tool_call", "server": str(server), "tool": str(tool)}:
                return self._add_tool_use(
                    f"{server}.{tool}",
                    item.get("arguments"),
                    item.get("error") or item.get("result"),
                    event,
                    agent_tool=kind,
                )
            case _ if kind in INPUTS:
                return self._add_own_tool(kind, item, event)
        self.add_unknown(kind, item.get("id"))
        return f"{kind}: {text_of(item)}"

    def _add_text(self, kind: str, item: Json, event: Json) -> str:
        """Add a message, a part of the reasoning or an error, once it is complete."""
        text = item.get("message" if kind == "error" else "text")
        if event["type"] != COMPLETED or not isinstance(text, str):
            return ""
        if kind == "agent_message":
            self.add_message(text)
            self.answer = text
        return f"{kind}: {text}"

    def _add_own_tool(self, kind: str, item: Json, event: Json) -> str:
        """Add the use of one of Codex's own tools."""
        tool = kind
        input_name = INPUTS[kind]
        input_ = item.get(input_name)
        not_output = ["id", "type", input_name]
        metadata = {}
        if kind == "collab_tool_call":
            not_output.append("tool")
            if isinstance(item.get("tool"), str):
                tool = item["tool"]
                metadata["agent_tool"] = kind
        elif kind == "command_execution" and isinstance(input_, str):
            script = shell_script(input_)
            if script is not None:
                metadata["raw_command"] = input_
                input_ = script
        output = {key: item[key] for key in item if key not in not_output}
        return self._add_tool_use(
            tool,
            {input_name: input_},
            output or None,
            event,
            **metadata,
        )

    def _add_tool_use(
        self,
        tool: str,
        input_: Any,
        output: Any,
        event: Json,
        **metadata: Any,
    ) -> str:
        """Add the use of a tool. An item without an id is added only once it is complete."""
        item = event["item"]
        id_ = item.get("id")
        status = item.get("status")
        is_completed = event["type"] == COMPLETED
        if is_completed or isinstance(id_, str):
            has_started = self.has_call(id_)
            call = self.add_call(tool, input_, id_, event, **metadata)
            call["output"] = output
            if is_completed:
                end = event if has_started else None
                has_failed = status in (FAILED, DECLINED) or item.get("exit_code") not in (0, None)
                self.end_call(call, output, end, is_error=has_failed)
        if status == DECLINED:
            self.add_denied(id_, tool, input_)
        summary = f"{tool}: {text_of(input_)}"
        if is_completed:
            summary += f" returned: {text_of(output)}"
        return summary

    def _add_retry(self, event: Json) -> str:
        """Add a request that Codex retries and return a summary, or "" if the event is something else."""
        message = event.get("message")
        if not isinstance(message, str):
            return ""
        found = _RECONNECTING.fullmatch(message)
        if found is None:
            return ""
        reason = found[2] or "an unnamed failure"
        status = _status(reason)
        self.retry = InnerRetry(
            attempt=int(found[1]),
            reason=reason,
            may_pass=may_pass(status, reason),
            status=status,
        )
        return f"retry: {reason}"

    def _fail(self, kind: str, error: Any) -> str:
        """Record that the turn has failed and return a summary."""
        message = error
        if isinstance(error, dict):
            message = error.get("message")
        text = "" if message is None else text_of(message)
        status = _status(text)
        if text.startswith("{") and isinstance(message, str):  # the server's reply to an invalid request
            text = server_message(text.encode())
            status = BAD_REQUEST
        self.failure = AgentFailure(text, may_pass(status, text), status)
        self.retry = None
        return f"{kind}: {text}"

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.figures = {"token_usage": usage}


def _status(message: str) -> int | None:
    """Return the HTTP status that a message contains, if it has one."""
    found = _STATUS.search(message)
    if found is None:
        return None
    return int(found[1])


def shell_script(command: str) -> str | None:
    """Return the script that a shell command runs: `ls` for `/bin/bash -lc ls`. Return None for other commands."""
    words = _WORD.findall(command)
    if len(words) != 3:
        return None
    shell, option, script = words
    if option not in ("-lc", "-c") or not _SHELL.fullmatch(shell):
        return None
    between_words = "".join(_WORD.split(command))
    if between_words.strip():  # an unclosed quote
        return None
    return _QUOTED.sub(_unquote, script)


def _unquote(quoted: re.Match[str]) -> str:
    """Return a quoted part of a word as the shell reads it."""
    single, double, escaped = quoted.groups()
    if double is not None:
        # a backslash before a line feed continues the line
        joined = double.replace("\\\n", "")
        return _ESCAPED_IN_DOUBLE_QUOTES.sub(r"\1", joined)
    if single is not None:
        return single
    if escaped == "\n":
        return ""
    return escaped
