"""Run the selected trials of each eval file once, in the process that reaches them first.

The results of each eval file are written to a part file, in a folder that all processes share. The process that holds
the lock of a part runs its cases; the others wait and read the part. At the end, the parts are joined into one results
file.
"""

import asyncio
import fcntl
import shutil
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from agentv.errors import AgentvError
from agentv.files.atomic_files import write_atomically
from agentv.files.state import state_folder
from agentv.records import Json, ResultKey
from agentv.results.formats import JSONL
from agentv.results.read import read_records
from agentv.results.runs import new_run_id
from agentv.results.views import ResultRow
from agentv.run.evaluate import evaluate
from agentv.run.options import EvalOptions, OutputOptions, RunOptions, SelectionOptions
from agentv.run.progress import Progress

T = TypeVar("T")
MAX_WORKERS = 50


class Runs:
    """The runs of a session, or of one process of a session with several."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._root = config.rootpath
        self._name = new_run_id()
        worker_input = getattr(config, "workerinput", {})  # set in a worker of pytest-xdist
        given: str | None = worker_input.get("agentv_parts")
        self._is_worker = given is not None
        folder = self._root / state_folder("pytest")
        self.parts = folder / self._name
        """The folder for partial results."""
        if given:
            self.parts = Path(given)
        self.results: Path | None = None
        """The file with all results, once it is written."""
        self.trials = number(config, "agentv_trials", most=None) or 1
        self._workers = number(config, "agentv_workers", most=MAX_WORKERS)
        self._selected: dict[Path, set[ResultKey]] = {}
        self._found: dict[Path, dict[ResultKey, bytes] | AgentvError] = {}

    def select(self, items: Sequence[pytest.Item]) -> None:
        """Select the trials of these items."""
        for item in items:
            key: ResultKey | None = getattr(item, "key", None)
            if key is None:
                continue  # an ordinary test
            trials = self._selected.setdefault(item.path, set())
            trials.add(key)

    def result(self, path: Path, key: ResultKey) -> Json | AgentvError:
        """Return the result of a trial. The first call for a file runs all its selected cases.

        Return the error if the file cannot be run, or if the run has no result for the trial.
        """
        if path not in self._found:
            try:
                self._found[path] = self._run(path)
            except AgentvError as error:
                self._found[path] = error
        found = self._found[path]
        if isinstance(found, AgentvError):
            return found
        if key not in found:
            return AgentvError(f"no result for {key.eval_id!r}: the run was stopped")
        result: Json = msgspec.json.decode(found[key])
        return result

    def _run(self, path: Path) -> dict[ResultKey, bytes]:
        """Return the records of a file's results by their keys; run the file unless another process has done so."""
        self.parts.mkdir(parents=True, exist_ok=True)
        encoded_path = str(path).encode()
        path_hash = blake2b(encoded_path, digest_size=8)
        part = self.parts / f"{path_hash.hexdigest()}.jsonl"
        done = part.with_suffix(".done")
        lock_file = part.with_suffix(".lock")
        with lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                self._evaluate(path, part)
                done.touch()
        results: dict[ResultKey, bytes] = {}
        for record in read_records(part, ResultRow, JSONL):
            key = record.view.trial_key
            results[key] = record.raw
        return results

    def _evaluate(self, path: Path, part: Path) -> None:
        target = self._config.getini("agentv_target")
        selected = []
        for key in sorted(self._selected.get(path, ())):
            selected.append((key.dataset, key.eval_id, key.trial))
        options = EvalOptions(
            paths=(str(path),),
            selection=SelectionOptions(
                target=target or None,
                only=tuple(selected),
            ),
            run=RunOptions(
                trials=self.trials,
                workers=self._workers,
            ),
            output=OutputOptions(
                out=part,
                resume=part.exists(),
            ),
        )
        report = wait_for(lambda: evaluate(options, None, Progress()))
        if report.error is not None:
            raise report.error

    def finish(self) -> None:
        """Join the parts into one results file, unless this is a worker process."""
        if self._is_worker or not self.parts.is_dir():
            return
        found = self.parts.glob("*.jsonl")
        parts = sorted(found)
        has_results = any(part.stat().st_size for part in parts)
        if has_results:
            folder = self._root / state_folder("results")
            self.results = folder / f"eval_{self._name}.jsonl"
            contents = (part.read_bytes() for part in parts)
            write_atomically(self.results, contents)
        shutil.rmtree(self.parts, ignore_errors=True)
        with suppress(OSError):  # not empty: another session uses the folder
            self.parts.parent.rmdir()


def number(config: pytest.Config, name: str, *, most: int | None) -> int | None:
    """Return a positive integer setting of the ini file, or None if it is not set.

    Raise `pytest.UsageError` if it is not a positive integer, or greater than `most`.
    """
    setting = config.getini(name) or ""
    text = str(setting).strip()
    if not text:
        return None
    if text.isdecimal():
        value = int(text)
        is_too_great = most is not None and value > most
        if value >= 1 and not is_too_great:
            return value
    bounds = "1 or greater"
    if most is not None:
        bounds = f"from 1 to {most}"
    raise pytest.UsageError(f"{name} = {text}: expected an integer {bounds}")


def wait_for(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine and return its result; if an event loop is already running, use another thread."""
    if not _is_loop_running():
        return asyncio.run(start())
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result = asyncio.run(start())
            results.append(result)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
