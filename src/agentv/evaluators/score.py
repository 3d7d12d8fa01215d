"""Scores an exchange with the evaluators of its case."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from agentv import __version__
from agentv.errors import AgentvError
from agentv.formats.fingerprint import digest
from agentv.judges.deferral import current, once, settle
from agentv.judges.reply import BadJudgement, check_score, failed_score, replace_surrogates
from agentv.notices import note_lines
from agentv.protocols import Evaluator, JudgeTarget
from agentv.providers.settings import target_digest
from agentv.records import Digests, EvaluatorResult, Exchange, Json, Problem, Score, Verdict
from agentv.scoring import SCORING, verdict_of
from agentv.system.tracebacks import explain_error

OPPOSITE: dict[Verdict | None, Verdict | None] = {
    "pass": "fail",
    "fail": "pass",
}


def negate_score(score: Score) -> Score:
    """Return the opposite of a score, with hits and misses swapped.

    A score that is not a judgement (it failed, or data was missing) has no opposite: it becomes a failure.
    """
    if score.failed or score.missing_data:
        return msgspec.structs.replace(
            score,
            score=0.0,
            verdict=None,
            failed=True,
        )
    return msgspec.structs.replace(
        score,
        score=round(1.0 - score.score, 12),
        hits=score.misses,
        misses=score.hits,
        verdict=OPPOSITE.get(score.verdict, score.verdict),
    )


class ConfiguredEvaluator(msgspec.Struct, frozen=True):
    """An evaluator with its name, type and weight. If it is negated, its score is inverted."""

    name: str
    type: str
    weight: float
    evaluator: Evaluator
    is_negated: bool = False
    place: str = ""
    """The path of its setting in the case, which identifies it among the evaluators of the case."""

    async def result(self, exchange: Exchange) -> EvaluatorResult:
        """Return the result of the evaluator. One that raises an exception scores 0 and reports the reason."""
        if current.get() is None:
            return await self._result(exchange)
        return await once(self.place, lambda: self._result(exchange))

    async def _result(self, exchange: Exchange) -> EvaluatorResult:
        error_details: str | None = None
        try:
            score = check_score(await self.evaluator.evaluate(exchange))
            if self.is_negated:
                score = negate_score(score)
        except (AgentvError, BadJudgement) as error:
            score = _failure(str(error))
        except Exception as error:
            reason, error_details = explain_error(error)
            note_lines(f"case {exchange.case.id!r}: evaluator {self.name!r} failed", error_details)
            score = _failure(reason)
        return EvaluatorResult(
            name=self.name,
            type=self.type,
            score=score.score,
            weight=self.weight,
            verdict=score.verdict or verdict_of(score.score),
            hits=score.hits,
            misses=score.misses,
            reasoning=score.reasoning or None,
            details=score.details,
            evaluator_provider_request=score.evaluator_provider_request,
            failed=score.failed,
            missing_data=score.missing_data,
            error_details=error_details,
        )


def _failure(reason: str) -> Score:
    message = f"the evaluator failed: {reason}"
    return failed_score(replace_surrogates(message))


class Dependencies(NamedTuple):
    """What the scores of a case depend on, apart from the settings of its evaluators."""

    fingerprints: list[Any]
    """The contents of prompts and scripts."""
    judges: list[JudgeTarget]
    need_reference: list[str]
    """The names of the evaluators that compare with the reference answer."""
    use_workspace: list[str]
    """The names of the evaluators that may read files of the workspace."""
    need_workspace: list[Problem]
    """The errors to report if the target has no workspace."""


class CaseEvaluators:
    """All the evaluators of a case."""

    def __init__(
        self,
        evaluators: Sequence[ConfiguredEvaluator],
        configs: Sequence[Json],
        dependencies: Dependencies,
    ):
        """Hold built evaluators; `configs` are the settings that they were built from."""
        self.evaluators = evaluators
        self.need_reference = tuple(dependencies.need_reference)
        self.workspace_users = tuple(dict.fromkeys(dependencies.use_workspace))
        self.need_workspace = tuple(dependencies.need_workspace)
        self.has_judges = bool(dependencies.judges)
        self._configs = configs
        self._dependencies = dependencies
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
        return {
            "evaluators": digest(self._configs, judges, prompts),
            "judges": judges,
            "prompts": prompts,
        }

    def digests_of(self, case: str, target: str) -> Digests:
        """Return the digests of a result, given those of the case and of the target."""
        # Most results differ only in the digest of the case.
        if self._last_digests is None or self._last_digests.target != target:
            self._last_digests = Digests(
                case=case,
                target=target,
                agentv=__version__,
                scoring=SCORING,
                **self.digests,
            )
        return msgspec.structs.replace(self._last_digests, case=case)

    async def results(
        self,
        exchange: Exchange,
        names: frozenset[str] | None = None,
    ) -> tuple[EvaluatorResult, ...]:
        """Return the result of each evaluator; with `names`, only of those evaluators.

        They run in parallel if more than one of them waits for something.
        """
        chosen = self.evaluators
        if names is not None:
            chosen = [configured for configured in self.evaluators if configured.name in names]
        if self._in_parallel:
            results = await settle(configured.result(exchange) for configured in chosen)
        else:
            results = [await configured.result(exchange) for configured in chosen]
        return tuple(results)


@dataclass(frozen=True)
class DryRunEvaluator(Evaluator):
    """Replaces an evaluator that a dry run cannot use because it calls a model, or needs a program or a workspace."""

    miss: str = "dry run: no judge was asked"

    async def evaluate(self, exchange: Exchange) -> Score:
        return Score(
            score=0.0,
            misses=(self.miss,),
            missing_data=True,
        )
