"""Scores an answer with the user's own Python function, in agentv's process."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.errors import ConfigError, SettingError
from agentv.judges.payload import build_payload
from agentv.judges.reply import BadJudgement, finite_number, parse_score
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, WorkspaceUse
from agentv.records import Exchange, Json, Score
from agentv.system.user_functions import UserFunction, check_function, load_function

TIMEOUT_SECONDS = 60.0
OFFERED = (
    "question",
    "expected_outcome",
    "expected_messages",
    "reference_answer",
    "candidate_answer",
    "output_messages",
    "guideline_files",
    "input_files",
    "input_messages",
    "trace_summary",
    "execution_metrics",
    "workspace_path",
    "file_changes",
    "config",
)
"""The fields of the payload, which the parameters of a function may name."""


class PythonJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Call a function with the fields of the payload that its parameters name.

    A single parameter with another name gets the answer.
    """

    imports_code: ClassVar[bool] = True

    function: Annotated[str, Meta(min_length=1)]
    config: Json | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS

    def open(self, context: EvaluatorContext) -> Evaluator:
        try:
            loaded = load_function(self.function, context.code_folders)
            function = UserFunction(loaded, OFFERED, "candidate_answer", apart=True)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error
        return _FunctionJudge(function, self)

    def check(self, context: EvaluatorContext) -> None:
        try:
            check_function(self.function, context.code_folders)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error


@dataclass(frozen=True)
class _FunctionJudge(Evaluator):
    """Calls the function for each answer."""

    function: UserFunction
    settings: PythonJudge

    def workspace_use(self) -> WorkspaceUse:
        if "workspace_path" in self.function.names:
            return WorkspaceUse.NAMES_IT
        return WorkspaceUse.NONE

    async def evaluate(self, exchange: Exchange) -> Score:
        seconds = self.settings.timeout_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                payload = build_payload(exchange, self.settings.config)
                returned = await self.function(payload)
                return as_score(returned)
        except TimeoutError:
            if not limit.expired():  # the function itself raised it
                raise
            raise BadJudgement(f"the function timed out after {seconds:g} s") from None


def as_score(value: Any) -> Score:
    """Return the value of a function as a `Score`; raise `BadJudgement` if it has none of the allowed types."""
    if isinstance(value, Score):
        return value
    if isinstance(value, bool):
        return Score(score=float(value))
    if isinstance(value, Mapping):
        return parse_score(value)
    if isinstance(value, int | float):
        return Score(score=finite_number(value))
    raise BadJudgement(f"the function returned {type(value).__name__}: return a number, a bool, a mapping or a Score")
