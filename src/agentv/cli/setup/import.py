"""`agentv import`. As the name is a keyword, this module is only imported by its path, as all commands are."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import Command, options
from agentv.cli.messages import print_blocks, print_warnings, tell, tell_error
from agentv.errors import placed
from agentv.formats.printable import printable
from agentv.importers import BUILT_IN
from agentv.importers.convert import Import, NothingImported, check_target, open_import
from agentv.importers.importer import Becomes, ImportOptions, Tally

STDOUT = Path("-")
MAX_REMARKS = 50
NEXT = {
    Becomes.CASES: "agentv validate {}",
    Becomes.RESULTS: "agentv show {}",
    Becomes.ANSWERS: "a target with 'provider: replay' and 'file: {}' gives them again",
}
"""What to do with a new file."""


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
    found: dict[str, str] = {}
    for value in values:
        field, equals, column = value.partition("=")
        if not equals or not field.strip():
            raise click.BadParameter(f"{value!r} is not of the form field=column, such as question=Prompt")
        if field.strip() in found:
            raise click.BadParameter(f"the field {field.strip()!r} is given twice")
        found[field.strip()] = column.strip()
    return found


what, where = options("What is read"), options("Where it goes")


@click.command(
    cls=Command,
    examples=(
        "agentv import questions.csv",
        "agentv import rows.jsonl --map question=text",
        "agentv import promptfooconfig.yaml --out evals/tweets.yaml",
        "agentv import session.jsonl --id france",
    ),
)
@click.argument("source", type=click.Path(path_type=Path))
@what("--from", "format", metavar="FORMAT", help=f"{', '.join(sorted(BUILT_IN))}; found by content if left out.")
@what(
    "--map",
    "columns",
    metavar="FIELD=COLUMN",
    multiple=True,
    callback=_columns,
    help="The column of a field (id, question, expected, expected_outcome); may be repeated.",
)
@what("--id", metavar="ID", help="The id of the case that a transcript answers; default: that of the session.")
@what("--limit", type=click.IntRange(min=1), metavar="N", help="Write at most N rows.")
@where("--out", type=click.Path(path_type=Path), help="Write there; default: named after the source; - is stdout.")
@where("--overwrite", is_flag=True, help="Replace the file if it is there already.")
@where("--dry-run", is_flag=True, help="Write nothing; print the first three rows as they would be written.")
@where("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
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
    """Import the source, say what was done, and return the exit code."""
    print_warnings(options.verbose)
    given = ImportOptions(columns=options.columns, id=options.id)
    job = open_import(options.source, options.format, given, options.limit)
    if options.format is None:
        tell(f"format: {job.format}, by its content")
    tally, path = Tally(), options.out or job.default_path()
    try:
        if options.dry_run:
            print_blocks(job.try_out(path, tally), None)
        elif path == STDOUT:
            print_blocks(job.blocks(path, tally), None)
        else:
            check_target(path, job.source, options.overwrite)
            job.write(path, tally)
    except NothingImported as error:
        _tell(job, tally)
        tell_error(error)
        return 1
    _tell(job, tally)
    if options.dry_run:
        tell("dry run: nothing was written")
    elif path != STDOUT:
        tell(printable(f"written: {path}"))
        tell(printable(f"next: {NEXT[job.importer.becomes].format(shlex.quote(str(path)))}"))
    return 0


def _tell(job: Import, tally: Tally) -> None:
    for line in _lines(job, tally):
        tell(printable(line))


def _lines(job: Import, tally: Tally) -> Iterator[str]:
    """Yield how the source was understood, what is lost of it, and how much was read, written and skipped."""
    yield from tally.notes
    for remark in tally.remarks[:MAX_REMARKS]:
        hint = f" ({remark.hint})" if remark.hint else ""
        yield f"warning: {placed(remark.message, remark.file, remark.line)}{hint}"
    if (more := len(tally.remarks) - MAX_REMARKS) > 0:
        yield f"warning: {more:,} more parts have no counterpart"
    noun = f"{job.importer.becomes.value}{'' if tally.written == 1 else 's'}"
    skipped = sum(map(tally.count, tally.skipped))
    read = f"{tally.read:,} {job.importer.noun.removesuffix('s') if tally.read == 1 else job.importer.noun} read"
    yield f"{read}, {tally.written:,} {noun} written, {skipped:,} skipped"
    for reason, places in tally.skipped.items():
        count = tally.count(reason)
        yield f"  {count:,} skipped: {reason} ({', '.join(places)}{', …' if count > len(places) else ''})"
