"""Results files -> what is wrong with them.

A file that was named is read to its end once, which only decodes: 400 MB of JSON a second. What takes a moment is done
before the address is known, so that a bad line is an error of the command. What takes longer is done while the file is
shown, so that files of any size open at once; then nothing ends a viewer that somebody may be looking at, and the
problems are told as soon as they are found.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import ResultsError
from agentv.notices import warn
from agentv.records import Problem
from agentv.results.formats import JSONL, YAML, format_for
from agentv.results.read import read_result_blocks
from agentv.results.views import PageView
from agentv.view.files import ResultsFile, stamp_of

FIRST_SECONDS = 0.4
"""What is expected to take longer is checked while it is shown; it goes by sizes, so it is always the same."""
BYTES_A_SECOND = {JSONL.name: 400e6, YAML.name: 2.5e6}
HINT = "mend the line or take it out; 'agentv view' with the folder shows what can be read"

IsRunning = Callable[[ResultsFile], bool]
OnProblems = Callable[[Sequence[Problem]], None]


@contextmanager
def checked(files: Sequence[ResultsFile], is_running: IsRunning, on_problems: OnProblems) -> Iterator[None]:
    """Check files, before this block or, if that takes long, inside of it.

    Raise `ResultsError` with what is wrong before the block begins; inside of it, `on_problems` is told. A torn result
    at the end is a warning, unless the file is still written.
    """
    stop = threading.Event()
    if sum(map(check_seconds, files)) <= FIRST_SECONDS:
        if problems := _check_all(files, is_running, stop):
            raise ResultsError(problems)
        yield
        return

    def check() -> None:
        if problems := _check_all(files, is_running, stop):
            on_problems(problems)

    thread = threading.Thread(target=check, name="agentv-view-check", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def check_seconds(file: ResultsFile) -> float:
    """Return about how long it takes to check a file."""
    stamp = stamp_of(file.real)
    return 0.0 if stamp is None else stamp[2] / BYTES_A_SECOND[format_for(file.real).name]


def find_problems(path: Path, on_torn: Callable[[Problem], Any], stop: threading.Event | None = None) -> list[Problem]:
    """Return all lines of a results file that are no results; none if `stop` is set meanwhile."""
    try:
        for _ in read_result_blocks(path, PageView, on_torn):
            if stop is not None and stop.is_set():
                return []
    except ResultsError as error:
        return list(error.problems)
    return []


def _check_all(files: Sequence[ResultsFile], is_running: IsRunning, stop: threading.Event) -> list[Problem]:
    found: list[Problem] = []
    for file in files:
        before, torn = stamp_of(file.real), list[Problem]()
        found += [_named(each, file) for each in find_problems(file.real, torn.append, stop)]
        if torn and not stop.is_set() and stamp_of(file.real) == before and not is_running(file):
            warn(_named(torn[0], file))
    if found and not found[-1].hint:
        found[-1] = msgspec.structs.replace(found[-1], hint=HINT)
    return found


def _named(problem: Problem, file: ResultsFile) -> Problem:
    return msgspec.structs.replace(problem, file=file.path)
