"""Evaluating from Python: the same plan and the same runner as on the command line."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import AgentvError, ConfigError
from agentv.providers.python import PythonFunction
from agentv.records import EvalResult
from agentv.results.summary import Summary
from agentv.run.plan import PlanFailed, Selection, make_plan
from agentv.run.runner import RunOptions, check_targets, check_trials, run_plan, worker_limits


class Report(NamedTuple):
    """What became of a run: one result for each trial of a case, and what they come to."""

    results: tuple[EvalResult, ...]
    summary: Summary


async def evaluate(  # noqa: PLR0913  # all that can be asked for, by name
    paths: str | Path | Sequence[str | Path],
    *,
    target: str | Callable[..., Any] | None = None,
    workers: int | None = None,
    timeout_seconds: float | None = None,
    max_retries: int | None = None,
    trials: int = 1,
) -> Report:
    """Run the cases of eval files and score the answers; results are kept in memory.

    `target` is a function, async or not, or the name of a target in the project's targets file.
    Every case is run `trials` times.
    """
    if trials < 1:
        raise ConfigError(f"trials is {trials}", hint="every case is run at least once")
    files = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    named = target if isinstance(target, str) else None
    function = PythonFunction(target) if callable(target) else None
    try:
        plan = make_plan(files, Selection(target=named, stand_in=function, workers=workers))
    except PlanFailed as failed:
        raise AgentvError.of(failed.problems[0]) from None
    total, limits = worker_limits(plan, workers)
    watch = _Collect(Summary(plan.cases, plan.invalid, trials))
    options = RunOptions(total, limits, timeout_seconds=timeout_seconds, max_retries=max_retries, trials=trials)
    check_trials(plan, trials)
    await check_targets(plan)
    await run_plan(plan, options, watch, watch)
    return Report(tuple(watch.results), watch.summary)


class _Collect:
    """Keeps results, and watches without a word."""

    def __init__(self, summary: Summary):
        self.results: list[EvalResult] = []
        self.summary = summary

    def write(self, result: EvalResult) -> None:
        self.results.append(result)
        self.summary.add(result)

    def started(self, worker: int, what: str) -> None:
        """Not of interest here."""

    def batch_started(self, worker: int, target: str) -> None:
        """Not of interest here."""

    def retried(self, what: str, attempt: int, reason: str) -> None:
        """Not of interest here."""

    def finished(self, worker: int, result: EvalResult) -> None:
        """Not of interest here."""
