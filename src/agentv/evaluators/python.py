"""Scores an answer with the user's own Python function, in agentv's process."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.errors import ConfigError, SettingError
from agentv.evaluators.judging.payload import build_payload, conversation
from agentv.evaluators.judging.reply import (
    NOT_APPLICABLE,
    BadJudgement,
    parse_score,
    plain_value,
    require_whole_messages,
    score_number,
)
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, WorkspaceUse
from agentv.providers.user_functions import (
    UserFunction,
    check_function,
    copy_mapping,
    function_file,
    load_function,
)
from agentv.records import Exchange, Json, Score
from agentv.versions.python_files import python_files

TIMEOUT_SECONDS = 60.0
OFFERED = (
    "question",
    "expected_outcome",
    "expected_messages",
    "reference_answer",
    "candidate_answer",
    "output_messages",
    "trace",
    "metadata",
    "response_metadata",
    "guideline_files",
    "input_files",
    "input_messages",
    "trace_summary",
    "execution_metrics",
    "workspace_path",
    "file_changes",
    "config",
    "eval_id",
    "vars",
    "trial",
    "messages",
    "state",
)
"""What the parameters of a function may name: the fields of the payload, and more about the case."""
NEEDS_MESSAGES = {"output_messages", "trace", "messages"}


class PythonJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Call a function with the fields of the payload that its parameters name.

    A single parameter with another name gets the answer.
    """

    imports_code: ClassVar[bool] = True

    function: Annotated[str, Meta(min_length=1)]
    """`file.py:function`, relative to the eval file's folder, or `module:function`."""
    config: Json | None = None
    """Data for a parameter named `config`."""
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    """Time limit of the function."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        try:
            loaded = load_function(self.function, context.code_folders)
            function = UserFunction(loaded, OFFERED, "candidate_answer", apart=True)
            file = function_file(self.function, context.code_folders)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error
        code: list[str] = []
        if file is not None:
            code = sorted(python_files(file, context.code_folders).values())
        return _FunctionJudge(function, self, code)

    def check(self, context: EvaluatorContext) -> None:
        try:
            check_function(self.function, context.code_folders, OFFERED, takes_any=True)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error


@dataclass(frozen=True)
class _FunctionJudge(Evaluator):
    """Calls the function for each answer."""

    function: UserFunction
    settings: PythonJudge
    code: Sequence[str]
    """The digests of the function's module and of the modules that it imports."""

    def fingerprint(self) -> Sequence[str]:
        return self.code

    def workspace_use(self) -> WorkspaceUse:
        if "workspace_path" in self.function.names:
            return WorkspaceUse.NAMES_IT
        return WorkspaceUse.NONE

    def uses_state(self) -> bool:
        return "state" in self.function.names

    async def evaluate(self, exchange: Exchange) -> Score:
        if NEEDS_MESSAGES & self.function.names:
            require_whole_messages(exchange.response)
        seconds = self.settings.timeout_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                payload = build_payload(exchange, self.settings.config)
                if payload["metadata"] is None:
                    payload["metadata"] = {}  # so that functions need not check for None
                payload["eval_id"] = exchange.case.id
                payload["vars"] = copy_mapping(exchange.case.vars)
                payload["trial"] = exchange.request.trial
                payload["state"] = dict(exchange.state)
                if "messages" in self.function.names:
                    payload["messages"] = conversation(exchange)
                returned = await self.function(payload)
                return as_score(returned)
        except TimeoutError:
            if not limit.expired():  # the function itself raised it
                raise
            raise BadJudgement(f"the function timed out after {seconds:g} s") from None


def as_score(value: Any) -> Score:
    """Return the value of a function as a `Score`; raise `BadJudgement` if it has none of the allowed types.

    None means that the evaluator does not apply to the case.
    """
    if value is None:
        return NOT_APPLICABLE
    if isinstance(value, Score):
        return value
    value = plain_value(value)
    if isinstance(value, bool):
        return Score(score=float(value))
    if isinstance(value, Mapping):
        return parse_score(value)
    if isinstance(value, int | float):
        return Score(score=score_number(value))
    kind = type(value).__name__
    raise BadJudgement(f"the function returned {kind}: return a number, a bool, a mapping, a Score or None")
