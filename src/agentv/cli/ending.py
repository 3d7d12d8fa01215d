"""A run that has ended -> what is told of it, the exit code, and what else was asked to be written."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from agentv.cli.messages import print_lines, tell, tell_error
from agentv.errors import AgentvError, OutputError
from agentv.formats.printable import printable
from agentv.processes.interrupts import EXIT_CODE
from agentv.redact import clean
from agentv.report.github import Annotations, SourceLine
from agentv.report.judge import health_lines
from agentv.report.quantities import format_money
from agentv.report.summary import summary_lines
from agentv.run.evaluate import RunEnd, RunReport
from agentv.run.forecast.budget import Budget
from agentv.run.output import STDOUT
from agentv.run.plan import Plan
from agentv.run.record import end_record
from agentv.system.atomic_files import write_atomically


class Shown(msgspec.Struct, frozen=True):
    """What is shown and told of a run besides its results."""

    junit: Path | None
    report: Path | None
    fail_under: float | None
    quiet: bool
    verbose: bool
    view: bool


def conclude(report: RunReport, shown: Shown, seconds: float) -> int:
    """Tell what became of a run, end its record, write what was asked for; return the exit code."""
    code = _tell(report, shown)
    end = partial(end_record, report.log, report.summary, report.judge_health, seconds=seconds)
    end(exit_code=code)
    if not _write_pages(report.path, shown):
        code = code or 1
        end(exit_code=code)
    return code


def check_written(option: str, path: Path | None, example: str, out: Path | None) -> None:
    """Raise `OutputError` if what an option asks for could not be written: before anything is paid for."""
    if path is None:
        return
    if path.is_dir():
        raise OutputError(f"{option} is a folder", file=path, hint=f"name a file in it: {path / example}")
    if out is not None and (out == STDOUT or (out.exists() and not out.is_file())):
        raise OutputError(f"{option} needs results in a regular file", file=out, hint="name another --out")
    if out is not None and os.path.realpath(path) == os.path.realpath(out):
        raise OutputError(f"{option} is --out as well", file=path, hint="name another file")


def _tell(report: RunReport, shown: Shown) -> int:
    """Print what became of a run, and return the exit code."""
    summary = report.summary
    if report.error is not None:
        tell_error(report.error)
    is_stdout = report.path == STDOUT
    shown_in = report.path if report.path is not None and report.path.is_file() else None
    lead = list(_lead_lines(report.plan))
    health = ["", *health_lines(report.judge_health, clean)] if report.judge_health is not None else []
    last = ["", "" if is_stdout else f"Results: {report.path}"]
    lines = [*lead, *summary_lines(summary, clean, shown_in), *health, *last]
    print_lines(map(printable, lines), err=is_stdout)
    if report.path is not None and not is_stdout:
        _annotate(report.plan, report.path)
    if report.end is RunEnd.INTERRUPTED:
        tell("interrupted: what was done is in the results; go on with --resume")
        return EXIT_CODE
    if report.end is RunEnd.TOO_MANY_ERRORS:
        errors = "1 error" if summary.failed == 1 else f"{summary.failed} errors"
        tell(f"stopped after {errors}: what was done is in the results; go on with --resume")
    if report.end is RunEnd.BUDGET and report.budget is not None:
        tell(f"{budget_text(report.budget)}: what was done is in the results; go on with --resume and a larger budget")
    if summary.invalid:
        left_out = "1 case was" if summary.invalid == 1 else f"{summary.invalid} cases were"
        tell(f"warning: {left_out} left out as invalid, see the warnings above; --strict stops such a run at the start")
    is_empty = report.plan.shard is not None and not report.plan.cases
    under = shown.fail_under is not None and not is_empty and (summary.mean or 0.0) < shown.fail_under
    if under:
        tell(f"error: the mean {summary.mean or 0.0:.3f} is under {shown.fail_under:g}")
    incomplete = summary.not_run > 0
    return 1 if report.end is RunEnd.FAILED or summary.failed or under or incomplete else 0


def budget_text(budget: Budget) -> str:
    """Return what a budget was, and what kept a case from being started."""
    limits = budget.limits
    if limits.max_cost is None:
        return f"stopped by --max-duration: another case would not end within {limits.max_duration:g} s"
    spent, case = format_money(budget.spent), format_money(budget.case_cost())
    text = f"stopped by the budget: {spent} of {format_money(limits.max_cost)} spent, and a case costs about {case}"
    return text if limits.max_duration is None else f"{text}, with {limits.max_duration:g} s at most"


def _lead_lines(plan: Plan) -> Iterator[str]:
    """Yield what a reader of the summary must know first."""
    if plan.dry_run:
        yield from ("DRY RUN: a mock answered, no target and no judge was asked", "")
    if (whole := plan.shard_plan) is not None:
        rest = "" if plan.cases else ": it has no cases, and the results are empty"
        results = "1 result" if whole.cases == 1 else f"{whole.cases} results"
        yield from (f"SHARD {plan.shard}: {whole.shard_cases} of {results} (plan {whole.digest}){rest}", "")


def _write_pages(results: Path | None, shown: Shown) -> bool:
    """Write the results in the other forms that were asked for; return whether that went well."""
    if results is None or not results.is_file():
        return True  # a pipe, which cannot be read once more
    try:
        if shown.junit is not None:
            from agentv.report.junit import junit_blocks  # it imports much of the standard library

            write_atomically(shown.junit, junit_blocks(results))
        if shown.report is not None and not results.stat().st_size:
            tell("there are no results, so no report was written")
        elif shown.report is not None:
            from agentv.report.page.write import write_report

            written = write_report([results], shown.report)
            print_lines([printable(f"Report: {written.path}")])
    except (AgentvError, OSError) as error:
        tell_error(error if isinstance(error, AgentvError) else OutputError(str(error)))
        return False
    return True


def _annotate(plan: Plan, results: Path) -> None:
    """Tell of what did not pass where people of a pull request look for it."""
    if not results.is_file():
        return  # a pipe, which cannot be read once more
    if os.environ.get("GITHUB_ACTIONS"):
        annotations = Annotations(results)
        wanted = annotations.cases
        cases = (case for file in plan.files for case in plan.cases_of(file)) if wanted else ()
        root = os.environ.get("GITHUB_WORKSPACE") or os.curdir
        found = {
            (clean(case.dataset), clean(case.id)): SourceLine(os.path.relpath(case.file.path, root), case.line)
            for case in cases
            if (clean(case.dataset), clean(case.id)) in wanted
        }
        for line in annotations.lines(found):
            tell(line)
