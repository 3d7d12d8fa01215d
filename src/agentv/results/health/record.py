"""What is known of the judges of a run: how they behaved, what they made of planted answers, and a verdict."""

from collections.abc import Mapping
from typing import Literal, Self

import msgspec

from agentv.records import JudgeMetrics
from agentv.results.labels.judge import JudgeFigures
from agentv.stats.agreement import Figure

Trust = Literal["trusted", "trusted with correction", "untrusted", "not checked"]


class Flips(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that were judged more than once: whose verdict changed, and how far their scores vary."""

    answers: int
    flipped: int
    share: Figure
    deviation: float
    """The standard deviation of the scores of one answer."""


class EvaluatorHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the judges of one evaluator behaved in a run."""

    evaluator: str
    answers: int
    """Answers that they were asked to judge."""
    unparsable: int = 0
    """Judgements that could not be used, or never came."""
    unjudged: int = 0
    """Answers that have no judgement at all."""
    repaired: int = 0
    """Judgements that were no valid JSON, and could be used."""
    asked_again: int = 0
    """Judgements that took more than one try."""
    contradictions: int = 0
    """Judgements that pass an answer and list nothing but misses, or fail it and list nothing but hits."""
    repeats: Flips | None = None
    alpha: Figure | None = None
    """Krippendorff's alpha of the verdicts of a panel."""
    alpha_scores: Figure | None = None
    """The same of its scores."""
    length: Figure | None = None
    """Spearman's rank correlation between the length of answers and their scores."""


class FailedCanary(msgspec.Struct, frozen=True, kw_only=True):
    """A planted answer that was judged wrongly."""

    evaluator: str
    eval_id: str
    canary: str
    """What was planted: `the reference answer`, `an empty answer` and so on."""
    verdict: str
    score: float


class Canaries(msgspec.Struct, frozen=True, kw_only=True):
    """Planted answers whose verdicts are known."""

    planted: int
    right: int
    unjudged: int
    """Those of which the judge gave no judgement."""
    accuracy: Figure
    failed: tuple[FailedCanary, ...] = ()


class CheckCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks of `--check-judge` took; what came from the cache cost nothing."""

    calls: int = 0
    cost_usd: float | None = None
    """What they cost; None if that is not known of all of them."""

    @classmethod
    def of(cls, judges: Mapping[str, JudgeMetrics]) -> Self:
        """Return what judges took, by what each of them took."""
        costs = [judge.cost_usd for judge in judges.values()]
        known = [cost for cost in costs if cost is not None]
        calls = sum(judge.calls for judge in judges.values())
        return cls(calls=calls, cost_usd=sum(known) if known and len(known) == len(costs) else None)


class JudgeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the judges of a run."""

    verdict: Trust = msgspec.field(default_factory=lambda: "not checked")
    reasons: tuple[str, ...] = ()
    """Why the verdict is what it is."""
    warnings: tuple[str, ...] = ()
    """What else a reader of the scores should know."""
    evaluators: tuple[EvaluatorHealth, ...] = ()
    canaries: Canaries | None = None
    rejudged: Flips | None = None
    labels: JudgeFigures | None = None
    same_model: tuple[str, ...] = ()
    """Targets whose answers are judged by the same model."""
    cost: CheckCost | None = None
