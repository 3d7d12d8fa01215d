"""`agentv judge`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from agentv.cli.help import Command, options
from agentv.cli.messages import print_json, print_lines, print_warnings, tell
from agentv.cli.params import PATH, TEXT_OR_JSON, VERBOSE, Amount
from agentv.records import Json
from agentv.report.judge import figure_text, judge_lines
from agentv.results.labels.file import LABELS, read_labels
from agentv.results.labels.judge import JudgeFigures, judge_figures, meets_bar
from agentv.results.labels.match import LabelBook
from agentv.results.run_files import name_of
from agentv.results.runs import read_runs

EXIT_CODES = {"reached": 0, "missed": 1, "undecided": 3}
VERDICT_TEXTS = {
    "reached": "yes",
    "missed": "no",
    "undecided": "cannot tell, more labels are needed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments and options of the command."""

    results: tuple[Path, ...]
    labels: Path
    evaluator: str | None
    min_kappa: float | None
    form: str
    verbose: bool


what_counts = options("What counts")
the_output = options("The output")


@click.command(
    cls=Command,
    examples=(
        "agentv judge results.jsonl",
        "agentv judge results.jsonl --min-kappa 0.6",
        "agentv judge shard-*.jsonl",
    ),
)
@click.argument("results", nargs=-1, required=True, type=PATH)
@what_counts(
    "--labels",
    type=PATH,
    default=LABELS,
    metavar="FILE",
    help=f"What people said ({LABELS}).",
)
@what_counts("--evaluator", metavar="NAME", help="The verdicts of this evaluator, not those of the cases.")
@what_counts(
    "--min-kappa",
    type=Amount(min=-1, max=1),
    metavar="X",
    help="A bar for the exit code, see above.",
)
@the_output(
    "--format",
    "form",
    type=TEXT_OR_JSON,
    default="text",
    help="text is the default.",
)
@the_output("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Tell how far a judge agrees with people, and the pass rate that they would give.

    Nobody is asked: verdicts come from RESULTS (several files are the shards
    of one run), labels from a file ('agentv labels').

    \b
    Exit code by --min-kappa:
      0: the 95% interval of kappa is not below X
      1: it is
      3: cannot tell

    Exit code 0 without it. Exit code 2: bad usage, no labels that can be used, or a file that cannot be read.
    """
    options = Options(**values)
    print_warnings(options.verbose)
    book = LabelBook(read_labels(options.labels))
    figures = judge_figures(options.results, book, options.evaluator, read_runs())
    if options.form == "json":
        print_json(_fields(figures, options))
    else:
        print_lines(judge_lines(figures))
    if options.min_kappa is not None:
        verdict = meets_bar(figures.kappa, options.min_kappa)
        text = VERDICT_TEXTS[verdict]
        tell(f"kappa of at least {options.min_kappa:g}: {text} ({figure_text(figures.kappa)})")
        sys.exit(EXIT_CODES[verdict])


def _fields(figures: JudgeFigures, options: Options) -> Json:
    """Return the figures as JSON data, with the name of the results and the verdict on --min-kappa."""
    fields = {
        "results": str(name_of(options.results)),
        **msgspec.to_builtins(figures),
    }
    if options.min_kappa is not None:
        fields["bar"] = {
            "min_kappa": options.min_kappa,
            "verdict": meets_bar(figures.kappa, options.min_kappa),
        }
    return fields
