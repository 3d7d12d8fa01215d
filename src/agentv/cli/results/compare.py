"""`agentv compare`."""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import click

from agentv.cli.help import options
from agentv.cli.messages import print_blocks, print_warnings, tell, tell_problems
from agentv.cli.params import PATH, VERBOSE, Amount, OneOf
from agentv.cli.results.run_files import VersusCommand
from agentv.compare.compare import compare_files
from agentv.compare.gate import CANNOT_TELL, REGRESSION, Gate, exit_code, has_unmatched
from agentv.compare.records import MARGIN, CompareOptions, Comparison
from agentv.errors import OutputError, ResultsError
from agentv.formats.printable import printable
from agentv.report.comparison import json_blocks, table_lines, verdict_lines
from agentv.report.layout import terminal_width, wrap
from agentv.report.markdown import markdown_lines
from agentv.results.labels.file import LABELS, read_labels
from agentv.results.labels.match import LabelBook, find_labels

Format = Literal["json", "table", "markdown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments and options of the command."""

    files: tuple[Path, ...]
    vs: tuple[tuple[Path, ...], ...]
    threshold: float
    margin: float
    by: str | None
    cluster: str | None
    labels: Path | None
    gate: Gate
    form: Format
    out: Path | None
    quiet: bool
    verbose: bool

    @property
    def runs(self) -> Sequence[Sequence[Path]]:
        """The files of each run. Without --vs, each file is a run of its own."""
        if self.vs:
            return [self.files, *self.vs]
        return [(path,) for path in self.files]

    @property
    def compare(self) -> CompareOptions:
        """How to compare the runs."""
        return CompareOptions(
            threshold=self.threshold,
            margin=self.margin,
            by=self.by,
            cluster=self.cluster,
        )

    def read_book(self) -> LabelBook | None:
        """Return the human labels, or None if there are none. Raise `AgentvError` if --labels names an invalid file."""
        if self.labels is None:
            return find_labels()
        return LabelBook(read_labels(self.labels))


def _key(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Reject an empty key."""
    if value == "":
        raise click.BadParameter("it is empty: name a key of metadata, or evaluator, dataset, target, conversation_id")
    return value


def _stdout(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """Return None for `-`, which is stdout."""
    if value == Path("-"):
        return None
    return value


what_is_compared = options("What is compared")
what_counts = options("What counts")
the_output = options("The output")


@click.command(
    cls=VersusCommand,
    examples=(
        "agentv compare before.jsonl after.jsonl",
        "agentv compare a.jsonl b.jsonl c.jsonl --format table",
        "agentv compare base.jsonl new.jsonl --gate noninferior",
        "agentv compare base-*.jsonl --vs new-*.jsonl",
    ),
)
@click.argument("files", nargs=-1, required=True, type=PATH)
@what_is_compared(
    "--vs",
    multiple=True,
    metavar="FILE...",
    help="The files of another run; those before are the shards of one, too.",
)
@what_counts(
    "--threshold",
    type=Amount(min=0),
    default=0.1,
    metavar="DELTA",
    help="The least that counts as win or loss (0.1).",
)
@what_counts(
    "--by",
    metavar="KEY",
    callback=_key,
    help="The same figures for each evaluator, dataset, target, conversation_id, or KEY of metadata.",
)
@what_counts("--cluster", metavar="KEY", help="Cases with the same KEY of metadata (or field) belong together.")
@what_counts(
    "--labels",
    type=PATH,
    metavar="FILE",
    help=f"What people said ({LABELS}): the difference by labels is shown besides.",
)
@what_counts(
    "--gate",
    type=OneOf(get_args(Gate)),
    default="mean",
    help="What decides the exit code, see above: the mean (default), its 95% interval, or --margin.",
)
@what_counts(
    "--margin",
    type=Amount(min=0),
    default=MARGIN,
    metavar="DELTA",
    help=f"What is still not worse ({MARGIN}).",
)
@the_output(
    "--format",
    "form",
    type=OneOf(get_args(Format)),
    default="json",
    help="json is the default.",
)
@the_output(
    "--out",
    type=PATH,
    callback=_stdout,
    help="Write there and not to stdout.",
)
@the_output("--quiet", is_flag=True, help="No verdict on stderr.")
@the_output("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Compare results files with the first: is it better, and are you sure?

    Cases are paired by eval_id. JSON goes to stdout, a verdict for people to stderr.

    \b
    Exit code by --gate:
      mean         0: the mean is equal or better
                   1: it is worse
      ci           0: the 95% interval is not below zero
                   1: it is
                   3: cannot tell
      noninferior  0: not worse by --margin or more
                   1: worse
                   3: cannot tell

    If one file lacks cases of the other, ci and noninferior do not pass: 3.
    Exit code 2: bad usage, a file that cannot be read, or nothing in common.
    """
    sys.exit(_compare(Options(**values)))


def _compare(options: Options) -> int:
    """Compare the files, write the report, and return the exit code."""
    gc.disable()  # a million results contain no cycles, and searching them for some is slow
    print_warnings(options.verbose)
    if len(options.runs) < 2:
        raise click.UsageError("two results files are needed: the one to compare with comes first")
    _check_files(options)
    try:
        comparisons = compare_files(options.runs, options.compare, options.read_book())
    except ResultsError as error:
        tell_problems(error.problems)
        return 2
    print_blocks(_blocks(comparisons, options), options.out)
    if not options.quiet and (options.form == "json" or options.out is not None):
        _print_verdicts(comparisons)
    if options.labels is not None and not any(comparison.labels for comparison in comparisons):
        tell(printable(f"{options.labels}: no label is of a case of these runs"))
    codes = [exit_code(comparison, options.gate) for comparison in comparisons]
    if CANNOT_TELL in codes and not options.quiet:
        _print_unmatched(comparisons, options.gate)
    if REGRESSION in codes:
        return REGRESSION
    return max(codes)


def _print_verdicts(comparisons: Sequence[Comparison]) -> None:
    """Print the verdicts to stderr, wrapped to the width of the terminal."""
    width = terminal_width(sys.stderr)
    for line in map(printable, verdict_lines(comparisons)):
        parts = [line]
        if width is not None:
            parts = wrap(line, width)
        for part in parts:
            tell(part)


def _print_unmatched(comparisons: Sequence[Comparison], gate: Gate) -> None:
    """Explain why a gate that uses the confidence interval does not pass, even if the verdict is good."""
    for comparison in comparisons:
        if has_unmatched(comparison) and exit_code(comparison, gate) == CANNOT_TELL:
            path = comparison.files[1].path
            tell(printable(f"gate {gate}: cannot tell for {path}, as not all cases are in both files"))


def _check_files(options: Options) -> None:
    """Warn about files that are named twice. Raise `OutputError` if the report would overwrite one of the files."""
    seen: dict[str, Path] = {}
    for run in options.runs:
        for path in run:
            real = os.path.realpath(path)
            if real in seen and path.is_file():
                tell(f"warning: {path} and {seen[real]} are the same file: a run compared with itself tells nothing")
            seen.setdefault(real, path)
    out = options.out
    if out is not None and os.path.realpath(out) in seen:
        raise OutputError("--out is one of the results files", file=out, hint="name another file")


def _blocks(comparisons: Sequence[Comparison], options: Options) -> Iterator[bytes]:
    """Yield the report in the requested format."""
    if options.form == "json":
        yield from json_blocks(comparisons)
        return
    for line in _lines(comparisons, options):
        yield f"{line}\n".encode()


def _lines(comparisons: Sequence[Comparison], options: Options) -> Iterator[str]:
    if options.form == "markdown":
        return markdown_lines(comparisons)
    width = None
    if options.out is None:
        width = terminal_width(sys.stdout)
    return table_lines(comparisons, width)
