"""`agentv compare`."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import click

from agentv.cli.help import options
from agentv.cli.messages import configure_logging, print_blocks, print_message, print_problems
from agentv.cli.params import PATH, VERBOSE, Amount, OneOf
from agentv.cli.results.run_files import VersusCommand
from agentv.compare.compare import LabelDifferences, compare_files
from agentv.compare.gate import CANNOT_TELL, EXIT_CODES, NO_REGRESSION, REGRESSION, Gate, Undecided, judge_gate
from agentv.compare.records import MARGIN, CompareOptions, Comparison
from agentv.compare.selection import CaseSelection
from agentv.errors import OutputError, ResultsError
from agentv.files.printable import printable
from agentv.filters.match import Filter
from agentv.report.comparison import json_blocks, table_lines, verdict_lines
from agentv.report.layout import terminal_width, wrap
from agentv.report.markdown import markdown_lines
from agentv.results.locate import results_file
from agentv.results.runs import LABELS

Format = Literal["json", "table", "markdown"]
SEVERITY = (NO_REGRESSION, CANNOT_TELL, REGRESSION)
"""The exit codes of gates, least severe first. The most severe one of several comparisons counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareFlags:
    """The arguments and options of the command."""

    files: tuple[Path, ...]
    vs: tuple[tuple[Path, ...], ...]
    threshold: float
    margin: float
    by: tuple[str, ...]
    cluster: str | None
    labels: Path | None
    filters: tuple[str, ...]
    gate: Gate
    require: tuple[str, ...]
    allow_missing: bool
    undecided: Undecided
    format: Format | None
    out: Path | None
    quiet: bool
    verbose: bool

    @property
    def form(self) -> Format:
        """The requested format of the report, or else a default that depends on the destination."""
        if self.format is not None:
            return self.format
        if self.out is not None and self.out.suffix.lower() == ".md":
            return "markdown"
        if self.out is None and _is_terminal(sys.stdout):
            return "table"
        return "json"

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
            filter=self._filter,
        )

    @property
    def _filter(self) -> Filter | None:
        if not self.filters:
            return None
        return Filter.parse(self.filters, "results")

    def required(self) -> Sequence[Sequence[CaseSelection]]:
        """Return the cases that must not regress in each run but the first: a selection per `--require`."""
        if not self.require:
            return [()] * (len(self.runs) - 1)
        conditions = [Filter.parse([text], "results") for text in self.require]
        first, *others = self.runs
        return [[CaseSelection(first, other, condition) for condition in conditions] for other in others]

    def label_differences(self) -> LabelDifferences | None:
        """Return how to compare the runs by human labels, or None without labels.

        Raise `AgentvError` if --labels names an invalid file.
        """
        if self.labels is None and not LABELS.is_file():
            return None
        from agentv.trust.labelled_pairs import differences_by
        from agentv.trust.labels.file import read_labels
        from agentv.trust.labels.match import LabelBook, find_labels

        if self.labels is not None:
            return differences_by(LabelBook(read_labels(self.labels)))
        book = find_labels()
        if book is None:
            return None
        return differences_by(book)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _keys(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Reject an empty key, and ignore a repeated one."""
    if "" in value:
        raise click.BadParameter(
            "empty: expected a metadata key, or evaluator, dataset, target or conversation_id",
        )
    return tuple(dict.fromkeys(value))


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
    help="Separate runs that consist of several shard files: A1 A2 --vs B1 B2.",
)
@what_is_compared(
    "--filter",
    "filters",
    multiple=True,
    metavar="EXPR",
    help="Compare only the cases that match in B, such as 'tag:smoke'. Repeatable; all must match.",
)
@what_counts(
    "--threshold",
    type=Amount(min=0),
    default=0.1,
    metavar="DELTA",
    help="Minimum score difference that counts as a win or loss. [default: 0.1]",
)
@what_counts(
    "--by",
    metavar="KEY",
    multiple=True,
    callback=_keys,
    help="Report the same figures per evaluator, dataset, target, conversation_id, metadata key or vars.KEY. "
    "Repeat to cross keys.",
)
@what_counts("--cluster", metavar="KEY", help="Cluster standard errors by this metadata key or field.")
@what_counts(
    "--labels",
    type=PATH,
    metavar="FILE",
    help=f"Also compare the runs by the human labels in this file. [default: {LABELS}, if it exists]",
)
@what_counts(
    "--gate",
    type=OneOf(get_args(Gate)),
    default="mean",
    help="Criterion for the exit code (see above). [default: mean]",
)
@what_counts(
    "--require",
    multiple=True,
    metavar="EXPR",
    help="With --gate no-regressions: only the cases that match count. Repeatable.",
)
@what_counts(
    "--allow-missing",
    is_flag=True,
    help="Let gates other than mean pass even if B lacks cases of A.",
)
@what_counts(
    "--undecided",
    type=OneOf(get_args(Undecided)),
    default="3",
    help="Exit code of an undecided gate: 0 (pass), 1 (fail) or 3. [default: 3]",
)
@what_counts(
    "--margin",
    type=Amount(min=0),
    default=MARGIN,
    metavar="DELTA",
    help=f"Non-inferiority margin for --gate noninferior. [default: {MARGIN}]",
)
@the_output(
    "--format",
    type=OneOf(get_args(Format)),
    help="Format of the report. [default: table on a terminal, otherwise json]",
)
@the_output(
    "--out",
    type=PATH,
    callback=_stdout,
    help="Write the report to this file. Without --format, .md files are Markdown, all others JSON.",
)
@the_output("--quiet", is_flag=True, help="Do not print the verdict and its explanation to stderr.")
@the_output("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Compare two or more runs and test whether the differences are significant.

    FILES are results files, or names or ids of runs. The first run is A, every other
    run is B. Cases are paired by eval_id, and also
    by dataset if several datasets of a file contain the same id.

    \b
    Exit code by --gate:
      mean            0: the mean of B is equal or higher
                      1: the mean of B is lower
      ci              0: the 95% interval is at or above zero
                      1: the 95% interval is below zero
                      3: undecided
      noninferior     0: the interval is above -MARGIN
                      1: otherwise, if it is below zero
                      3: undecided
      no-regressions  0: all cases that passed in A pass in B
                      1: one of them no longer passes
                      3: undecided

    Gates use the cases that both runs have, no-regressions only those that --require
    selects. Every gate except mean fails (1) if B
    lacks a case of A that is still in the eval files, and is undecided (3) if a
    case that passed in A ended in an error or was not judged in B.

    Exit code 2: invalid usage, an unreadable file, or no case in common.
    """
    sys.exit(_compare(CompareFlags(**values)))


def _compare(options: CompareFlags) -> int:
    """Compare the files, write the report, and return the exit code."""
    configure_logging(options.verbose)
    options = replace(
        options,
        files=tuple(map(results_file, options.files)),
        vs=tuple(tuple(map(results_file, run)) for run in options.vs),
    )
    if len(options.runs) < 2:
        raise click.UsageError("expected two results files: the baseline, then the run to compare with it")
    if options.require and options.gate != "no-regressions":
        raise click.UsageError("--require needs --gate no-regressions")
    _check_files(options)
    try:
        required = options.required()
        comparisons = compare_files(options.runs, options.compare, options.label_differences())
    except ResultsError as error:
        print_problems(error.problems)
        return 2
    print_blocks(_blocks(comparisons, options), options.out)
    if not options.quiet and (options.form == "json" or options.out is not None):
        for line in verdict_lines(comparisons):
            _print_wrapped(line)
    if options.labels is not None and not any(comparison.labels for comparison in comparisons):
        print_message(printable(f"{options.labels}: no label matches a case of these runs"))
    return _exit_code(comparisons, required, options)


def _exit_code(
    comparisons: Sequence[Comparison],
    required: Sequence[Sequence[CaseSelection]],
    options: CompareFlags,
) -> int:
    """Return the exit code of the gate. Print an explanation if the code may be unexpected."""
    reasons: dict[int, list[str]] = {code: [] for code in SEVERITY}
    worst = NO_REGRESSION
    for comparison, selections in zip(comparisons, required, strict=True):
        judged = judge_gate(
            comparison,
            options.gate,
            allow_missing=options.allow_missing,
            required=selections,
        )
        code = judged.code
        reason = "; ".join(filter(None, [judged.reason, judged.hint]))
        if code == CANNOT_TELL:
            code = EXIT_CODES[options.undecided]
            reason = f"undecided: {reason}"
        worst = max(code, worst, key=SEVERITY.index)
        if reason and len(comparisons) > 1:
            reason = f"{comparison.files[1].path}: {reason}"
        if reason:
            reasons[code].append(reason)
    if not options.quiet:
        for reason in reasons[worst]:
            _print_wrapped(f"exit {worst}: {reason}")
    return worst


def _print_wrapped(line: str) -> None:
    """Print a line to stderr, wrapped to the width of the terminal."""
    width = terminal_width(sys.stderr)
    parts = [printable(line)]
    if width is not None:
        parts = wrap(parts[0], width)
    for part in parts:
        print_message(part)


def _check_files(options: CompareFlags) -> None:
    """Warn about duplicate files. Raise `OutputError` if the report would overwrite one of the files."""
    seen: dict[str, Path] = {}
    for run in options.runs:
        for path in run:
            real = os.path.realpath(path)
            if real in seen and path.is_file():
                print_message(f"warning: {path} and {seen[real]} are the same file: the comparison is meaningless")
            seen.setdefault(real, path)
    out = options.out
    if out is not None and os.path.realpath(out) in seen:
        raise OutputError("--out is one of the results files", file=out, hint="choose another file")


def _blocks(comparisons: Sequence[Comparison], options: CompareFlags) -> Iterator[bytes]:
    """Yield the report in the requested format."""
    if options.form == "json":
        yield from json_blocks(comparisons)
        return
    for line in _lines(comparisons, options):
        yield f"{line}\n".encode()


def _lines(comparisons: Sequence[Comparison], options: CompareFlags) -> Iterator[str]:
    if options.form == "markdown":
        return markdown_lines(comparisons)
    width = None
    if options.out is None:
        width = terminal_width(sys.stdout)
    return table_lines(comparisons, width)
