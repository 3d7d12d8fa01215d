"""Show the progress of a run: a live view in a terminal, plain lines in a pipe."""

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from agentv.files.printable import printable
from agentv.records import EvalResult
from agentv.redact import Redactor
from agentv.report.layout import wrap
from agentv.report.live_view import LiveView, ViewContent
from agentv.report.money import spent_text
from agentv.results.spending import Spending
from agentv.run.progress import ClusterState, Progress
from agentv.text import join_names, plural, truncate

LINE_SECONDS = 5.0
"""The interval between plain lines."""
SHOWN_CASES = 3
SAME_RETRIES = 3
"""How many retries for the same reason have plain lines of their own."""
SHOWN_RETRIES = 20
"""How many retries have plain lines of their own in all."""
SHOWN_REASONS = 3
REASON_CHARACTERS = 200
SHOWN_WORKERS = 8
DUMB_TERMINALS = ("dumb", "unknown")


class _Pace(NamedTuple):
    """When the current stretch of results began, and how many results there were by then."""

    since: float
    scored: int


class CountingProgress(Progress):
    """Count the finished cases of a run without showing anything."""

    def __init__(self, clean: Redactor):
        self.clean = clean
        self.total: int | None = 0
        """The number of cases of the run; None as long as an iterable may yield more."""
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

    def finished(self, worker: int, result: EvalResult) -> None:
        """Count a result."""
        self.at_work.pop(worker, None)
        self.done += 1
        if result.failure != "machine":
            self.scored += 1
            self.scores += result.score
        if result.error is not None:
            self.errors += 1
        self.spending.add(result)

    def cluster_changed(self, state: ClusterState) -> None:
        """Record the state of the cluster."""
        self.cluster = state

    def begin(self, total: int | None, done: int) -> None:
        """Start the clock. `total` is the number of runs of cases, if known, of which `done` are finished already."""
        self.total = total
        self.done = done
        self.start = time.monotonic()
        self._pace = _Pace(self.start, 0)

    def line(self) -> str:
        """Return the state of the run in one line."""
        now = time.monotonic()
        parts = [f"{self.done:,} done"]
        if self.total is not None:
            parts = [f"{self.done}/{self.total} done"]
        if self.scored:
            parts.append(f"mean {self.scores / self.scored:.3f}")
        if self.errors:
            parts.append(plural(self.errors, "error"))
        spent = spent_text(self.spending)
        if spent:
            parts.append(spent)
        parts.append(f"{_duration(now - self.start)} elapsed")
        pace = self._pace
        fresh = self.scored - pace.scored
        if fresh and self.total is not None and self.done < self.total:
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
        line = plural(len(workers), "worker")
        if workers:
            shown = join_names(workers, SHOWN_WORKERS, ", and ")
            line += f" ({shown} in flight)"
        if cluster.lost:
            line += f", {cluster.lost} lost, {plural(cluster.sent_again, 'chunk')} resent"
        return line


class PlainProgress(CountingProgress):
    """Print a line every few seconds, without control codes."""

    def __init__(self, clean: Redactor, stream: TextIO):
        super().__init__(clean)
        self._stream = stream
        self._next = self.start
        """When the next line is due."""
        self._is_over = threading.Event()
        self._has_ended = False
        self._shown_retries: Counter[str] = Counter()
        """The retries with a line of their own, by reason."""
        self._other_retries: Counter[str] = Counter()
        """The retries since the last line about them, by reason."""

    def announce(self, text: str) -> None:
        self._print(text)

    def begin(self, total: int | None, done: int) -> None:
        super().begin(total, done)
        thread = threading.Thread(
            target=self._print_regularly,
            daemon=True,
            name="agentv-progress",
        )
        with contextlib.suppress(RuntimeError):  # without a thread, lines appear only when results arrive
            thread.start()

    def end(self) -> None:
        # The handler of a signal may call this in the middle of a call, and the event's lock is not reentrant.
        if not self._has_ended:
            self._has_ended = True
            self._print_other_retries()
            if self.total is None and self.done:
                self._print(self._full_line())  # no result was known to be the last one
            self._is_over.set()

    def _print_regularly(self) -> None:
        """Print a line if no result has arrived for a while: a case may take long."""
        while not self._is_over.wait(LINE_SECONDS):
            now = time.monotonic()
            if now < self._next:
                continue
            self._next = now + LINE_SECONDS
            self._print_other_retries()
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
        """Print a retry, unless there were many: those are counted, and printed with the regular lines."""
        text = " ".join(self.clean(reason).split())
        is_known = self._shown_retries[text] >= SAME_RETRIES
        if is_known or self._shown_retries.total() >= SHOWN_RETRIES:
            self._other_retries[truncate(text, REASON_CHARACTERS)] += 1
            return
        self._shown_retries[text] += 1
        self._print(_retry_text(what, attempt, text))

    def _print_other_retries(self) -> None:
        """Print how many retries there were since the last time, and why."""
        counts = self._other_retries
        if not counts:
            return
        self._other_retries = Counter()
        reasons = [f"{reason} ({count})" for reason, count in counts.most_common(SHOWN_REASONS)]
        text = plural(counts.total(), "more retry", "more retries", separator=",")
        text = f"{text}: {', '.join(reasons)}"
        others = len(counts) - len(reasons)
        if others:
            text += f" and {plural(others, 'other reason')}"
        self._print(text)

    def finished(self, worker: int, result: EvalResult) -> None:
        super().finished(worker, result)
        now = time.monotonic()
        if now >= self._next or self.done == self.total:
            self._next = now + LINE_SECONDS
            self._print_other_retries()
            self._print(self._full_line())

    def worker_lost(self, name: str, in_flight: int) -> None:
        self._print(_lost_text(name, in_flight))

    def _full_line(self) -> str:
        parts = [self.line(), self.cluster_line(), *self.batch_lines()]
        return "; ".join(filter(None, parts))

    def _print(self, text: str) -> None:
        line = printable(self.clean(text))
        # The reader may have closed the stream, and a signal may arrive in the middle of another line.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            print(line, file=self._stream, flush=True)


class LiveProgress(CountingProgress):
    """Show a bar and the case of each worker, redrawn a few times per second."""

    def __init__(self, clean: Redactor, stream: TextIO):
        super().__init__(clean)
        self._view = LiveView(stream, self._content)

    def announce(self, text: str) -> None:
        self._print(text)

    def begin(self, total: int | None, done: int) -> None:
        super().begin(total, done)
        self._view.open()

    def end(self) -> None:
        self._view.close()

    def retried(self, what: str, attempt: int, reason: str) -> None:
        self._print(_retry_text(what, attempt, self.clean(reason)))

    def worker_lost(self, name: str, in_flight: int) -> None:
        self._print(_lost_text(name, in_flight))

    def _print(self, text: str) -> None:
        """Print a text above the live view, broken between words."""
        line = printable(self.clean(text))
        width = self._view.size().columns
        self._view.print("\n".join(wrap(line, width)))

    def _content(self) -> ViewContent:
        share = 0.0
        if self.total is not None:
            share = self.done / max(self.total, 1)
        return ViewContent(share, self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.line()
        cluster = self.cluster_line()
        if cluster:
            yield printable(self.clean(cluster))
        for line in self.batch_lines():
            yield printable(self.clean(line))
        running = self.at_work.copy()  # another thread may change it
        for number, case in sorted(running.items()):
            line = f"  {number + 1:2} {case}"
            yield printable(self.clean(line))


def progress_for(clean: Redactor, stream: TextIO | None = None) -> CountingProgress:
    """Return the progress view for a stream, which defaults to stderr."""
    stream = stream or sys.stderr
    if stream is None:  # a process may be started without stderr
        return CountingProgress(clean)
    # A program may have replaced stderr by an object that can only write.
    encoding = getattr(stream, "encoding", None) or ""
    is_utf8 = encoding.lower().startswith("utf")
    is_terminal = hasattr(stream, "fileno") and stream.isatty()
    if is_terminal and is_utf8 and os.environ.get("TERM") not in DUMB_TERMINALS:
        return LiveProgress(clean, stream)
    return PlainProgress(clean, stream)


def _batch_text(target: str) -> str:
    return f"target {target} answers its cases in one batch"


def _retry_text(what: str, attempt: int, reason: str) -> str:
    one_line = " ".join(reason.split())
    return f"{what}: attempt {attempt} failed, retrying: {one_line}"


def _lost_text(name: str, in_flight: int) -> str:
    return f"worker {name} is lost: its cases, {in_flight} of them in flight, go to other workers"


def _duration(seconds: float) -> str:
    """Return a duration as `h:mm:ss`, or `m:ss` below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"
