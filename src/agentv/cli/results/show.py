"""`agentv show`."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from agentv.cli.help import CommandWithGroups, options
from agentv.cli.messages import configure_logging, print_lines
from agentv.cli.params import TEXT_OR_JSON, VERBOSE
from agentv.errors import ConfigError, OutputError
from agentv.files.state import state_folder
from agentv.filters.match import Filter
from agentv.report.case import case_lines
from agentv.results.locate import RunResults, find_results, locate_results
from agentv.results.runs import read_runs
from agentv.results.select import Chosen, choose, nothing_matches

DEFAULT_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowFlags:
    """The arguments and options of the command."""

    source: str | None
    ids: tuple[str, ...]
    filters: tuple[str, ...]
    failed: bool
    limit: int | None
    trace: bool
    form: str
    verbose: bool


which = options("Which cases")
how = options("How they are shown")


@click.command(
    cls=CommandWithGroups,
    examples=(
        "agentv show --failed",
        "agentv show results.jsonl --eval-id 'france*' --trace",
        "agentv show results.jsonl --filter 'tag:smoke score<1'",
    ),
)
@click.argument("sources", nargs=-1, metavar="[SOURCE]")
@which(
    "--eval-id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Show only the cases with this id (or glob). Repeatable.",
)
@which(
    "--filter",
    "filters",
    metavar="EXPR",
    multiple=True,
    help="Show only the results that match, such as 'tag:smoke score<0.5'. Repeatable; all must match.",
)
@which("--failed", is_flag=True, help="Show only cases that did not pass.")
@which(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Show at most N cases. [default: {DEFAULT_LIMIT}]",
)
@how("--trace", is_flag=True, help="Also show the agent's steps.")
@how(
    "--format",
    "form",
    type=TEXT_OR_JSON,
    default="text",
    help="Output format; json prints JSON Lines. [default: text]",
)
@how("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Print questions, answers and scores, lowest score first.

    SOURCE is a results file, or the name or id of a run. It defaults to the newest run in
    this folder.

    Exit code 0, or 2 if the file cannot be read, an id is not found or no result matches.
    """
    sources = values.pop("sources")
    options = ShowFlags(source=_only(sources), **values)
    configure_logging(options.verbose)
    condition = None
    if options.filters:
        condition = Filter.parse(options.filters, "results")
    found = _find(options.source)
    chosen = choose(
        found.path,
        options.ids,
        failed=options.failed,
        run_ids=found.run_ids,
        condition=condition,
    )
    _check_ids(options.ids, chosen, found.path)
    if condition is not None and chosen.is_empty:
        raise nothing_matches(condition, found.path)
    if options.form == "json":
        print_lines(_json_lines(chosen, options))
    else:
        print_lines(_text_lines(chosen, options))


def _only(sources: tuple[str, ...]) -> str | None:
    """Return the only source, or None without one. Raise `click.UsageError` if there are several."""
    if not sources:
        return None
    first, *others = sources
    if others:
        error = click.UsageError(f"got unexpected extra argument ({others[0]})", click.get_current_context())
        error.add_note(f"to show a single case, use --eval-id: agentv show {first} --eval-id {others[0]}")
        raise error
    return first


def _find(source: str | None) -> RunResults:
    """Return the results that a path, or the name or id of a run, refers to. Raise `AgentvError` if there are none."""
    if source is None:
        return _find_newest()
    found = find_results(source)
    if found is not None:
        return found
    raise ConfigError(f"no such results file or run: {source}", hint="'agentv runs' lists the runs of this folder")


def _find_newest() -> RunResults:
    """Return the results of the newest run that has some, or the newest file in the results folder."""
    for run in read_runs():
        with suppress(OutputError):
            return locate_results(run)
    newest = max(state_folder("results").glob("eval_*"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None:
        raise ConfigError(
            "no results in this folder yet",
            hint="run 'agentv eval' first, or pass a results file",
        )
    return RunResults(newest)


def _check_ids(ids: tuple[str, ...], chosen: Chosen, path: Path) -> None:
    """Raise `ConfigError` if an id is not in the file, or if no glob matches anything."""
    for id_ in ids:
        is_glob = any(character in id_ for character in "*?[")
        if id_ in chosen.ids or (is_glob and chosen.offsets):
            continue
        raise ConfigError(f"no result with id {id_!r}", file=path, hint="--eval-id takes an id or a glob")


def _json_lines(chosen: Chosen, options: ShowFlags) -> Iterator[str]:
    """Yield the results as JSONL."""
    for raw, result, form in islice(chosen.read(), options.limit):
        if form.name == "jsonl":
            yield raw.decode().rstrip("\n")
        else:
            yield msgspec.json.encode(result).decode()


def _text_lines(chosen: Chosen, options: ShowFlags) -> Iterator[str]:
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
        yield f"{total - limit} more: use --limit {total} to show all"
