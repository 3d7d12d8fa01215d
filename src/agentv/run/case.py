"""The path of a case: request -> response -> scores -> result."""

import asyncio

from msgspec.structs import replace

from agentv import __version__
from agentv.errors import AgentvError, MachineError
from agentv.evaluators.judging.metering import JudgeMeter, judge_meter
from agentv.evaluators.score import CaseEvaluators
from agentv.files.fingerprint import DIGEST_FORMAT
from agentv.records import Digests, EvalResult, EvaluatorResult, Exchange
from agentv.run.attempts import Attempts
from agentv.run.jobs import Job
from agentv.run.outcome import Evaluation, Outcome, result_of
from agentv.run.run import Run
from agentv.scoring import SCORING
from agentv.text import timestamp_now


async def run_case(job: Job, run: Run) -> EvalResult:
    """Send a case to its target, score the answer and return the result.

    Failures of the case are part of the result.
    """
    if job.request is None:
        return run.failed_result(job, job.problem)
    evaluators = run.evaluators.build(job.case, job.planned.name)
    if job.is_first:  # the prompt is the same in all trials
        run.dumps.prompt(job.case, job.request, job.target.provider)
    meter = JudgeMeter()
    async with Attempts(job, job.request, run, evaluators) as attempts:
        try:
            try:
                outcome = await attempts.answer()
                result = await _result(job, run, outcome, evaluators, meter)
            except AgentvError:
                raise  # for example, a file that cannot be written: this concerns all cases
            except Exception as error:
                result = _unusable_answer(job, run, error)
            return await attempts.end(result)
        except asyncio.CancelledError as cancelled:
            run.results.count_cancelled(job, attempts.costs(cancelled), meter.metrics)
            raise


async def _result(
    job: Job,
    run: Run,
    outcome: Outcome,
    evaluators: CaseEvaluators,
    meter: JudgeMeter,
) -> EvalResult:
    """Score the answer, if there is one, and return the result of the case."""
    if run.context.has_times and outcome.answered_at is None:
        outcome = replace(outcome, answered_at=timestamp_now())
    run.dumps.trace(job.case, job.planned.name, outcome, job.trial)
    evaluation = None
    if outcome.exchange is not None:
        try:
            evaluation = await _evaluate_with_room(outcome.exchange, run, evaluators, meter)
        except MachineError as error:
            outcome = replace(outcome, error=error.message, failure="machine")
    digests = evaluators.digests_of(job.digests, job.planned.version)
    return result_of(run.context, job, outcome, digests, evaluation)


async def _evaluate_with_room(
    exchange: Exchange,
    run: Run,
    evaluators: CaseEvaluators,
    meter: JudgeMeter,
) -> Evaluation:
    """Return the evaluation of an answer. If the machine has no room for it, try again when fewer cases run."""
    tries = 0
    while True:
        try:
            return await _evaluate(exchange, run, evaluators, meter)
        except MachineError as error:
            tries += 1
            if not await run.room.make(error.message, tries):
                raise


async def _evaluate(
    exchange: Exchange,
    run: Run,
    evaluators: CaseEvaluators,
    meter: JudgeMeter,
) -> Evaluation:
    """Return the results of the evaluators, and what their judges cost, which `meter` counts."""
    if not evaluators.has_judges:
        results = await _results(exchange, run, evaluators)
        return Evaluation(results)
    token = judge_meter.set(meter)
    try:
        results = await _results(exchange, run, evaluators)
    finally:
        judge_meter.reset(token)
    return Evaluation(results, meter.metrics)


async def _results(
    exchange: Exchange,
    run: Run,
    evaluators: CaseEvaluators,
) -> tuple[EvaluatorResult, ...]:
    """Return the results of the evaluators. Those that `agentv grade` does not run keep their stored results."""
    stored = run.stored
    if stored is None:
        return await evaluators.results(exchange)
    reason = stored.why_unjudged(exchange.request)
    if reason:
        new = await evaluators.failed_results(exchange, reason, stored.names)
    else:
        new = await evaluators.results(exchange, stored.names)
    if stored.names is None:
        return new
    return stored.merge(exchange.request, new)


def _unusable_answer(job: Job, run: Run, error: Exception) -> EvalResult:
    """Return the result of a case whose answer cannot be processed, for example because of its types."""
    digests = Digests(
        case="",
        target=job.planned.digest,
        evaluators="",
        agentv=__version__,
        scoring=SCORING,
        format=DIGEST_FORMAT,
    )
    kind = type(error).__name__
    outcome = Outcome(1, error=f"the answer cannot be used: {kind}: {error}")
    return result_of(run.context, job, outcome, digests)
