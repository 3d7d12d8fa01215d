"""Starts a viewer next to a run: `agentv eval --view`.

The viewer is a separate process, so that it neither slows down the run nor affects it when it fails. It has its own
session, since Ctrl-C is meant for the run. It exits when its stdin is closed, which happens no matter how the process
of the run ends.
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentv.processes.interrupts import cleanup, end_on_ctrl_c

END_SECONDS = 10.0


class NullViewer:
    """Does nothing: the run was started without a viewer."""

    def show(self, results: Path) -> None:
        """Do nothing."""

    def stay(self) -> None:
        """Do nothing."""


class ViewerProcess:
    """A viewer in a child process. `tell` is called with each line that it prints."""

    def __init__(self, tell: Callable[[str], None]):
        self._tell = tell
        self._process: subprocess.Popen[str] | None = None

    def show(self, results: Path) -> None:
        """Start the viewer for a results file. If it cannot be started, warn; the run continues."""
        command = [sys.executable, "-m", "agentv", "view", "--beside", "--", str(results)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            self._tell(f"warning: the viewer cannot be started: {error}")
            return
        thread = threading.Thread(
            target=self._forward_output,
            name="agentv-view-output",
            daemon=True,
        )
        thread.start()

    def _forward_output(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self._process.stdout:
                self._tell(line.rstrip("\n"))

    def stay(self) -> None:
        """Wait for Ctrl-C or the end of the viewer. Without a terminal, return immediately."""
        if self._process is None or sys.stderr is None or not sys.stderr.isatty():
            return
        with end_on_ctrl_c() as ending:
            self._tell("the run has ended; press Ctrl-C to stop the viewer")
            thread = threading.Thread(
                target=self._wait,
                args=(self._process, ending.end),
                daemon=True,
            )
            thread.start()
            ending.wait()

    @staticmethod
    def _wait(process: "subprocess.Popen[str]", end: Callable[[], None]) -> None:
        process.wait()
        end()

    def stop(self) -> None:
        """Stop the viewer; kill it if it does not exit in time."""
        if self._process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def open_viewer(tell: Callable[[str], None] | None) -> Iterator[NullViewer | ViewerProcess]:
    """Return a viewer that is stopped when the block ends, or a `NullViewer` if `tell` is None."""
    if tell is None:
        yield NullViewer()
        return
    viewer = ViewerProcess(tell)
    with cleanup(viewer.stop):
        try:
            yield viewer
        finally:
            viewer.stop()
