"""How a run ends: when all cases are done, or early, by a signal or an error."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentv.errors import AgentvError, InternalError
from agentv.processes.interrupts import stop_on_signal
from agentv.results.runs import RunLog
from agentv.results.summary import Summary
from agentv.run.planning.plan import Plan
from agentv.run.record import complete_record, eval_files_of
from agentv.run.report import RunEnd
from agentv.run.run import Run

_STOPPED = {
    "budget": RunEnd.BUDGET,
    "errors": RunEnd.TOO_MANY_ERRORS,
}
"""How a run ended, by the reason of the built-in extension that stopped it. Other extensions have other reasons."""


@dataclass
class Ending:
    """How a run ended."""

    how: RunEnd = RunEnd.COMPLETED
    error: AgentvError | None = None


@contextmanager
def catch_end(run: Run, summary: Summary) -> Iterator[Ending]:
    """Catch signals and errors that end a run early, and record how it ended."""
    ending = Ending()
    task = _current_task()
    try:
        with stop_on_signal(task) as stop:
            yield ending
    except asyncio.CancelledError:
        if not stop.is_requested:
            raise
        task.uncancel()
    except BaseExceptionGroup as group:
        ending.error = _first_error(group)
    except AgentvError as error:
        ending.error = error
    except Exception as error:
        ending.error = InternalError(error)
    finally:
        summary.cases = run.plan.cases  # of an iterable, more may have arrived
    ending.how = _how_ended(run, summary, ending.error, is_interrupted=stop.is_requested)
    if ending.how is RunEnd.INTERRUPTED:
        for extension in run.extensions:
            extension.interrupted()
    if ending.how is RunEnd.BUDGET:
        summary.why_not_run = "budget"


def _how_ended(run: Run, summary: Summary, error: AgentvError | None, *, is_interrupted: bool) -> RunEnd:
    """Return how a run ended."""
    if isinstance(error, InternalError):
        return RunEnd.INTERNAL_ERROR
    if error is not None:
        return RunEnd.FAILED
    if is_interrupted:
        return RunEnd.INTERRUPTED
    if run.plan.failure is not None:
        return RunEnd.CASES_FAILED
    # The cases of a stream are counted when they arrive, so `not_run` may be 0 although the stream was stopped.
    is_stopped_stream = run.plan.source.is_streamed and bool(run.stopped_by)
    if summary.not_run > 0 or is_stopped_stream:
        return _STOPPED.get(run.stopped_by, RunEnd.COMPLETED)
    return RunEnd.COMPLETED


@contextmanager
def mark_cancelled(log: RunLog | None, plan: Plan, summary: Summary) -> Iterator[None]:
    """Complete the record of a run that the program around it cancels, as Ctrl-C does in a notebook."""
    started = time.monotonic()
    try:
        yield
    except (asyncio.CancelledError, KeyboardInterrupt):
        seconds = time.monotonic() - started
        complete_record(log, summary, "interrupted", seconds, eval_files=eval_files_of(plan))
        raise


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


def _first_error(group: BaseExceptionGroup[BaseException]) -> AgentvError:
    """Return the error that ended a run: the first unexpected exception of a group, else the first `AgentvError`.

    Raise the group if it contains an exception that is not an error, such as `KeyboardInterrupt`.
    """
    errors, others = group.split(Exception)
    if errors is None or others is not None:
        raise group
    ours, unexpected = errors.split(AgentvError)
    error: Any = unexpected or ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, AgentvError):
        return error
    return InternalError(error)
