"""Partial views of a result: only the fields that a reader needs.

All other fields, such as the answer or the trace, are skipped by the decoder. The fields that nearly every reader needs
are in `ResultView`; its subclasses add fields for some readers. Every field except the id and the score has a default,
because files of older versions of agentv and of other tools may lack it.
"""

from typing import Annotated, Any, Literal

import msgspec

from agentv.records import Fraction, ShardPlan
from agentv.scoring import verdict_of


class DigestsView(msgspec.Struct, frozen=True, gc=False):
    """The digests of everything that produced a result."""

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
    """Token counts reported by a target."""

    input: float | None = None
    output: float | None = None
    reasoning: float | None = None


class MetricsView(msgspec.Struct, frozen=True, gc=False):
    """Tokens, cost and duration of an answer."""

    token_usage: TokensView | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    cached: bool = False
    batch: bool = False


class JudgeMetricsView(msgspec.Struct, frozen=True, gc=False):
    """Calls, tokens, cost and duration of a judge for one answer."""

    calls: int = 0
    token_usage: TokensView | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


class ScoreView(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A result with only an id and a score, as other tools write it.

    It is equivalent to a `ResultView` with all defaults; a million of them are compared in half the time.
    """

    eval_id: Annotated[str, msgspec.Meta(min_length=1)]
    score: Fraction


class GradedView(msgspec.Struct, frozen=True, gc=False):
    """The run that a re-graded answer comes from."""

    run_id: str | None = None


class VerdictView(ScoreView, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with the fields that decide whether it passed."""

    verdict: str | None = None
    error: Any = None
    failure: str | None = None

    @property
    def is_unscored(self) -> bool:
        """Whether the answer was not scored: the case ended in an error, or a judge failed."""
        return self.error is not None or self.failure is not None

    @property
    def has_passed(self) -> bool:
        """Whether the answer was scored and passed; a missing verdict is derived from the score."""
        if self.is_unscored:
            return False
        verdict = self.verdict or verdict_of(self.score)
        return verdict == "pass"


class ResultView(VerdictView, frozen=True, gc=False):
    """A result with the fields that nearly every reader needs."""

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
        """The id of the run that produced the answer."""
        if self.graded_from is None:
            return self.run_id
        return self.graded_from.run_id


class PlacedView(ScoreView, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with the fields that it is sorted by, and the shard that it belongs to."""

    dataset: str = ""
    target: str = ""
    trial: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    shard: str | None = None
    plan: ShardPlan | None = None


class CountedView(PlacedView, frozen=True, gc=False):
    """A result with the fields that it is sorted by, and those that a summary counts."""

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
    """A result with the scores of its evaluators, and the metadata that a comparison can group by."""

    evaluator_results: tuple[EvaluatorView, ...] | None = None
    metadata: dict[str, Any] | None = None


class TrialView(ResultView, frozen=True, gc=False):
    """A result with the number of its trial, for runs that resume earlier results."""

    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def case_key(self) -> tuple[str, str]:
        """The dataset and the id, which identify the case."""
        return self.dataset, self.eval_id

    @property
    def trial_key(self) -> tuple[str, str, int]:
        """The dataset, the id and the trial; a result without a trial counts as the first."""
        return self.dataset, self.eval_id, self.trial or 1

    @property
    def content_key(self) -> tuple[str, str, str]:
        """The dataset, the id and the digest of the case, which identify its content at the time of the run."""
        case_digest = ""
        if self.digests is not None:
            case_digest = self.digests.case
        return self.dataset, self.eval_id, case_digest


class EarlierView(TrialView, frozen=True, gc=False):
    """A result of an earlier run with the fields that a summary counts."""

    misses: tuple[str, ...] = ()
    candidate_answer: str = ""
    note: str | None = None
    evaluator_results: tuple[EvaluatorView, ...] = ()
    judge_metrics: dict[str, JudgeMetricsView] | None = None
    metadata: dict[str, Any] | None = None
    shard: str | None = None
    plan: ShardPlan | None = None


class JudgedScoreView(EvaluatorView, frozen=True, gc=False):
    """The score of one evaluator with the fields that show how its judges behaved."""

    type: str = ""
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    details: Any = None
    evaluator_provider_request: Any = None


class JudgedView(TrialView, frozen=True, gc=False):
    """A result with the replies of its judges."""

    candidate_answer: str = ""
    evaluator_results: tuple[JudgedScoreView, ...] = ()


class ReportView(TrialView, frozen=True, gc=False):
    """A result with the fields that a report shows."""

    misses: tuple[str, ...] = ()
    reasoning: str | None = None

    @property
    def title(self) -> str:
        if self.trial is None:
            return self.eval_id
        return f"{self.eval_id}, trial {self.trial}"

    @property
    def outcome(self) -> Literal["pass", "failure", "error"]:
        """Whether the answer passed, failed or was not scored."""
        if self.is_unscored:
            return "error"
        if self.verdict == "pass":
            return "pass"
        return "failure"

    @property
    def message(self) -> str:
        """A one-line description of what is wrong."""
        if self.error is not None:
            return " ".join(str(self.error).split())
        if self.failure:
            return f"score {self.score:.3f}, a judge failed"
        return f"score {self.score:.3f}, {self.verdict}"

    @property
    def details(self) -> str:
        """The misses, one per line, followed by the reasoning."""
        lines = [f"- {miss}" for miss in self.misses]
        if self.reasoning:
            lines.append(self.reasoning)
        return "\n".join(lines)

    @property
    def seconds(self) -> float:
        """The duration of the answer in seconds, or 0 if it is unknown."""
        if self.execution_metrics is None:
            return 0.0
        duration_ms = self.execution_metrics.duration_ms or 0.0
        return duration_ms / 1000


class PageView(TrialView, frozen=True, gc=False):
    """A result with the fields that the index of an HTML page shows."""

    judge_metrics: dict[str, JudgeMetricsView] | None = None
    candidate_answer: str | None = None
    evaluator_results: tuple[EvaluatorView, ...] | None = None
    note: str | None = None


class ExportView(TrialView, frozen=True, gc=False):
    """A result with the columns of an exported table."""

    question: str | None = None
    candidate_answer: str | None = None
    evaluator_results: tuple[EvaluatorView, ...] | None = None
