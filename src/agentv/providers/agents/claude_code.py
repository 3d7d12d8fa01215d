"""Claude Code, run as `claude -p`, which reports its work as a stream of JSON events.

There may be several `result` events: Claude continues when a background task ends. The tokens and the duration in a
result are those since the previous one; `total_cost_usd` and `modelUsage` are totals of the whole run.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from agentv.files.wire import text_of
from agentv.protocols import Provider
from agentv.providers.agents.agent import CodingAgent, CodingAgentSettings
from agentv.providers.agents.transcript import AgentFailure, InnerRetry, Transcript, may_pass
from agentv.records import Json, ProviderRequest

LIMITS = ("error_max_turns", "error_max_budget_usd")
"""Failures caused by limits in the settings: a retry would cost the same again and fail again."""
MCP = "mcp__"
TOKENS = {
    "fresh": ("input_tokens", "inputTokens"),
    "cached": ("cache_read_input_tokens", "cacheReadInputTokens"),
    "cache_write": ("cache_creation_input_tokens", "cacheCreationInputTokens"),
    "output": ("output_tokens", "outputTokens"),
    "reasoning": ("thinking_tokens", "thinkingTokens"),
}
"""The names of each kind of tokens: in the usage of a message or result, and in the usage of a model."""
INPUT_TOKENS = ("fresh", "cached", "cache_write")
"""The kinds that together are the input: Claude counts cached tokens separately."""


class ClaudeCodeSettings(CodingAgentSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claude Code."""

    kind: ClassVar[str] = "claude-code"
    program: ClassVar[str] = "claude"
    install: ClassVar[str] = "npm install -g @anthropic-ai/claude-code"

    def open(self, folder: Path) -> Provider:
        return ClaudeCode(self, folder)


class ClaudeCode(CodingAgent):
    """Runs `claude` for each request."""

    def __init__(self, settings: ClaudeCodeSettings, folder: Path):
        super().__init__(settings, folder)
        self._model = settings.model
        self._system_prompt = settings.system_prompt
        self._keep_sessions = settings.keep_sessions is True

    def arguments(self, request: ProviderRequest, extra: tuple[str, ...]) -> list[str]:
        arguments = ["-p", "--output-format", "stream-json", "--verbose"]
        if not self._keep_sessions:
            arguments.append("--no-session-persistence")
        if self._model:
            arguments += ["--model", self._model]
        if self._system_prompt:
            arguments += ["--append-system-prompt", self._system_prompt]
        for path in request.input_files:
            # Claude may ask to read either form of the path; often they are the same
            names = dict.fromkeys((path, path.resolve()))
            for name in names:
                arguments += ["--allowedTools", f"Read({_pattern(name)})"]
        arguments += extra
        return arguments

    def prompt(self, request: ProviderRequest) -> str:
        prompt = super().prompt(request)
        if prompt.startswith("/"):  # Claude Code would interpret it as a slash command
            return f"\n{prompt}"
        return prompt

    def transcript(self) -> Transcript:
        return ClaudeTranscript()


def _pattern(path: Path) -> str:
    """Return a gitignore pattern that matches only this path. Absolute paths start with two slashes there."""
    pattern = "/"
    for character in str(path):
        if character in "\\[]*":
            pattern += "\\"
        pattern += character
    return pattern


class ClaudeTranscript(Transcript):
    """The messages of Claude Code: its own, those of its subagents, and those with the outputs of tools."""

    def __init__(self) -> None:
        super().__init__()
        self._last_text = ""
        """The last message of Claude itself. It is the answer if a result has no text."""
        self._usage: dict[str, Json] = {}
        """The tokens of each message, by its id. A message comes in parts, each with the counts known by then."""

    def add(self, event: Json) -> str:
        match event:
            case {"type": "assistant", "message": {"content": content} as message}:
                self.retry = None
                self._add_usage(message)
                blocks = _blocks(content)
                return _join(self._add_block(block, event) for block in blocks)
            case {"type": "user", "message": {"content": content}}:
                blocks = _blocks(content)
                return _join(self._add_result(block, event) for block in blocks)
            case {"type": "result"}:
                return self._end(event)
        return self._add_other(event)

    def _add_other(self, event: Json) -> str:
        match event:
            case {"type": "system", "subtype": "api_retry"}:
                return self._add_retry(event)
            case {"type": "system", "subtype": "permission_denied", "tool_name": str(tool)}:
                self.add_denied(event.get("tool_use_id"), tool)
                return f"permission denied: {tool}: {text_of(event.get('message'))}"
            case {"type": str(kind), "subtype": str(subtype)}:
                return f"{kind}: {subtype}"
            case {"type": str(kind)}:
                return kind
        return ""

    def _add_block(self, block: Any, event: Json) -> str:
        """Add a block of a message of the agent or of one of its subagents."""
        match block:
            case {"type": "text", "text": str(text)} if text:
                self._add_text(text, event)
                return f"assistant: {text}"
            case {"type": "thinking", "thinking": str(text)}:
                return f"thinking: {text}"
            case {"type": "tool_use" | "server_tool_use", "name": str(name)}:
                tool = self._add_tool_use(name, block, event)
                return f"{tool}: {text_of(block.get('input'))}"
        return ""

    def _add_text(self, text: str, event: Json) -> None:
        if event.get("parent_tool_use_id") is not None:
            subagent = event.get("subagent_type")
            name = subagent if isinstance(subagent, str) else "helper"
            self.add_message(text, name)
            return
        self._last_text = text
        if not self.is_complete:
            self.answer = text
        self.add_message(text)

    def _add_tool_use(self, name: str, block: Json, event: Json) -> str:
        """Add a tool call and return the name of the tool."""
        id_ = block.get("id")
        tool = _tool_name(name, id_, event.get("tool_use_meta"))
        known = {
            "agent_tool": None if tool == name else name,
            "parent_id": event.get("parent_tool_use_id"),
            "agent": event.get("subagent_type"),
        }
        metadata = {}
        for key, value in known.items():
            if isinstance(value, str):
                metadata[key] = value
        self.add_call(tool, block.get("input"), id_, event, **metadata)
        return tool

    def _add_result(self, block: Any, event: Json) -> str:
        match block:
            case {"type": "tool_result", "tool_use_id": id_}:
                output = _plain_output(block.get("content"))
                is_error = block.get("is_error") is True
                tool = self.add_output(id_, output, event, is_error=is_error)
                failed = " (failed)" if is_error else ""
                return f"{tool} returned{failed}: {text_of(output)}"
        return ""

    def _add_retry(self, event: Json) -> str:
        status = _count(event.get("error_status"))
        error = event.get("error")
        words = []
        if status is not None:
            words.append(str(status))
        if isinstance(error, str) and error:
            words.append(error)
        reason = " ".join(words) or "an unnamed failure"
        self.retry = InnerRetry(
            attempt=_count(event.get("attempt")) or 1,
            reason=reason,
            may_pass=may_pass(status, reason),
            status=status,
        )
        return f"api_retry: {reason}"

    def _add_usage(self, message: Json) -> None:
        id_ = message.get("id")
        usage = message.get("usage")
        if not isinstance(id_, str) or not isinstance(usage, dict):
            return
        known = self._usage.setdefault(id_, {})
        for kind, count in _tokens(usage).items():
            previous = known.get(kind, 0)
            known[kind] = max(count, previous)
        if self.is_complete:
            return  # the figures are those of the result
        total = _sum(self._usage.values())
        if total:
            self.figures = {"token_usage": total}

    def _end(self, event: Json) -> str:
        """Add a `result` event."""
        text = event.get("result")
        subtype = event.get("subtype")
        kind = subtype if isinstance(subtype, str) else ""
        self.answer = self._last_text
        if isinstance(text, str) and text.strip():
            self.answer = text
        self.retry = None
        self.is_complete = True
        is_error = event.get("is_error") is True or kind.startswith("error")
        self.failure = _failure(kind, event) if is_error else None
        self._add_denials(event.get("permission_denials"))
        # if there are several results, the first has the time to the first token
        ttft_ms = event.get("ttft_ms")
        if "ttft_ms" in self.figures:
            ttft_ms = self.figures["ttft_ms"]
        self.figures = {
            "token_usage": _total_usage(event),
            "cost_usd": event.get("total_cost_usd"),
            "ttft_ms": ttft_ms,
        }
        return f"result: {kind}: {text_of(text)}"

    def _add_denials(self, denials: Any) -> None:
        if not isinstance(denials, list):
            return
        for denied in denials:
            if isinstance(denied, dict):
                self.add_denied(
                    denied.get("tool_use_id"),
                    denied.get("tool_name"),
                    denied.get("tool_input"),
                )


def _failure(kind: str, event: Json) -> AgentFailure:
    """Return the failure that a `result` event reports; `kind` is its subtype."""
    reason = event.get("result")
    if not isinstance(reason, str) or not reason:
        reason = _join(_texts(event.get("errors")))
    message = reason
    if kind.startswith("error"):
        message = f"{kind}: {reason}" if reason else kind
    status = _count(event.get("api_error_status"))
    return AgentFailure(
        message,
        may_pass=kind not in LIMITS and may_pass(status, reason),
        status=status,
    )


def _tool_name(name: str, id_: Any, metas: Any) -> str:
    """Return the name of a tool. Tools of MCP servers are named `server.tool`, and `mcp__server__tool` by Claude."""
    qualified = name.removeprefix(MCP)
    server, separator, tool = qualified.partition("__")
    if not name.startswith(MCP) or not separator:
        return name
    for original in _original_names(id_, metas):
        # A server's name may contain "__", and Claude replaces the characters that it cannot use in a tool's name:
        # only the length of the original name shows where it starts.
        start = len(qualified) - len(original)
        if start > 2 and qualified[start - 2 : start] == "__":
            return f"{qualified[: start - 2]}.{original}"
    return f"{server}.{tool}"


def _original_names(id_: Any, metas: Any) -> Iterator[str]:
    """Yield the name that the MCP server uses for the tool of a call, if the event has it."""
    if not isinstance(metas, list):
        return
    for meta in metas:
        if not isinstance(meta, dict) or meta.get("id") != id_:
            continue
        name = meta.get("tool_name")
        if isinstance(name, str):
            yield name


def _total_usage(result: Json) -> Json | None:
    """Return the tokens of the whole run: those of all models, or of the result alone if it lists no models."""
    models = result.get("modelUsage")
    if isinstance(models, dict) and models:
        counts = []
        for model in models.values():
            if isinstance(model, dict):
                counts.append(_tokens(model))
        return _sum(counts)
    usage = result.get("usage")
    if isinstance(usage, dict):
        return _sum([_tokens(usage)])
    return None


def _tokens(usage: Json) -> Json:
    """Return the number of tokens of each kind that a usage object reports."""
    known = usage
    details = usage.get("output_tokens_details")
    if isinstance(details, dict):
        known = {**usage, **details}
    tokens: Json = {}
    for kind, names in TOKENS.items():
        name, name_in_model = names
        value = known.get(name, known.get(name_in_model))
        count = _count(value)
        if count is not None:
            tokens[kind] = count
    return tokens


def _sum(parts: Iterable[Json]) -> Json:
    """Return the sum of several token counts, with the total `input`."""
    total: Json = {}
    for part in parts:
        for kind, count in part.items():
            total[kind] = total.get(kind, 0) + count
    inputs = [total[kind] for kind in INPUT_TOKENS if kind in total]
    if inputs:
        total["input"] = sum(inputs)
    return total


def _count(value: Any) -> int | None:
    """Return the value if it is an integer."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def _blocks(content: Any) -> list[Any]:
    """Return the content of a message as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    return []


def _plain_output(content: Any) -> Any:
    """Return the output of a tool, as a string if it is a single block of text."""
    match content:
        case [{"type": "text", "text": str(text)}]:
            return text
    return content


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text_of(item) for item in value]
    return []


def _join(parts: Iterable[str]) -> str:
    return "; ".join(filter(None, parts))
