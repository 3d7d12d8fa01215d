"""Checks the results files that the viewer was started with for invalid lines.

Each file is decoded once, at about 400 MB of JSON per second. Small files are checked before the viewer starts, so
that an invalid line is an error of the command. Large files are checked while they are shown, so that files of any
size open immediately. Their problems are reported when they are found, and do not stop the viewer.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from agentv.errors import ResultsError
from agentv.log import warn
from agentv.records import Problem
from agentv.results.formats import JSONL, YAML, format_for
from agentv.results.read import unreadable
from agentv.view.files import ResultsFile, stamp_of
from agentv.view.incremental_reader import FileProblems, IncrementalReader

FIRST_SECONDS = 0.4
"""Files whose check is estimated to take longer are checked while they are shown.

The estimate depends on file sizes only, so that it is deterministic.
"""
BYTES_PER_SECOND = {
    JSONL.name: 400e6,
    YAML.name: 2.5e6,
}
HINT = "fix or delete the line; 'agentv view FOLDER' shows the results that can be read"

IsRunning = Callable[[ResultsFile], bool]
OnProblems = Callable[[Sequence[Problem]], None]


@contextmanager
def checked(
    files: Sequence[ResultsFile],
    is_running: IsRunning,
    on_problems: OnProblems,
) -> Iterator[None]:
    """Check files before this block or, if that takes long, in a thread during the block.

    Problems that are found before the block raise `ResultsError`; later ones are passed to `on_problems`. A truncated
    result at the end is a warning, unless the file is still being written.
    """
    stop = threading.Event()
    seconds = sum(check_seconds(file) for file in files)
    if seconds <= FIRST_SECONDS:
        problems = _check_all(files, is_running, stop)
        if problems:
            raise ResultsError(problems)
        yield
        return

    def check() -> None:
        found = _check_all(files, is_running, stop)
        if found:
            on_problems(found)

    thread = threading.Thread(
        target=check,
        name="agentv-view-check",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def check_seconds(file: ResultsFile) -> float:
    """Return the estimated time to check a file, in seconds."""
    stamp = stamp_of(file.real)
    if stamp is None:
        return 0.0
    size = stamp.size
    form = format_for(file.real)
    return size / BYTES_PER_SECOND[form.name]


def find_file_problems(path: Path, stop: threading.Event | None = None) -> FileProblems:
    """Return the problems of a results file, or an empty result if `stop` is set in the meantime."""
    reader = IncrementalReader(path)
    try:
        reader.read_to_end(stop)
    except OSError as error:
        problem = Problem.of(unreadable(error, path))
        return FileProblems([problem], None)
    if stop is not None and stop.is_set():
        return FileProblems([], None)
    return reader.find_problems()


def _check_all(
    files: Sequence[ResultsFile],
    is_running: IsRunning,
    stop: threading.Event,
) -> list[Problem]:
    found: list[Problem] = []
    for file in files:
        stamp = stamp_of(file.real)
        problems = find_file_problems(file.real, stop)
        for problem in problems.errors:
            found.append(_named(problem, file))
        if problems.truncated is None:
            continue
        # A truncated last line is normal while a run is still writing the file.
        is_growing = stamp_of(file.real) != stamp or is_running(file)
        if not is_growing:
            warn(_named(problems.truncated, file))
    if found:
        last = found[-1]
        if not last.hint:
            found[-1] = msgspec.structs.replace(last, hint=HINT)
    return found


def _named(problem: Problem, file: ResultsFile) -> Problem:
    return msgspec.structs.replace(problem, file=file.path)
