"""Metrics over a run: how they are written in an eval file, and their values."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec

from agentv.stats.fields import Fields


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric over the results of an eval file, as it is written."""

    name: Annotated[str, msgspec.Meta(min_length=1, description="Name of the metric in summaries and records.")]
    function: Annotated[
        str,
        msgspec.Meta(min_length=1, description="The function, as file.py:name or package.module:name."),
    ]
    interval: Annotated[bool, msgspec.Meta(description="Whether to estimate a 95% bootstrap interval.")] = True


class Metric(NamedTuple):
    """A metric with its function, which gets a list of results and returns a number or a mapping of numbers."""

    name: str
    function: Callable[[list[dict[str, Any]]], Any]
    interval: bool = True


class MetricValue(Fields, frozen=True, kw_only=True):
    """The value of a metric over a run, or its difference between two, with a 95% interval if there is one."""

    value: float
    """The value of the metric."""
    ci_lower: float | None = None
    """The lower bound of its 95% interval."""
    ci_upper: float | None = None
    """The upper bound of its 95% interval."""


class MetricDifference(Fields, frozen=True, kw_only=True):
    """A metric of two runs, over the cases that both have."""

    value1: float
    value2: float
    delta: MetricValue
