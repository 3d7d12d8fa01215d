"""`agentv merge`."""

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from agentv.cli.help import Command
from agentv.cli.messages import print_lines, print_warnings, tell
from agentv.errors import OutputError, ResultsError
from agentv.formats.printable import printable
from agentv.redact import clean
from agentv.report.summary import summary_lines
from agentv.results.formats import JSONL, ResultFormat, format_for
from agentv.results.merge import Merge, find_problems
from agentv.results.summary import Summary
from agentv.results.views import EarlierView
from agentv.results.write import keep_backup
from agentv.system.atomic_files import write_atomically

BATCH = 256


@click.command(
    cls=Command,
    examples=(
        "agentv merge shard-*.jsonl --out results.jsonl",
        "agentv merge shard-1.jsonl shard-3.jsonl --partial --out some.jsonl",
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
    merge = Merge(files, partial=partial)
    summary = Summary(0, 0, merge.trials, clean)
    with keep_backup(out) as backup:
        write_atomically(out, _blocks(merge, summary, format_for(out)))
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
    if out.is_dir():
        raise OutputError("--out is a folder", file=out, hint=f"name a file in it: {out / 'results.jsonl'}")


def _blocks(merge: Merge, summary: Summary, form: ResultFormat) -> Iterator[bytes]:
    """Yield the merged results, many at a time, without secrets; count them in the summary."""
    decode = msgspec.json.Decoder(EarlierView).decode_lines
    batch: list[bytes] = []
    last = None
    for line in _with_end(merge.lines()):
        if line is not None:
            batch.append(line)
            if len(batch) < BATCH:
                continue
        block = _masked(batch)
        try:
            views = decode(block)
        except msgspec.MsgspecError as error:
            raise ResultsError([found for path in merge.paths for found in find_problems(path, EarlierView)]) from error
        for view in views:
            summary.add(view)
            if (case := (view.dataset, view.eval_id, view.target)) != last:
                last, summary.cases = case, summary.cases + 1
        yield block if form is JSONL else b"".join(map(form.encode, block.splitlines()))
        batch.clear()
    if merge.plan is not None:
        summary.cases = -(-merge.plan.cases // merge.trials)


def _with_end(lines: Iterator[bytes]) -> Iterator[bytes | None]:
    yield from lines
    yield None


def _masked(lines: Sequence[bytes]) -> bytes:
    block = b"".join(lines)
    text = block.decode()
    if clean(text) == text:
        return block
    return b"".join(msgspec.json.encode(clean.values(msgspec.json.decode(line))) + b"\n" for line in lines)
