"""`agentv show`."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from agentv.cli.help import Command, options
from agentv.cli.messages import print_lines, print_warnings
from agentv.cli.params import OneOf
from agentv.errors import ConfigError, OutputError
from agentv.report.case import case_lines
from agentv.results.runs import RUNS, read_runs
from agentv.results.select import Chosen, choose

RESULTS = Path(".agentv/results")
DEFAULT_LIMIT = 20
which, how = options("Which cases"), options("How they are shown")


@click.command(
    cls=Command,
    examples=("agentv show --failed", "agentv show results.jsonl --eval-id 'france*' --trace"),
)
@click.argument("source", required=False)
@which("--eval-id", "ids", metavar="ID", multiple=True, help="Only this case; an id or a glob, may be repeated.")
@which("--failed", is_flag=True, help="Only what did not pass.")
@which("--limit", type=click.IntRange(min=1), metavar="N", help=f"At most N cases ({DEFAULT_LIMIT}).")
@how("--trace", is_flag=True, help="Show the steps of the agent, too.")
@how("--format", "form", type=OneOf(["text", "json"]), default="text", help="json prints results as JSONL.")
@how("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(  # noqa: PLR0913, PLR0917  # an argument for each option
    source: str | None, ids: tuple[str, ...], failed: bool, limit: int | None, trace: bool, form: str, verbose: bool
) -> None:
    """Show what was asked and answered, and what each evaluator made of it, worst first.

    SOURCE is a results file or the id of a run; without one it is the newest run of this folder. Exit code 0;
    2 for a file that cannot be read, or an id that is not there.
    """
    print_warnings(verbose)
    path = _find(source)

    chosen = choose(path, ids, failed=failed)
    _check_ids(ids, chosen, path)
    print_lines(_json(chosen, limit) if form == "json" else _text(chosen, limit or DEFAULT_LIMIT, trace, failed))


def _find(source: str | None) -> Path:
    """Return the results file that is meant; raise `ConfigError` if there is none."""
    if source is None:
        named = (Path(run.results) for run in read_runs() if run.results)
        found = next((path for path in named if path.is_file()), None)
        newest = max(RESULTS.glob("eval_*"), key=lambda path: path.stat().st_mtime_ns, default=None)
        if found is None and newest is None:
            hint = "run 'agentv eval' first, or name a results file"
            raise ConfigError("there are no results in this folder yet", hint=hint)
        return found or newest or Path()
    if not Path(source).exists() and (RUNS / f"{source}.json").is_file():
        run = next((run for run in read_runs() if run.run_id == source), None)
        if run is not None and run.results:
            return Path(run.results)
        raise OutputError("this run has no results file", file=RUNS / f"{source}.json", hint="see 'agentv runs'")
    if not Path(source).exists():
        raise ConfigError(f"no such results file or run: {source}", hint="'agentv runs' lists the runs of this folder")
    return Path(source)


def _check_ids(ids: tuple[str, ...], chosen: Chosen, path: Path) -> None:
    """Raise `ConfigError` if a plain id is not in the file; a glob may match nothing only if others do."""
    for id_ in ids:
        is_glob = any(sign in id_ for sign in "*?[")
        if id_ not in chosen.ids and not (is_glob and chosen.offsets):
            raise ConfigError(f"no result has the id {id_!r}", file=path, hint="--eval-id takes an id or a glob")


def _json(chosen: Chosen, limit: int | None) -> Iterator[str]:
    for number, (raw, result, form) in enumerate(chosen.read()):
        if limit is not None and number >= limit:
            return
        yield raw.decode().rstrip("\n") if form.name == "jsonl" else msgspec.json.encode(result).decode()


def _text(chosen: Chosen, limit: int, trace: bool, failed: bool) -> Iterator[str]:
    total = len(chosen.offsets)
    if not total:
        yield "all cases passed" if failed and not chosen.is_empty else "no results"
        return
    for number, (_, result, _) in enumerate(chosen.read()):
        if number >= limit:
            yield f"and {total - limit} more: show them with --limit {total}"
            return
        yield from case_lines(result, trace=trace)
        yield ""
