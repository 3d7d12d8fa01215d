"""`agentv grade`."""

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click

from agentv.cli.ending import Shown, check_written, conclude
from agentv.cli.eval import RESULTS, formats, minimum_score, workers
from agentv.cli.help import Command, options
from agentv.cli.messages import print_warnings
from agentv.cli.params import PATH, VERBOSE, Amount, OneOf, target_names
from agentv.errors import OutputError
from agentv.grading.grade import GradeOptions, grade
from agentv.grading.stored import Only
from agentv.processes.child import kill_all
from agentv.processes.interrupts import cleanup
from agentv.redact import clean
from agentv.report.progress import progress_for
from agentv.results.runs import RUNS
from agentv.run.evaluate import EvalOptions
from agentv.run.watching.watcher import Silence, Watcher
from agentv.system.temporary import remove_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments and options of the command."""

    results: Path
    paths: tuple[str, ...]
    only: Only | None
    evaluators: tuple[str, ...]
    target: str | None
    targets: Path | None
    prices: Path | None
    ids: tuple[str, ...]
    strict: bool
    workers: int | None
    agent_timeout: float | None
    max_retries: int | None
    cache: bool
    out: Path | None
    output_format: str | None
    junit: Path | None
    report: Path | None
    fail_under: float | None
    by: str | None
    quiet: bool
    verbose: bool

    @property
    def shown(self) -> Shown:
        """What to show of the run."""
        return Shown(
            junit=self.junit,
            report=self.report,
            fail_under=self.fail_under,
            quiet=self.quiet,
            verbose=self.verbose,
            view=False,
        )

    @property
    def grading(self) -> GradeOptions:
        """What to grade."""
        return GradeOptions(
            results=self.results,
            only=self.only,
            evaluators=self.evaluators,
        )

    @property
    def run(self) -> EvalOptions:
        """How to run the evaluators."""
        return EvalOptions(
            paths=self.paths,
            target=self.target,
            targets=self.targets,
            prices=self.prices,
            ids=self.ids,
            strict=self.strict,
            workers=self.workers,
            timeout_seconds=self.agent_timeout,
            max_retries=self.max_retries,
            cache=self.cache,
            out=self.out,
            output_format=self.output_format,
            by=self.by,
            results_folder=RESULTS,
            runs_folder=RUNS,
            command=("agentv", *sys.argv[1:]),
        )


what_is_graded = options("What is graded")
how_it_runs = options("How it runs")
where_results_go = options("Where results go")
looking_inside = options("Looking inside")


@click.command(
    cls=Command,
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
    help="Change only these results, and keep the others.",
)
@what_is_graded(
    "--evaluator",
    "evaluators",
    metavar="NAME",
    multiple=True,
    help="Only this one scores; may be repeated.",
)
@what_is_graded(
    "--target",
    metavar="NAME",
    shell_complete=target_names,
    help="Only the answers of this target.",
)
@what_is_graded("--targets", type=PATH, help="The targets file, or a folder that has one.")
@what_is_graded(
    "--prices",
    type=PATH,
    metavar="FILE",
    help="What the tokens of judges cost: see 'agentv eval'.",
)
@what_is_graded(
    "--eval-id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Only this case; an id or a glob.",
)
@what_is_graded("--strict", is_flag=True, help="An invalid case stops the grading before it starts.")
@how_it_runs(
    "--workers",
    metavar="N",
    callback=workers,
    help="How many answers are graded at once: 1 to 50.",
)
@how_it_runs(
    "--agent-timeout",
    type=Amount(min=0, min_open=True),
    metavar="SECONDS",
    help="Seconds a judge may take.",
)
@how_it_runs(
    "--max-retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Ask a judge again, up to N times.",
)
@how_it_runs("--cache", is_flag=True, help="Keep what judges say in .agentv/cache, and ask for each only once.")
@where_results_go("--out", type=PATH, help="Write results here; else to .agentv/results.")
@where_results_go(
    "--output-format",
    metavar="FORMAT",
    shell_complete=formats,
    help="jsonl (default) or yaml.",
)
@where_results_go("--junit", type=PATH, help="Also write the results as JUnit XML.")
@where_results_go("--report", type=PATH, help="Also write the results as one HTML file.")
@where_results_go(
    "--fail-under",
    type=float,
    metavar="SCORE",
    callback=minimum_score,
    help="Exit with 1 when the mean is lower.",
)
@looking_inside("--by", metavar="KEY", help="Figures by group, as in 'agentv eval'.")
@looking_inside("--quiet", is_flag=True, help="No progress.")
@looking_inside("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Score the answers in RESULTS again, with the evaluators that EVALS have now. No target is asked.

    Exit code 0: all answers were graded; 1: a result is an error, or the mean is under --fail-under; 2: bad usage or
    bad files, and nothing was graded.
    """
    options = Options(**values)
    print_warnings(options.verbose)
    _check_outputs(options)
    started = time.monotonic()
    watcher = _watcher(options)
    with cleanup(remove_all), cleanup(kill_all), cleanup(watcher.end):
        report, _ = asyncio.run(grade(options.grading, options.run, watcher))
        seconds = time.monotonic() - started
        sys.exit(conclude(report, options.shown, seconds))


def _check_outputs(options: Options) -> None:
    """Raise `OutputError` if an output cannot be written, before any judge is called."""
    out = options.out
    check_written("--junit", options.junit, "junit.xml", out)
    check_written("--report", options.report, "report.html", out)
    if out is not None and out.exists() and out.samefile(options.results):
        raise OutputError("--out is the file that is graded", file=out, hint="name another file")


def _watcher(options: Options) -> Watcher:
    if options.quiet:
        return Silence()
    return progress_for(clean)
