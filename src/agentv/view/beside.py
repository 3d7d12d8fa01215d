"""A viewer beside a run: `agentv eval --view`.

It is a process of its own, so that reading results for a browser takes no time from the run, and nothing that breaks
there breaks here. It lives in a session of its own, since Ctrl-C is meant for the run. It ends when its stdin closes,
which happens however this process ends.
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

END_SECONDS = 10.0


class ViewerProcess:
    """Shows a results file while this process goes on."""

    def __init__(self, tell: Callable[[str], None]):
        self._tell = tell
        self._process: subprocess.Popen[str] | None = None

    def start(self, results: Path) -> None:
        """Start the viewer; what goes wrong is told, and is not the run's problem."""
        command = [sys.executable, "-m", "agentv", "view", "--beside", "--", str(results)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
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

    @property
    def is_running(self) -> bool:
        """Whether there is a viewer."""
        return self._process is not None and self._process.poll() is None

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
