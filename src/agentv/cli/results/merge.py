"""`agentv merge`."""

import gc
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click
import msgspec

from agentv.cli.help import Command
from agentv.cli.messages import print_lines, print_warnings, tell
from agentv.errors import OutputError
from agentv.formats.printable import printable
from agentv.redact import clean
from agentv.report.summary import summary_lines
from agentv.results.formats import JSONL, ResultFormat, format_for
from agentv.results.merging.merge import Merge
from agentv.results.read import read_results
from agentv.results.summary import Summary
from agentv.results.views import CountedView
from agentv.results.write import keep_backup
from agentv.system.atomic_files import write_atomically

BATCH = 32
"""So many results are masked and written at a time: pieces of memory of megabytes cost more than they save."""


@click.command(
    cls=Command,
    examples=(
        "agentv merge shard-*.jsonl --out results.jsonl",
        "agentv merge s1.jsonl s3.jsonl --partial --out part.jsonl",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Write the results there; jsonl or yaml.")
@click.option("--partial", is_flag=True, help="Merge what is there, though shards are missing or incomplete.")
@click.option("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(files: tuple[Path, ...], out: Path, partial: bool, verbose: bool) -> None:
    """Join the results files of a run that was divided by 'agentv eval --shard'.

    Results are written in the order of dataset, id, target and trial, the same whatever the
    order of FILES. Exit code 0: all that the run should have is there, or --partial was
    given; 2: something is missing or does not fit together, and nothing is written.
    """
    print_warnings(verbose)
    gc.disable()  # there is nothing to find, in a million results
    _check_out(out, files)
    counted = _Counted()
    merge = Merge(files, partial=partial, on_results=counted.add)
    with keep_backup(out) as backup:
        write_atomically(out, _blocks(merge, format_for(out)))
    summary = counted.summary(merge, out)
    if backup is not None:
        tell(f"{out} was there already: it is now {backup}")
    for problem in merge.missing:
        place = f"{problem.file}: " if problem.file else ""
        tell(printable(f"warning: {place}{problem.message}"))
    if merge.repeated:
        tell(f"{_results(merge.repeated)} the same in two files, and counted once")
    print_lines(map(printable, [*summary_lines(summary, clean, out), "", f"Results: {out}"]))


def _results(count: int) -> str:
    return "1 result is" if count == 1 else f"{count} results are"


def _check_out(out: Path, files: Sequence[Path]) -> None:
    """Raise `OutputError` if the results would be written over one of the files, or cannot be a file."""
    if os.path.realpath(out) in map(os.path.realpath, files):
        raise OutputError("--out is one of the files to merge", file=out, hint="name another file")
    if out == Path("-"):
        raise OutputError("--out must be a file: the summary goes to stdout", hint="name a file, such as results.jsonl")
    if out.is_dir():
        raise OutputError("--out is a folder", file=out, hint=f"name a file in it: {out / 'results.jsonl'}")


class _Counted:
    """Counts results as they are read: nearly always, that is all that a summary needs."""

    def __init__(self) -> None:
        self._summary = Summary(0, 0, 1, clean)
        self._trials = 1

    def add(self, results: Sequence[CountedView]) -> None:
        self._summary.add_all(results)
        self._trials = max(self._trials, *[result.trial or 1 for result in results])

    def summary(self, merge: Merge, merged: Path) -> Summary:
        """Return the summary of what was merged."""
        summary = self._summary
        if self._trials > 1 or merge.repeated:  # trials belong together, and nothing counts twice
            summary = Summary(0, 0, self._trials, clean)
            for record in read_results(merged, CountedView):
                summary.add(record.view)
        results = merge.results - merge.repeated if merge.plan is None else merge.plan.cases
        summary.cases = -(-results // self._trials)
        return summary


def _blocks(merge: Merge, form: ResultFormat) -> Iterator[bytes]:
    """Yield the merged results, many at a time, without secrets."""
    lines = merge.lines()
    while batch := list(islice(lines, BATCH)):
        block = _masked(batch)
        yield block if form is JSONL else b"".join(map(form.encode, block.splitlines()))


def _masked(lines: Sequence[bytes]) -> bytes:
    block = b"".join(lines)
    text = block.decode()
    if clean(text) == text:
        return block
    return b"".join(msgspec.json.encode(clean.values(msgspec.json.decode(line))) + b"\n" for line in lines)
