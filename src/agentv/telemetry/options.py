"""What can be asked of collecting and exporting traces."""

from typing import NamedTuple


class CollectOptions(NamedTuple):
    """How traces are collected."""

    port: int | None = None
    """Where to listen; any free port if this is not given."""
    grace: float | None = None
    """Seconds without a span after which a trace is taken as it is; by the kind of the target if not given."""
