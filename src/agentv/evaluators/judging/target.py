"""Resolves which target judges the answers of another target.

Evaluators are built twice: while a run is planned, to find configuration errors and the judges they need, and when the
run starts, to score answers. The `JudgeSource` that they are built with makes the difference.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from agentv.cases.origin import case_problem
from agentv.errors import ConfigError, ProviderError, nearest
from agentv.protocols import JudgeTarget, Provider
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, ProviderRequest, ProviderResponse


class JudgeSource(Protocol):
    """Provides evaluators with their judge targets."""

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        """Return the judge with this name; without a name, the judge configured for `target`."""
        ...


class JudgeRef(NamedTuple):
    """A judge that the cases of a file need: `name` comes from the evaluator, `target` is the one to judge."""

    target: str
    name: str | None


def judge_name(
    ref: JudgeRef,
    settings: Mapping[str, TargetSettings],
    case: EvalCase,
) -> str:
    """Return the name of the target that judges; `case` is the first case that needs it.

    The judge is named by the evaluator or else by the target. A language model without a judge judges itself. Raise
    `ConfigError` if no judge is configured, or if it is not a known target.
    """
    judged = settings.get(ref.target)
    name = ref.name or None
    if name is None and judged is not None:
        name = judged.judge_target
    if name is None and isinstance(judged, LanguageModelSettings):
        name = ref.target
    if name is None:
        raise _no_judge_error(ref, case)
    if name not in settings:
        hint = nearest(name, settings, "targets")
        raise ConfigError.of(case_problem(case, f"judge_target: unknown target {name!r}", hint))
    return name


def check_default_judges(judges: Mapping[JudgeRef, EvalCase]) -> None:
    """Raise `ConfigError` for the first case without evaluators: its default evaluator needs a judge."""
    for ref, case in judges.items():
        if ref.name is None and _has_default_evaluator(case):
            raise _no_judge_error(ref, case)


def _has_default_evaluator(case: EvalCase) -> bool:
    return not case.evaluators and not case.rubrics


def _no_judge_error(ref: JudgeRef, case: EvalCase) -> ConfigError:
    message = f"target {ref.target!r} needs a judge"
    hint = "set judge_target, or add an evaluator that does not need one"
    if _has_default_evaluator(case):
        # The user did not ask for a judge: it is the default evaluator that needs one.
        message = "no evaluators are set, and the default evaluator, llm_judge, needs a judge"
        hint = "add evaluators to the case, such as {type: contains, value: TEXT}, or set judge_target in the target"
    return ConfigError.of(case_problem(case, message, hint))


class NeededJudges:
    """Records which judges are needed, each with the first case that needs it. None of them can be called."""

    def __init__(self) -> None:
        self.cases: dict[JudgeRef, EvalCase] = {}

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        ref = JudgeRef(target, name)
        self.cases.setdefault(ref, case)
        return NoJudge(name or "")


class NoJudge:
    """A placeholder for a judge while a run is planned, and in a dry run. Calling it is an error."""

    settings: TargetSettings | None = None

    def __init__(self, name: str):
        self.name = name

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        raise ProviderError("dry run: no judge was called")

    def others(self) -> Mapping[str, Provider]:
        return {}
