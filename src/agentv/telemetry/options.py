"""Options for collecting traces."""

from typing import NamedTuple


class CollectOptions(NamedTuple):
    """How traces are collected."""

    port: int | None = None
    """The port to listen on. Defaults to any free port."""
    grace: float | None = None
    """Seconds without a new span after which a trace counts as finished. The default depends on the target."""
