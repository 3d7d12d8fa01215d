"""`agentv labels`."""

from pathlib import Path

import click

from agentv.cli.help import Group
from agentv.cli.messages import print_json, print_lines, print_warnings
from agentv.cli.params import PATH, TEXT_OR_JSON
from agentv.formats.printable import printable
from agentv.report.judge import status_lines
from agentv.report.quantities import counted
from agentv.results.labels.file import LABELS, append_labels, read_labels
from agentv.results.labels.match import LabelBook
from agentv.results.labels.status import label_status
from agentv.results.labels.table import read_label_table


@click.group(
    cls=Group,
    examples=(
        "agentv labels import reviewed.csv",
        "agentv labels status results.jsonl --format json",
    ),
)
def command() -> None:
    """What people say of answers: pass or fail. 'agentv judge' compares it with what judges say."""


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
    help=f"Append to this file ({LABELS}).",
)
def import_command(file: Path, labels: Path) -> None:
    """Append the labels of a CSV file.

    The first row names the columns, in any letter case: eval_id, label (pass or fail), and answer or
    answer_digest; dataset, trial, score, evaluator, reviewer, note, sampling (random or chosen) and at
    if there are such. Rows without a label are passed over. If anything is wrong, nothing is written.
    """
    print_warnings(verbose=False)
    table = read_label_table(file)
    count = append_labels(labels, table.labels)
    print_lines([printable(f"{counted(count, 'label')} added to {labels}")])
    if table.unlabelled:
        print_lines([f"{counted(table.unlabelled, 'row')} without a label left out"])
    if table.is_export:
        print_lines(["scores are not taken over: in an export of agentv they are those of the evaluators"])
    if not any(label.sampling == "random" for label in table.labels):
        print_lines(["no label has 'random' for sampling: 'agentv judge' will make no pass rate of these"])


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
    help=f"The file of labels ({LABELS}).",
)
@click.option(
    "--format",
    "form",
    type=TEXT_OR_JSON,
    default="text",
    help="text is the default.",
)
def status_command(results: tuple[Path, ...], labels: Path, form: str) -> None:
    """Tell how many answers have labels, by whom, and how far the reviewers agree.

    Several files are the shards of one run.
    """
    print_warnings(verbose=False)
    book = LabelBook(read_labels(labels))
    status = label_status(results, book)
    if form == "json":
        print_json(status)
    else:
        print_lines(status_lines(status))
