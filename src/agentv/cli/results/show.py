"""`agentv show`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from agentv.cli.help import Command, options
from agentv.cli.messages import print_lines, print_warnings
from agentv.cli.params import TEXT_OR_JSON, VERBOSE
from agentv.errors import ConfigError, OutputError
from agentv.report.case import case_lines
from agentv.results.runs import RUNS, read_runs
from agentv.results.select import Chosen, choose

RESULTS = Path(".agentv/results")
DEFAULT_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments and options of the command."""

    source: str | None
    ids: tuple[str, ...]
    failed: bool
    limit: int | None
    trace: bool
    form: str
    verbose: bool


which = options("Which cases")
how = options("How they are shown")


@click.command(
    cls=Command,
    examples=("agentv show --failed", "agentv show results.jsonl --eval-id 'france*' --trace"),
)
@click.argument("source", required=False)
@which(
    "--eval-id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Only this case; an id or a glob, may be repeated.",
)
@which("--failed", is_flag=True, help="Only what did not pass.")
@which(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"At most N cases ({DEFAULT_LIMIT}).",
)
@how("--trace", is_flag=True, help="Show the steps of the agent, too.")
@how(
    "--format",
    "form",
    type=TEXT_OR_JSON,
    default="text",
    help="json prints results as JSONL.",
)
@how("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Show what was asked and answered, and what each evaluator made of it, worst first.

    SOURCE is a results file or the id of a run; without one it is the newest run of this folder. Exit code 0;
    2 for a file that cannot be read, or an id that is not there.
    """
    options = Options(**values)
    print_warnings(options.verbose)
    path = _find(options.source)
    chosen = choose(path, options.ids, failed=options.failed)
    _check_ids(options.ids, chosen, path)
    if options.form == "json":
        print_lines(_json_lines(chosen, options))
    else:
        print_lines(_text_lines(chosen, options))


def _find(source: str | None) -> Path:
    """Return the results file that a path or the id of a run refers to. Raise `AgentvError` if there is none."""
    if source is None:
        return _find_newest()
    path = Path(source)
    if path.exists():
        return path
    record = RUNS / f"{source}.json"
    if not record.is_file():
        raise ConfigError(f"no such results file or run: {source}", hint="'agentv runs' lists the runs of this folder")
    for run in read_runs():
        if run.run_id == source and run.results:
            return Path(run.results)
    raise OutputError("this run has no results file", file=record, hint="see 'agentv runs'")


def _find_newest() -> Path:
    """Return the results file of the newest run, or the newest file in the results folder."""
    for run in read_runs():
        if run.results and Path(run.results).is_file():
            return Path(run.results)
    newest = max(RESULTS.glob("eval_*"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None:
        raise ConfigError(
            "there are no results in this folder yet",
            hint="run 'agentv eval' first, or name a results file",
        )
    return newest


def _check_ids(ids: tuple[str, ...], chosen: Chosen, path: Path) -> None:
    """Raise `ConfigError` if an id is not in the file, or if all globs together match nothing."""
    for id_ in ids:
        is_glob = any(character in id_ for character in "*?[")
        if id_ in chosen.ids or (is_glob and chosen.offsets):
            continue
        raise ConfigError(f"no result has the id {id_!r}", file=path, hint="--eval-id takes an id or a glob")


def _json_lines(chosen: Chosen, options: Options) -> Iterator[str]:
    """Yield the results as JSONL."""
    for raw, result, form in islice(chosen.read(), options.limit):
        if form.name == "jsonl":
            yield raw.decode().rstrip("\n")
        else:
            yield msgspec.json.encode(result).decode()


def _text_lines(chosen: Chosen, options: Options) -> Iterator[str]:
    """Yield the results as text."""
    limit = options.limit or DEFAULT_LIMIT
    total = len(chosen.offsets)
    if not total:
        if options.failed and not chosen.is_empty:
            yield "all cases passed"
        else:
            yield "no results"
        return
    for _, result, _ in islice(chosen.read(), limit):
        yield from case_lines(result, trace=options.trace)
        yield ""
    if total > limit:
        yield f"and {total - limit} more: show them with --limit {total}"
