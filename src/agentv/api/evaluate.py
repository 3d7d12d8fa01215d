"""Run cases and return the report: `evaluate`, and `evaluate_sync` for scripts."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from agentv.api.progress import progress_of
from agentv.api.report import EvalReport, report_of
from agentv.api.signature import same_parameters
from agentv.errors import ConfigError
from agentv.files.state import state_beside
from agentv.records import EvalResult
from agentv.report.pages import check_pages
from agentv.run.evaluate import evaluate as run_evaluation


async def evaluate(  # noqa: PLR0913  # a parameter for each option
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
    progress: bool | None = None,
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
) -> EvalReport:
    """Run cases and return their results, without secrets.

    `paths` are eval files, folders or globs; `cases` are mappings in the case format and `EvalCase`s, instead of files.
    `target` is a function, async or not, or the name of a target; the function receives `config` if it has a parameter
    of this name. `evaluators` apply to cases without evaluators of their own. The other parameters are the options of
    `agentv eval`. Raise `AgentvError` if the run cannot start; its message lists all problems.
    """
    return await _evaluate(locals())


async def _evaluate(arguments: Arguments) -> EvalReport:
    collected: list[EvalResult] = []
    sink = CallSink(collected.append)
    started = time.monotonic()
    with keyword_messages(), one_error(), state_beside(path_texts(arguments["paths"])):
        options = eval_options(arguments)
        gates = gates_of(arguments)
        check_pages(options)
        progress = progress_of(arguments["progress"])
        report = await run_evaluation(options, sink, progress)
        reason = finish_run(report, options, gates, time.monotonic() - started)
        return report_of(report, collected, reason)


@same_parameters(evaluate)
def evaluate_sync(arguments: Arguments) -> EvalReport:
    """Do what `evaluate` does, in a script without an event loop."""
    is_in_loop = True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_in_loop = False  # the run is not started here: its errors would have this one as their context
    if is_in_loop:
        raise ConfigError("evaluate_sync cannot be used in a running event loop: use 'await agentv.evaluate(...)'")
    return asyncio.run(_evaluate(arguments))
