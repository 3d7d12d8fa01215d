"""`agentv grade`."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, get_args

import click

from agentv.cli.finish import finish
from agentv.cli.help import CommandWithGroups, options
from agentv.cli.messages import configure_logging
from agentv.cli.options import gate_flags, options_of, progress_display, run_flag
from agentv.cli.params import PATH, VERBOSE, OneOf
from agentv.errors import OutputError
from agentv.files.temporary import remove_all
from agentv.grading.grade import GradeOptions, grade
from agentv.grading.stored import Only
from agentv.option import LOOKING_INSIDE
from agentv.processes.child import kill_all
from agentv.processes.interrupts import cleanup
from agentv.processes.machine import raise_file_limit
from agentv.report.pages import check_pages
from agentv.run.exit_code import Gates
from agentv.run.options import EvalOptions

WHAT_IS_GRADED = "What is graded"
what_is_graded = options(WHAT_IS_GRADED)
looking_inside = options(LOOKING_INSIDE)


@click.command(
    cls=CommandWithGroups,
    examples=(
        "agentv grade results.jsonl evals/",
        "agentv grade results.jsonl evals/ --evaluator tone",
        "agentv grade results.jsonl evals/ --only judge-failed",
    ),
)
@click.argument("results", type=PATH)
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="EVALS...")
@what_is_graded(
    "--only",
    type=OneOf(get_args(Only)),
    help="Re-score only these results and keep the others.",
)
@what_is_graded(
    "--evaluator",
    "evaluators",
    metavar="NAME",
    multiple=True,
    help="Use only this evaluator. Repeatable.",
)
@what_is_graded(
    "--allow-masked",
    is_flag=True,
    help="Grade answers even if they contain masked secrets.",
)
@run_flag("target", group=WHAT_IS_GRADED, help="Grade only the answers of this target.")
@run_flag("targets", group=WHAT_IS_GRADED)
@run_flag("prices", group=WHAT_IS_GRADED, help="Token prices for judge calls; see 'agentv eval'.")
@run_flag("ids", group=WHAT_IS_GRADED, help="Grade only the cases with this id (or glob). Repeatable.")
@run_flag(
    "filter",
    group=WHAT_IS_GRADED,
    help="Grade only the cases that match, such as 'tag:smoke verdict:fail'. Repeatable; all must match.",
)
@run_flag("strict", group=WHAT_IS_GRADED)
@run_flag("workers", help="Number of answers to grade concurrently, 1 to 50. [default: 1]")
@run_flag("timeout_seconds", help="Time limit per judge call.")
@run_flag("max_retries", help="Retry a judge call up to N times.")
@run_flag("cache", help="Cache judge responses in .agentv/cache and reuse them for identical requests.")
@run_flag("out", help="Write results to this file. [default: a new file in .agentv/results]")
@run_flag("name")
@run_flag("output_format")
@run_flag("junit")
@run_flag("report")
@gate_flags
@run_flag("require")
@run_flag("by")
@looking_inside("--quiet", is_flag=True, help="Do not show progress.")
@looking_inside("--verbose", is_flag=True, help=VERBOSE)
def command(  # noqa: PLR0913  # the flags that are not options of a run
    *,
    results: Path,
    only: Only | None,
    evaluators: tuple[str, ...],
    allow_masked: bool,
    fail_under: float | None,
    min_pass_rate: float | None,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """Re-score the answers in RESULTS with the current evaluators of EVALS, without calling the target.

    \b
    Exit codes:
      0  all answers were graded
      1  a result is an error, an answer was not judged, or
         a gate was missed (--fail-under, --min-pass-rate,
         --require)
      2  invalid usage or files; nothing was graded
    """
    configure_logging(verbose)
    raise_file_limit()
    eval_options = options_of(values)
    check_pages(eval_options)
    _check_outputs(eval_options, results)
    grading = GradeOptions(
        results=results,
        only=only,
        evaluators=evaluators,
        allow_masked=allow_masked,
    )
    started = time.monotonic()
    progress = progress_display(is_quiet=quiet)
    with cleanup(remove_all), cleanup(kill_all), cleanup(progress.end):
        report, _ = asyncio.run(grade(grading, eval_options, progress))
        seconds = time.monotonic() - started
        sys.exit(finish(report, eval_options, Gates(fail_under, min_pass_rate), seconds))


def _check_outputs(options: EvalOptions, results: Path) -> None:
    """Raise `OutputError` if the results to grade would be overwritten."""
    for flag, path in options.written_files().items():
        if os.path.realpath(path) == os.path.realpath(results):
            raise OutputError(f"{flag} is the results file to grade", file=path, hint="choose another file")
