"""`agentv eval`, which is also `agentv run`."""

import asyncio
import os
import signal
import sys
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from agentv.calls.cache import CACHE, Cache
from agentv.cases.read import READERS
from agentv.cli.help import Command, options
from agentv.cli.messages import print_lines, print_warnings, tell, tell_error, tell_problems
from agentv.cli.params import Amount, target_names
from agentv.errors import AgentvError, OutputError
from agentv.formats.printable import printable
from agentv.notices import note
from agentv.processes.child import kill_all
from agentv.project.discovery import eval_files
from agentv.providers.mock import Mock, MockSettings
from agentv.records import EvalResult
from agentv.redact import clean, secrets_in
from agentv.report.outcomes import Annotations, Place, junit
from agentv.report.progress import Progress, progress_for
from agentv.report.summary import summary_lines
from agentv.results.summary import Summary
from agentv.results.write import FORMATS, EarlierFile, ResultFile, create, create_new
from agentv.run.plan import Plan, PlanFailed, Selection, make_plan
from agentv.run.resume import Resumed, newest_results, resume
from agentv.run.runner import RunOptions, check_targets, check_trials, run_plan, worker_limits
from agentv.system.atomic_files import write_whole
from agentv.system.dotenv import load_env
from agentv.system.dumps import Dumps

RESULTS, PROMPTS, TRACES = Path(".agentv/results"), Path(".agentv/prompts"), Path(".agentv/traces")
MAX_WORKERS = 50
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


def _workers(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
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


def _formats(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [form for form in FORMATS if form.startswith(incomplete)]


def _score(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
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
@what_runs("--resume", is_flag=True, help="Go on with an earlier run: run what has no result, or an error.")
@what_runs("--dry-run", is_flag=True, help="Answer with a mock, and ask no target and no judge.")
@what_runs("--dry-run-delay", type=Amount(min=0), default=0, metavar="MS", help="Milliseconds the mock takes.")
@what_runs("--dry-run-delay-min", type=Amount(min=0), metavar="MS", help="The least of a random delay.")
@what_runs("--dry-run-delay-max", type=Amount(min=0), metavar="MS", help="The most of a random delay.")
@where_results_go(
    "--out", type=click.Path(path_type=Path), help="Write results here; default: a new file in .agentv/results."
)
@where_results_go("--output-format", metavar="FORMAT", shell_complete=_formats, help="jsonl (default) or yaml.")
@where_results_go("--junit", type=click.Path(path_type=Path), help="Also write the results as JUnit XML.")
@where_results_go("--include-trace", is_flag=True, help="Put whole traces into the results.")
@where_results_go(
    "--fail-under", type=float, metavar="SCORE", callback=_score, help="Exit with 1 when the mean score is lower."
)
@how_it_runs(
    "--workers", metavar="N", callback=_workers, help="How many cases are in flight at once: 1 to 50, default 1."
)
@how_it_runs(
    "--agent-timeout",
    type=Amount(min=0, min_open=True),
    metavar="SECONDS",
    help="Seconds a case may take, default 600.",
)
@how_it_runs("--max-retries", type=click.IntRange(min=0), metavar="N", help="Repeat what timed out or may pass.")
@how_it_runs("--cache", is_flag=True, help="Keep responses in .agentv/cache, and ask for each only once.")
@looking_inside("--dump-prompts", type=click.Path(path_type=Path), metavar="[DIR]", help="Write each prompt to a file.")
@looking_inside("--dump-traces", is_flag=True, help="Write each trace to a file in .agentv/traces.")
@looking_inside("--quiet", is_flag=True, help="No progress.")
@looking_inside("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(**flags: Any) -> None:
    """Send every case to its target, score the answers, write the results.

    PATHS are eval files, folders or globs. Exit code 0: all cases ran; 1: a case ended in an error, or the
    mean is under --fail-under; 2: bad usage or bad files, and nothing was run; 130: interrupted.
    """
    print_warnings(flags["verbose"])
    paths = eval_files(flags["paths"])
    for path, variables in load_env([path.parent for path in paths]).items():
        note(f"variables are read from {path}")
        clean.learn(secrets_in(variables))
    out = flags["out"]
    _check_junit(flags["junit"], out)
    if out is not None and any(os.path.realpath(path) == os.path.realpath(out) for path in paths):
        raise OutputError("--out is one of the eval files", file=out, hint="results go into a file of their own")
    try:
        plan = make_plan(paths, _wanted(flags))
    except PlanFailed as failed:
        tell_problems(failed.problems)
        sys.exit(2)
    clean.learn(plan.secrets)
    check_trials(plan, flags["trials"])
    asyncio.run(check_targets(plan))
    sys.exit(_run(plan, flags))


def _check_junit(xml: Path | None, out: Path | None) -> None:
    """What would keep the report from being written is found before anything is paid for."""
    if xml is None:
        return
    if xml.is_dir():
        raise OutputError("--junit is a folder", file=xml, hint=f"name a file in it: {xml / 'junit.xml'}")
    if out is not None and out.exists() and not out.is_file():
        raise OutputError("--junit needs results in a regular file", file=out, hint="name another --out")


def _wanted(flags: dict[str, Any]) -> Selection:
    stand_in = None
    if flags["dry_run"]:
        delays = {name: flags[f"dry_run_{name}"] for name in ("delay", "delay_min", "delay_max")}
        settings = {f"{name}_ms": value for name, value in delays.items()}
        stand_in = Mock(MockSettings(name="dry-run", provider="mock", response="Mock dry-run response", **settings))
    return Selection(
        target=flags["target"],
        targets=flags["targets"],
        ids=flags["ids"],
        limit=flags["limit"],
        stand_in=stand_in,
        dry_run=flags["dry_run"],
        workers=flags["workers"],
    )


class _Opened(NamedTuple):
    """Where results go, and what of the run is done already."""

    file: ResultFile
    resumed: Resumed | None = None


def _run(plan: Plan, flags: dict[str, Any]) -> int:
    summary = Summary(plan.cases, plan.invalid, flags["trials"], clean)
    options = _options(plan, flags)
    opened = _open_results(plan, flags, summary)
    ended = "done"
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with opened.file as file:
        progress = progress_for(plan.cases * summary.trials, summary.already_done, clean, quiet=flags["quiet"])
        try:
            with progress:
                ended = asyncio.run(_until_stopped(plan, options, _Sink(file, summary), progress, opened.resumed))
        except* AgentvError as group:
            tell_error(_first(group))
            ended = "broken"
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)  # asyncio has put others in their place
    lines = [*summary_lines(summary, clean), "", f"Results: {opened.file.path}"]
    print_lines(map(printable, lines))
    _report(plan, opened.file.path, flags["junit"])
    if ended == "stopped":
        tell("interrupted: what was done is in the results; go on with --resume")
        return 130
    under = flags["fail_under"] is not None and (summary.mean or 0.0) < flags["fail_under"]
    if under:
        tell(f"error: the mean {summary.mean or 0.0:.3f} is under {flags['fail_under']:g}")
    incomplete = summary.ledger.get("not run", 0) > 0
    return 1 if ended == "broken" or summary.failed or under or incomplete else 0


def _report(plan: Plan, results: Path, xml: Path | None) -> None:
    """Tell of what did not pass where people look for it."""
    if not results.is_file():
        return  # a pipe, which cannot be read once more
    if xml is not None:
        write_whole(xml, junit(results))
    if os.environ.get("GITHUB_ACTIONS"):
        annotations = Annotations(results)
        wanted = annotations.cases
        cases = (case for file in plan.files for case in plan.cases_of(file)) if wanted else ()
        root = os.environ.get("GITHUB_WORKSPACE") or os.curdir
        found = {
            (clean(case.dataset), clean(case.id)): Place(os.path.relpath(case.file.path, root), case.line)
            for case in cases
            if (clean(case.dataset), clean(case.id)) in wanted
        }
        for line in annotations.lines(found):
            tell(line)


def _first(group: BaseExceptionGroup[AgentvError]) -> AgentvError:
    error: Any = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    found: AgentvError = error
    return found


class _Sink:
    """Writes a result, and counts it once it is written."""

    def __init__(self, file: ResultFile, summary: Summary):
        self._file, self._summary = file, summary

    def write(self, result: EvalResult) -> None:
        self._file.write(result)
        self._summary.add(result)


def _options(plan: Plan, flags: dict[str, Any]) -> RunOptions:
    workers, limits = worker_limits(plan, flags["workers"])
    for name, limit in limits.items():
        if limit < (flags["workers"] or 1):
            tell(f"warning: target {name!r} can only do one thing at a time: using 1 worker for it")
    return RunOptions(
        workers=workers,
        limits=limits,
        timeout_seconds=flags["agent_timeout"],
        max_retries=flags["max_retries"],
        cache=Cache(CACHE, clean) if flags["cache"] and not flags["dry_run"] else None,
        include_trace=flags["include_trace"],
        prompts=Dumps(flags["dump_prompts"], clean) if flags["dump_prompts"] else None,
        traces=Dumps(TRACES, clean) if flags["dump_traces"] else None,
        trials=flags["trials"],
    )


def _format(flags: dict[str, Any]) -> str:
    """The format that was asked for, else that of the file's name; what we do not know is jsonl."""
    asked, out = flags["output_format"], flags["out"]
    if asked is None:
        return "yaml" if out is not None and out.suffix.lower() in (".yaml", ".yml") else "jsonl"
    if asked not in FORMATS:
        tell(f"warning: the output format {asked!r} is not known: using jsonl")
    return asked if asked in FORMATS else "jsonl"


def _open_results(plan: Plan, flags: dict[str, Any], summary: Summary) -> _Opened:
    form, out = _format(flags), flags["out"]
    if flags["resume"]:
        earlier = out if out is not None else newest_results(RESULTS)
        if earlier is not None and earlier.is_file():
            resumed = resume(EarlierFile(earlier, form, clean), plan, summary.trials, clean, summary.add_earlier)
            tell(f"resuming {earlier}: {resumed.words()}")
            return _Opened(resumed.file, resumed)
        tell(f"nothing to resume{f' at {out}' if out else ''}: starting afresh")
    if out is None:
        stem = f"eval_{datetime.now():%Y%m%d_%H%M%S}"
        return _Opened(create_new(RESULTS, stem, form, clean))
    file, kept = create(out, form, clean)
    if kept is not None:
        tell(f"{out} was there already: it is now {kept}")
    return _Opened(file)


async def _until_stopped(
    plan: Plan, options: RunOptions, sink: _Sink, progress: Progress, resumed: Resumed | None
) -> str:
    """Run the plan to its end, or until a signal: then nothing is left running."""
    running = asyncio.current_task()
    assert running is not None
    signals: list[int] = []

    def stop(number: int) -> None:
        if signals and number == signal.SIGINT:
            kill_all()
            progress.__exit__()
            os._exit(130)
        if not signals:
            running.cancel()
        signals.append(number)

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
            loop.add_signal_handler(number, stop, number)
    try:
        await run_plan(plan, options, sink, progress, resumed.is_done if resumed else _nothing_is_done)
    except asyncio.CancelledError:
        if not signals:
            raise
        return "stopped"
    return "done"


def _nothing_is_done(*_: object) -> bool:
    return False
