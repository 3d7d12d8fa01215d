"""The evaluators of a case and an exchange -> their results."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from agentv import __version__
from agentv.errors import AgentvError
from agentv.formats.fingerprint import digest
from agentv.judges.deferral import current, once, settle
from agentv.judges.reply import BadJudgement, check_score, replace_surrogates
from agentv.notices import note_lines
from agentv.protocols import Evaluator, JudgeTarget
from agentv.providers.settings import target_digest
from agentv.records import Digests, EvaluatorResult, Exchange, Json, Problem, Score, Verdict
from agentv.scoring import SCORING, verdict_of
from agentv.system.tracebacks import explain_error

OPPOSITE: dict[Verdict | None, Verdict | None] = {"pass": "fail", "fail": "pass"}


def negate_score(score: Score) -> Score:
    """Return the opposite of a score: what was hit is missed. What is no judgement has no opposite, and has failed."""
    if score.failed or score.missing_data:
        return msgspec.structs.replace(score, score=0.0, verdict=None, failed=True)
    return msgspec.structs.replace(
        score,
        score=round(1.0 - score.score, 12),
        hits=score.misses,
        misses=score.hits,
        verdict=OPPOSITE.get(score.verdict, score.verdict),
    )


class ConfiguredEvaluator(msgspec.Struct, frozen=True):
    """An evaluator with its name, its type and its weight. If it is negated, its score is turned around."""

    name: str
    type: str
    weight: float
    evaluator: Evaluator
    is_negated: bool = False
    place: str = ""
    """Where it stands among the evaluators of its case."""

    async def result(self, exchange: Exchange) -> EvaluatorResult:
        """Return its result; an evaluator that fails scores 0 and says why."""
        if current.get() is None:
            return await self._result(exchange)
        return await once(self.place, lambda: self._result(exchange))

    async def _result(self, exchange: Exchange) -> EvaluatorResult:
        details: str | None = None
        try:
            score = check_score(await self.evaluator.evaluate(exchange))
            if self.is_negated:
                score = negate_score(score)
        except Exception as error:
            if isinstance(error, AgentvError | BadJudgement):
                reason = str(error)
            else:
                reason, details = explain_error(error)
                note_lines(f"case {exchange.case.id!r}: evaluator {self.name!r} failed", details)
            message = replace_surrogates(f"the evaluator failed: {reason}")
            score = Score(score=0.0, misses=(message,), failed=True)
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
            error_details=details,
        )


class Dependencies(NamedTuple):
    """What the scores of a case depend on besides the settings of its evaluators."""

    fingerprints: list[Any]
    """What prompts and scripts say."""
    judges: list[JudgeTarget]
    need_reference: list[str]
    """The names of the evaluators that compare with the reference answer."""
    use_workspace: list[str]
    """The names of the evaluators that may look at the files in the workspace."""
    need_workspace: list[Problem]
    """What is wrong if the target has no workspace."""


class CaseEvaluators:
    """All the evaluators of a case."""

    def __init__(self, evaluators: Sequence[ConfiguredEvaluator], configs: Sequence[Json], dependencies: Dependencies):
        self.evaluators, self._configs, self._dependencies = evaluators, configs, dependencies
        self.need_reference = tuple(dependencies.need_reference)
        self.workspace_users = tuple(dict.fromkeys(dependencies.use_workspace))
        self.need_workspace = tuple(dependencies.need_workspace)
        self.has_judges = bool(dependencies.judges)
        self._last: Digests | None = None
        self._in_parallel = sum(configured.evaluator.waits for configured in evaluators) > 1

    @cached_property
    def digests(self) -> dict[str, str]:
        """The part of `Digests` that tells how answers are scored."""
        settings = [target_digest(judge.settings) for judge in self._dependencies.judges if judge.settings is not None]
        judges = digest(settings) if settings else ""
        prompts = digest(self._dependencies.fingerprints) if self._dependencies.fingerprints else ""
        return {"evaluators": digest(self._configs, judges, prompts), "judges": judges, "prompts": prompts}

    def digests_of(self, case: str, target: str) -> Digests:
        """Return the digests of a result, of which those of the case and of the target are given."""
        if self._last is None or self._last.target != target:  # most cases share all but the first
            self._last = Digests(case=case, target=target, agentv=__version__, scoring=SCORING, **self.digests)
        return msgspec.structs.replace(self._last, case=case)

    async def results(self, exchange: Exchange, names: frozenset[str] | None = None) -> tuple[EvaluatorResult, ...]:
        """Return the result of each evaluator, or of those with these names.

        They run in parallel if more than one of them waits for something.
        """
        chosen = self.evaluators if names is None else [each for each in self.evaluators if each.name in names]
        if not self._in_parallel:
            return tuple([await configured.result(exchange) for configured in chosen])
        return tuple(await settle(configured.result(exchange) for configured in chosen))


class DryRunEvaluator(Evaluator):
    """Takes the place of an evaluator that a dry run cannot use: it asks a language model, or lacks its program."""

    def __init__(self, miss: str = "dry run: no judge was asked"):
        self._miss = miss

    async def evaluate(self, exchange: Exchange) -> Score:
        return Score(score=0.0, misses=(self._miss,), missing_data=True)
