"""`agentv grade`."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, get_args

import click

from agentv.cli.ending import Shown, check_written, conclude
from agentv.cli.eval import RESULTS, formats, minimum_score, workers
from agentv.cli.help import Command, options
from agentv.cli.messages import print_warnings
from agentv.cli.params import Amount, OneOf, target_names
from agentv.errors import OutputError
from agentv.grading.grade import GradeOptions, grade
from agentv.grading.stored import Only
from agentv.processes.child import kill_all
from agentv.processes.interrupts import cleanup
from agentv.redact import clean
from agentv.report.progress import progress_for
from agentv.results.runs import RUNS
from agentv.run.evaluate import EvalOptions
from agentv.run.watching.watcher import Silence
from agentv.system.temporary import remove_all

what_is_graded, how_it_runs = options("What is graded"), options("How it runs")
where_results_go, looking_inside = options("Where results go"), options("Looking inside")


@click.command(
    cls=Command,
    examples=(
        "agentv grade results.jsonl evals/",
        "agentv grade results.jsonl evals/ --evaluator tone",
        "agentv grade results.jsonl evals/ --only judge-failed",
    ),
)
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="EVALS...")
@what_is_graded("--only", type=OneOf(get_args(Only)), help="Change only these results, and keep the others.")
@what_is_graded(
    "--evaluator", "evaluators", metavar="NAME", multiple=True, help="Only this one scores; may be repeated."
)
@what_is_graded("--target", metavar="NAME", shell_complete=target_names, help="Only the answers of this target.")
@what_is_graded("--targets", type=click.Path(path_type=Path), help="The targets file, or a folder that has one.")
@what_is_graded(
    "--prices",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What the tokens of judges cost: see 'agentv eval'.",
)
@what_is_graded("--eval-id", "ids", metavar="ID", multiple=True, help="Only this case; an id or a glob.")
@what_is_graded("--strict", is_flag=True, help="An invalid case stops the grading before it starts.")
@how_it_runs("--workers", metavar="N", callback=workers, help="How many answers are graded at once: 1 to 50.")
@how_it_runs("--agent-timeout", type=Amount(min=0, min_open=True), metavar="SECONDS", help="Seconds a judge may take.")
@how_it_runs("--max-retries", type=click.IntRange(min=0), metavar="N", help="Ask a judge again, up to N times.")
@how_it_runs("--cache", is_flag=True, help="Keep what judges say in .agentv/cache, and ask for each only once.")
@where_results_go("--out", type=click.Path(path_type=Path), help="Write results here; else to .agentv/results.")
@where_results_go("--output-format", metavar="FORMAT", shell_complete=formats, help="jsonl (default) or yaml.")
@where_results_go("--junit", type=click.Path(path_type=Path), help="Also write the results as JUnit XML.")
@where_results_go("--report", type=click.Path(path_type=Path), help="Also write the results as one HTML file.")
@where_results_go(
    "--fail-under", type=float, metavar="SCORE", callback=minimum_score, help="Exit with 1 when the mean is lower."
)
@looking_inside("--by", metavar="KEY", help="Figures by group, as in 'agentv eval'.")
@looking_inside("--quiet", is_flag=True, help="No progress.")
@looking_inside("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(**flags: Any) -> None:
    """Score the answers in RESULTS again, with the evaluators that EVALS have now. No target is asked.

    Exit code 0: all answers were graded; 1: a result is an error, or the mean is under --fail-under; 2: bad usage or
    bad files, and nothing was graded.
    """
    shown = Shown(**{name: flags.pop(name) for name in Shown.__struct_fields__ if name != "view"}, view=False)
    print_warnings(shown.verbose)
    check_written("--junit", shown.junit, "junit.xml", flags["out"])
    check_written("--report", shown.report, "report.html", flags["out"])
    what = GradeOptions(*(flags.pop(name) for name in GradeOptions._fields))
    if flags["out"] is not None and flags["out"].exists() and flags["out"].samefile(what.results):
        raise OutputError("--out is the file that is graded", file=flags["out"], hint="name another file")
    run = EvalOptions(
        **{name: value for name, value in flags.items() if name != "agent_timeout"},
        timeout_seconds=flags["agent_timeout"],
        results_folder=RESULTS,
        runs_folder=RUNS,
        command=("agentv", *sys.argv[1:]),
    )
    started = time.monotonic()
    watcher = Silence() if shown.quiet else progress_for(clean)
    with cleanup(remove_all), cleanup(kill_all), cleanup(watcher.end):
        report, _ = asyncio.run(grade(what, run, watcher))
        sys.exit(conclude(report, shown, time.monotonic() - started))
