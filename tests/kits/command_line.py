"""The command line: in this process, as click's `CliRunner` runs it, or in a process of its own.

Most tests read what a command prints and writes, and its exit code. Importing agentv again for each of them would take
most of their time. Signals, limits of the process, variables that Python reads when it starts, and start-up itself need
a real process.
"""

import contextlib
import importlib
import io
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from tests.kits.processes import default_signals

PATIENCE_SECONDS = 300
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Prefixes of variables that have no effect on a process that is already running."""
INSTALLED = (sys.prefix, sys.base_prefix, str(Path(__file__).parent.parent.parent / "src"))
"""Where modules are that stay imported: all others belong to the project of a test."""
Ran = subprocess.CompletedProcess[str]


def run_in_process(args: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command of agentv in this process, and return its exit code and output."""
    assert threading.current_thread() is threading.main_thread(), "only a main thread handles signals"
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    stderr = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    with (
        _environment(env),
        contextlib.chdir(cwd or Path()),
        _logging(),
        _modules(),
        warnings.catch_warnings(),
        open(os.devnull) as stdin,
    ):
        warnings.simplefilter("ignore")  # those of users' functions and of SDKs are not errors of ours
        streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "__stdout__": stdout}
        with mock.patch.multiple(sys, argv=["agentv", *args], **streams):
            code = _run()
    return subprocess.CompletedProcess(args, code, _text(stdout), _text(stderr))


def run_apart(args: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command of agentv in a separate process, and return its exit code and output."""
    return subprocess.run(
        [sys.executable, "-m", "agentv", *args],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        preexec_fn=default_signals,
    )


def _run() -> int:
    from agentv.cli import run

    try:
        run()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@contextlib.contextmanager
def _environment(env: Mapping[str, str] | None) -> Iterator[None]:
    """Replace `os.environ` temporarily."""
    before = dict(os.environ)
    after = before if env is None else dict(env)
    started_with = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    assert not [name for name in started_with if name.startswith(READ_AT_START)], "needs a process of its own"
    with mock.patch.dict(os.environ, after, clear=True), mock.patch.object(tempfile, "tempdir", None):
        time.tzset()
        yield
    time.tzset()


@contextlib.contextmanager
def _logging() -> Iterator[None]:
    """Undo a command's changes to loggers."""
    loggers = [logging.getLogger(name) for name in ("agentv", "asyncio")]
    before = [(logger, logger.handlers[:], logger.level) for logger in loggers]
    try:
        yield
    finally:
        for logger, handlers, level in before:
            logger.handlers[:] = handlers
            logger.setLevel(level)


@contextlib.contextmanager
def _modules() -> Iterator[None]:
    """Forget the modules of the project afterwards: the next command may find other files there."""
    modules = set(sys.modules)
    path = sys.path[:]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if not _is_installed(name):
                del sys.modules[name]


def _is_installed(name: str) -> bool:
    module = sys.modules[name]
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return file is None or str(file).startswith(INSTALLED)
