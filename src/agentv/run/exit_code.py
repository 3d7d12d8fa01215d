"""The exit code of a run, which CI systems act on."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from agentv.errors import INTERNAL_ERROR
from agentv.processes.interrupts import EXIT_CODE
from agentv.results.requirement import Requirement
from agentv.results.summary import Summary
from agentv.results.tally import DIGITS
from agentv.run.planning.plan import Plan
from agentv.run.report import RunEnd, RunReport

ExitReason = Literal[
    "internal",
    "interrupted",
    "output",
    "budget",
    "max_errors",
    "machine",
    "errors",
    "judge_failures",
    "gate",
    "ok",
]
"""Why a run has its exit code. The first that applies counts, in this order."""


class Gates(NamedTuple):
    """The minimum scores and pass rates that the results of a run must reach."""

    fail_under: float | None = None
    """The lowest mean score."""
    min_pass_rate: float | None = None
    """The lowest share of passed cases."""


NO_GATES = Gates()


_CODES = {"ok": 0, "internal": INTERNAL_ERROR, "interrupted": EXIT_CODE}
"""The exit code of each reason that is not 1."""
_ENDS: dict[RunEnd, ExitReason] = {
    RunEnd.INTERNAL_ERROR: "internal",
    RunEnd.INTERRUPTED: "interrupted",
    RunEnd.FAILED: "output",
    RunEnd.BUDGET: "budget",
    RunEnd.TOO_MANY_ERRORS: "max_errors",
    RunEnd.CASES_FAILED: "errors",
}
"""The reason of each way in which a run ends early."""


def exit_code(report: RunReport, gates: Gates = NO_GATES) -> int:
    """Return the exit code of a run: 0 if it has no reason to fail."""
    return code_of(exit_reason(report, gates))


def code_of(reason: ExitReason) -> int:
    """Return the exit code for a reason."""
    return _CODES.get(reason, 1)


def exit_reason(report: RunReport, gates: Gates = NO_GATES) -> ExitReason:
    """Return the first reason that applies for the exit code of a run."""
    early = _ENDS.get(report.end)
    if early is not None:
        return early
    summary = report.summary
    counts: dict[ExitReason, int] = {
        "budget": summary.not_run,  # an extension of another package stopped the run
        "machine": summary.machine_failures,
        "errors": summary.failed + summary.failed_earlier,
        "judge_failures": summary.judge_failures + summary.judge_failures_earlier,
    }
    for reason, count in counts.items():
        if count > 0:
            return reason
    if any(missed_gates(report, gates)):
        return "gate"
    return "ok"


def missed_gates(report: RunReport, gates: Gates) -> Iterator[str]:
    """Yield one line for each missed gate, with the cases concerned.

    A shard without cases misses none, and neither does a run in which all results are machine failures.
    """
    if report.plan.shard is not None and not report.plan.cases:
        return
    summary = report.summary
    if summary.machine_failures and not summary.answered:
        return
    # Rounded, so that the mean of 0.7, 0.8 and 0.9 reaches 0.8.
    mean = round(summary.mean or 0.0, DIGITS)
    if gates.fail_under is not None and mean < gates.fail_under:
        shown = _shown_below(mean, gates.fail_under)
        yield f"--fail-under {gates.fail_under:g}: the mean is {shown}{_lowest(summary, gates.fail_under)}"
    pass_rate = round(summary.pass_rate, DIGITS)
    if gates.min_pass_rate is not None and pass_rate < gates.min_pass_rate:
        shown = _shown_below(pass_rate, gates.min_pass_rate)
        yield f"--min-pass-rate {gates.min_pass_rate:g}: the pass rate is {shown}; not passed: {summary.not_passed}"
    for requirement in summary.requirements:
        missed = requirement.describe_missed()
        if missed:
            yield f"--require '{requirement.filter}': {missed}"


def requirements_of(plan: Plan) -> tuple[Requirement, ...]:
    """Return a tracker of the cases of a plan that must pass."""
    found = []
    for required in plan.required:
        found.append(Requirement(required.filter, required.cases * plan.trials))
    return tuple(found)


def _shown_below(value: float, minimum: float) -> str:
    """Return a value with three decimals, or with more if it would look as if it reached the minimum."""
    text = f"{value:.3f}"
    if float(text) < minimum:
        return text
    return f"{value:.6f}"


def _lowest(summary: Summary, minimum: float) -> str:
    """Return the worst cases below the minimum."""
    lowest = [f"{eval_id} {score:.3f}" for eval_id, score in summary.lowest if score < minimum]
    if not lowest:
        return ""
    return f"; lowest: {', '.join(lowest)}"
