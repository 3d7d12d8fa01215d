"""What became of a case, and the scores of its answer -> the EvalResult that is written."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from agentv.calls.retry import FailedCall
from agentv.judges.payload import reference_answer
from agentv.records import (
    Digests,
    EvalFile,
    EvalResult,
    EvaluatorResult,
    ExecutionMetrics,
    Failure,
    JudgeMetrics,
    ProviderResponse,
    Score,
)
from agentv.run.jobs import Job
from agentv.run.plan import Plan, RunOptions
from agentv.scoring import verdict_of, weighted_mean
from agentv.telemetry.trace import build_trace, summarize_trace

CUT_OFF = "the answer was cut off at the token limit"


class Outcome(NamedTuple):
    """How asking a target ended: with a response, or with an error and its kind."""

    attempt: int
    response: ProviderResponse | None = None
    error: str | None = None
    failure: Failure = "target"
    details: str | None = None
    """The traceback of the user's own code."""
    partial: ProviderResponse | None = None
    """What is known in the place of a response."""
    is_cached: bool = False
    trace_id: str | None = None
    """The OpenTelemetry trace of the last attempt, if there is one."""
    answered_at: str | None = None
    """When that was, if it is to be told."""

    @property
    def known(self) -> ProviderResponse | None:
        """The response, or what is known in its place."""
        return self.response or self.partial


class Scored(NamedTuple):
    """What the evaluators made of an answer, and what their judges took."""

    results: tuple[EvaluatorResult, ...] = ()
    judges: Mapping[str, JudgeMetrics] | None = None


NOT_SCORED = Scored()


def outcome_of(
    attempt: int, got: ProviderResponse | FailedCall, is_cached: bool = False, trace_id: str | None = None
) -> Outcome:
    """How it ended, by what the last attempt, or the cache, gave."""
    if isinstance(got, FailedCall):
        return Outcome(attempt, None, got.error, got.failure, got.details, got.partial, trace_id=trace_id)
    return Outcome(attempt, got, is_cached=is_cached, trace_id=trace_id)


class ResultContext:
    """What all results of a run share: how they are written."""

    def __init__(self, options: RunOptions, plan: Plan, *, is_graded: bool = False):
        self.run_id, self.dry_run = options.run_id, plan.dry_run or None
        self.shard, self.plan = str(plan.shard) if plan.shard is not None else None, plan.shard_plan
        self.has_times = options.has_times
        self.has_trials, self.include_trace = options.trials > 1, options.include_trace
        self.include_inputs, self._folder = options.include_inputs, plan.folder
        self._stand_in = plan.stand_in
        self.is_graded = is_graded
        """Whether answers are scored again: what is known of them is put in by who has stored it."""
        self._last: tuple[EvalFile | None, str] = None, ""

    def is_stored(self, job: Job) -> bool:
        """Return whether the answer is one that was stored, and has cost this run nothing."""
        if self._stand_in is not None:
            return getattr(self._stand_in, "is_stored", False)
        return job.planned.settings is not None and job.planned.settings.is_stored

    def path(self, file: EvalFile) -> str:
        """Return the path of an eval file from the root of its repo, or from the folder of the run."""
        if self._last[0] is not file:
            path = os.path.relpath(file.path, file.root or self._folder)
            self._last = file, path.replace(os.sep, "/")
        return self._last[1]


def result_of(
    context: ResultContext, job: Job, outcome: Outcome, digests: Digests, scored: Scored = NOT_SCORED
) -> EvalResult:
    """Return all that is known of a case. Weights that are all zero give a score of 0."""
    case, request, inputs = job.case, job.request, context.include_inputs
    response, known = outcome.response, outcome.known if not context.is_graded else None
    trace = build_trace(known) if known else None
    total = combine_scores(scored.results)
    return EvalResult(
        timestamp=timestamp_now(),
        run_id=context.run_id,
        shard=context.shard,
        plan=context.plan,
        eval_id=case.id,
        dataset=case.dataset,
        file=context.path(case.file),
        line=case.line,
        conversation_id=case.conversation_id,
        target=job.planned.name,
        attempt=outcome.attempt,
        trial=job.trial if context.has_trials else None,
        score=round(total.score, 12),  # 0.7, 0.8 and 0.9 are 0.8, not a little less
        verdict="fail" if total.verdict == "fail" else verdict_of(total.score),
        hits=total.hits,
        misses=total.misses,
        reasoning=total.reasoning or None,
        question=request.question if inputs and request is not None else None,
        expected_outcome=case.expected_outcome if inputs else None,
        reference_answer=(reference_answer(case) or None) if inputs and case.expected_messages else None,
        candidate_answer=response.text if response else "",
        stop_reason=response.stop_reason if response else None,
        note=_note(known) if known else None,
        file_changes=known.file_changes if known else None,
        evaluator_results=scored.results,
        trace_summary=summarize_trace(trace, known) if known and trace is not None else None,
        execution_metrics=_metrics(known, outcome.is_cached or context.is_stored(job)) if known else None,
        judge_metrics=scored.judges,
        error=outcome.error,
        error_details=outcome.details,
        failure=outcome.failure if outcome.error is not None else "judge" if total.failed else None,
        dry_run=context.dry_run,
        trace=trace if context.include_trace else None,
        trace_complete=known.trace_complete if known else None,
        trace_id=outcome.trace_id,
        answered_at=outcome.answered_at,
        description=case.description or None,
        metadata=case.metadata,
        digests=digests,
    )


def combine_scores(scores: tuple[EvaluatorResult, ...]) -> Score | EvaluatorResult:
    """Return the score of a case: the weighted mean, and all that the evaluators say.

    The verdict is `fail` if an evaluator that counts says so, be its score what it may.
    """
    if len(scores) == 1 and scores[0].weight:
        return scores[0]  # alone it is the score of the case
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    failed, verdict = False, None
    for part in scores:
        hits, misses, failed = hits + part.hits, misses + part.misses, failed or part.failed
        if part.verdict == "fail" and part.weight > 0 and verdict_of(part.score) != "fail":
            verdict = part.verdict
    return Score(
        score=weighted_mean(scores),
        hits=hits,
        misses=misses,
        reasoning="\n".join([part.reasoning for part in scores if part.reasoning]),
        failed=failed,
        verdict=verdict,
    )


def unwritable_result(result: EvalResult, error: Exception) -> EvalResult:
    """Return what is written in the place of a result that cannot be encoded."""
    names = ("timestamp", "run_id", "shard", "plan", "eval_id", "dataset", "file", "line", "target", "attempt", "trial")
    return EvalResult(
        **{name: getattr(result, name) for name in names},
        score=0.0,
        verdict="fail",
        candidate_answer="",
        error=f"the answer cannot be written down: {type(error).__name__}: {str(error)!a}",
        failure="target",
        digests=result.digests,
    )


def _note(response: ProviderResponse) -> str | None:
    """Return what a reader of the answer must know."""
    if response.stop_reason != "length" or response.note == CUT_OFF:
        return response.note
    return f"{CUT_OFF}; {response.note}" if response.note else CUT_OFF


def timestamp_now() -> str:
    """Return this moment in ISO 8601."""
    return _millisecond(int(time.time() * 1000))


@lru_cache(maxsize=1)
def _millisecond(number: int) -> str:
    """Return a moment in ISO 8601; there are many cases in one millisecond, and many of those in one second."""
    seconds, rest = divmod(number, 1000)
    return f"{_second(seconds)}.{rest:03}Z"


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _metrics(response: ProviderResponse, is_cached: bool) -> ExecutionMetrics | None:
    known = response.token_usage, response.cost_usd, response.duration_ms, response.ttft_ms, response.batch
    if known == (None, None, None, None, None):
        return None
    usage, cost, duration, ttft, batch = known
    return ExecutionMetrics(
        token_usage=usage, cost_usd=cost, duration_ms=duration, ttft_ms=ttft, batch=batch, cached=is_cached
    )
