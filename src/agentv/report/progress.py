"""Shows the progress of a run: a live view in a terminal, plain lines in a pipe."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from agentv.formats.printable import printable
from agentv.records import EvalResult
from agentv.redact import Redactor
from agentv.report.money import spent_text
from agentv.results.spending import Spending

LINE_SECONDS = 5.0
SHOWN_CASES = 3
SHOWN_WORKERS = 8


class ClusterState(Protocol):
    """What goes on in a cluster: cases in flight by worker, workers lost, chunks of cases sent again."""

    @property
    def in_flight(self) -> Mapping[str, int]: ...

    @property
    def lost(self) -> int: ...

    @property
    def sent_again(self) -> int: ...


class Progress:
    """Counts what is done; says nothing."""

    def __init__(self, clean: Redactor):
        self.total, self.done, self.clean = 0, 0, clean
        self.errors = 0
        self.scores = 0.0
        self.scored = 0
        self.at_work: dict[int, str] = {}
        self.spending = Spending()
        self.cluster: ClusterState | None = None
        self.start = time.monotonic()
        self._pace = self.start, 0
        """Since when cases have been coming in, and how many there were then: a batch is silent for long."""
        self._in_batch = False
        self.batches: dict[str, str] = {}
        """What vendors say of the batches of each target."""

    def started(self, worker: int, what: str) -> None:
        self.at_work[worker] = what
        if self._in_batch:
            self._pace, self._in_batch = (time.monotonic(), self.scored), False

    def batch_started(self, worker: int, target: str) -> None:
        self.started(worker, _batch_text(target))
        self._in_batch = True

    def batch_changed(self, target: str, text: str) -> None:
        self.batches.pop(target, None)
        if text:
            self.batches[target] = text
        self._in_batch = bool(self.batches)

    def batch_lines(self) -> list[str]:
        """Return what vendors say of batches, a line for each target."""
        return [f"target {target}: {text}" for target, text in self.batches.copy().items()]

    def retried(self, what: str, attempt: int, reason: str) -> None:
        """Nothing to count."""

    def finished(self, worker: int, result: EvalResult) -> None:
        self.at_work.pop(worker, None)
        self.done += 1
        self.scored += 1
        self.scores += result.score
        self.errors += result.error is not None
        self.spending.add(result)

    def cluster_changed(self, view: "ClusterState") -> None:
        self.cluster = view

    def worker_lost(self, name: str, in_flight: int) -> None:
        """Nothing to count."""

    def announce(self, text: str) -> None:
        """Say what is about to run."""

    def begin(self, total: int, done: int) -> None:
        """Begin to count: there are so many runs of cases, and so many of them are done already."""
        self.total, self.done = total, done
        self.start = time.monotonic()
        self._pace = self.start, 0

    def end(self) -> None:
        """Clear away what is shown."""

    def line(self) -> str:
        """Return how far the run is, in one line."""
        mean = f", mean {self.scores / self.scored:.3f}" if self.scored else ""
        errors = f", {self.errors} {'error' if self.errors == 1 else 'errors'}" if self.errors else ""
        elapsed = time.monotonic() - self.start
        since, before = self._pace
        fresh = self.scored - before
        seconds = (time.monotonic() - since) / max(fresh, 1) * (self.total - self.done)
        left = f", {_duration(seconds)} left" if fresh and self.done < self.total else ""
        spent = f", {text}" if (text := spent_text(self.spending)) else ""
        return f"{self.done}/{self.total} done{mean}{errors}{spent}, {_duration(elapsed)} elapsed{left}"

    def cluster_line(self) -> str:
        """Return what goes on in the cluster, in one line; empty if there is none."""
        view = self.cluster
        if view is None:
            return ""
        workers = [f"{name}: {count}" for name, count in view.in_flight.items()]
        more = f", and {len(workers) - SHOWN_WORKERS} more" if len(workers) > SHOWN_WORKERS else ""
        count = f"{len(workers)} {'worker' if len(workers) == 1 else 'workers'}"
        busy = f" ({', '.join(workers[:SHOWN_WORKERS])}{more} in flight)" if workers else ""
        lost = f", {view.lost} lost" if view.lost else ""
        again = f", {view.sent_again} {'chunk' if view.sent_again == 1 else 'chunks'} sent again" if lost else ""
        return f"{count}{busy}{lost}{again}"


class PlainProgress(Progress):
    """A line now and then, without control codes; at least one every ten seconds."""

    def __init__(self, clean: Redactor, stream: TextIO):
        super().__init__(clean)
        self._stream = stream
        self._next = self.start
        self._is_over = threading.Event()

    def announce(self, text: str) -> None:
        self._print(text)

    def begin(self, total: int, done: int) -> None:
        super().begin(total, done)
        threading.Thread(target=self._keep_talking, daemon=True, name="agentv-progress").start()

    def end(self) -> None:
        self._is_over.set()

    def _keep_talking(self) -> None:
        """Print a line whenever nothing has come in for a while: a case may take long."""
        while not self._is_over.wait(LINE_SECONDS):
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + LINE_SECONDS
                busy = ", ".join([case for _, case in sorted(self.at_work.copy().items())][:SHOWN_CASES])
                self._print(f"{self.line()}, running: {busy}" if busy else self._whole_line())

    def batch_started(self, worker: int, target: str) -> None:
        super().batch_started(worker, target)
        self._print(_batch_text(target))

    def batch_changed(self, target: str, text: str) -> None:
        is_first = target not in self.batches
        super().batch_changed(target, text)
        if text and is_first:
            self._print(*self.batch_lines()[-1:])

    def retried(self, what: str, attempt: int, reason: str) -> None:
        self._print(_retry_text(what, attempt, self.clean(reason)))

    def finished(self, worker: int, result: EvalResult) -> None:
        super().finished(worker, result)
        if time.monotonic() >= self._next or self.done == self.total:
            self._next = time.monotonic() + LINE_SECONDS
            self._print(self._whole_line())

    def worker_lost(self, name: str, in_flight: int) -> None:
        self._print(_lost_text(name, in_flight))

    def _whole_line(self) -> str:
        return "; ".join(filter(None, (self.line(), self.cluster_line(), *self.batch_lines())))

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody may be listening any more
            print(printable(self.clean(text)), file=self._stream, flush=True)


class LiveProgress(Progress):
    """A bar and what each worker is on, drawn anew a few times a second."""

    def __init__(self, clean: Redactor, stream: TextIO):
        super().__init__(clean)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=8, transient=True)

    def announce(self, text: str) -> None:
        self._console.print(printable(self.clean(text)), markup=False, highlight=False, soft_wrap=True)

    def begin(self, total: int, done: int) -> None:
        super().begin(total, done)
        self._live.start()

    def end(self) -> None:
        self._live.stop()

    def retried(self, what: str, attempt: int, reason: str) -> None:
        self._console.print(
            printable(self.clean(_retry_text(what, attempt, self.clean(reason)))), markup=False, highlight=False
        )

    def worker_lost(self, name: str, in_flight: int) -> None:
        self._console.print(printable(self.clean(_lost_text(name, in_flight))), markup=False, highlight=False)

    def _view(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        view = Table.grid()
        view.add_column(no_wrap=True, overflow="ellipsis")
        view.add_row(ProgressBar(total=max(self.total, 1), completed=self.done, width=min(self._console.width, 60)))
        view.add_row(Text(self.line()))
        if cluster := self.cluster_line():
            view.add_row(Text(printable(self.clean(cluster))))
        for line in self.batch_lines():
            view.add_row(Text(printable(self.clean(line))))
        for number, case in sorted(self.at_work.items())[: max(1, self._console.height - 4)]:
            view.add_row(Text(printable(self.clean(f"  {number + 1:2} {case}"))))
        return view


def progress_for(clean: Redactor, stream: TextIO | None = None) -> Progress:
    """The view that suits where it is seen."""
    stream = stream or sys.stderr
    if stream is None:  # a process may be started without any stderr
        return Progress(clean)
    is_live = stream.isatty() and os.environ.get("TERM") != "dumb"
    return LiveProgress(clean, stream) if is_live else PlainProgress(clean, stream)


def _batch_text(target: str) -> str:
    return f"target {target} is answering its cases in one batch"


def _retry_text(what: str, attempt: int, reason: str) -> str:
    return f"{what}: attempt {attempt} failed, trying again: {' '.join(reason.split())}"


def _lost_text(name: str, in_flight: int) -> str:
    return f"worker {name} is lost: {in_flight} in flight there, and what it had goes to the others"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
