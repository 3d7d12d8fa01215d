"""Codex, through `codex exec --json`, which tells what it does as a stream of JSON events."""

from pathlib import Path
from typing import Any, ClassVar

from agentv.formats.wire import text_of
from agentv.protocols import Provider
from agentv.providers.agents.agent import AgentFailure, CodingAgent, CodingAgentSettings, Transcript, make_prompt
from agentv.records import Json, ProviderRequest

INPUTS = {"command_execution": "command", "file_change": "changes", "web_search": "query"}
"""The items that are tools of Codex's own, and what each is given. The rest of an item is what came of it."""


class CodexSettings(CodingAgentSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Codex."""

    kind: ClassVar[str] = "codex"
    program: ClassVar[str] = "codex"
    install: ClassVar[str] = "npm install -g @openai/codex"

    def open(self, folder: Path) -> Provider:
        return Codex(self, folder)


class Codex(CodingAgent):
    """Runs `codex exec` for each request."""

    def __init__(self, settings: CodexSettings, folder: Path):
        super().__init__(settings, folder)
        self._model, self._system_prompt = settings.model, settings.system_prompt

    def arguments(self, request: ProviderRequest, workspace: Path, extra: tuple[str, ...]) -> list[str]:
        arguments = ["exec", "--json"]
        if self._model:
            arguments += ["--model", self._model]
        if self.workspaces.are_fresh:
            arguments.append("--skip-git-repo-check")  # else it works in repos only
        return [*arguments, *extra, "-"]

    def prompt(self, request: ProviderRequest) -> str:
        return make_prompt(request, self._system_prompt)  # for which Codex has no option

    def transcript(self) -> Transcript:
        return CodexTranscript()


class CodexTranscript(Transcript):
    """The items of a thread of Codex: messages, and calls of tools."""

    def add(self, event: Json) -> str:
        match event:
            case {"type": "item.started" | "item.updated" | "item.completed" as kind, "item": {"type": str()} as item}:
                return self._item(item, is_completed=kind == "item.completed")
            case {"type": "turn.completed"}:
                self.failure, self.is_complete = None, True  # whatever went wrong on the way
                self._count(event.get("usage"))
                return f"turn.completed: {text_of(event.get('usage'))}"
            case {"type": "turn.failed"}:
                return self._fail("turn.failed", event.get("error"))
            case {"type": "error"}:
                return self._fail("error", event)
            case {"type": str(kind)}:
                return kind
        return ""

    def _item(self, item: Json, *, is_completed: bool) -> str:
        match item:
            case {"type": "agent_message" | "reasoning" | "error" as kind}:
                text = item.get("message" if kind == "error" else "text")
                if not is_completed or not isinstance(text, str):
                    return ""
                if kind == "agent_message":
                    self.add_message(text)
                    self.answer = text
                return f"{kind}: {text}"
            case {"type": "mcp_tool_call", "server": str(server), "tool": str(tool)}:
                output = item.get("error") or item.get("result")
                return self._add_tool_use(f"{server}.{tool}", item.get("arguments"), output, item, is_completed)
            case {"type": str(tool)} if tool in INPUTS:
                name = INPUTS[tool]
                output = {key: item[key] for key in item if key not in ("id", "type", name)}
                return self._add_tool_use(tool, {name: item.get(name)}, output or None, item, is_completed)
        return ""

    def _add_tool_use(self, tool: str, input_: Any, output: Any, item: Json, is_completed: bool) -> str:
        """Add the use of a tool. An item without an id is only added once it is complete."""
        if is_completed or isinstance(item.get("id"), str):
            self.add_call(tool, input_, item.get("id"))["output"] = output
        return f"{tool}: {text_of(input_)}" + (f" gave: {text_of(output)}" if is_completed else "")

    def _fail(self, kind: str, error: Any) -> str:
        message = error.get("message") if isinstance(error, dict) else error
        self.failure = AgentFailure("" if message is None else text_of(message))
        return f"{kind}: {self.failure.message}"

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            names = {"input": "input_tokens", "output": "output_tokens", "cached": "cached_input_tokens"}
            self.figures = {"token_usage": {name: usage.get(key) for name, key in names.items()}}
