"""The outcome of a case and the scores of its answer -> the EvalResult that is written."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agentv.calls.retry import FailedCall
from agentv.cases.objects import NO_FILE
from agentv.evaluators.judging.payload import reference_answer
from agentv.records import (
    CaseFile,
    Digests,
    Dropped,
    EvalCase,
    EvalResult,
    EvaluatorResult,
    Exchange,
    ExecutionMetrics,
    Failure,
    Json,
    JudgeMetrics,
    Message,
    ProviderResponse,
    Record,
    RetryMetrics,
    TraceEvent,
    TraceSummary,
)
from agentv.results.answer_digest import answer_digest
from agentv.results.messages import shorten_messages
from agentv.results.trace import build_trace, summarize_trace
from agentv.run.jobs import Job
from agentv.run.options import RunOptions
from agentv.run.planning.plan import Plan
from agentv.scoring import NOT_SCORED, CaseScore, score_case
from agentv.text import path_text, timestamp_now

CUT_OFF = "the answer was cut off at the token limit"


class Outcome(Record, frozen=True):
    """How asking a target ended: with an exchange, or with an error and its kind."""

    attempt: int
    exchange: Exchange | None = None
    error: str | None = None
    failure: Failure = "target"
    details: str | None = None
    """The traceback of the user's own code."""
    partial: ProviderResponse | None = None
    """What the target answered until it failed."""
    is_cached: bool = False
    is_new: bool = False
    """Whether the target was called for this case alone, so that the answer belongs into the cache."""
    trace_id: str | None = None
    """The OpenTelemetry trace of an answer that was stored with one."""
    answered_at: str | None = None
    """When the target answered, if that is recorded."""
    retries: RetryMetrics | None = None
    """The failed attempts before this one, if there were any."""

    @property
    def known(self) -> ProviderResponse | None:
        """The answer, or the partial answer of a failed attempt."""
        if self.exchange is None:
            return self.partial
        return self.exchange.response


class Evaluation(Record, frozen=True):
    """The results of the evaluators of a case, and what its judges cost."""

    results: tuple[EvaluatorResult, ...]
    judges: Mapping[str, JudgeMetrics] | None = None


def exchange_of(job: Job, response: ProviderResponse, workspace: Path | None = None) -> Exchange:
    """Return the exchange of a case and the response to its request."""
    assert job.request is not None
    case = job.case
    if response.case_metadata is not None:
        case = msgspec.structs.replace(case, metadata=response.case_metadata)
    return Exchange(
        case=case,
        request=job.request,
        response=response,
        workspace=workspace,
    )


def outcome_of(job: Job, attempt: int, got: ProviderResponse | FailedCall, *, is_cached: bool = False) -> Outcome:
    """Return the outcome of a call."""
    if isinstance(got, FailedCall):
        return Outcome(
            attempt,
            error=got.error,
            failure=got.failure,
            details=got.details,
            partial=got.partial,
        )
    return Outcome(attempt, exchange_of(job, got), is_cached=is_cached)


class ResultContext:
    """What all results of a run share."""

    def __init__(self, options: RunOptions, plan: Plan, *, is_graded: bool = False):
        """`is_graded` means that stored answers are scored again; their stored data is added later."""
        self.run_id = options.run_id
        self.commit = options.commit
        self.dry_run = plan.dry_run or None
        self.shard: str | None = None
        if plan.shard is not None:
            self.shard = str(plan.shard)
        self.plan = plan.shard_plan
        self.has_times = options.otel
        self.has_trials = options.trials > 1
        self.include_trace = options.include_trace or options.otel
        self.include_messages = options.include_messages
        self.keeps_messages_whole = options.include_trace
        self.include_inputs = options.include_inputs
        self.is_graded = is_graded
        self._folder = plan.folder
        self._stand_in = plan.stand_in
        self._last_file: CaseFile | None = None
        self._last_path: str | None = ""

    def is_stored(self, job: Job) -> bool:
        """Return whether the answer is a stored one that costs this run nothing."""
        if self._stand_in is not None:
            return getattr(self._stand_in, "is_stored", False)
        return job.planned.settings is not None and job.planned.settings.is_stored

    def path(self, file: CaseFile) -> str | None:
        """Return the path of an eval file, relative to the root of its repository or to the folder of the run.

        Return None for cases without a file.
        """
        if self._last_file is not file:
            self._last_file = file
            self._last_path = result_path(file, self._folder)
        return self._last_path

    def line(self, case: EvalCase) -> int | None:
        """Return the line of a case in its file; None for cases without a file."""
        if self.path(case.file) is None:
            return None
        return case.line


def result_path(file: CaseFile, folder: Path) -> str | None:
    """Return the path of an eval file as results contain it, or None for cases without a file.

    `folder` is where the run was started.
    """
    if file.path == NO_FILE:
        return None
    path = os.path.relpath(file.path, file.root or folder)
    return path_text(path.replace(os.sep, "/"))


def result_of(
    context: ResultContext,
    job: Job,
    outcome: Outcome,
    digests: Digests,
    evaluation: Evaluation | None = None,
) -> EvalResult:
    """Return the result of a case, with the evaluation of its answer if there is one."""
    case = job.case
    total = NOT_SCORED
    evaluator_results: tuple[EvaluatorResult, ...] = ()
    judges = None
    if evaluation is not None:
        evaluator_results = evaluation.results
        judges = evaluation.judges
        total = score_case(evaluator_results, case.pass_rule)
    inputs = _inputs_of(job, context)
    metadata = case.metadata
    candidate_answer = ""
    digest = None
    stop_reason = None
    if outcome.exchange is not None:
        metadata = outcome.exchange.case.metadata  # that of a stored result, if the answer is from one
        candidate_answer = outcome.exchange.response.text
        digest = answer_digest(outcome.exchange.response)
        stop_reason = outcome.exchange.response.stop_reason
    usage = _usage_of(outcome, job, context)
    return EvalResult(
        timestamp=timestamp_now(),
        run_id=context.run_id,
        commit=context.commit,
        shard=context.shard,
        plan=context.plan,
        eval_id=case.id,
        dataset=case.dataset,
        file=context.path(case.file),
        line=context.line(case),
        position=case.position or None,
        conversation_id=case.conversation_id,
        target=job.planned.name,
        attempt=outcome.attempt,
        trial=job.trial if context.has_trials else None,
        score=total.score,
        verdict=total.verdict,
        failed_required=total.failed_required,
        hits=total.hits,
        misses=total.misses,
        reasoning=total.reasoning or None,
        question=inputs.question,
        expected_outcome=inputs.expected_outcome,
        reference_answer=inputs.reference_answer,
        candidate_answer=candidate_answer,
        answer_digest=digest,
        stop_reason=stop_reason,
        evaluator_results=evaluator_results,
        judge_metrics=judges,
        error=outcome.error,
        error_details=outcome.details,
        failure=_failure(outcome, total),
        dry_run=context.dry_run,
        trace_id=outcome.trace_id,
        answered_at=outcome.answered_at,
        description=case.description or None,
        tags=case.tags,
        vars=case.vars,
        metadata=metadata,
        digests=digests,
        note=usage.note,
        file_changes=usage.file_changes,
        execution_metrics=usage.metrics,
        trace=usage.trace,
        trace_complete=usage.trace_complete,
        trace_summary=usage.trace_summary,
        output_messages=usage.output_messages,
        response_metadata=usage.response_metadata,
        dropped=usage.dropped,
    )


class _Inputs(Record, frozen=True):
    """The question and the expectations of a case; empty if results omit them."""

    question: str | None = None
    expected_outcome: str | None = None
    reference_answer: str | None = None


def _inputs_of(job: Job, context: ResultContext) -> _Inputs:
    if not context.include_inputs:
        return _Inputs()
    question = None
    if job.request is not None:
        question = job.request.prompt
    reference = None
    if job.case.expected_messages:
        reference = reference_answer(job.case) or None
    return _Inputs(question=question, expected_outcome=job.case.expected_outcome, reference_answer=reference)


class _Usage(Record, frozen=True):
    """The known trace and metrics of an answer."""

    note: str | None = None
    file_changes: str | None = None
    metrics: ExecutionMetrics | None = None
    trace: tuple[TraceEvent, ...] | None = None
    trace_complete: bool | None = None
    trace_summary: TraceSummary | None = None
    output_messages: tuple[Message, ...] | None = None
    response_metadata: Json | None = None
    dropped: tuple[Dropped, ...] | None = None


_NO_USAGE = _Usage()


def _usage_of(outcome: Outcome, job: Job, context: ResultContext) -> _Usage:
    known = outcome.known
    if context.is_graded:
        return _NO_USAGE
    if known is None:
        return _Usage(metrics=_with_retries(None, outcome.retries))
    trace = build_trace(known)
    trace_summary = None
    if trace is not None:
        trace_summary = summarize_trace(trace, known)
        if not context.include_trace:
            trace = None
    messages = None
    if context.include_messages:
        messages = known.output_messages
        if messages is not None and not context.keeps_messages_whole:
            messages = shorten_messages(messages)
    is_free = outcome.is_cached or context.is_stored(job)
    return _Usage(
        note=_note(known),
        file_changes=known.file_changes,
        metrics=_with_retries(_metrics(known, is_free), outcome.retries),
        trace=trace,
        trace_complete=known.trace_complete,
        trace_summary=trace_summary,
        output_messages=messages,
        response_metadata=known.metadata,
        dropped=known.dropped,
    )


def _failure(outcome: Outcome, total: CaseScore) -> Failure | None:
    if outcome.error is not None:
        return outcome.failure
    if not total.is_judged:
        return "judge"
    return None


def unwritable_result(result: EvalResult, error: Exception) -> EvalResult:
    """Return an error result to write instead of one that cannot be encoded."""
    names = (
        "timestamp",
        "run_id",
        "commit",
        "shard",
        "plan",
        "eval_id",
        "dataset",
        "file",
        "line",
        "position",
        "target",
        "attempt",
        "trial",
    )
    return EvalResult(
        **{name: getattr(result, name) for name in names},
        score=0.0,
        verdict="fail",
        candidate_answer="",
        error=f"the answer cannot be serialized: {type(error).__name__}: {str(error)!a}",
        failure="target",
        digests=result.digests,
    )


def _note(response: ProviderResponse) -> str | None:
    """Return a note for readers of the answer."""
    if response.stop_reason != "length" or response.note == CUT_OFF:
        return response.note
    if response.note:
        return f"{CUT_OFF}; {response.note}"
    return CUT_OFF


def _metrics(response: ProviderResponse, is_cached: bool) -> ExecutionMetrics | None:
    if (
        response.duration_ms is None
        and response.token_usage is None
        and response.cost_usd is None
        and response.ttft_ms is None
        and response.batch is None
    ):
        return None
    return ExecutionMetrics(
        token_usage=response.token_usage,
        cost_usd=response.cost_usd,
        duration_ms=response.duration_ms,
        ttft_ms=response.ttft_ms,
        batch=response.batch,
        cached=is_cached,
    )


def _with_retries(metrics: ExecutionMetrics | None, retries: RetryMetrics | None) -> ExecutionMetrics | None:
    """Return the metrics of the last attempt together with those of the attempts before it."""
    if retries is None:
        return metrics
    return msgspec.structs.replace(metrics or ExecutionMetrics(), retries=retries)
