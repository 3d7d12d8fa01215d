"""Partial views of a result: the fields that a reader needs, and no others.

The rest of a result (the answer, the trace) is skipped while it is decoded. All views are one family: what every reader
needs stands in `ResultView`, and its subclasses add what only some need. Fields that a file lacks have defaults: older
versions of agentv did not write them, and other tools do not.
"""

from typing import Annotated, Any, Literal

import msgspec

from agentv.records import Fraction, ShardPlan
from agentv.scoring import verdict_of


class DigestsView(msgspec.Struct, frozen=True, gc=False):
    """The fingerprints of what produced a result."""

    case: str = ""
    target: str = ""
    evaluators: str = ""
    judges: str = ""
    prompts: str = ""
    agentv: str = ""
    scoring: int = 1


class EvaluatorView(msgspec.Struct, frozen=True, gc=False):
    """The score of one evaluator."""

    name: str = ""
    score: Fraction = 0.0
    verdict: str | None = None
    failed: bool = False


class TokensView(msgspec.Struct, frozen=True, gc=False):
    """Tokens that a target reported."""

    input: float | None = None
    output: float | None = None
    reasoning: float | None = None


class MetricsView(msgspec.Struct, frozen=True, gc=False):
    """What an answer took."""

    token_usage: TokensView | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    cached: bool = False
    batch: bool = False


class JudgeMetricsView(msgspec.Struct, frozen=True, gc=False):
    """What a judge of an answer took."""

    calls: int = 0
    token_usage: TokensView | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


class ScoreView(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A result that has nothing but an id and a score, as other tools write it.

    It equals a `ResultView` with all the defaults, and a million of them are compared in half the time.
    """

    eval_id: Annotated[str, msgspec.Meta(min_length=1)]
    score: Fraction


class GradedView(msgspec.Struct, frozen=True, gc=False):
    """Of which run the answer is that was scored again."""

    run_id: str | None = None


class VerdictView(ScoreView, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with what tells whether it passed."""

    verdict: str | None = None
    error: Any = None
    failure: str | None = None

    @property
    def is_unscored(self) -> bool:
        """Whether the score is not a judgement of an answer: the case ended in an error, or a judge failed."""
        return self.error is not None or self.failure is not None

    @property
    def has_passed(self) -> bool:
        """Whether the answer was judged and passed: by its score, where the file has no verdict."""
        return not self.is_unscored and (self.verdict or verdict_of(self.score)) == "pass"


class ResultView(VerdictView, frozen=True, gc=False):
    """What nearly every reader needs of a result."""

    attempt: int | None = 1
    target: str = ""
    dataset: str = ""
    timestamp: str = ""
    conversation_id: str | None = None
    digests: DigestsView | None = None
    stop_reason: str | None = None
    dry_run: bool | None = None
    run_id: str | None = None
    graded_from: GradedView | None = None
    execution_metrics: MetricsView | None = None

    @property
    def answers_of(self) -> str | None:
        """The run that the answer is of."""
        return self.run_id if self.graded_from is None else self.graded_from.run_id


class PlacedView(ScoreView, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with its place among others, and the shard that it is of, if it is of one."""

    dataset: str = ""
    target: str = ""
    trial: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    shard: str | None = None
    plan: ShardPlan | None = None


class CountedView(PlacedView, frozen=True, gc=False):
    """A result with its place among others, and what a summary counts of it."""

    verdict: str | None = None
    error: Any = None
    failure: str | None = None
    stop_reason: str | None = None
    note: str | None = None
    misses: tuple[str, ...] = ()
    candidate_answer: str = ""
    evaluator_results: tuple[EvaluatorView, ...] = ()
    execution_metrics: MetricsView | None = None
    judge_metrics: dict[str, JudgeMetricsView] | None = None
    graded_from: GradedView | None = None
    metadata: dict[str, Any] | None = None


class PartsView(ResultView, frozen=True, gc=False):
    """A result with the scores of its evaluators and its metadata, by which a comparison may group."""

    evaluator_results: tuple[EvaluatorView, ...] | None = None
    metadata: dict[str, Any] | None = None


class TrialView(ResultView, frozen=True, gc=False):
    """A result with the number of its trial, for a run that goes on with earlier results."""

    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def case_key(self) -> tuple[str, str]:
        """The dataset and the id, which name the case."""
        return self.dataset, self.eval_id

    @property
    def trial_key(self) -> tuple[str, str, int]:
        """Names the trial of the case; without a number it is the first."""
        return self.dataset, self.eval_id, self.trial or 1

    @property
    def content_key(self) -> tuple[str, str, str]:
        """Names the case as it was when it was run."""
        return self.dataset, self.eval_id, self.digests.case if self.digests else ""


class EarlierView(TrialView, frozen=True, gc=False):
    """A result of an earlier run with what a summary counts of it."""

    misses: tuple[str, ...] = ()
    candidate_answer: str = ""
    note: str | None = None
    evaluator_results: tuple[EvaluatorView, ...] = ()
    judge_metrics: dict[str, JudgeMetricsView] | None = None
    metadata: dict[str, Any] | None = None
    shard: str | None = None
    plan: ShardPlan | None = None


class JudgedScoreView(EvaluatorView, frozen=True, gc=False):
    """The score of one evaluator with what tells how its judges behaved, if it asks any."""

    type: str = ""
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    details: Any = None
    evaluator_provider_request: Any = None


class JudgedView(TrialView, frozen=True, gc=False):
    """A result with what its judges said."""

    candidate_answer: str = ""
    evaluator_results: tuple[JudgedScoreView, ...] = ()


class ReportView(TrialView, frozen=True, gc=False):
    """A result with what a report shows of it."""

    misses: tuple[str, ...] = ()
    reasoning: str | None = None

    @property
    def title(self) -> str:
        return self.eval_id if self.trial is None else f"{self.eval_id}, trial {self.trial}"

    @property
    def outcome(self) -> Literal["pass", "failure", "error"]:
        """Whether it passed, failed, or was not judged at all."""
        if self.is_unscored:
            return "error"
        return "pass" if self.verdict == "pass" else "failure"

    @property
    def message(self) -> str:
        """What is wrong, in a line."""
        if self.error is not None:
            return " ".join(str(self.error).split())
        return f"score {self.score:.3f}, {'a judge failed' if self.failure else self.verdict}"

    @property
    def details(self) -> str:
        """The misses and the reasoning, a line each."""
        return "\n".join([*(f"- {miss}" for miss in self.misses), *([self.reasoning] if self.reasoning else [])])

    @property
    def seconds(self) -> float:
        """How long the answer took, 0 if nobody measured it."""
        return ((self.execution_metrics and self.execution_metrics.duration_ms) or 0.0) / 1000


class PageView(TrialView, frozen=True, gc=False):
    """A result with what the index of a page of results shows of it."""

    judge_metrics: dict[str, JudgeMetricsView] | None = None
    candidate_answer: str | None = None
    evaluator_results: tuple[EvaluatorView, ...] | None = None
    note: str | None = None


class ExportView(TrialView, frozen=True, gc=False):
    """A result with what a table of results has."""

    question: str | None = None
    candidate_answer: str | None = None
    evaluator_results: tuple[EvaluatorView, ...] | None = None
