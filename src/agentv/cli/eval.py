"""`agentv eval`, which is also `agentv run`."""

import asyncio
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from agentv.cases.read import READERS
from agentv.cli.ending import Shown, check_written, conclude
from agentv.cli.help import Command, options
from agentv.cli.messages import print_warnings, tell
from agentv.cli.params import Amount, OneOf, target_names
from agentv.errors import NothingToRun
from agentv.processes.child import kill_all
from agentv.processes.interrupts import cleanup
from agentv.redact import clean
from agentv.report.progress import progress_for
from agentv.results.formats import FORMATS
from agentv.results.runs import RUNS
from agentv.run.batches.batch_files import break_off_batches
from agentv.run.batches.submission import DEADLINE_SECONDS
from agentv.run.evaluate import DryRun, EvalOptions, RunEnd, evaluate
from agentv.run.output import STDOUT
from agentv.run.watching.watcher import Silence
from agentv.system.temporary import remove_all
from agentv.view.beside import NoViewer, ViewerProcess, viewer_beside

RESULTS, PROMPTS, TRACES = Path(".agentv/results"), Path(".agentv/prompts"), Path(".agentv/traces")
MAX_WORKERS = 50


class _Command(Command):
    """Lets `--dump-prompts` stand with or without a folder after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [param for param in self.params if isinstance(param, click.Option) and not param.is_flag]
        valued = [name for option in options for name in option.opts if name != "--dump-prompts"]
        return super().parse_args(ctx, with_dump_folder(args, valued))


def with_dump_folder(args: list[str], valued: Collection[str] = ()) -> list[str]:
    """The arguments with `--dump-prompts DIR` written as one. What may be an eval file is not taken for DIR.

    `valued` are the options that are followed by a value, which is no path of an eval file either.
    """
    if "--dump-prompts" not in args:
        return args
    at = args.index("--dump-prompts")
    folder = args[at + 1] if at + 1 < len(args) else "-"
    rest = [*args[:at], *args[at + 2 :]]
    paths = [
        arg for before, arg in zip(["", *rest], rest, strict=False) if not arg.startswith("-") and before not in valued
    ]
    is_folder = not folder.startswith("-") and paths and not _may_be_evals(folder)
    joined = [f"--dump-prompts={folder if is_folder else PROMPTS}"]
    return [*args[:at], *joined, *args[at + (2 if is_folder else 1) :]]


def _may_be_evals(text: str) -> bool:
    return Path(text).suffix.lower() in READERS or any(sign in text for sign in "*?[") or Path(text).is_file()


def workers(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """A number from 1 to 50; what is no number at all is as good as nothing."""
    if value is None:
        return None
    try:
        count = int(value)
    except ValueError:
        tell(f"warning: --workers {value!r} is no number: using 1")
        return 1
    if not 1 <= count <= MAX_WORKERS:
        raise click.BadParameter(f"{count} is not in the range from 1 to {MAX_WORKERS}")
    return count


def formats(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [form for form in FORMATS if form.startswith(incomplete)]


def minimum_score(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise click.BadParameter(f"{value} is not a score between 0 and 1")
    return value


what_runs, how_it_runs = options("What runs"), options("How it runs")
where_results_go, looking_inside = options("Where results go"), options("Looking inside")


@click.command(
    cls=_Command,
    examples=(
        "agentv eval evals/",
        "agentv eval evals/ --target mine --workers 4",
        "agentv eval evals/ --eval-id 'france*' --verbose",
        "agentv eval evals/ --out new.jsonl --fail-under 0.8",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@what_runs(
    "--target",
    metavar="NAME",
    shell_complete=target_names,
    help="The target to use, in the place of what cases and files say.",
)
@what_runs("--targets", type=click.Path(path_type=Path), help="The targets file, or a folder that has one.")
@what_runs(
    "--eval-id", "ids", metavar="ID", multiple=True, help="Run only this case; an id or a glob, may be repeated."
)
@what_runs("--limit", type=click.IntRange(min=1), metavar="N", help="Run only the first N cases.")
@what_runs("--trials", type=click.IntRange(min=1), default=1, metavar="K", help="Run every case K times.")
@what_runs("--shard", metavar="I/N", help="Run only part I of N, which 'agentv merge' joins; auto asks the scheduler.")
@what_runs("--resume", is_flag=True, help="Go on with an earlier run: run what has no result, or an error.")
@what_runs("--failed", is_flag=True, help="With --resume: run again what did not pass, too.")
@what_runs("--keep-stale", is_flag=True, help="With --resume: keep what another version of the target answered.")
@what_runs(
    "--failed-in",
    type=click.Path(path_type=Path),
    metavar="RESULTS",
    help="Run only the cases that did not pass there.",
)
@what_runs("--strict", is_flag=True, help="An invalid case stops the run before it starts, and is not left out.")
@what_runs("--plan", is_flag=True, help="Ask nobody: print how many calls, what they cost, and what the run can find.")
@what_runs("--format", "form", type=OneOf(["text", "json"]), default="text", help="With --plan: text or json.")
@what_runs("--dry-run", is_flag=True, help="Answer with a mock, and ask no target and no judge.")
@what_runs("--dry-run-delay", type=Amount(min=0), default=0, metavar="MS", help="Milliseconds the mock takes.")
@what_runs("--dry-run-delay-min", type=Amount(min=0), metavar="MS", help="The least of a random delay.")
@what_runs("--dry-run-delay-max", type=Amount(min=0), metavar="MS", help="The most of a random delay.")
@where_results_go(
    "--out", type=click.Path(path_type=Path), help="Write results here, '-' is stdout; else to .agentv/results."
)
@where_results_go("--output-format", metavar="FORMAT", shell_complete=formats, help="jsonl (default) or yaml.")
@where_results_go("--junit", type=click.Path(path_type=Path), help="Also write the results as JUnit XML.")
@where_results_go("--report", type=click.Path(path_type=Path), help="Also write the results as one HTML file.")
@where_results_go("--otel", is_flag=True, help="Also send the results as OpenTelemetry traces; OTEL_* say where.")
@where_results_go("--no-inputs", is_flag=True, help="Leave out of the results what was asked and expected.")
@where_results_go("--include-trace", is_flag=True, help="Put whole traces into the results.")
@where_results_go(
    "--fail-under",
    type=float,
    metavar="SCORE",
    callback=minimum_score,
    help="Exit with 1 when the mean score is lower.",
)
@how_it_runs(
    "--workers", metavar="N", callback=workers, help="How many cases are in flight at once: 1 to 50, default 1."
)
@how_it_runs(
    "--agent-timeout",
    type=Amount(min=0, min_open=True),
    metavar="SECONDS",
    help="Seconds a case may take, default 600.",
)
@how_it_runs(
    "--max-retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Ask again, up to N times, when a target timed out or its error may pass. "
    "Default: what the target sets, else 3 for language models and 0 for the others.",
)
@how_it_runs("--max-errors", type=click.IntRange(min=1), metavar="N", help="Start no case after N errors of targets.")
@how_it_runs(
    "--batch-deadline",
    type=Amount(min=0, min_open=True),
    default=DEADLINE_SECONDS,
    metavar="SECONDS",
    help="Give up what a vendor's batch API has not answered by then, default 86400.",
)
@how_it_runs("--no-batch-fallback", is_flag=True, help="What no batch has answered is an error, and not asked live.")
@how_it_runs(
    "--max-cost",
    type=Amount(min=0, min_open=True),
    metavar="USD",
    help="Start no case that would take the cost of this run beyond USD.",
)
@how_it_runs(
    "--max-duration",
    type=Amount(min=0, min_open=True),
    metavar="SECONDS",
    help="Start no case that would end after SECONDS.",
)
@how_it_runs(
    "--cluster",
    metavar="ADDRESS",
    help="Run the cases on a Dask cluster: tcp://HOST:PORT of its scheduler, or local:N for N processes here. "
    "--workers is then for each of its workers.",
)
@how_it_runs(
    "--check-judge",
    is_flag=True,
    help="Also judge planted answers whose verdicts are known, and some answers twice.",
)
@how_it_runs(
    "--prices",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What tokens cost: JSON in the form of LiteLLM's model price list.",
)
@how_it_runs("--collect-traces", is_flag=True, help="Collect the OpenTelemetry spans of targets as their traces.")
@how_it_runs(
    "--collect-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="With --collect-traces: where to listen, on 127.0.0.1; default any free port.",
)
@how_it_runs(
    "--collect-grace",
    type=Amount(min=0),
    metavar="SECONDS",
    help="With --collect-traces: how long to wait for the next span of an answer, default 1; for http targets 6.",
)
@how_it_runs("--cache", is_flag=True, help="Keep responses in .agentv/cache, and ask for each only once.")
@looking_inside("--dump-prompts", type=click.Path(path_type=Path), metavar="[DIR]", help="Write each prompt to a file.")
@looking_inside("--dump-traces", is_flag=True, help="Write each trace to a file in .agentv/traces.")
@looking_inside("--by", metavar="KEY", help="Figures by group: a key of metadata, or dataset, target, conversation_id.")
@looking_inside("--view", is_flag=True, help="Show the run in a browser as it grows; see 'agentv view'.")
@looking_inside("--quiet", is_flag=True, help="No progress.")
@looking_inside("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(**flags: Any) -> None:
    """Send every case to its target, score the answers, write the results.

    PATHS are eval files, folders or globs. Exit code 0: all cases ran; 1: a case ended in an error, or the
    mean is under --fail-under; 2: bad usage or bad files, and nothing was run; 130: interrupted.
    """
    shown = Shown(**{name: flags.pop(name) for name in Shown.__struct_fields__})
    print_warnings(shown.verbose)
    check_written("--junit", shown.junit, "junit.xml", flags["out"])
    check_written("--report", shown.report, "report.html", flags["out"])
    _check_flags(flags)
    form = flags.pop("form")
    if shown.view and flags["out"] == STDOUT:
        raise click.UsageError("--view needs a results file, and --out is stdout")
    if flags.pop("plan"):
        from agentv.cli.plan import print_plan

        return print_plan(_options(flags, NoViewer()), form)
    started = time.monotonic()
    watcher = Silence() if shown.quiet else progress_for(clean)
    with (
        viewer_beside(tell if shown.view else None) as viewer,
        cleanup(remove_all),
        cleanup(break_off_batches),
        cleanup(kill_all),
        cleanup(watcher.end),
    ):
        try:
            report = asyncio.run(evaluate(_options(flags, viewer), None, watcher))
        except NothingToRun as nothing:
            tell(nothing.message)
            sys.exit(0)
        code = conclude(report, shown, time.monotonic() - started)
        if flags["check_judge"] and report.judge_health is None:
            tell("--check-judge: no language model has judged, so there was nothing to check")
        if report.end is not RunEnd.INTERRUPTED:
            viewer.stay()
        sys.exit(code)


def _options(flags: dict[str, Any], viewer: ViewerProcess | NoViewer) -> EvalOptions:
    """Return what was asked for."""
    delays = {name: flags.pop(f"dry_run_{name}") for name in ("delay", "delay_min", "delay_max")}
    dry_run = DryRun(*delays.values()) if flags.pop("dry_run") else None
    traces = TRACES if flags.pop("dump_traces") else None
    no_fallback = flags.pop("no_batch_fallback")
    seconds, failed, no_inputs = flags.pop("agent_timeout"), flags.pop("failed"), flags.pop("no_inputs")
    return EvalOptions(
        **flags,
        dry_run=dry_run,
        dump_traces=traces,
        timeout_seconds=seconds,
        rerun_failed=failed,
        results_folder=RESULTS,
        on_open=viewer.show,
        runs_folder=RUNS,
        command=("agentv", *sys.argv[1:]),
        include_inputs=not no_inputs,
        batch_fallback=not no_fallback,
    )


def _check_flags(flags: dict[str, Any]) -> None:
    """Raise `click.UsageError` for options that make no sense together."""
    if flags["form"] != "text" and not flags["plan"]:
        raise click.UsageError("--format goes with --plan")
    for name in ("failed", "keep_stale"):
        if flags[name] and not flags["resume"]:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --resume")
    for name in ("collect_port", "collect_grace"):
        if flags[name] is not None and not flags["collect_traces"]:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --collect-traces")
    if flags["collect_port"] is not None and flags["cluster"] is not None:
        raise click.UsageError("--collect-port does not go with --cluster: each worker listens on a port of its own")
    if flags["cluster"] is not None and (flags["max_cost"] or flags["max_duration"]):
        raise click.UsageError(
            "--max-cost and --max-duration do not go with --cluster: its workers start cases themselves"
        )
    if flags["resume"] and flags["out"] == STDOUT:
        raise click.UsageError("--resume needs a results file, and --out is stdout")
