"""A viewer beside a run: `agentv eval --view`.

It is a process of its own, so that reading results for a browser takes no time from the run, and nothing that breaks
there breaks here. It lives in a session of its own, since Ctrl-C is meant for the run. It ends when its stdin closes,
which happens however this process ends.
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


class NoViewer:
    """Nobody wants to look."""

    def show(self, results: Path) -> None:
        """Do nothing."""

    def stay(self) -> None:
        """Do nothing."""


class ViewerProcess:
    """Shows a results file while this process goes on."""

    def __init__(self, tell: Callable[[str], None]):
        self._tell = tell
        self._process: subprocess.Popen[str] | None = None

    def show(self, results: Path) -> None:
        """Start the viewer; what goes wrong is told, and is not the run's problem."""
        command = [sys.executable, "-m", "agentv", "view", "--beside", "--", str(results)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )
        except OSError as error:
            self._tell(f"warning: the viewer cannot be started: {error}")
            return
        threading.Thread(target=self._listen, name="agentv-view-output", daemon=True).start()

    def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self._process.stdout:
                self._tell(line.rstrip("\n"))

    def stay(self) -> None:
        """Go on until Ctrl-C is pressed, if somebody is at the terminal to press it."""
        if self._process is None or sys.stderr is None or not sys.stderr.isatty():
            return
        with end_on_ctrl_c() as ending:
            self._tell("the run is over; the viewer goes on until Ctrl-C")
            threading.Thread(target=self._wait, args=(self._process, ending.end), daemon=True).start()
            ending.wait()

    @staticmethod
    def _wait(process: "subprocess.Popen[str]", end: Callable[[], None]) -> None:
        process.wait()
        end()

    def stop(self) -> None:
        """End the viewer."""
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
def viewer_beside(tell: Callable[[str], None] | None) -> Iterator[NoViewer | ViewerProcess]:
    """Return what shows the results of a run inside this block: nothing, if there is nobody to tell its address."""
    if tell is None:
        yield NoViewer()
        return
    viewer = ViewerProcess(tell)
    with cleanup(viewer.stop):
        try:
            yield viewer
        finally:
            viewer.stop()
