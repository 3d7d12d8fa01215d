"""Compute metrics over the results of an eval file, with bootstrap intervals over its cases."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from inspect import iscoroutine
from itertools import chain
from random import Random
from typing import TypeVar

from agentv.errors import AgentvError
from agentv.files.plain import json_mapping
from agentv.log import info
from agentv.providers.tracebacks import explain_error
from agentv.records import Json
from agentv.stats.distributions import SEED
from agentv.stats.metrics import Metric, MetricDifference, MetricValue

RESAMPLES = 1000
_CUT = RESAMPLES // 40
"""The number of resamples on each side of a 95% interval."""
MAX_CASES = 20_000
"""The largest number of cases for which there are intervals."""
Trials = Sequence[Json]
"""The results of a case: all of its trials."""
Cases = Mapping[Hashable, Trials]
"""The results of each case."""
Values = Mapping[str, float]
"""The values of a metric, by `NAME` or, if the function returns a mapping, by `NAME.KEY`."""
_Interval = tuple[float, float]
_Case = TypeVar("_Case")
"""What is drawn for a resample: the trials of a case, or those in two runs."""


class MetricFailed(AgentvError):
    """The function of a metric failed, or did not return a number."""


def compute(metric: Metric, cases: Cases) -> dict[str, MetricValue]:
    """Return the values of a metric, with intervals. Raise `MetricFailed` if the function fails."""
    groups = list(cases.values())

    def values_of(drawn: Sequence[Trials]) -> Values:
        return metric_values(metric, _join(drawn))

    values = values_of(groups)
    intervals = _intervals(metric, groups, values_of)
    found = {}
    for name, value in values.items():
        interval = intervals.get(name)
        found[name] = _metric_value(value, interval)
    return found


def compute_difference(metric: Metric, first: Cases, second: Cases) -> dict[str, MetricDifference]:
    """Return the values of a metric in two runs, over the cases that both have, and their differences.

    Raise `MetricFailed` if the function fails. A value that only one run has is omitted.
    """
    pairs = []
    for key, results in first.items():
        if key in second:
            pairs.append((results, second[key]))

    def values_of(drawn: Sequence[tuple[Trials, Trials]]) -> tuple[Values, Values]:
        # The same cases are drawn from both runs, so that the interval is that of a paired difference.
        values1 = metric_values(metric, _join(results for results, _ in drawn))
        values2 = metric_values(metric, _join(results for _, results in drawn))
        return values1, values2

    def deltas_of(drawn: Sequence[tuple[Trials, Trials]]) -> Values:
        return _subtract(*values_of(drawn))

    values1, values2 = values_of(pairs)
    deltas = _subtract(values1, values2)
    intervals = _intervals(metric, pairs, deltas_of)
    found = {}
    for name, delta in deltas.items():
        interval = intervals.get(name)
        found[name] = MetricDifference(
            value1=values1[name],
            value2=values2[name],
            delta=_metric_value(delta, interval),
        )
    return found


def metric_values(metric: Metric, results: list[Json]) -> dict[str, float]:
    """Call the function of a metric. Raise `MetricFailed` if it raises, or returns anything but finite numbers."""
    returned = _call(metric, results)
    value = None
    # `json_mapping` converts mappings only, so the returned value is put into one.
    plain = json_mapping({metric.name: returned})
    if plain is not None:
        value = plain.get(metric.name)
    if not isinstance(value, Mapping):
        number = _number(value)
        if number is None:
            raise _invalid_value(metric, "the function returned", returned)
        return {metric.name: number}
    values = {}
    for key, part in value.items():
        number = _number(part)
        if number is None:
            raise _invalid_value(metric, f"the value of {key!r} is", part)
        name = f"{metric.name}.{key}"
        values[name] = number
    return values


def count_names(metrics: Iterable[Sequence[Metric]]) -> Counter[str]:
    """Count how many metrics of several eval files have the same name."""
    counts: Counter[str] = Counter()
    for metrics_of_file in metrics:
        for metric in metrics_of_file:
            counts[metric.name] += 1
    return counts


def unique_name(name: str, file: str, metrics: int) -> str:
    """Return the name of a value in a run: it starts with the eval file if several `metrics` have the same name."""
    if metrics > 1:
        return f"{file}:{name}"
    return name


def _call(metric: Metric, results: list[Json]) -> object:
    """Return what the function of a metric returns. Raise `MetricFailed` if it raises or is async."""
    try:
        returned: object = metric.function(results)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # user code: SystemExit must not end the run
        message = explain_error(error).message
        raise MetricFailed(f"metric {metric.name!r}: {message}") from error
    if iscoroutine(returned):
        returned.close()  # otherwise Python warns that it was never awaited
        raise MetricFailed(
            f"metric {metric.name!r}: the function is async",
            hint="write it with 'def'",
        )
    return returned


def _number(value: object) -> float | None:
    """Return a value as a float, or None if it is not a finite number."""
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer that is too large for a float
        return None
    if math.isfinite(number):
        return number
    return None


def _invalid_value(metric: Metric, what: str, value: object) -> MetricFailed:
    if isinstance(value, int):
        shown = "a number that is too large"
    elif value is None or isinstance(value, float):
        shown = str(value)
    elif isinstance(value, Mapping):
        shown = "a mapping with values that are not numbers, or with keys that are not strings"
    else:
        shown = f"a {type(value).__name__}"
    return MetricFailed(
        f"metric {metric.name!r}: {what} {shown}",
        hint="return a finite number, or a mapping of finite numbers",
    )


def _join(groups: Iterable[Trials]) -> list[Json]:
    """Return the results of these cases in one list."""
    return list(chain.from_iterable(groups))


def _subtract(values1: Values, values2: Values) -> Values:
    """Return the second values minus the first, for the names that both have."""
    deltas = {}
    for name, value in values1.items():
        if name in values2:
            deltas[name] = values2[name] - value
    return deltas


def _metric_value(value: float, interval: _Interval | None) -> MetricValue:
    if interval is None:
        return MetricValue(value=value)
    lower, upper = interval
    return MetricValue(
        value=value,
        ci_lower=lower,
        ci_upper=upper,
    )


def _intervals(
    metric: Metric,
    cases: Sequence[_Case],
    values_of: Callable[[Sequence[_Case]], Values],
) -> dict[str, _Interval]:
    """Return the 95% bootstrap interval of each value that exists in all resamples.

    `values_of` returns the values over some of the cases. There are no intervals if it fails.
    """
    count = len(cases)
    if not metric.interval or count < 2:
        return {}
    if count > MAX_CASES:
        info(f"metric {metric.name!r}: no interval for {count:,} cases: it is computed for at most {MAX_CASES:,}")
        return {}
    rng = Random(SEED)
    samples: dict[str, list[float]] = {}
    for _ in range(RESAMPLES):
        drawn = rng.choices(cases, k=count)
        try:
            values = values_of(drawn)
        except MetricFailed as error:
            info(f"{error.message} in a resample of the cases, so there is no interval")
            return {}
        for name, value in values.items():
            sample = samples.setdefault(name, [])
            sample.append(value)
    found = {}
    for name, sample in samples.items():
        if len(sample) == RESAMPLES:
            sample.sort()
            lower = sample[_CUT]
            upper = sample[-1 - _CUT]
            found[name] = (lower, upper)
    return found
