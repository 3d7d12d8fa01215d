"""Show the progress of a run: a live view in a terminal, plain lines in a pipe."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TextIO

from agentv.formats.printable import printable
from agentv.records import EvalResult
from agentv.redact import Redactor
from agentv.report.money import spent_text
from agentv.report.quantities import counted
from agentv.results.spending import Spending

LINE_SECONDS = 5.0
"""The interval between plain lines."""
SHOWN_CASES = 3
SHOWN_WORKERS = 8
BAR_WIDTH = 60


class ClusterState(Protocol):
    """The state of a cluster: cases in flight by worker, lost workers, and chunks of cases that were sent again."""

    @property
    def in_flight(self) -> Mapping[str, int]: ...

    @property
    def lost(self) -> int: ...

    @property
    def sent_again(self) -> int: ...


class _Pace(NamedTuple):
    """When the current stretch of results began, and how many results there were by then."""

    since: float
    scored: int


class Progress:
    """Count the finished cases of a run without showing anything."""

    def __init__(self, clean: Redactor):
        self.clean = clean
        self.total = 0
        self.done = 0
        """Finished cases, including those of an earlier run that is resumed."""
        self.errors = 0
        self.scores = 0.0
        self.scored = 0
        """Finished cases of this run."""
        self.at_work: dict[int, str] = {}
        """The case that each worker is running."""
        self.spending = Spending()
        self.cluster: ClusterState | None = None
        self.start = time.monotonic()
        # No results arrive while a vendor's batch is pending, so the pace is measured anew after each batch.
        self._pace = _Pace(self.start, 0)
        self._in_batch = False
        self.batches: dict[str, str] = {}
        """The status of the vendor's batches of each target."""

    def started(self, worker: int, what: str) -> None:
        """Record the case that a worker starts."""
        self.at_work[worker] = what
        if self._in_batch:
            self._pace = _Pace(time.monotonic(), self.scored)
            self._in_batch = False

    def batch_started(self, worker: int, target: str) -> None:
        """Record that a target answers all its cases in one batch."""
        self.started(worker, _batch_text(target))
        self._in_batch = True

    def batch_changed(self, target: str, text: str) -> None:
        """Record the status of the vendor's batches of a target. An empty text means that all are answered."""
        self.batches.pop(target, None)
        if text:
            self.batches[target] = text
        self._in_batch = bool(self.batches)

    def batch_lines(self) -> list[str]:
        """Return one line per target with the status of its batches."""
        batches = self.batches.copy()  # another thread may change it
        return [f"target {target}: {text}" for target, text in batches.items()]

    def retried(self, what: str, attempt: int, reason: str) -> None:
        """Report a retry."""

    def finished(self, worker: int, result: EvalResult) -> None:
        """Count a result."""
        self.at_work.pop(worker, None)
        self.done += 1
        self.scored += 1
        self.scores += result.score
        if result.error is not None:
            self.errors += 1
        self.spending.add(result)

    def cluster_changed(self, view: ClusterState) -> None:
        """Record the state of the cluster."""
        self.cluster = view

    def worker_lost(self, name: str, in_flight: int) -> None:
        """Report that a worker of the cluster is lost."""

    def announce(self, text: str) -> None:
        """Report what is about to run."""

    def begin(self, total: int, done: int) -> None:
        """Start the clock. `total` is the number of runs of cases, of which `done` are finished already."""
        self.total = total
        self.done = done
        self.start = time.monotonic()
        self._pace = _Pace(self.start, 0)

    def end(self) -> None:
        """Remove everything that is shown."""

    def line(self) -> str:
        """Return the state of the run in one line."""
        now = time.monotonic()
        parts = [f"{self.done}/{self.total} done"]
        if self.scored:
            parts.append(f"mean {self.scores / self.scored:.3f}")
        if self.errors:
            parts.append(counted(self.errors, "error"))
        spent = spent_text(self.spending)
        if spent:
            parts.append(spent)
        parts.append(f"{_duration(now - self.start)} elapsed")
        pace = self._pace
        fresh = self.scored - pace.scored
        if fresh and self.done < self.total:
            seconds_per_case = (now - pace.since) / fresh
            seconds_left = seconds_per_case * (self.total - self.done)
            parts.append(f"{_duration(seconds_left)} left")
        return ", ".join(parts)

    def cluster_line(self) -> str:
        """Return the state of the cluster in one line, or an empty string without a cluster."""
        cluster = self.cluster
        if cluster is None:
            return ""
        workers = [f"{name}: {count}" for name, count in cluster.in_flight.items()]
        line = counted(len(workers), "worker")
        if workers:
            shown = ", ".join(workers[:SHOWN_WORKERS])
            more = len(workers) - SHOWN_WORKERS
            if more > 0:
                shown += f", and {more} more"
            line += f" ({shown} in flight)"
        if cluster.lost:
            line += f", {cluster.lost} lost, {counted(cluster.sent_again, 'chunk')} sent again"
        return line


class PlainProgress(Progress):
    """Print a line every few seconds, without control codes."""

    def __init__(self, clean: Redactor, stream: TextIO):
        super().__init__(clean)
        self._stream = stream
        self._next = self.start
        """When the next line is due."""
        self._is_over = threading.Event()

    def announce(self, text: str) -> None:
        self._print(text)

    def begin(self, total: int, done: int) -> None:
        super().begin(total, done)
        thread = threading.Thread(
            target=self._print_regularly,
            daemon=True,
            name="agentv-progress",
        )
        thread.start()

    def end(self) -> None:
        self._is_over.set()

    def _print_regularly(self) -> None:
        """Print a line if no result has arrived for a while: a case may take long."""
        while not self._is_over.wait(LINE_SECONDS):
            now = time.monotonic()
            if now < self._next:
                continue
            self._next = now + LINE_SECONDS
            running = sorted(self.at_work.copy().items())
            cases = [case for _, case in running[:SHOWN_CASES]]
            if cases:
                self._print(f"{self.line()}, running: {', '.join(cases)}")
            else:
                self._print(self._full_line())

    def batch_started(self, worker: int, target: str) -> None:
        super().batch_started(worker, target)
        self._print(_batch_text(target))

    def batch_changed(self, target: str, text: str) -> None:
        is_first = target not in self.batches
        super().batch_changed(target, text)
        if text and is_first:
            newest = self.batch_lines()[-1]
            self._print(newest)

    def retried(self, what: str, attempt: int, reason: str) -> None:
        self._print(_retry_text(what, attempt, self.clean(reason)))

    def finished(self, worker: int, result: EvalResult) -> None:
        super().finished(worker, result)
        now = time.monotonic()
        if now >= self._next or self.done == self.total:
            self._next = now + LINE_SECONDS
            self._print(self._full_line())

    def worker_lost(self, name: str, in_flight: int) -> None:
        self._print(_lost_text(name, in_flight))

    def _full_line(self) -> str:
        parts = [self.line(), self.cluster_line(), *self.batch_lines()]
        return "; ".join(filter(None, parts))

    def _print(self, text: str) -> None:
        line = printable(self.clean(text))
        with contextlib.suppress(OSError, ValueError):  # the reader may have closed the stream
            print(line, file=self._stream, flush=True)


class LiveProgress(Progress):
    """Show a bar and the case of each worker, redrawn a few times per second."""

    def __init__(self, clean: Redactor, stream: TextIO):
        super().__init__(clean)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live = Live(
            get_renderable=self._view,
            console=self._console,
            refresh_per_second=8,
            transient=True,
        )

    def announce(self, text: str) -> None:
        self._print(text, soft_wrap=True)

    def begin(self, total: int, done: int) -> None:
        super().begin(total, done)
        self._live.start()

    def end(self) -> None:
        self._live.stop()

    def retried(self, what: str, attempt: int, reason: str) -> None:
        self._print(_retry_text(what, attempt, self.clean(reason)))

    def worker_lost(self, name: str, in_flight: int) -> None:
        self._print(_lost_text(name, in_flight))

    def _print(self, text: str, *, soft_wrap: bool = False) -> None:
        """Print a line above the live view."""
        self._console.print(
            printable(self.clean(text)),
            markup=False,
            highlight=False,
            soft_wrap=soft_wrap,
        )

    def _view(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        view = Table.grid()
        view.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(
            total=max(self.total, 1),
            completed=self.done,
            width=min(self._console.width, BAR_WIDTH),
        )
        view.add_row(bar)
        view.add_row(Text(self.line()))
        cluster = self.cluster_line()
        if cluster:
            view.add_row(Text(printable(self.clean(cluster))))
        for line in self.batch_lines():
            view.add_row(Text(printable(self.clean(line))))
        max_cases = max(1, self._console.height - 4)
        running = sorted(self.at_work.items())
        for number, case in running[:max_cases]:
            line = f"  {number + 1:2} {case}"
            view.add_row(Text(printable(self.clean(line))))
        return view


def progress_for(clean: Redactor, stream: TextIO | None = None) -> Progress:
    """Return the progress view for a stream, which defaults to stderr."""
    stream = stream or sys.stderr
    if stream is None:  # a process may be started without stderr
        return Progress(clean)
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return LiveProgress(clean, stream)
    return PlainProgress(clean, stream)


def _batch_text(target: str) -> str:
    return f"target {target} is answering its cases in one batch"


def _retry_text(what: str, attempt: int, reason: str) -> str:
    one_line = " ".join(reason.split())
    return f"{what}: attempt {attempt} failed, trying again: {one_line}"


def _lost_text(name: str, in_flight: int) -> str:
    return f"worker {name} is lost: {in_flight} in flight there, and what it had goes to the others"


def _duration(seconds: float) -> str:
    """Return a duration as `h:mm:ss`, or `m:ss` below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"
