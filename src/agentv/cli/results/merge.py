"""`agentv merge`."""

import math
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click
import msgspec

from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import configure_logging, print_lines, print_message
from agentv.cli.params import PATH, verbose_option
from agentv.compare.metrics import stored_metrics
from agentv.errors import OutputError
from agentv.files.atomic_files import write_atomically
from agentv.files.printable import printable
from agentv.log import info
from agentv.redact import clean
from agentv.report.metrics import metric_lines
from agentv.report.summary import summary_lines
from agentv.results.formats import JSONL, ResultFormat, format_for
from agentv.results.merging.merge import Merge
from agentv.results.read import read_results
from agentv.results.summary import Summary
from agentv.results.views import TextRow
from agentv.results.write import keep_backup
from agentv.text import plural

BATCH = 32
"""The number of results to mask and write at a time. Larger blocks use more memory and are not faster."""


@click.command(
    cls=CommandWithGroups,
    examples=(
        "agentv merge shard-*.jsonl --out results.jsonl",
        "agentv merge s1.jsonl s3.jsonl --partial --out part.jsonl",
    ),
)
@click.argument("files", nargs=-1, required=True, type=PATH)
@click.option(
    "--out",
    required=True,
    type=PATH,
    help="Write the merged results to this file (.jsonl or .yaml).",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Merge even if shards are missing or incomplete.",
)
@verbose_option
def command(files: tuple[Path, ...], out: Path, partial: bool, verbose: bool) -> None:
    """Combine the shards of a run ('agentv eval --shard') into one results file.

    Results are sorted by dataset, id, target and trial, regardless of the order of FILES.

    \b
    Exit codes:
      0  merged
      2  results are missing (see --partial) or the files do
         not belong to the same run; nothing is written
    """
    configure_logging(verbose)
    _check_out(out, files)
    counter = _SummaryCounter()
    merge = Merge(files, partial=partial, on_results=counter.add)
    with keep_backup(out) as backup:
        write_atomically(out, _blocks(merge, format_for(out)))
    summary = counter.summary(merge, out)
    if backup is not None:
        print_message(f"{out} already existed: moved it to {backup}")
    for problem in merge.missing:
        message = problem.message
        if problem.file:
            message = f"{problem.file}: {message}"
        print_message(printable(f"warning: {message}"))
    if merge.repeated:
        results = plural(merge.repeated, "duplicate result")
        print_message(f"{results} found in several files, counted once")
    metrics = stored_metrics(out, counter.eval_files, info)
    lines = [*summary_lines(summary, clean, out)]
    if metrics:
        lines += ["", *metric_lines(metrics, clean)]
    lines += ["", f"Results: {out}"]
    print_lines(map(printable, lines))


def _check_out(out: Path, files: Sequence[Path]) -> None:
    """Raise `OutputError` if --out is not a file, or is one of the files to merge."""
    if os.path.realpath(out) in map(os.path.realpath, files):
        raise OutputError("--out is one of the files to merge", file=out, hint="choose another file")
    if out == Path("-"):
        raise OutputError(
            "--out must be a file: the summary is printed to stdout",
            hint="choose a file, for example results.jsonl",
        )
    if out.is_dir():
        raise OutputError("--out is a folder", file=out, hint=f"pass a file in it, such as {out / 'results.jsonl'}")


class _SummaryCounter:
    """Count results for the summary during the merge, which usually avoids reading them a second time."""

    def __init__(self) -> None:
        self._summary = Summary(0, 0, 1, clean)
        self._trials = 1
        self.eval_files: set[str | None] = set()
        """The names of the eval files in the results."""

    def add(self, results: Sequence[TextRow]) -> None:
        """Count results."""
        self._summary.add_all(results)
        trials = [result.trial or 1 for result in results]
        self._trials = max(self._trials, *trials)
        self.eval_files.update(result.file for result in results)

    def summary(self, merge: Merge, merged: Path) -> Summary:
        """Return the summary of the merged file."""
        summary = self._summary
        if self._trials > 1 or merge.repeated:
            # The trials of a case must be counted together, and repeated results once.
            summary = Summary(0, 0, self._trials, clean)
            for record in read_results(merged, TextRow):
                summary.add(record.view)
        results = merge.results - merge.repeated
        if merge.plan is not None:
            results = merge.plan.cases
        summary.cases = math.ceil(results / self._trials)
        return summary


def _blocks(merge: Merge, form: ResultFormat) -> Iterator[bytes]:
    """Yield the merged results in blocks, with secrets masked."""
    lines = merge.lines()
    while batch := list(islice(lines, BATCH)):
        block = _mask(batch)
        if form is JSONL:
            yield block
        else:
            yield b"".join(map(form.encode, block.splitlines()))


def _mask(lines: Sequence[bytes]) -> bytes:
    """Return the lines as one block, with secrets masked."""
    block = b"".join(lines)
    text = block.decode()
    if clean(text) == text:
        return block
    masked = b""
    for line in lines:
        fields = clean.values(msgspec.json.decode(line))
        masked += msgspec.json.encode(fields) + b"\n"
    return masked
