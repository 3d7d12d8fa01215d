"""`agentv import`. The name is a keyword, so this module can be imported only with `import_module`."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import CommandWithGroups, options
from agentv.cli.messages import configure_logging, print_blocks, print_error, print_message
from agentv.cli.params import PATH, VERBOSE
from agentv.errors import placed
from agentv.files.printable import printable
from agentv.importers import BUILT_IN
from agentv.importers.convert import Import, NothingImported, check_target, open_import
from agentv.importers.importer import Becomes, ImportOptions, Tally
from agentv.text import plural

STDOUT = Path("-")
MAX_REMARKS = 50
NEXT = {
    Becomes.CASES: "agentv validate {}",
    Becomes.RESULTS: "agentv show {}",
    Becomes.ANSWERS: "add a target with 'provider: replay' and 'file: {}' to replay them",
}
"""The suggested next step for a new file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFlags:
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
            raise click.BadParameter(f"{value!r} (expected FIELD=COLUMN, for example question=Prompt)")
        if field in columns:
            raise click.BadParameter(f"duplicate field {field!r}")
        columns[field] = column.strip()
    return columns


what = options("What is read")
where = options("Where it goes")


@click.command(
    cls=CommandWithGroups,
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
    help=f"Source format: {', '.join(sorted(BUILT_IN))}. [default: detected from the content]",
)
@what(
    "--map",
    "columns",
    metavar="FIELD=COLUMN",
    multiple=True,
    callback=_columns,
    help="Column to use for a field (id, question, expected, expected_outcome). Repeatable.",
)
@what(
    "--id",
    metavar="ID",
    help="Id of the case that a transcript answers. [default: the session id]",
)
@what(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write at most N rows.",
)
@where("--out", type=PATH, help="Output file ('-' for stdout). [default: named after the source]")
@where("--overwrite", is_flag=True, help="Overwrite an existing output file.")
@where(
    "--dry-run",
    is_flag=True,
    help="Print the first three rows of the output without writing a file.",
)
@where("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Convert files of other tools to eval files, results or answers.

    \b
    csv, tsv, jsonl     questions and answers -> eval file
    openai-evals        samples -> eval file
    promptfoo           prompts and tests -> eval file
    inspect, lm-eval    logs -> results
    claude-code, codex  transcripts -> answers
    otlp                OpenTelemetry traces -> answers

    Exit code 0, 1 if the source has nothing to import, 2 if it cannot be read or is
    invalid.
    """
    sys.exit(_import(ImportFlags(**values)))


def _import(options: ImportFlags) -> int:
    """Import the source, report what was imported, and return the exit code."""
    configure_logging(options.verbose)
    import_options = ImportOptions(columns=options.columns, id=options.id)
    job = open_import(options.source, options.format, import_options, options.limit)
    if options.format is None:
        print_message(f"detected format: {job.format}")
    path = options.out or job.default_path()
    tally = Tally()
    try:
        _write(job, path, tally, options)
    except NothingImported as error:
        _print_tally(job, tally)
        print_error(error)
        return 1
    _print_tally(job, tally)
    if options.dry_run:
        print_message("dry run: nothing was written")
    elif path != STDOUT:
        print_message(printable(f"written: {path}"))
        next_step = NEXT[job.importer.becomes].format(shlex.quote(str(path)))
        print_message(printable(f"next: {next_step}"))
    return 0


def _write(job: Import, path: Path, tally: Tally, options: ImportFlags) -> None:
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
        print_message(printable(line))


def _tally_lines(job: Import, tally: Tally) -> Iterator[str]:
    """Yield how the source was interpreted, which parts were not converted, and the counts of rows."""
    yield from tally.notes
    for remark in (*tally.remarks[:MAX_REMARKS], *tally.dropped.warnings()):
        line = placed(remark.message, remark.file, remark.line, remark.column)
        if remark.hint:
            line += f" ({remark.hint})"
        yield f"warning: {line}"
    more = len(tally.remarks) - MAX_REMARKS
    if more > 0:
        yield f"warning: {more:,} more parts could not be converted"
    noun = job.importer.noun
    read = plural(tally.read, noun.removesuffix("s"), noun, separator=",")
    written = plural(tally.written, job.importer.becomes.value, separator=",")
    skipped = sum(map(tally.count, tally.skipped))
    yield f"{read} read, {written} written, {skipped:,} skipped"
    for reason, places in tally.skipped.items():
        count = tally.count(reason)
        shown = ", ".join(places)
        if count > len(places):
            shown += ", …"
        yield f"  {count:,} skipped: {reason} ({shown})"
