"""Claude Code, through `claude -p`, which tells what it does as a stream of JSON events."""

from pathlib import Path
from typing import Any, ClassVar

from agentv.formats.wire import text_of
from agentv.protocols import Provider
from agentv.providers.agents.agent import AgentFailure, CodingAgent, CodingAgentSettings, Transcript
from agentv.records import Json, ProviderRequest

LIMITS = ("error_max_turns", "error_max_budget_usd")
"""Failures that are limits which the user has set: a second try would only cost the same again."""


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

    def arguments(self, request: ProviderRequest, workspace: Path, extra: tuple[str, ...]) -> list[str]:
        arguments = ["-p", "--output-format", "stream-json", "--verbose"]
        if self._model:
            arguments += ["--model", self._model]
        if self._system_prompt:
            arguments += ["--append-system-prompt", self._system_prompt]
        for path in request.input_files:
            if not path.is_relative_to(workspace):
                arguments += ["--allowedTools", f"Read(/{path})"]  # an absolute path has two slashes there
        return [*arguments, *extra]

    def transcript(self) -> Transcript:
        return ClaudeTranscript()


class ClaudeTranscript(Transcript):
    """The messages of Claude Code: its own, and those with what its tools gave back."""

    def add(self, event: Json) -> str:
        match event:
            case {"type": "assistant", "message": {"content": content}}:
                is_own = event.get("parent_tool_use_id") is None
                return _join(self._add_block(block, is_own) for block in _blocks(content))
            case {"type": "user", "message": {"content": content}}:
                return _join(self._add_result(block) for block in _blocks(content))
            case {"type": "result"}:
                return self._end(event)
            case {"type": str(kind), "subtype": str(subtype)}:
                return f"{kind}: {subtype}"
            case {"type": str(kind)}:
                return kind
        return ""

    def _add_block(self, block: Any, is_own: bool) -> str:
        """Add a part of a message of the agent, or of one of its subagents."""
        match block:
            case {"type": "text", "text": str(text)} if text:
                self.add_message(text)
                if is_own:
                    self.answer = text
                return f"assistant: {text}"
            case {"type": "thinking", "thinking": str(text)}:
                return f"thinking: {text}"
            case {"type": "tool_use", "name": str(tool)}:
                self.add_call(tool, block.get("input"), block.get("id"))
                return f"{tool}: {text_of(block.get('input'))}"
        return ""

    def _add_result(self, block: Any) -> str:
        match block:
            case {"type": "tool_result", "tool_use_id": id_}:
                output = _plain(block.get("content"))
                failed = " (failed)" if block.get("is_error") is True else ""
                return f"{self.add_output(id_, output)} gave{failed}: {text_of(output)}"
        return ""

    def _end(self, event: Json) -> str:
        subtype, text = event.get("subtype"), event.get("result")
        kind = subtype if isinstance(subtype, str) else ""
        if isinstance(text, str) and text.strip():
            self.answer = text
        self.failure, self.is_complete = None, True
        if event.get("is_error") is True or kind.startswith("error"):
            reason = text if isinstance(text, str) and text else _join(_texts(event.get("errors")))
            name = kind if kind.startswith("error") else ""
            self.failure = AgentFailure(": ".join(filter(None, [name, reason])), may_pass=kind not in LIMITS)
        usage = event.get("usage")
        self.figures = {
            "token_usage": _usage(usage) if isinstance(usage, dict) else None,
            "cost_usd": event.get("total_cost_usd"),
            "duration_ms": event.get("duration_ms"),
        }
        return f"result: {kind}: {text_of(text)}"


def _usage(usage: Json) -> Json:
    """Return the tokens of a whole run. Claude counts the cached ones apart."""
    cached, written = _count(usage.get("cache_read_input_tokens")), _count(usage.get("cache_creation_input_tokens"))
    fresh = _count(usage.get("input_tokens"))
    parts = [part for part in (fresh, cached, written) if part is not None]
    return {"input": sum(parts) if parts else None, "output": _count(usage.get("output_tokens")), "cached": cached}


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
