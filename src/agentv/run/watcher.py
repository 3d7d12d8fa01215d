"""Who is told what goes on in a run."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from agentv.records import EvalResult


class ClusterView(NamedTuple):
    """What goes on in a cluster."""

    in_flight: Mapping[str, int]
    """How many cases are in flight on each worker, by its name."""
    lost: int = 0
    """How many workers were lost."""
    sent_again: int = 0
    """How many chunks of cases were sent again."""


class Watcher(Protocol):
    """Is told what goes on."""

    def announce(self, text: str) -> None:
        """The run is planned: the text says what is about to run."""
        ...

    def begin(self, total: int, done: int) -> None:
        """The run begins: it has so many jobs in all, and so many of them are done already."""
        ...

    def started(self, worker: int, what: str) -> None: ...

    def batch_started(self, worker: int, target: str) -> None: ...

    def retried(self, what: str, attempt: int, reason: str) -> None: ...

    def finished(self, worker: int, result: EvalResult) -> None: ...

    def cluster_changed(self, view: ClusterView) -> None: ...

    def worker_lost(self, name: str, in_flight: int) -> None:
        """A worker of a cluster is gone; so many cases were in flight there."""
        ...

    def end(self) -> None:
        """The run is over, well or not."""
        ...


class Silence:
    """A watcher that says nothing."""

    def announce(self, text: str) -> None: ...
    def begin(self, total: int, done: int) -> None: ...
    def started(self, worker: int, what: str) -> None: ...
    def batch_started(self, worker: int, target: str) -> None: ...
    def retried(self, what: str, attempt: int, reason: str) -> None: ...
    def finished(self, worker: int, result: EvalResult) -> None: ...
    def cluster_changed(self, view: ClusterView) -> None: ...
    def worker_lost(self, name: str, in_flight: int) -> None: ...
    def end(self) -> None: ...
