"""What became of a case, and the scores of its answer -> the EvalResult that is written."""

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from agentv.calls.retry import FailedCall
from agentv.records import (
    Digests,
    EvalCase,
    EvalResult,
    EvaluatorResult,
    ExecutionMetrics,
    Failure,
    ProviderResponse,
)
from agentv.scoring import verdict_of, weighted_mean
from agentv.telemetry.trace import build_trace, summarize_trace


class Outcome(NamedTuple):
    """How asking a target ended: with a response, or with an error and its kind."""

    attempt: int
    response: ProviderResponse | None = None
    error: str | None = None
    failure: Failure = "target"


def outcome_of(attempt: int, got: ProviderResponse | FailedCall) -> Outcome:
    """How it ended, by what the last attempt gave."""
    if isinstance(got, FailedCall):
        return Outcome(attempt, error=got.error, failure=got.failure)
    return Outcome(attempt, got)


def result_of(  # noqa: PLR0913
    case: EvalCase,
    target: str,
    outcome: Outcome,
    digests: Digests,
    scores: tuple[EvaluatorResult, ...] = (),
    *,
    trial: int | None = None,
    include_trace: bool = False,
    dry_run: bool = False,
) -> EvalResult:
    """Return all that is known of a case. Weights that are all zero give a score of 0."""
    response = outcome.response
    trace = build_trace(response) if response else None
    score = weighted_mean(scores)
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    verdict, failure = verdict_of(score), outcome.failure if outcome.error is not None else None
    for part in scores:
        hits, misses = hits + part.hits, misses + part.misses
        if part.failed and failure is None:
            failure = "judge"
        if part.verdict == "fail" and part.weight > 0 and verdict_of(part.score) != "fail":
            verdict = "fail"  # an evaluator that counts says so, be its score what it may
    return EvalResult(
        timestamp=_now(),
        eval_id=case.id,
        dataset=case.dataset,
        conversation_id=case.conversation_id,
        target=target,
        attempt=outcome.attempt,
        trial=trial,
        score=score,
        verdict=verdict,
        hits=hits,
        misses=misses,
        reasoning="\n".join([part.reasoning for part in scores if part.reasoning]) or None,
        candidate_answer=response.text if response else "",
        evaluator_results=scores,
        trace_summary=summarize_trace(trace, response) if response and trace is not None else None,
        execution_metrics=_metrics(response) if response else None,
        error=outcome.error,
        failure=failure,
        dry_run=dry_run or None,
        trace=trace if include_trace else None,
        description=case.description or None,
        metadata=case.metadata,
        digests=digests,
    )


def unwritable_result(result: EvalResult, error: Exception) -> EvalResult:
    """Return what is written in the place of a result that cannot be encoded."""
    names = ("timestamp", "eval_id", "dataset", "target", "attempt", "trial")
    return EvalResult(
        **{name: getattr(result, name) for name in names},
        score=0.0,
        verdict="fail",
        candidate_answer="",
        error=f"the answer cannot be written down: {type(error).__name__}: {str(error)!a}",
        failure="target",
        digests=result.digests,
    )


def _now() -> str:
    seconds, rest = divmod(time.time(), 1)
    return f"{_second(seconds)}.{int(rest * 1000):03}Z"


@lru_cache(maxsize=1)
def _second(seconds: float) -> str:
    """A second in ISO 8601; there are many cases in one."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _metrics(response: ProviderResponse) -> ExecutionMetrics | None:
    known = response.token_usage, response.cost_usd, response.duration_ms
    if known == (None, None, None):
        return None
    return ExecutionMetrics(token_usage=known[0], cost_usd=known[1], duration_ms=known[2])
