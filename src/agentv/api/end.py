"""End a run that was started from Python: its record, its pages and its errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentv.files.atomic_files import write_atomically
from agentv.log import warn
from agentv.records import EvalResult, Problem
from agentv.redact import clean
from agentv.run.exit_code import ExitReason, Gates, exit_reason, missed_gates
from agentv.run.options import EvalOptions
from agentv.run.record import end_record
from agentv.run.report import RunReport


@dataclass(frozen=True)
class CallSink:
    """Calls a function with each result."""

    take: Callable[[EvalResult], object]

    def write(self, result: EvalResult) -> None:
        self.take(result)


def finish_run(report: RunReport, options: EvalOptions, gates: Gates, seconds: float) -> ExitReason:
    """Complete the record of a run, write its pages, and return the reason for its exit code.

    Warn about each missed gate. Raise the error that ended the run, if there is one.
    """
    reason = exit_reason(report, gates)
    for gate in missed_gates(report, gates):
        warn(Problem(message=clean(gate), severity="warning"))
    end_record(report, reason, seconds)
    if report.error is not None:
        raise report.error
    if options.cases is not None and options.cases.failure is not None:
        raise options.cases.failure
    _write_pages(report, options)
    return reason


def _write_pages(report: RunReport, options: EvalOptions) -> None:
    """Write the requested JUnit XML and HTML reports."""
    results = report.path
    if results is None:
        return
    junit = options.pages.junit
    if junit is not None:
        from agentv.report.junit import junit_blocks

        blocks = junit_blocks(results)
        write_atomically(junit, blocks)
    page = options.pages.report
    if page is not None and results.stat().st_size:
        from agentv.report.page.write import write_report

        write_report([results], page)


@contextmanager
def one_error() -> Iterator[None]:
    """Raise the first exception of a group instead of the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
