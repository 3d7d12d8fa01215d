"""Run cases and yield each result as it arrives, or only estimate the run: `stream` and `plan`."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentv.api.arguments import (
    Arguments,
    Cases,
    Evaluators,
    Metrics,
    Paths,
    Target,
    eval_options,
    gates_of,
    path_texts,
)
from agentv.api.end import CallSink, finish_run, one_error
from agentv.api.keywords import keyword_messages
from agentv.api.signature import same_parameters
from agentv.files.state import state_beside
from agentv.records import EvalResult
from agentv.report.pages import check_pages
from agentv.run.evaluate import evaluate as run_evaluation
from agentv.run.progress import Progress

if TYPE_CHECKING:  # estimates are made on request only
    from agentv.budget.records import Forecast


def stream(  # noqa: PLR0913  # a parameter for each option
    paths: Paths | None = None,
    *,
    cases: Cases | None = None,
    target: Target = None,
    evaluators: Evaluators | None = None,
    config: Mapping[str, Any] | None = None,
    version: str | None = None,
    hooks: Mapping[str, Any] | None = None,
    metrics: Metrics | None = None,
    dataset: str = "cases",
    ids: str | Sequence[str] = (),
    filter: str | Sequence[str] = (),
    sample: int | None = None,
    seed: int | None = None,
    limit: int | None = None,
    shard: str | None = None,
    failed_in: str | Path | None = None,
    resume: bool = False,
    rerun_failed: bool = False,
    keep_stale: bool = False,
    name: str | None = None,
    out: str | Path | None = None,
    output_format: str | None = None,
    trials: int = 1,
    include_inputs: bool = True,
    include_trace: bool = False,
    include_messages: bool = True,
    otel: bool = False,
    workers: int | None = None,
    timeout_seconds: float | None = None,
    max_retries: int | None = None,
    cache: bool = False,
    dump_prompts: str | Path | None = None,
    dump_traces: str | Path | None = None,
    batch_deadline: float | None = None,
    batch_fallback: bool = True,
    collect_traces: bool = False,
    collect_port: int | None = None,
    collect_grace: float | None = None,
    junit: str | Path | None = None,
    report: str | Path | None = None,
    record: str | Path | None = None,
    max_errors: int | None = None,
    max_cost: float | None = None,
    max_duration: float | None = None,
    targets: str | Path | None = None,
    prices: str | Path | None = None,
    strict: bool = False,
    dry_run: bool = False,
    dry_run_delay: float | None = None,
    dry_run_delay_min: float | None = None,
    dry_run_delay_max: float | None = None,
    cluster: str | None = None,
    check_judge: bool = False,
    by: str | Sequence[str] = (),
    require: str | Sequence[str] = (),
    fail_under: float | None = None,
    min_pass_rate: float | None = None,
) -> AsyncGenerator[EvalResult, None]:
    """Run cases and yield each result as it arrives, without secrets.

    The arguments are those of `evaluate`. Leaving the loop early ends the run; the results so far are in `out`.
    """
    return _stream(locals())


async def _stream(arguments: Arguments) -> AsyncGenerator[EvalResult, None]:
    queue: asyncio.Queue[EvalResult | None] = asyncio.Queue()
    sink = CallSink(queue.put_nowait)
    started = time.monotonic()
    with keyword_messages(), state_beside(path_texts(arguments["paths"])):
        options = eval_options(arguments)
        gates = gates_of(arguments)
        check_pages(options)
        # The task keeps this context: a generator would change that of its caller.
        running = asyncio.ensure_future(run_evaluation(options, sink, Progress()))
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while True:
            result = await queue.get()
            if result is None:
                break
            yield result
        with keyword_messages(), one_error():
            report = await running
            finish_run(report, options, gates, time.monotonic() - started)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@same_parameters(stream)
def plan(arguments: Arguments) -> "Forecast":
    """Return estimated calls, cost and minimum detectable effect, as `agentv eval --plan` prints them.

    No target or judge is called. The arguments are those of `evaluate`. Raise `AgentvError` if the run cannot start.
    """
    from agentv.budget.preview import forecast_evaluation

    with keyword_messages(), state_beside(path_texts(arguments["paths"])):
        options = eval_options(arguments)
        forecast = forecast_evaluation(options)
        if options.cases is not None and options.cases.failure is not None:
            raise options.cases.failure
        return forecast
