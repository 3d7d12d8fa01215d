"""Evaluating from Python: the one use case, with results in memory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ConfigError
from agentv.records import EvalResult
from agentv.results.summary import Summary
from agentv.run.evaluate import EvalOptions
from agentv.run.evaluate import evaluate as run_evaluation
from agentv.run.watcher import Silence


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
    """Run the cases of eval files and return their results, without secrets.

    `paths` are eval files, folders or globs. `target` is a function, async or not, or the name of a target in the
    project's targets file. Every case is run `trials` times. Raise `AgentvError` if the run cannot start; its
    text has everything that is wrong.
    """
    if trials < 1:
        raise ConfigError(f"trials is {trials}", hint="every case is run at least once")
    listed = [paths] if isinstance(paths, str | Path) else paths
    options = EvalOptions(
        paths=tuple(str(path) for path in listed),
        target=target if isinstance(target, str) else None,
        function=target if callable(target) else None,
        workers=workers,
        timeout_seconds=timeout_seconds,
        max_retries=max_retries,
        trials=trials,
    )
    collected = _Collected()
    report = await run_evaluation(options, collected, Silence())
    if report.error is not None:
        raise report.error
    return Report(tuple(collected.results), report.summary)


class _Collected:
    """Keeps results in memory."""

    def __init__(self) -> None:
        self.results: list[EvalResult] = []

    def write(self, result: EvalResult) -> None:
        self.results.append(result)
