"""Read the results of a run from a single file, or from several that are merged while they are read."""

import contextlib
import io
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agentv.errors import AgentvError, ResultsError
from agentv.log import warn
from agentv.records import Problem
from agentv.results.formats import DECODE_ERRORS
from agentv.results.merging.merge import READ_AHEAD, Merge
from agentv.results.read import StoredResult, View, read_result_blocks, read_results
from agentv.results.views import ResultRow
from agentv.text import join_names

SHOWN_FILES = 4
"""The maximum number of files in a message."""
RunFiles = Path | Sequence[Path]
"""The results file of a run, or several files to merge."""


def files_of(run: RunFiles) -> Sequence[Path]:
    """Return all results files of a run."""
    if isinstance(run, Path):
        return [run]
    return run


def name_of(run: RunFiles) -> Path:
    """Return the name of a run for messages: its file, or its first file and the number of others."""
    first, *others = files_of(run)
    if not others:
        return first
    return first.with_name(f"{first.name} and {len(others)} more")


def are_shards(paths: Sequence[Path]) -> bool:
    """Return whether files are different shards of one plan, by the first result of each; empty files are ignored."""
    shards: list[str | None] = []
    plans: set[str | None] = set()
    for path in paths:
        view = _first_view(path)
        if view is None:
            continue
        shards.append(view.shard)
        if view.plan is None:
            return False
        plans.add(view.plan.digest)
    are_different = len(set(shards)) == len(shards)
    return len(plans) == 1 and are_different


def check_one_run(paths: Sequence[Path]) -> None:
    """Raise `AgentvError` if several files are not shards of one run. Unreadable files are reported by `Merge`."""
    are_present = all(path.is_file() for path in paths)
    readable = [path for path in paths if _first_view(path) is not None]
    if are_present and len(readable) > 1 and not are_shards(readable):
        names = join_names([str(path) for path in readable], SHOWN_FILES, " and ")
        raise AgentvError(
            f"{names} are not shards of one run",
            hint="compare two runs with 'agentv report A --vs B', or with 'agentv compare A B'",
        )


def _first_view(path: Path) -> ResultRow | None:
    # problems are reported by the command that reads the whole file
    with contextlib.suppress(ResultsError):
        first_block = next(read_result_blocks(path, ResultRow, lambda _: None), None)
        if first_block is not None:
            return first_block.views[0]
    return None


def open_results(paths: Sequence[Path]) -> BinaryIO:
    """Open the results of a run as one file: a single file unchanged, several files merged. Raise as `Merge` does."""
    if len(paths) == 1:
        return paths[0].open("rb")
    merge = Merge(paths)
    stream = _Stream(merge.lines())
    return io.BufferedReader(stream, READ_AHEAD)


def read_views(
    run: RunFiles,
    view: type[View],
    on_truncated: Callable[[Problem], None] = warn,
    *,
    skip: Callable[[Sequence[View]], bool] | None = None,
) -> Iterator[View]:
    """Return an iterator over the views of a run, as `read_run` does without bytes.

    Blocks of a single file for which `skip` returns true are skipped.
    """
    paths = files_of(run)
    if len(paths) > 1:
        records = read_run(paths, view, on_truncated)
        return (record.view for record in records)
    blocks = read_result_blocks(
        paths[0],
        view,
        on_truncated,
        skip=skip,
    )
    # `chain` instead of a nested loop: it costs nothing per result
    return itertools.chain.from_iterable(block.views for block in blocks)


def read_run(
    paths: Sequence[Path],
    view: type[View],
    on_truncated: Callable[[Problem], None] = warn,
) -> Iterator[StoredResult[View]]:
    """Yield the results of a run, as `read_results` does: of a single file, or of several files merged."""
    if len(paths) == 1:
        yield from read_results(paths[0], view, on_truncated)
        return
    decode = msgspec.json.Decoder(view).decode
    merge = Merge(paths)
    for line in merge.lines():
        try:
            found = decode(line)
        except DECODE_ERRORS:
            # read each file again for an error with the file and line of the problem
            for path in paths:
                results = read_results(path, view)
                deque(results, maxlen=0)
            raise
        yield StoredResult(found, line)


class _Stream(io.RawIOBase):
    """A readable file that consists of the given lines."""

    def __init__(self, lines: Iterator[bytes]):
        self._lines = lines
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            line = next(self._lines, b"")
            self._rest = memoryview(line)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
