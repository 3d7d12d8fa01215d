"""The rows of results files: only the fields of a result that readers need.

All other fields, such as the trace, are skipped by the decoder. The fields that nearly every reader needs are in
`ResultRow`; `PartsRow` and `TextRow` add what is expensive to decode. Every field except the id and the score has a
default, because files of older versions of agentv and of other tools may lack it.
"""

import re
from typing import Annotated, Any, Literal, get_args

import msgspec

from agentv.records import CaseKey, EvalResult, Fraction, ResultKey, ShardPlan, Verdict
from agentv.results.answer_digest import DIGEST_PATTERN, stored_digest
from agentv.scoring import verdict_of


class DigestsView(msgspec.Struct, frozen=True, gc=False):
    """The digests of everything that produced a result."""

    case: str = ""
    request: str = ""
    target: str = ""
    settings: str = ""
    files: str = ""
    evaluators: str = ""
    judges: str = ""
    prompts: str = ""
    agentv: str = ""
    scoring: int = 1
    format: int = 1


_VERDICTS: dict[str | None, Verdict] = {name: name for name in get_args(Verdict)}


def read_verdict(given: str | None, score: float) -> Verdict:
    """Return the verdict of a record in a file.

    Files of other tools may have none, or one of their own. Then it is derived from the score.
    """
    return _VERDICTS.get(given) or verdict_of(score)


class EvaluatorView(msgspec.Struct, frozen=True, gc=False):
    """The score of one evaluator."""

    name: str = ""
    score: Fraction | None = 0.0
    """None if the evaluator does not apply to the case."""
    given_verdict: str | None = msgspec.field(default=None, name="verdict")
    failed: bool = False
    off_scale: float | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the file, or else that of the score."""
        return read_verdict(self.given_verdict, self.score or 0.0)


class TokensView(msgspec.Struct, frozen=True, gc=False):
    """Token counts reported by a target."""

    input: float | None = None
    output: float | None = None
    reasoning: float | None = None


class RetriesView(msgspec.Struct, frozen=True, gc=False):
    """Tokens and cost of the failed attempts before an answer."""

    attempts: int = 0
    cost_usd: float | None = None
    token_usage: TokensView | None = None


class MetricsView(msgspec.Struct, frozen=True, gc=False):
    """Tokens, cost and duration of an answer."""

    token_usage: TokensView | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    cached: bool = False
    batch: bool = False
    retries: RetriesView | None = None


class JudgeMetricsView(msgspec.Struct, frozen=True, gc=False):
    """Calls, tokens, cost and duration of a judge for one answer."""

    calls: int = 0
    token_usage: TokensView | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


class GradedView(msgspec.Struct, frozen=True, gc=False):
    """The run that a re-graded answer comes from."""

    run_id: str | None = None


class ScoreRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A result with only an id and a score, as other tools write it.

    It is equivalent to a `ResultRow` with all defaults; a million of them are compared in half the time.
    """

    eval_id: Annotated[str, msgspec.Meta(min_length=1)]
    score: Fraction


class ResultRow(ScoreRow, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with the fields that identify and describe it, without texts and parts."""

    given_verdict: str | None = msgspec.field(default=None, name="verdict")
    error: Any = None
    failure: str | None = None
    attempt: int | None = 1
    target: str = ""
    dataset: str = ""
    file: str | None = None
    trial: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    timestamp: str = ""
    conversation_id: str | None = None
    digests: DigestsView | None = None
    stop_reason: str | None = None
    dry_run: bool | None = None
    run_id: str | None = None
    graded_from: GradedView | None = None
    execution_metrics: MetricsView | None = None
    shard: str | None = None
    plan: ShardPlan | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the file, or else that of the score. A case with an error, or not judged, has failed."""
        if self.is_unscored:
            return "fail"
        return read_verdict(self.given_verdict, self.score)

    @property
    def is_unscored(self) -> bool:
        """Whether the answer was not scored: the case ended in an error, or a judge failed."""
        return self.error is not None or self.failure is not None

    @property
    def has_passed(self) -> bool:
        """Whether the answer was scored and passed."""
        return not self.is_unscored and self.verdict == "pass"

    @property
    def answers_of(self) -> str | None:
        """The id of the run that produced the answer."""
        if self.graded_from is None:
            return self.run_id
        return self.graded_from.run_id

    @property
    def case_key(self) -> CaseKey:
        """Identifies the case."""
        return CaseKey(self.dataset, self.eval_id)

    @property
    def key(self) -> ResultKey:
        """Identifies the result; a result without a trial counts as the first."""
        return ResultKey(self.dataset, self.eval_id, self.target, self.trial or 1)

    @property
    def trial_key(self) -> ResultKey:
        """Identifies the trial of the case, regardless of the target that answered."""
        return ResultKey.of_any_target(self.dataset, self.eval_id, self.trial or 1)


class PartsRow(ResultRow, frozen=True, gc=False):
    """A result with the scores of its evaluators, and what describes its case: metadata, tags and variables."""

    evaluator_results: tuple[EvaluatorView, ...] | None = None
    metadata: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    vars: dict[str, Any] | None = None


class FilterRow(PartsRow, frozen=True, gc=False):
    """A result with everything that a filter may read."""

    note: str | None = None


class ToolCountsView(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of the summary of a trace that says which tools were called."""

    tool_calls_by_name: dict[str, int] | None = None


class ExplainedScoreView(EvaluatorView, frozen=True, gc=False):
    """The score of one evaluator, and what the answer misses."""

    weight: float = 1.0
    required: bool | float = False
    misses: tuple[str, ...] | None = None

    @property
    def counts(self) -> bool:
        """Whether the evaluator affects the score or the verdict, as far as it applies."""
        return self.score is not None and (self.weight > 0 or self.required is not False)


class TextRow(PartsRow, frozen=True, gc=False):
    """A result with its answer, and everything that a summary, a page or a label needs."""

    evaluator_results: tuple[ExplainedScoreView, ...] | None = None
    candidate_answer: str | None = None
    failed_required: tuple[str, ...] = ()
    answer_digest: str | None = None
    file_changes: str | None = None
    trace_summary: ToolCountsView | None = None
    misses: tuple[str, ...] | None = None
    note: str | None = None
    masked: tuple[str, ...] | None = None
    judge_metrics: dict[str, JudgeMetricsView] | None = None
    commit: str | None = None

    @property
    def tool_counts(self) -> dict[str, int]:
        """How often each tool was called, by name."""
        if self.trace_summary is None:
            return {}
        return self.trace_summary.tool_calls_by_name or {}

    @property
    def label_digest(self) -> str:
        """The digest by which labels refer to the answer."""
        if self.answer_digest is not None and re.fullmatch(DIGEST_PATTERN, self.answer_digest):
            return self.answer_digest
        return stored_digest(self.candidate_answer or "", self.file_changes, self.tool_counts)


AnyResult = EvalResult | TextRow
"""A result of this run or of a file."""
PageView = TextRow
"""The row of a page."""


class JudgedScoreView(EvaluatorView, frozen=True, gc=False):
    """The score of one evaluator with the fields that show how its judges behaved."""

    type: str = ""
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    details: Any = None
    evaluator_provider_request: Any = None


class JudgedView(ResultRow, frozen=True, gc=False):
    """A result with the replies of its judges."""

    candidate_answer: str = ""
    evaluator_results: tuple[JudgedScoreView, ...] = ()


class ReportView(TextRow, frozen=True, gc=False):
    """A result with the fields that a report shows."""

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
        # reports are of files that agentv wrote: a result without a verdict is not reported as passed
        if self.given_verdict == "pass":
            return "pass"
        return "failure"

    @property
    def message(self) -> str:
        """A one-line description of the problem."""
        if self.error is not None:
            words = str(self.error).split()
            return " ".join(words)
        if self.failure:
            return f"score {self.score:.3f}, a judge failed"
        text = f"score {self.score:.3f}, {self.given_verdict}"
        if self.failed_required:
            text += f", failed required checks: {', '.join(self.failed_required)}"
        return text

    @property
    def details(self) -> str:
        """The misses, one per line, followed by the reasoning."""
        lines = []
        for miss in self.misses or ():
            lines.append(f"- {miss}")
        if self.reasoning:
            lines.append(self.reasoning)
        return "\n".join(lines)

    @property
    def seconds(self) -> float:
        """The duration of the answer in seconds, or 0 if it is unknown."""
        metrics = self.execution_metrics
        if metrics is None:
            return 0.0
        duration_ms = metrics.duration_ms or 0.0
        return duration_ms / 1000


class TableView(TextRow, frozen=True, gc=False):
    """A result with the columns of a table."""

    question: str | None = None
    reference_answer: str | None = None
