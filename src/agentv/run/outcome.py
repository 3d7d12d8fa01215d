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
from agentv.telemetry.trace import summary_of, trace_of


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
) -> EvalResult:
    """Return all that is known of a case. Weights that are all zero give a score of 0."""
    response = outcome.response
    trace = trace_of(response) if response else None
    score = weighted_mean(scores)
    return EvalResult(
        timestamp=_now(),
        eval_id=case.id,
        dataset=case.dataset,
        conversation_id=case.conversation_id,
        target=target,
        attempt=outcome.attempt,
        trial=trial,
        score=score,
        verdict="fail" if any(map(_is_failed, scores)) else verdict_of(score),
        hits=sum((part.hits for part in scores), ()),
        misses=sum((part.misses for part in scores), ()),
        reasoning="\n".join([part.reasoning for part in scores if part.reasoning]) or None,
        candidate_answer=response.text if response else "",
        evaluator_results=scores,
        trace_summary=summary_of(trace, response) if response and trace is not None else None,
        execution_metrics=_metrics(response) if response else None,
        error=outcome.error,
        failure=_failure(outcome, scores),
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


def _failure(outcome: Outcome, scores: tuple[EvaluatorResult, ...]) -> Failure | None:
    """Why the score is no judgement of an answer, if it is none."""
    if outcome.error is not None:
        return outcome.failure
    return "judge" if any(part.failed for part in scores) else None


def _is_failed(part: EvaluatorResult) -> bool:
    """Whether an evaluator that counts says that the answer fails, be its score what it may."""
    return part.verdict == "fail" and part.weight > 0 and verdict_of(part.score) != "fail"


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
