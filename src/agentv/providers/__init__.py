"""The registry of provider kinds: the built-in ones, and those that installed packages add as entry points."""

import pkgutil
from typing import Any

from agentv.errors import ConfigError, nearest
from agentv.providers.settings import TargetSettings
from agentv.registry import extension_names, load_extension

GROUP = "agentv.providers"

BUILT_IN = {
    "anthropic": "agentv.providers.models.anthropic:AnthropicSettings",
    "azure": "agentv.providers.models.azure:AzureSettings",
    "claude-code": "agentv.providers.agents.claude_code:ClaudeCodeSettings",
    "cli": "agentv.providers.cli.provider:CliSettings",
    "codex": "agentv.providers.agents.codex:CodexSettings",
    "gemini": "agentv.providers.models.gemini:GeminiSettings",
    "http": "agentv.providers.http:HttpSettings",
    "mock": "agentv.providers.mock:MockSettings",
    "openai": "agentv.providers.models.openai:OpenAISettings",
    "python": "agentv.providers.python:PythonSettings",
    "replay": "agentv.providers.replay:ReplaySettings",
    "vscode": "agentv.providers.agents.vscode:VscodeSettings",
    "vscode-insiders": "agentv.providers.agents.vscode:VscodeInsidersSettings",
}
ALIASES = {
    "azure-openai": "azure",
    "codex-cli": "codex",
    "google": "gemini",
    "google-gemini": "gemini",
}


def settings_type(provider: str) -> Any:
    """Import and return the settings type of a provider kind. Built-in kinds take precedence over installed ones.

    Raise `ConfigError` for an unknown kind.
    """
    kind = ALIASES.get(provider, provider)
    if kind in BUILT_IN:
        return pkgutil.resolve_name(BUILT_IN[kind])
    found = load_extension(GROUP, kind, TargetSettings)
    if found is None:
        known = [*kinds(), *ALIASES]
        raise ConfigError(f"unknown provider {provider!r}", hint=nearest(provider, known))
    return found


def kinds() -> list[str]:
    """Return the names of all provider kinds, built-in and installed, in sorted order."""
    return sorted({*BUILT_IN, *extension_names(GROUP)})
