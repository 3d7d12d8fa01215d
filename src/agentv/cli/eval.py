"""`agentv eval`, which is also `agentv run`."""

import asyncio
import os
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from agentv.cases.read import READERS
from agentv.cli.finish import finish
from agentv.cli.help import CommandWithGroups, options
from agentv.cli.messages import configure_logging, print_message
from agentv.cli.options import gate_flags, options_of, progress_display, run_flags
from agentv.cli.params import TEXT_OR_JSON, VERBOSE
from agentv.errors import ConfigError, NothingToRun
from agentv.files.state import StateKind, state_folder
from agentv.files.temporary import remove_all
from agentv.option import LOOKING_INSIDE, WHAT_RUNS
from agentv.processes.child import kill_all
from agentv.processes.interrupts import cleanup
from agentv.processes.machine import raise_file_limit
from agentv.report.pages import check_pages
from agentv.run.batch_files import break_off_batches
from agentv.run.evaluate import evaluate
from agentv.run.exit_code import Gates
from agentv.run.option_checks import check
from agentv.run.options import STDOUT, EvalOptions
from agentv.run.report import RunEnd
from agentv.view.viewer_process import open_viewer

DUMPS: dict[str, StateKind] = {
    "--dump-prompts": "prompts",
    "--dump-traces": "traces",
}
"""The options with an optional folder, and the default folder of each below `.agentv`."""
DEFAULT_FOLDER = f"{os.devnull}/default"  # no such folder can exist
"""The value of such an option without a folder. The default depends on the eval files, which are parsed later."""


class _Command(CommandWithGroups):
    """A command with options that take an optional folder."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            error = click.UsageError("name an eval file, a folder or a glob", ctx)
            error.add_note("for example: agentv eval evals/; 'agentv init' creates a project that runs immediately")
            raise error
        valued: list[str] = []
        for param in self.params:
            if isinstance(param, click.Option) and not param.is_flag:
                valued.extend(name for name in param.opts if name not in DUMPS)
        for option in DUMPS:
            args = with_dump_folder(option, args, valued)
        return super().parse_args(ctx, args)


def with_dump_folder(option: str, args: list[str], valued: Collection[str] = ()) -> list[str]:
    """Rewrite `option DIR` as the single argument `option=DIR`, with `DEFAULT_FOLDER` if DIR is omitted.

    An argument that may be an eval file is not interpreted as DIR. `valued` are the options that take a value, which
    cannot be an eval file.
    """
    if option not in args:
        return args
    at = args.index(option)
    before = args[:at]
    after = args[at + 1 :]
    folder = DEFAULT_FOLDER
    if after and _is_folder(after[0], [*before, *after[1:]], valued):
        folder = after[0]
        after = after[1:]
    return [*before, f"{option}={folder}", *after]


def _with_default_folders(options: EvalOptions) -> EvalOptions:
    """Return the options with the default folders of dumps, which are in the project of the eval files."""
    default = Path(DEFAULT_FOLDER)
    if options.run.dump_prompts == default:
        options = replace(options, run=replace(options.run, dump_prompts=state_folder("prompts")))
    if options.run.dump_traces == default:
        options = replace(options, run=replace(options.run, dump_traces=state_folder("traces")))
    return options


def _is_folder(word: str, rest: list[str], valued: Collection[str]) -> bool:
    """Return whether the word after an option of `DUMPS` is a folder. The rest must still contain an eval path."""
    if word.startswith("-") or _may_be_evals(word):
        return False
    previous = ""
    for arg in rest:
        if not arg.startswith("-") and previous not in valued:
            return True
        previous = arg
    return False


def _may_be_evals(text: str) -> bool:
    if Path(text).suffix.lower() in READERS:
        return True
    if any(sign in text for sign in "*?["):
        return True
    return os.path.isfile(text)  # unlike Path.is_file, False in a folder that cannot be searched


what_runs = options(WHAT_RUNS)
looking_inside = options(LOOKING_INSIDE)


@click.command(
    cls=_Command,
    examples=(
        "agentv eval evals/",
        "agentv eval evals/ --target mine --workers 4",
        "agentv eval evals/ --eval-id 'france*' --verbose",
        "agentv eval evals/ --filter 'tag:smoke -metadata.level>=3'",
        "agentv eval evals/ --out new.jsonl --fail-under 0.8",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@run_flags
@what_runs(
    "--plan",
    "forecast",
    is_flag=True,
    help="Print estimated calls, cost and minimum detectable effect, then exit.",
)
@what_runs("--format", "form", type=TEXT_OR_JSON, default="text", help="Output format of --plan. [default: text]")
@gate_flags
@looking_inside("--view", is_flag=True, help="Show live results in a browser; see 'agentv view'.")
@looking_inside("--quiet", is_flag=True, help="Do not show progress.")
@looking_inside("--verbose", is_flag=True, help=VERBOSE)
def command(  # noqa: PLR0913  # the flags that are not options of a run
    *,
    forecast: bool,
    form: str,
    fail_under: float | None,
    min_pass_rate: float | None,
    view: bool,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """Send each case to its target, score the answers and write the results.

    PATHS are eval files, folders or globs.

    \b
    Exit codes:
      0    all cases ran
      1    a case ended in an error or was not judged, or a
           gate was missed (--fail-under, --min-pass-rate,
           --require)
      2    invalid usage or files; no case was run
      70   internal error; the results so far are kept
      130  interrupted
    """
    configure_logging(verbose)
    raise_file_limit()
    eval_options = _with_default_folders(options_of(values))
    check_pages(eval_options)
    if form != "text" and not forecast:
        raise click.UsageError("--format needs --plan")
    _check(eval_options)
    if view and eval_options.output.out == STDOUT:
        raise click.UsageError("--view needs a results file, but --out is stdout")
    if forecast:
        from agentv.cli.forecast import print_forecast

        return print_forecast(eval_options, form)
    started = time.monotonic()
    progress = progress_display(is_quiet=quiet)
    with (
        open_viewer(print_message if view else None) as viewer,
        cleanup(remove_all),
        cleanup(break_off_batches),
        cleanup(kill_all),
        cleanup(progress.end),
    ):
        eval_options = replace(eval_options, on_open=viewer.show)
        try:
            report = asyncio.run(evaluate(eval_options, None, progress))
        except NothingToRun as nothing:
            print_message(nothing.message)
            sys.exit(0)
        seconds = time.monotonic() - started
        code = finish(report, eval_options, Gates(fail_under, min_pass_rate), seconds)
        if eval_options.check_judge and report.judge_health is None:
            print_message("--check-judge: skipped, because no case was scored by a judge model")
        if report.end is not RunEnd.INTERRUPTED:
            viewer.stay()
        sys.exit(code)


def _check(options: EvalOptions) -> None:
    """Raise `click.UsageError` for options that cannot be combined."""
    try:
        check(options)
    except ConfigError as error:
        raise click.UsageError(error.message) from error
