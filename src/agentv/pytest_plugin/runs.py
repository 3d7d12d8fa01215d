"""What a session runs: the selected cases of each eval file, once, by whichever process reaches them first.

Each file's results are a part of their own, in a folder that all processes share. Who holds the lock of a part runs it;
the others wait, and read it. In the end the parts become one results file.
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
from agentv.results.formats import JSONL
from agentv.results.read import read_records
from agentv.results.runs import new_run_id
from agentv.results.views import TrialView
from agentv.run.evaluate import EvalOptions, evaluate
from agentv.run.watching.watcher import Silence
from agentv.system.atomic_files import write_atomically

T = TypeVar("T")
Key = tuple[str, str, int]
"""The dataset, the id and the trial."""
MAX_WORKERS = 50


class Runs:
    """The runs of a session, or of one process of it."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._root = config.rootpath
        given: str | None = getattr(config, "workerinput", {}).get("agentv_parts")
        self._is_worker = given is not None
        self._name = new_run_id()
        self.parts = Path(given) if given else self._root / ".agentv" / "pytest" / self._name
        self.results: Path | None = None
        """The file that all results are in, once there is one."""
        self.trials = number(config, "agentv_trials", most=None) or 1
        self._workers = number(config, "agentv_workers", most=MAX_WORKERS)
        self._selected: dict[Path, set[tuple[str, str]]] = {}
        self._found: dict[Path, dict[Key, bytes] | AgentvError] = {}

    def select(self, items: Sequence[pytest.Item]) -> None:
        """Note the cases that will be reported."""
        for item in items:
            if (key := getattr(item, "key", None)) is not None:
                self._selected.setdefault(item.path, set()).add(key[:2])

    def result(self, path: Path, key: Key) -> dict[str, Any] | AgentvError:
        """Return the result of a trial of a case, which is run now, with all others of its file, if it was not yet.

        If the file cannot be run, return why not.
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
            return AgentvError(f"there is no result of {key[1]!r}: the run was stopped")
        result: dict[str, Any] = msgspec.json.decode(found[key])
        return result

    def _run(self, path: Path) -> dict[Key, bytes]:
        self.parts.mkdir(parents=True, exist_ok=True)
        part = self.parts / f"{blake2b(str(path).encode(), digest_size=8).hexdigest()}.jsonl"
        done = part.with_suffix(".done")
        with part.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                self._evaluate(path, part)
                done.touch()
        return {record.view.trial_key: record.raw for record in read_records(part, TrialView, JSONL)}

    def _evaluate(self, path: Path, part: Path) -> None:
        options = EvalOptions(
            paths=(str(path),),
            only=tuple(sorted(self._selected.get(path, ()))),
            target=self._config.getini("agentv_target") or None,
            workers=self._workers,
            trials=self.trials,
            out=part,
            resume=part.exists(),
        )
        report = wait_for(lambda: evaluate(options, None, Silence()))
        if report.error is not None:
            raise report.error

    def finish(self) -> None:
        """Join the parts into one results file, unless this is one of several processes."""
        if self._is_worker or not self.parts.is_dir():
            return
        parts = sorted(self.parts.glob("*.jsonl"))
        if any(part.stat().st_size for part in parts):
            self.results = self._root / ".agentv" / "results" / f"eval_{self._name}.jsonl"
            write_atomically(self.results, (part.read_bytes() for part in parts))
        shutil.rmtree(self.parts, ignore_errors=True)
        with suppress(OSError):  # another session may use it
            self.parts.parent.rmdir()


def number(config: pytest.Config, name: str, *, most: int | None) -> int | None:
    """Return a whole number of the ini file, None if it has none; raise `pytest.UsageError` if it is no such number."""
    text = str(config.getini(name) or "").strip()
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= (most or int(text)):
        bounds = f"from 1 to {most}" if most else "from 1 on"
        raise pytest.UsageError(f"{name} = {text}: it must be a whole number {bounds}")
    return int(text)


def wait_for(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine gives; where a loop is running already, it runs in a thread of its own."""
    if not _is_loop_running():
        return asyncio.run(start())
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(start()))
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
