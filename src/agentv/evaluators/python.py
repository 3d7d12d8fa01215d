"""The user's own Python function scores the answer, in agentv's process."""

import asyncio
from collections.abc import Mapping
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


class PythonJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls a function with the fields of the payload that its parameters name; a single other one gets the answer."""

    imports_code: ClassVar[bool] = True

    function: Annotated[str, Meta(min_length=1)]
    config: Json | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS

    def open(self, context: EvaluatorContext) -> Evaluator:
        try:
            function = load_function(self.function, context.code_folders)
            return _FunctionJudge(UserFunction(function, OFFERED, "candidate_answer", apart=True), self)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error

    def check(self, context: EvaluatorContext) -> None:
        try:
            check_function(self.function, context.code_folders)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error


class _FunctionJudge(Evaluator):
    def __init__(self, function: UserFunction, settings: PythonJudge):
        self._function, self._settings = function, settings

    def workspace_use(self) -> WorkspaceUse:
        return WorkspaceUse.NAMES_IT if "workspace_path" in self._function.names else WorkspaceUse.NONE

    async def evaluate(self, exchange: Exchange) -> Score:
        limit = asyncio.timeout(self._settings.timeout_seconds)
        try:
            async with limit:
                return as_score(await self._function(build_payload(exchange, self._settings.config)))
        except TimeoutError:
            if not limit.expired():
                raise
            raise BadJudgement(f"the function timed out after {self._settings.timeout_seconds:g} s") from None


def as_score(value: Any) -> Score:
    """Return what a function returned as a `Score`; raise `BadJudgement` if it is none of the types allowed."""
    if isinstance(value, Score):
        return value
    if isinstance(value, bool):
        return Score(score=float(value))
    if isinstance(value, Mapping):
        return parse_score(value)
    if isinstance(value, int | float):
        return Score(score=finite_number(value))
    raise BadJudgement(f"the function returned {type(value).__name__}: return a number, a bool, a mapping or a Score")
