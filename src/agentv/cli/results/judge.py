"""`agentv judge`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from agentv.cli.help import CommandWithGroups, options
from agentv.cli.messages import configure_logging, print_json, print_lines, print_message
from agentv.cli.params import PATH, TEXT_OR_JSON, VERBOSE, Amount
from agentv.records import Json
from agentv.report.judge import figure_text, judge_lines
from agentv.results.run_files import name_of
from agentv.results.runs import LABELS, read_runs
from agentv.trust.labels.file import read_labels
from agentv.trust.labels.judge import JudgeFigures, judge_figures, meets_bar
from agentv.trust.labels.match import LabelBook

EXIT_CODES = {"reached": 0, "missed": 1, "undecided": 3}
VERDICT_TEXTS = {
    "reached": "yes",
    "missed": "no",
    "undecided": "undecided, more labels are needed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFlags:
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
    cls=CommandWithGroups,
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
    help=f"File with human labels. [default: {LABELS}]",
)
@what_counts("--evaluator", metavar="NAME", help="Compare the verdicts of this evaluator instead of the case verdicts.")
@what_counts(
    "--min-kappa",
    type=Amount(min=-1, max=1),
    metavar="X",
    help="Minimum Cohen's kappa; sets the exit code (see above).",
)
@the_output(
    "--format",
    "form",
    type=TEXT_OR_JSON,
    default="text",
    help="Output format. [default: text]",
)
@the_output("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Measure judge/human agreement and estimate the true pass rate.

    RESULTS contains the verdicts of the judge (several files are the shards of one run). Human labels come from a
    labels file, see 'agentv labels'. No target or judge is called.

    \b
    Exit codes:
      0  success; with --min-kappa: the 95% interval of
         kappa is at or above X
      1  with --min-kappa: the interval is below X
      2  invalid usage, unreadable file or no usable labels
      3  with --min-kappa: undecided, X is in the interval
    """
    options = JudgeFlags(**values)
    configure_logging(options.verbose)
    book = LabelBook(read_labels(options.labels))
    figures = judge_figures(options.results, book, options.evaluator, read_runs())
    if options.form == "json":
        print_json(_fields(figures, options))
    else:
        print_lines(judge_lines(figures))
    if options.min_kappa is not None:
        verdict = meets_bar(figures.kappa, options.min_kappa)
        text = VERDICT_TEXTS[verdict]
        print_message(f"kappa of at least {options.min_kappa:g}: {text} ({figure_text(figures.kappa)})")
        sys.exit(EXIT_CODES[verdict])


def _fields(figures: JudgeFigures, options: JudgeFlags) -> Json:
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
