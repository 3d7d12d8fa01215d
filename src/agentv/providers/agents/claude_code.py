"""Claude Code, through `claude -p`, which tells what it does as a stream of JSON events.

There may be several `result` events: when something that ran in the background is done, Claude goes on. The tokens and
the time of a result are its own; `total_cost_usd` and `modelUsage` are those of the whole run.
"""

from pathlib import Path
from typing import Any, ClassVar

from agentv.formats.wire import text_of
from agentv.protocols import Provider
from agentv.providers.agents.agent import CodingAgent, CodingAgentSettings
from agentv.providers.agents.transcript import AgentFailure, InnerRetry, Transcript, may_pass
from agentv.records import Json, ProviderRequest

LIMITS = ("error_max_turns", "error_max_budget_usd")
"""Failures that are limits which the user has set: a second try would only cost the same again."""
MCP = "mcp__"
TOKENS = {
    "fresh": ("input_tokens", "inputTokens"),
    "cached": ("cache_read_input_tokens", "cacheReadInputTokens"),
    "cache_write": ("cache_creation_input_tokens", "cacheCreationInputTokens"),
    "output": ("output_tokens", "outputTokens"),
    "reasoning": ("thinking_tokens", "thinkingTokens"),
}
"""How the kinds of tokens are called: in the usage of a message or a result, and in that of a model."""


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
        self._model, self._system_prompt = settings.model, settings.system_prompt
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
            for name in dict.fromkeys((path, path.resolve())):  # Claude may ask for either
                arguments += ["--allowedTools", f"Read({_pattern(name)})"]
        return [*arguments, *extra]

    def prompt(self, request: ProviderRequest) -> str:
        """Return the prompt; one that begins with a slash would be taken for a command to Claude Code itself."""
        prompt = super().prompt(request)
        return f"\n{prompt}" if prompt.startswith("/") else prompt

    def transcript(self) -> Transcript:
        return ClaudeTranscript()


def _pattern(path: Path) -> str:
    """Return a pattern that only this path matches, as in .gitignore; an absolute path has two slashes there."""
    return "/" + "".join(f"\\{character}" if character in "\\[]*" else character for character in str(path))


class ClaudeTranscript(Transcript):
    """The messages of Claude Code: its own, those of its helpers, and those with what its tools gave back."""

    def __init__(self) -> None:
        super().__init__()
        self._said = ""
        """What Claude itself said last. It is the answer when a result has no words."""
        self._usage: dict[str, Json] = {}
        """The tokens of each message. A message is told in parts, and each part has what was known by then."""

    def add(self, event: Json) -> str:
        match event:
            case {"type": "assistant", "message": {"content": content} as message}:
                self.retry = None
                self._add_usage(message)
                return _join(self._add_block(block, event) for block in _blocks(content))
            case {"type": "user", "message": {"content": content}}:
                return _join(self._add_result(block, event) for block in _blocks(content))
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
        """Add a part of a message of the agent, or of one of its helpers."""
        parent, helper = event.get("parent_tool_use_id"), event.get("subagent_type")
        match block:
            case {"type": "text", "text": str(text)} if text:
                if parent is None:
                    self._said = text
                    self.answer = self.answer if self.is_complete else text
                name = helper if isinstance(helper, str) else "helper"
                self.add_message(text, None if parent is None else name)
                return f"assistant: {text}"
            case {"type": "thinking", "thinking": str(text)}:
                return f"thinking: {text}"
            case {"type": "tool_use" | "server_tool_use", "name": str(own)}:
                tool = _tool_name(own, block.get("id"), event.get("tool_use_meta"))
                known = {"agent_tool": own if tool != own else None, "parent_id": parent, "agent": helper}
                metadata = {key: value for key, value in known.items() if isinstance(value, str)}
                self.add_call(tool, block.get("input"), block.get("id"), event, **metadata)
                return f"{tool}: {text_of(block.get('input'))}"
        return ""

    def _add_result(self, block: Any, event: Json) -> str:
        match block:
            case {"type": "tool_result", "tool_use_id": id_}:
                output, is_error = _plain(block.get("content")), block.get("is_error") is True
                tool = self.add_output(id_, output, event, is_error=is_error)
                return f"{tool} gave{' (failed)' if is_error else ''}: {text_of(output)}"
        return ""

    def _add_retry(self, event: Json) -> str:
        status, attempt = _count(event.get("error_status")), _count(event.get("attempt"))
        words = [str(status)] if status is not None else []
        words += [error] if isinstance(error := event.get("error"), str) and error else []
        reason = " ".join(words) or "a failure that it does not name"
        self.retry = InnerRetry(attempt or 1, reason, may_pass(status, reason), status)
        return f"api_retry: {reason}"

    def _add_usage(self, message: Json) -> None:
        id_, usage = message.get("id"), message.get("usage")
        if isinstance(id_, str) and isinstance(usage, dict):
            known = self._usage.setdefault(id_, {})
            for kind, count in _tokens(usage).items():
                known[kind] = max(count, known.get(kind, 0))
            if not self.is_complete and (total := _sum(self._usage.values())):
                self.figures = {"token_usage": total}

    def _end(self, event: Json) -> str:
        subtype, text = event.get("subtype"), event.get("result")
        kind = subtype if isinstance(subtype, str) else ""
        self.answer = text if isinstance(text, str) and text.strip() else self._said
        self.failure, self.retry, self.is_complete = None, None, True
        if event.get("is_error") is True or kind.startswith("error"):
            reason = text if isinstance(text, str) and text else _join(_texts(event.get("errors")))
            name, status = kind if kind.startswith("error") else "", _count(event.get("api_error_status"))
            lasts = kind in LIMITS or not may_pass(status, reason)
            self.failure = AgentFailure(": ".join(filter(None, [name, reason])), may_pass=not lasts, status=status)
        denials = event.get("permission_denials")
        for denied in denials if isinstance(denials, list) else ():
            if isinstance(denied, dict):
                self.add_denied(denied.get("tool_use_id"), denied.get("tool_name"), denied.get("tool_input"))
        self.figures = {
            "token_usage": _usage(event),
            "cost_usd": event.get("total_cost_usd"),
            "ttft_ms": self.figures.get("ttft_ms", event.get("ttft_ms")),  # that of the first
        }
        return f"result: {kind}: {text_of(text)}"


def _tool_name(own: str, id_: Any, metas: Any) -> str:
    """Return the name of a tool: that of an MCP server's is the server's and its own, `server.tool`."""
    names = own.removeprefix(MCP)
    server, split, tool = names.partition("__")
    if not own.startswith(MCP) or not split:
        return own
    for meta in metas if isinstance(metas, list) else ():
        if isinstance(meta, dict) and meta.get("id") == id_ and isinstance(name := meta.get("tool_name"), str):
            end = len(names) - len(name)  # where Claude cannot take a character, it has another in its place
            if end > 2 and names[end - 2 : end] == "__":
                return f"{names[: end - 2]}.{name}"
    return f"{server}.{tool}"


def _usage(result: Json) -> Json | None:
    """Return the tokens of a whole run: those of all models, or else those of a result that does not name them."""
    models, usage = result.get("modelUsage"), result.get("usage")
    if isinstance(models, dict) and models:
        return _sum(_tokens(model) for model in models.values() if isinstance(model, dict))
    return _sum([_tokens(usage)]) if isinstance(usage, dict) else None


def _tokens(usage: Json) -> Json:
    """Return how many tokens of each kind there are, as far as it is told."""
    details = usage.get("output_tokens_details")
    known = {**usage, **details} if isinstance(details, dict) else usage
    found = {kind: _count(known.get(names[0], known.get(names[1]))) for kind, names in TOKENS.items()}
    return {kind: count for kind, count in found.items() if count is not None}


def _sum(parts: Any) -> Json:
    """Return the sum of tokens. Claude counts the fresh ones apart from those that its cache gave or took."""
    total: Json = {}
    for part in parts:
        for kind, count in part.items():
            total[kind] = total.get(kind, 0) + count
    given = [total[kind] for kind in ("fresh", "cached", "cache_write") if kind in total]
    return total | ({"input": sum(given)} if given else {})


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _plain(content: Any) -> Any:
    """Return the output of a tool; its text, if it is nothing else."""
    match content:
        case [{"type": "text", "text": str(text)}]:
            return text
    return content


def _texts(value: Any) -> list[str]:
    return [text_of(item) for item in value] if isinstance(value, list) else []


def _join(parts: Any) -> str:
    return "; ".join(filter(None, parts))
