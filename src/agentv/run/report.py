"""The report of a run: its outcome and its results."""

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agentv.errors import AgentvError
from agentv.results.runs import RunLog
from agentv.results.summary import Summary
from agentv.run.planning.plan import Plan
from agentv.run.resume import Resumed
from agentv.stats.metrics import MetricValue

if TYPE_CHECKING:  # features, which a run need not have
    from agentv.budget.extension import Budget
    from agentv.trust.health.record import JudgeHealth


class RunEnd(enum.Enum):
    """How a run ended."""

    COMPLETED = "completed"
    TOO_MANY_ERRORS = "too many errors"
    """Cases were left to run when `max_errors` was reached."""
    BUDGET = "budget"
    """Cases were left to run when `max_cost` or `max_duration` was reached."""
    CASES_FAILED = "cases failed"
    """An iterable of cases raised an exception, or yielded an invalid case."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    """For example, results could not be written."""
    INTERNAL_ERROR = "internal error"
    """An unexpected exception in agentv itself."""


class RunReport(NamedTuple):
    """The results of a run and how it ended."""

    plan: Plan
    summary: Summary
    end: RunEnd
    path: Path | None = None
    """The results file."""
    error: AgentvError | None = None
    """Why the run failed."""
    earlier: Resumed | None = None
    """The results kept from the run that this run resumes."""
    log: RunLog | None = None
    """The record of the run, which is completed when the exit code is known."""
    metrics: Mapping[str, MetricValue] = {}
    """The metrics of the eval files over their results."""
    judge_health: "JudgeHealth | None" = None
    """How its judges behaved, if it has any."""
    budget: "Budget | None" = None
    """The limits on cost and time, if there are any."""
