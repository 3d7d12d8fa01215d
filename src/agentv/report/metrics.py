"""Format the metrics of a run and of a comparison."""

from collections.abc import Callable, Iterator, Mapping

from agentv.files.printable import printable
from agentv.report.layout import table
from agentv.stats.metrics import MetricValue

_LARGE = 1000
_HUGE = 1e15
"""From here on, a float does not hold all digits of an integer."""
_SMALL = 0.001

MAX_METRICS = 50
"""The number of metrics that are shown."""
Row = tuple[str, ...]


def metric_lines(metrics: Mapping[str, MetricValue], clean: Callable[[str], str] = str) -> Iterator[str]:
    """Yield the section of a summary with the metrics of the run. Yield nothing without metrics."""
    if not metrics:
        return
    rows: list[Row] = [("name", "value", "95% interval")]
    for name, metric in list(metrics.items())[:MAX_METRICS]:
        rows.append((printable(clean(name)), format_value(metric.value), interval_of_metric(metric)))
    yield "METRICS"
    yield from table(rows)
    more = len(metrics) - MAX_METRICS
    if more > 0:
        yield f"  and {more} more"


def format_value(value: float) -> str:
    """Return a value with three decimals, without decimals if it is large, with three digits if it is very small."""
    size = abs(value)
    if size >= _HUGE or 0 < size < _SMALL:
        text = f"{value:.3g}"
    elif size >= _LARGE:
        text = f"{value:,.0f}"
    else:
        text = f"{value + 0.0:.3f}"  # -0.0 becomes 0.0
    if text.startswith("-"):
        return f"−{text[1:]}"
    return text


def format_difference(value: float) -> str:
    """Return a value with its sign."""
    text = format_value(value)
    if value > 0:
        return f"+{text}"
    return text


def interval_of_metric(metric: MetricValue, format_: Callable[[float], str] = format_value) -> str:
    """Return the interval of a metric, or an empty string if there is none."""
    if metric.ci_lower is None or metric.ci_upper is None:
        return ""
    return f"{format_(metric.ci_lower)} to {format_(metric.ci_upper)}"
