"""Finish a run: print the summary, write the requested reports and return the exit code."""

import os
import shlex
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agentv.cli.messages import print_error, print_lines, print_message
from agentv.errors import AgentvError, OutputError
from agentv.files.atomic_files import write_atomically
from agentv.files.printable import printable
from agentv.records import CaseKey
from agentv.redact import clean
from agentv.report.github import Annotations, SourceLine
from agentv.report.summary import summary_lines
from agentv.run.exit_code import Gates, code_of, exit_reason, missed_gates
from agentv.run.options import STDOUT, EvalOptions, ReportOptions
from agentv.run.planning.plan import Plan
from agentv.run.record import end_record
from agentv.run.report import RunEnd, RunReport
from agentv.run.resume import existing_cases
from agentv.text import format_money, plural

if TYPE_CHECKING:  # an optional feature, imported only for runs that use it
    from agentv.budget.extension import Budget

MAX_EVAL_FILES = 3
"""The maximum number of eval files that a suggested command names."""


def finish(
    report: RunReport,
    options: EvalOptions,
    gates: Gates,
    seconds: float,
) -> int:
    """Print the summary, complete the run record, write the requested reports and return the exit code."""
    if report.error is not None:
        print_error(report.error)
    _print_summary(report)
    _print_notes(report, options, gates)
    reason = exit_reason(report, gates)
    # Complete the record first: writing a report may take long and be interrupted.
    end_record(report, reason, seconds)
    if not _write_pages(report, options.pages) and reason == "ok":
        reason = "output"
        end_record(report, reason, seconds)
    return code_of(reason)


def _print_summary(report: RunReport) -> None:
    """Print the summary: to stdout, or to stderr if the results are on stdout."""
    path = report.path
    is_stdout = path == STDOUT
    readable = None
    if path is not None and path.is_file():
        readable = path
    lines = [*_lead_lines(report.plan), *summary_lines(report.summary, clean, readable)]
    if report.judge_health is not None:
        from agentv.report.judge import health_lines  # most runs have no judges

        lines += ["", *health_lines(report.judge_health, clean)]
    if report.metrics:
        from agentv.report.metrics import metric_lines  # most runs have no metrics

        lines += ["", *metric_lines(report.metrics, clean)]
    lines.append("")
    if is_stdout:
        lines.append("")
    else:
        lines.append(f"Results: {path}")
    print_lines(map(printable, lines), err=is_stdout)
    if readable is not None and not is_stdout:
        _annotate(report, readable)


def _print_notes(report: RunReport, options: EvalOptions, gates: Gates) -> None:
    """Print to stderr why the run stopped and which problems its results have."""
    summary = report.summary
    if report.end is RunEnd.INTERRUPTED:
        print_message("interrupted: finished cases are saved; continue with --resume")
        return
    if report.end is RunEnd.TOO_MANY_ERRORS:
        errors = plural(summary.failed, "error")
        print_message(f"stopped after {errors}: finished cases are saved; continue with --resume")
    if report.end is RunEnd.BUDGET and report.budget is not None:
        reason = _budget_text(report.budget)
        print_message(f"{reason}: finished cases are saved; continue with --resume and a larger budget")
    if summary.invalid:
        cases = plural(summary.invalid, "case")
        verb = "was" if summary.invalid == 1 else "were"
        print_message(
            f"warning: {cases} {verb} skipped as invalid, see the warnings above (--strict makes them errors)"
        )
    if summary.failed_earlier:
        cases = plural(summary.failed_earlier, "case")
        print_message(f"error: {cases} ended in an error in the earlier run; retry with 'agentv eval --resume'")
    if summary.machine_failures:
        cases = plural(summary.machine_failures, "case")
        pronoun = "it" if summary.machine_failures == 1 else "them"
        again = f"run {pronoun} again with 'agentv eval --resume'"
        print_message(f"error: {cases} failed because the machine reached a limit; {again}")
    unjudged = summary.judge_failures + summary.judge_failures_earlier
    if unjudged:
        verb = "was" if unjudged == 1 else "were"
        cases = plural(unjudged, "case")
        print_message(f"error: {cases} {verb} not judged; judge again with: {_grade_command(report, options)}")
    for gate in missed_gates(report, gates):
        print_message(f"error: {clean(gate)}")


def _grade_command(report: RunReport, options: EvalOptions) -> str:
    """Return the command that re-scores the answers that were not judged."""
    results = "RESULTS"
    if report.path is not None and report.path != STDOUT:
        results = shlex.quote(str(report.path))
    paths = [shlex.quote(str(file.path)) for file in report.plan.files]
    evals = "EVALS"
    if len(paths) <= MAX_EVAL_FILES:
        evals = " ".join(paths)
    targets = ""
    if options.project.targets is not None:
        targets = f" --targets {shlex.quote(str(options.project.targets))}"
    return f"agentv grade {results} {evals}{targets} --only judge-failed"


def _budget_text(budget: "Budget") -> str:
    """Return which limit stopped the run."""
    limits = budget.limits
    if budget.cut_off:
        cases = plural(budget.cut_off, "case")
        return f"stopped by --max-duration: cancelled {cases} after {limits.max_duration:g} s"
    if limits.max_cost is None:
        return f"stopped by --max-duration: the next case would not finish within {limits.max_duration:g} s"
    spent = format_money(budget.spent)
    limit = format_money(limits.max_cost)
    case = format_money(budget.case_cost())
    text = f"stopped by --max-cost: {spent} of {limit} spent, and the next case would cost about {case}"
    if limits.max_duration is not None:
        text += f" (--max-duration: {limits.max_duration:g} s)"
    return text


def _lead_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines above the summary that mark a dry run or a shard, which are not complete runs."""
    if plan.dry_run:
        yield "DRY RUN: mock answers only, no target or judge was called"
        yield ""
    whole = plan.shard_plan
    if whole is not None:
        results = plural(whole.cases, "result")
        line = f"SHARD {plan.shard}: {whole.shard_cases} of {results} (plan {whole.digest})"
        if not plan.cases:
            line += ": this shard has no cases, so the results file is empty"
        yield line
        yield ""


def _write_pages(report: RunReport, pages: ReportOptions) -> bool:
    """Write the requested JUnit XML and HTML reports. Print errors, and return whether there were none."""
    results = report.path
    if results is None or not results.is_file():
        return True  # a pipe, which cannot be read again
    if pages.junit is None and pages.report is None:
        return True
    cases = _cases_of(report)
    try:
        if pages.junit is not None:
            from agentv.report.junit import junit_blocks  # imports much of the standard library

            write_atomically(pages.junit, junit_blocks(results, cases))
        if pages.report is not None:
            _write_report(results, pages.report, cases)
    except AgentvError as error:
        print_error(error)
        return False
    except OSError as error:
        print_error(OutputError(str(error)))
        return False
    return True


def _cases_of(report: RunReport) -> Container[CaseKey] | None:
    """Return the cases to report: those of the eval files, or None for all if the results file has no other cases."""
    if not report.summary.unplanned_results:
        return None
    try:
        return existing_cases(report.plan)
    except (AgentvError, OSError):  # the eval files have changed since the run started
        return None


def _write_report(results: Path, page: Path, cases: Container[CaseKey] | None) -> None:
    if not results.stat().st_size:
        print_message("no report written: there are no results")
        return
    from agentv.report.page.write import PageOptions, write_report

    written = write_report([results], page, PageOptions(cases=cases))
    print_lines([printable(f"Report: {written.path}")])


def _annotate(report: RunReport, results: Path) -> None:
    """In GitHub Actions, annotate the source lines of the cases that did not pass."""
    if not os.environ.get("GITHUB_ACTIONS"):
        return
    annotations = Annotations(results, _cases_of(report))
    wanted = annotations.cases
    lines: dict[CaseKey, SourceLine] = {}
    if wanted:
        root = os.environ.get("GITHUB_WORKSPACE") or os.curdir
        for file in report.plan.files:
            for case in report.plan.cases_of(file):
                key = CaseKey(clean(case.dataset), clean(case.id))
                if key in wanted:
                    lines[key] = SourceLine(os.path.relpath(case.file.path, root), case.line)
    for line in annotations.lines(lines):
        print_message(line)
