"""The events of a run, for those that show its progress."""

from collections.abc import Mapping
from typing import NamedTuple

from agentv.records import EvalResult


class ClusterState(NamedTuple):
    """The state of a cluster."""

    in_flight: Mapping[str, int]
    """The number of cases in flight on each worker, by its name."""
    lost: int = 0
    """The number of lost workers."""
    sent_again: int = 0
    """The number of chunks of cases that were sent again."""


class Progress:
    """Receive the events of a run. Every method does nothing unless a subclass overrides it."""

    def announce(self, text: str) -> None:
        """The run is planned. The text describes it."""

    def begin(self, total: int | None, done: int) -> None:
        """The run starts. It has `total` jobs, or an unknown number, of which `done` are finished already."""

    def started(self, worker: int, what: str) -> None:
        """A worker starts a case."""

    def batch_started(self, worker: int, target: str) -> None:
        """A target answers all its cases in one batch."""

    def batch_changed(self, target: str, text: str) -> None:
        """The vendor reports the status of a target's batches. The text is empty when all are answered."""

    def retried(self, what: str, attempt: int, reason: str) -> None:
        """A failed call is retried."""

    def finished(self, worker: int, result: EvalResult) -> None:
        """A worker has finished a case."""

    def cluster_changed(self, state: ClusterState) -> None:
        """The state of the cluster has changed."""

    def worker_lost(self, name: str, in_flight: int) -> None:
        """A worker of the cluster is lost, with `in_flight` unfinished cases."""

    def end(self) -> None:
        """The run is over, successfully or not."""
