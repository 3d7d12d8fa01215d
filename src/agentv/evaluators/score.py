"""Scores an exchange with the evaluators of its case."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from agentv import __version__
from agentv.calls.target_version import TargetVersion
from agentv.cases.digest import CaseDigests
from agentv.errors import AgentvError, ConfigError, MachineError
from agentv.evaluators.concurrent import run_together
from agentv.evaluators.judging.reply import BadJudgement, OffScale, check_score, failed_score
from agentv.files.fingerprint import DIGEST_FORMAT, digest
from agentv.log import debug_lines
from agentv.protocols import Evaluator, EvaluatorSettings, JudgeTarget
from agentv.providers.settings import target_digest
from agentv.providers.tracebacks import explain_error
from agentv.providers.user_functions import FunctionSpec
from agentv.records import (
    PASS,
    Digests,
    EvaluatorResult,
    Exchange,
    Json,
    PassRule,
    Problem,
    Score,
    Threshold,
    Verdict,
)
from agentv.scoring import SCORING, verdict_of
from agentv.text import replace_surrogates

evaluator_place: ContextVar[str] = ContextVar("evaluator_place", default="")
"""The position of the evaluator that is running in this task among the evaluators of its case."""


NegatedMiss = Callable[[str], str]
"""Returns the miss for a hit that should not have occurred, see `EvaluatorSettings.negated_miss`."""


def negate_score(score: Score, negated_miss: NegatedMiss = EvaluatorSettings.negated_miss) -> Score:
    """Invert a score. Hits become misses that say what should not have occurred, and vice versa.

    A score that is not a judgement (it failed, or data was missing) cannot be inverted and becomes a failure. An
    explicit verdict of `fail` and its misses are kept: it fails the case regardless of the score.
    """
    if not score.applicable:
        return score
    if score.failed or score.missing_data:
        return msgspec.structs.replace(
            score,
            score=0.0,
            verdict=None,
            failed=True,
        )
    hits = tuple(f"not met, as expected: {miss}" for miss in score.misses)
    misses = tuple(map(negated_miss, score.hits))
    if score.verdict == "fail":
        hits = ()
        misses = (*score.misses, *misses)
    elif score.score > 0 and not misses:
        misses = (f"must not be met, but scored {score.score:g}",)
    return msgspec.structs.replace(
        score,
        score=round(1.0 - score.score, 12),
        hits=hits,
        misses=misses,
        verdict=_negated_verdict(score.verdict),
    )


def _negated_verdict(verdict: Verdict | None) -> Verdict | None:
    if verdict == "pass":
        return "fail"
    return verdict


class ConfiguredEvaluator(msgspec.Struct, frozen=True):
    """An evaluator with its name, type, weight and requirement. If it is negated, its score is inverted."""

    name: str
    type: str
    weight: float
    evaluator: Evaluator
    required: bool | Threshold = False
    is_negated: bool = False
    negates_itself: bool = False
    """Whether the evaluator inverts its own score."""
    negated_miss: NegatedMiss = EvaluatorSettings.negated_miss
    place: str = ""
    """The path of its setting in the case, which identifies it among the evaluators of the case."""

    async def result(self, exchange: Exchange) -> EvaluatorResult:
        """Return the result of the evaluator. One that raises an exception scores 0 and reports the reason."""
        error_details: str | None = None
        token = evaluator_place.set(self.place)
        try:
            score = check_score(await self.evaluator.evaluate(exchange))
            if self.is_negated:
                score = negate_score(score, self.negated_miss)
            elif self.negates_itself and not score.failed and not score.missing_data:
                misses = tuple(map(self.negated_miss, score.misses))
                score = msgspec.structs.replace(score, misses=misses)
        except MachineError:
            raise  # the case is evaluated again when fewer others run
        except OffScale as error:
            score = _failure(str(error), error.value)
        except (AgentvError, BadJudgement) as error:
            score = _failure(str(error))
        except Exception as error:
            reason, error_details = explain_error(error)
            debug_lines(f"case {exchange.case.id!r}: evaluator {self.name!r} failed", error_details)
            score = _failure(reason)
        finally:
            evaluator_place.reset(token)
        number: float | None = None
        verdict: Verdict | None = None
        misses = score.misses
        if score.verdict == "fail" and not misses:
            misses = ("the evaluator returned the verdict 'fail'",)  # the score may not show why the case fails
        if score.applicable:
            number = score.score
            verdict = score.verdict or verdict_of(score.score)
        return EvaluatorResult(
            name=self.name,
            type=self.type,
            score=number,
            weight=self.weight,
            verdict=verdict,
            explicit_verdict=score.verdict is not None,
            required=self.required,
            applicable=score.applicable,
            hits=score.hits,
            misses=misses,
            reasoning=score.reasoning or None,
            details=score.details,
            evaluator_provider_request=score.evaluator_provider_request,
            failed=score.failed,
            missing_data=score.missing_data,
            off_scale=score.off_scale,
            error_details=error_details,
        )


def _failure(reason: str, off_scale: float | None = None) -> Score:
    message = f"the evaluator failed: {reason}"
    return failed_score(replace_surrogates(message), off_scale)


class CaseSettings(NamedTuple):
    """Settings of an evaluator that may not fit a case, see `EvaluatorSettings.unmet`."""

    settings: EvaluatorSettings
    locate: Callable[[ConfigError], ConfigError]
    """Return an error of these settings with its location."""


class Dependencies(NamedTuple):
    """What the scores of a case depend on, apart from the settings of its evaluators."""

    fingerprints: list[Any]
    """The contents of prompts and scripts."""
    judges: list[JudgeTarget]
    need_reference: list[str]
    """The names of the evaluators that compare with the reference answer."""
    use_workspace: list[str]
    """The names of the evaluators that may read files of the workspace."""
    use_state: list[str]
    """The names of the evaluators that may depend on what hooks returned."""
    need_workspace: list[Problem]
    """The errors to report if the target has no workspace."""
    case_settings: list[CaseSettings]
    variables: dict[str, Any]
    """The variables of the case that settings and prompts name, with their values."""


class CaseEvaluators:
    """All the evaluators of a case."""

    def __init__(
        self,
        evaluators: Sequence[ConfiguredEvaluator],
        configs: Sequence[Json],
        dependencies: Dependencies,
        pass_rule: PassRule = PASS,
    ):
        """Hold built evaluators; `configs` are those of their settings that affect scores."""
        self.evaluators = evaluators
        self.need_reference = tuple(dependencies.need_reference)
        self.workspace_users = tuple(dict.fromkeys(dependencies.use_workspace))
        self.state_users = tuple(dict.fromkeys(dependencies.use_state))
        self.need_workspace = tuple(dependencies.need_workspace)
        self.case_settings = tuple(dependencies.case_settings)
        self.uses_variables = bool(dependencies.variables)
        self.has_judges = bool(dependencies.judges)
        self._configs = configs
        self._dependencies = dependencies
        self._pass_rule = pass_rule
        self._last_digests: Digests | None = None
        waiting = [configured for configured in evaluators if configured.evaluator.waits]
        self._in_parallel = len(waiting) > 1

    @cached_property
    def digests(self) -> dict[str, str]:
        """The part of `Digests` that identifies how answers are scored."""
        judge_digests = []
        for judge in self._dependencies.judges:
            if judge.settings is not None:
                judge_digests.append(target_digest(judge.settings))
        judges = ""
        if judge_digests:
            judges = digest(judge_digests)
        prompts = ""
        if self._dependencies.fingerprints:
            prompts = digest(self._dependencies.fingerprints)
        scoring: list[Any] = [self._configs, judges, prompts]
        if self._pass_rule != PASS:
            scoring.append(self._pass_rule)
        if self._dependencies.variables:
            scoring.append({"vars": self._dependencies.variables})
        return {
            "evaluators": digest(*scoring),
            "judges": judges,
            "prompts": prompts,
        }

    def digests_of(self, case: CaseDigests, target: TargetVersion) -> Digests:
        """Return the digests of a result, given those of the case and of the target."""
        # Most results differ only in the digests of the case.
        if self._last_digests is None or self._last_digests.target != target.digest:
            self._last_digests = Digests(
                case=case.case,
                target=target.digest,
                settings=target.settings,
                files=target.files,
                agentv=__version__,
                scoring=SCORING,
                format=DIGEST_FORMAT,
                **self.digests,
            )
        return msgspec.structs.replace(self._last_digests, case=case.case, request=case.request)

    async def results(
        self,
        exchange: Exchange,
        names: frozenset[str] | None = None,
    ) -> tuple[EvaluatorResult, ...]:
        """Return the result of each evaluator; with `names`, only of those evaluators.

        They run in parallel if more than one of them waits for something.
        """
        chosen = self._chosen(names)
        if self._in_parallel:
            results = await run_together(configured.result(exchange) for configured in chosen)
        else:
            results = []
            for configured in chosen:
                results.append(await configured.result(exchange))
        return tuple(results)

    async def failed_results(
        self,
        exchange: Exchange,
        reason: str,
        names: frozenset[str] | None = None,
    ) -> tuple[EvaluatorResult, ...]:
        """Return results that say why none of the evaluators could judge."""
        results = []
        for configured in self._chosen(names):
            failing = msgspec.structs.replace(configured, evaluator=_FailingEvaluator(reason))
            results.append(await failing.result(exchange))
        return tuple(results)

    def _chosen(self, names: frozenset[str] | None) -> Sequence[ConfiguredEvaluator]:
        if names is None:
            return self.evaluators
        return [configured for configured in self.evaluators if configured.name in names]


@dataclass(frozen=True)
class _FailingEvaluator(Evaluator):
    """Replaces an evaluator that cannot judge an answer."""

    reason: str

    async def evaluate(self, exchange: Exchange) -> Score:
        return failed_score(self.reason)


NamedEvaluators = Iterator[tuple[str, ConfiguredEvaluator]]


def judging_evaluators(evaluators: Iterable[ConfiguredEvaluator], outer: str = "") -> NamedEvaluators:
    """Yield the evaluators that call judges, including those nested in composites, with their names: `outer/inner`."""
    for configured in evaluators:
        name = f"{outer}{configured.name}"
        panel = getattr(configured.evaluator, "panel", None)
        if panel is not None:
            yield name, configured
        inner = getattr(configured.evaluator, "inner", ())
        yield from judging_evaluators(inner, f"{name}/")


@dataclass(frozen=True)
class DryRunEvaluator(Evaluator):
    """Replaces an evaluator that a dry run cannot use because it calls a model, or needs a program or a workspace."""

    miss: str = "dry run: no judge was called"

    async def evaluate(self, exchange: Exchange) -> Score:
        return Score(
            score=0.0,
            misses=(self.miss,),
            missing_data=True,
        )


def scoring_settings(config: Json) -> Json:
    """Return the settings of an evaluator that affect scores: all but the `examples` of judges."""
    type_ = config.get("type")
    if isinstance(config.get("function"), FunctionSpec):
        return {**config, "function": config["function"].version}
    if type_ in ("llm_judge", "rubric") and "examples" in config:
        return {name: value for name, value in config.items() if name != "examples"}
    if type_ == "composite":
        members = [scoring_settings(member) for member in config["evaluators"]]
        return {**config, "evaluators": members}
    return config
