"""The health of the judges of a run: their behavior, their verdicts on planted answers, and an overall verdict."""

from collections.abc import Mapping
from typing import Literal, Self

import msgspec

from agentv.records import JudgeMetrics
from agentv.stats.agreement import Figure
from agentv.trust.labels.judge import JudgeFigures

Trust = Literal["trusted", "trusted with correction", "untrusted", "not checked"]


class Flips(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that were judged more than once: how many verdicts changed, and how much the scores vary."""

    answers: int
    flipped: int
    share: Figure
    deviation: float
    """The standard deviation of the scores for the same answer."""


class EvaluatorHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the judges of one evaluator behaved in a run."""

    evaluator: str
    answers: int
    """The number of answers to judge."""
    call_failed: int = 0
    """The number of judgements that are missing because the judge could not be called."""
    off_scale: int = 0
    """The number of judgements with a score that is not between 0 and 1."""
    unparsable: int = 0
    """The number of judgements whose reply was unusable."""
    unjudged: int = 0
    """The number of answers without any judgement."""
    repaired: int = 0
    """The number of judgements that were not valid JSON but could be repaired."""
    asked_again: int = 0
    """The number of judgements that needed more than one attempt."""
    contradictions: int = 0
    """The number of judgements that pass an answer but list only misses, or fail it but list only hits."""
    repeats: Flips | None = None
    alpha: Figure | None = None
    """Krippendorff's alpha for the verdicts of a panel."""
    alpha_scores: Figure | None = None
    """Krippendorff's alpha for the scores of a panel."""
    length: Figure | None = None
    """Spearman's rank correlation between the lengths of answers and their scores."""


class FailedCanary(msgspec.Struct, frozen=True, kw_only=True):
    """A planted answer that was judged wrongly."""

    evaluator: str
    eval_id: str
    canary: str
    """A description of the planted answer: `the reference answer`, `an empty answer` and so on."""
    verdict: str
    score: float
    judge: str | None = None
    """The judge of a panel that was wrong; None if the evaluator has a single judge."""


class Canaries(msgspec.Struct, frozen=True, kw_only=True):
    """Planted answers, for which the right verdict is known. Each judge of a panel counts separately."""

    planted: int
    right: int
    unjudged: int
    """The number of planted answers that the judge returned no judgement for."""
    accuracy: Figure
    failed: tuple[FailedCanary, ...] = ()


class CheckCost(msgspec.Struct, frozen=True, kw_only=True):
    """Calls and cost of `--check-judge`; replies from the cache cost nothing."""

    calls: int = 0
    cost_usd: float | None = None
    """The total cost, or None unless the cost of every judge is known."""

    @classmethod
    def of(cls, judges: Mapping[str, JudgeMetrics]) -> Self:
        """Return the total over all judges."""
        calls = 0
        known: list[float] = []
        for judge in judges.values():
            calls += judge.calls
            if judge.cost_usd is not None:
                known.append(judge.cost_usd)
        if not known or len(known) < len(judges):
            return cls(calls=calls)
        return cls(calls=calls, cost_usd=sum(known))


class JudgeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of the judges of a run."""

    verdict: Trust = msgspec.field(default_factory=lambda: "not checked")
    reasons: tuple[str, ...] = ()
    """The reasons for the verdict."""
    warnings: tuple[str, ...] = ()
    """Further remarks for readers of the scores."""
    evaluators: tuple[EvaluatorHealth, ...] = ()
    canaries: Canaries | None = None
    rejudged: Flips | None = None
    labels: JudgeFigures | None = None
    same_model: tuple[str, ...] = ()
    """Targets whose answers are judged by their own model."""
    cost: CheckCost | None = None
