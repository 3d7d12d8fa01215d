"""Who judges: an evaluator's wish to ask a target -> that target, called within the limits of the run.

Evaluators are built twice: while a run is planned, to find what is wrong with them and which targets they need,
and when it starts, to be used. What tells the two apart is the `JudgeSource` that they are given.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from agentv.errors import ConfigError, ProviderError, nearest
from agentv.protocols import JudgeTarget, Provider
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, ProviderRequest, ProviderResponse


class JudgeSource(Protocol):
    """Gives evaluators the targets that they ask to judge."""

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        """Return the target that judges answers of `target`: the one of this name, else the one that is set up."""
        ...


class JudgeRef(NamedTuple):
    """A judge that the cases of a file need: by the name that an evaluator gives, else by the target of the cases."""

    target: str
    name: str | None


def judge_name(ref: JudgeRef, settings: Mapping[str, TargetSettings], case: EvalCase) -> str:
    """Return the name of the target that judges; raise `ConfigError` if nobody does. `case` is the first that asks."""
    own = settings.get(ref.target)
    name = ref.name or (own.judge_target if own else None)
    if name is None and isinstance(own, LanguageModelSettings):
        name = ref.target
    if name is None:
        hint = "name a target that judges with 'judge_target', in the target or in the evaluator"
        is_default = not (case.evaluators or case.rubrics)
        unasked = "; 'llm_judge' is meant when no evaluators are set up" if is_default else ""
        message = f"nobody is set up to judge the answers of target {ref.target!r}{unasked}"
        raise judge_error(case, message, hint)
    if name not in settings:
        raise judge_error(case, f"judge_target: unknown target {name!r}", nearest(name, settings))
    return name


def judge_error(case: EvalCase, message: str, hint: str) -> ConfigError:
    """Return the error for a case whose judge cannot be asked."""
    return ConfigError(f"case {case.id!r}: {message}", file=case.file.path, line=case.line, hint=hint)


class NeededJudges:
    """Notes which judges are needed, each with the first case that needs it. They cannot be asked yet."""

    def __init__(self) -> None:
        self.cases: dict[JudgeRef, EvalCase] = {}

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        self.cases.setdefault(JudgeRef(target, name), case)
        return NoJudge(name or "")


class NoJudge:
    """A judge that cannot be asked: the run is being planned, or is a dry run."""

    settings: TargetSettings | None = None

    def __init__(self, name: str):
        self.name = name

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        raise ProviderError("dry run: no judge was asked")

    def others(self) -> Mapping[str, Provider]:
        return {}
