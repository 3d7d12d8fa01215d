"""`agentv import`. The name is a keyword, so this module can be imported only with `import_module`."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import Command, options
from agentv.cli.messages import print_blocks, print_warnings, tell, tell_error
from agentv.cli.params import PATH, VERBOSE
from agentv.errors import placed
from agentv.formats.printable import printable
from agentv.importers import BUILT_IN
from agentv.importers.convert import Import, NothingImported, check_target, open_import
from agentv.importers.importer import Becomes, ImportOptions, Tally
from agentv.report.quantities import counted

STDOUT = Path("-")
MAX_REMARKS = 50
NEXT = {
    Becomes.CASES: "agentv validate {}",
    Becomes.RESULTS: "agentv show {}",
    Becomes.ANSWERS: "a target with 'provider: replay' and 'file: {}' gives them again",
}
"""The suggested next step for a new file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments and options of the command."""

    source: Path
    format: str | None
    columns: dict[str, str]
    id: str | None
    limit: int | None
    out: Path | None
    overwrite: bool
    dry_run: bool
    verbose: bool


def _columns(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return the column of each field in `field=column`."""
    columns: dict[str, str] = {}
    for value in values:
        field, equals, column = value.partition("=")
        field = field.strip()
        if not equals or not field:
            raise click.BadParameter(f"{value!r} is not of the form field=column, such as question=Prompt")
        if field in columns:
            raise click.BadParameter(f"the field {field!r} is given twice")
        columns[field] = column.strip()
    return columns


what = options("What is read")
where = options("Where it goes")


@click.command(
    cls=Command,
    examples=(
        "agentv import questions.csv",
        "agentv import rows.jsonl --map question=text",
        "agentv import promptfooconfig.yaml --out evals/tweets.yaml",
        "agentv import session.jsonl --id france",
    ),
)
@click.argument("source", type=PATH)
@what(
    "--from",
    "format",
    metavar="FORMAT",
    help=f"{', '.join(sorted(BUILT_IN))}; found by content if left out.",
)
@what(
    "--map",
    "columns",
    metavar="FIELD=COLUMN",
    multiple=True,
    callback=_columns,
    help="The column of a field (id, question, expected, expected_outcome); may be repeated.",
)
@what(
    "--id",
    metavar="ID",
    help="The id of the case that a transcript answers; default: that of the session.",
)
@what(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write at most N rows.",
)
@where("--out", type=PATH, help="Write there; default: named after the source; - is stdout.")
@where("--overwrite", is_flag=True, help="Replace the file if it is there already.")
@where(
    "--dry-run",
    is_flag=True,
    help="Write nothing; print the first three rows as they would be written.",
)
@where("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Make an eval file, results, or answers out of what you have.

    \b
    csv, tsv, jsonl     questions and answers -> eval file
    openai-evals        samples -> eval file
    promptfoo           prompts and tests -> eval file
    inspect, lm-eval    logs -> results
    claude-code, codex  transcripts -> answers
    otlp                traces of OpenTelemetry -> answers

    Exit code 0; 1 if nothing in the source could be imported; 2 for a source that
    cannot be read or is not what it should be.
    """
    sys.exit(_import(Options(**values)))


def _import(options: Options) -> int:
    """Import the source, report what was imported, and return the exit code."""
    print_warnings(options.verbose)
    import_options = ImportOptions(columns=options.columns, id=options.id)
    job = open_import(options.source, options.format, import_options, options.limit)
    if options.format is None:
        tell(f"format: {job.format}, by its content")
    path = options.out or job.default_path()
    tally = Tally()
    try:
        _write(job, path, tally, options)
    except NothingImported as error:
        _print_tally(job, tally)
        tell_error(error)
        return 1
    _print_tally(job, tally)
    if options.dry_run:
        tell("dry run: nothing was written")
    elif path != STDOUT:
        tell(printable(f"written: {path}"))
        next_step = NEXT[job.importer.becomes].format(shlex.quote(str(path)))
        tell(printable(f"next: {next_step}"))
    return 0


def _write(job: Import, path: Path, tally: Tally, options: Options) -> None:
    """Write the imported rows to the file or to stdout. Raise `NothingImported` if there are none."""
    if options.dry_run:
        print_blocks(job.try_out(path, tally), None)
    elif path == STDOUT:
        print_blocks(job.blocks(path, tally), None)
    else:
        check_target(path, job.source, options.overwrite)
        job.write(path, tally)


def _print_tally(job: Import, tally: Tally) -> None:
    for line in _tally_lines(job, tally):
        tell(printable(line))


def _tally_lines(job: Import, tally: Tally) -> Iterator[str]:
    """Yield how the source was interpreted, what has no counterpart, and the numbers of read and skipped rows."""
    yield from tally.notes
    for remark in tally.remarks[:MAX_REMARKS]:
        line = placed(remark.message, remark.file, remark.line)
        if remark.hint:
            line += f" ({remark.hint})"
        yield f"warning: {line}"
    more = len(tally.remarks) - MAX_REMARKS
    if more > 0:
        yield f"warning: {more:,} more parts have no counterpart"
    noun = job.importer.noun
    if tally.read == 1:
        noun = noun.removesuffix("s")
    written = counted(tally.written, job.importer.becomes.value, ",")
    skipped = sum(map(tally.count, tally.skipped))
    yield f"{tally.read:,} {noun} read, {written} written, {skipped:,} skipped"
    for reason, places in tally.skipped.items():
        count = tally.count(reason)
        shown = ", ".join(places)
        if count > len(places):
            shown += ", …"
        yield f"  {count:,} skipped: {reason} ({shown})"
