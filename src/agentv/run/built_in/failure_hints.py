"""Explain failures that the settings of a target cause."""

import re
from pathlib import Path
from typing import NamedTuple

from agentv.errors import AgentvError, placed
from agentv.log import info
from agentv.records import EvalResult
from agentv.run.extensions import Extension
from agentv.run.planning.plan import Plan
from agentv.run.run import Run
from agentv.targets.read import read_targets
from agentv.text import short_path

_NOT_STARTED = re.compile(r"exit code (126|127)\b")
"""The exit codes of a shell that could not run a command."""
_COMMAND_SETTINGS = ("command_template", "executable", "command")


class _Hint(NamedTuple):
    """What to check in the settings of a target."""

    target: str
    settings: tuple[str, ...]
    """The settings that may be wrong. The first one that the target has is named."""
    advice: str
    otherwise: str = ""
    """The advice for targets that cannot have these settings."""


class FailureHints(Extension):
    """Log, once per target, where to fix a command that does not start or a time limit that is too short."""

    def __init__(self) -> None:
        self._hints: dict[_Hint, None] = {}

    def written(self, result: EvalResult) -> None:
        if result.error is None:
            return
        if result.failure == "timeout":
            hint = _Hint(
                target=result.target,
                settings=("timeout_seconds",),
                advice="increase {setting} or --agent-timeout",
                otherwise="increase --agent-timeout",
            )
            self._hints[hint] = None
        elif result.failure == "target" and _NOT_STARTED.search(result.error):
            self._hints[_Hint(result.target, _COMMAND_SETTINGS, "check {setting}")] = None

    async def end(self, run: Run) -> None:
        for hint in self._hints:
            line = _describe(hint, run.plan)
            if line:
                info(line)


def _describe(hint: _Hint, plan: Plan) -> str:
    """Return the advice with the position of the setting; empty if the target is not in a targets file."""
    for file in plan.files:
        if file.targets_file is None or hint.target not in file.targets:
            continue
        try:
            entry = read_targets(file.targets_file).entry(hint.target)
        except AgentvError:
            continue  # the file has changed since the run started
        if entry is None:
            continue
        name = hint.settings[0]
        for setting in hint.settings:
            if setting in entry.places:
                name = setting
                break
        place = entry.place(name)
        advice = hint.advice.format(setting=name)
        if hint.otherwise and not hasattr(entry.settings, name):
            advice = hint.otherwise
        message = f"target {hint.target!r}: {advice}"
        return placed(message, Path(short_path(file.targets_file)), place.line, place.column)
    return ""
