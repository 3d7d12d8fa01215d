"""`agentv labels`."""

from pathlib import Path

import click

from agentv.cli.help import Group
from agentv.cli.messages import configure_logging, print_json, print_lines
from agentv.cli.params import PATH, TEXT_OR_JSON
from agentv.files.printable import printable
from agentv.report.judge import status_lines
from agentv.results.runs import LABELS
from agentv.text import plural
from agentv.trust.labels.file import append_labels, read_labels
from agentv.trust.labels.match import LabelBook
from agentv.trust.labels.status import label_status
from agentv.trust.labels.table import read_label_table


@click.group(
    cls=Group,
    examples=(
        "agentv labels import reviewed.csv",
        "agentv labels status results.jsonl --format json",
    ),
)
def command() -> None:
    """Manage human labels: pass/fail verdicts of reviewers. To compare them with a judge, use 'agentv judge'."""


@command.command(
    "import",
    examples=(
        "agentv labels import reviewed.csv",
        "agentv labels import a.csv --labels b.jsonl",
    ),
)
@click.argument("file", type=PATH)
@click.option(
    "--labels",
    type=PATH,
    default=LABELS,
    metavar="FILE",
    help=f"Append to this labels file. [default: {LABELS}]",
)
def import_command(file: Path, labels: Path) -> None:
    """Import labels from a CSV file.

    Required columns: eval_id, label (pass or fail), and answer or answer_digest. Optional columns: dataset, trial,
    score, evaluator, reviewer, note, sampling (random or chosen), at. Column names are case-insensitive. Rows
    without a label are skipped. If a row is invalid, nothing is imported.
    """
    configure_logging(verbose=False)
    table = read_label_table(file)
    count = append_labels(labels, table.labels)
    print_lines([printable(f"{plural(count, 'label')} added to {labels}")])
    if table.unlabelled:
        print_lines([f"{plural(table.unlabelled, 'row')} without a label skipped"])
    if table.is_export:
        print_lines(["scores not imported: an export of agentv contains the scores of evaluators, not of reviewers"])
    if not any(label.sampling == "random" for label in table.labels):
        print_lines(["no label has sampling 'random': 'agentv judge' cannot estimate a pass rate from these labels"])


@command.command(
    "status",
    examples=(
        "agentv labels status results.jsonl",
        "agentv labels status shard-*.jsonl",
    ),
)
@click.argument("results", nargs=-1, required=True, type=PATH)
@click.option(
    "--labels",
    type=PATH,
    default=LABELS,
    metavar="FILE",
    help=f"Labels file. [default: {LABELS}]",
)
@click.option(
    "--format",
    "form",
    type=TEXT_OR_JSON,
    default="text",
    help="Output format. [default: text]",
)
def labels_status_command(results: tuple[Path, ...], labels: Path, form: str) -> None:
    """Report the number of labels per reviewer and inter-rater agreement.

    Several RESULTS files are the shards of one run.
    """
    configure_logging(verbose=False)
    book = LabelBook(read_labels(labels))
    status = label_status(results, book)
    if form == "json":
        print_json(status)
    else:
        print_lines(status_lines(status))
