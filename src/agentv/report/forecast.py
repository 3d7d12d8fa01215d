"""Format the forecast of a run for `agentv eval --plan`."""

from collections.abc import Callable, Iterator

from agentv.budget.records import Forecast, ForecastFigure, PartForecast
from agentv.report.layout import table, wrap
from agentv.stats.inference import MIN_PAIRS
from agentv.text import format_count, format_duration, format_money, plural

UNKNOWN = "unknown"
Format = Callable[[float], str]
Row = tuple[str, str, str, str]


def forecast_lines(forecast: Forecast) -> Iterator[str]:
    """Yield the expected calls, tokens, cost and time of a run, and the minimum detectable effect."""
    yield "PLAN"
    yield from _total_lines(forecast)
    yield ""
    yield "CALLS"
    yield from _part_lines(forecast)
    yield ""
    yield "STATISTICAL POWER"
    for line in _effect_lines(forecast):
        yield f"  {line}"


def _total_lines(forecast: Forecast) -> Iterator[str]:
    size = plural(forecast.cases, "case", separator=",")
    if forecast.trials > 1:
        size += f", {forecast.trials} trials each ({forecast.jobs:,} runs)"
    yield f"  {size}, {plural(forecast.workers, 'worker', separator=',')}"
    yield from table(
        [
            ("", "expected", "range", "basis"),
            _total_row("calls", forecast.calls, format_count),
            _total_row("tokens", forecast.tokens, format_count),
            _total_row("cost", forecast.cost_usd, format_money),
            _total_row("time", forecast.duration_seconds, _time),
        ]
    )
    if forecast.results:
        results = plural(forecast.results, "earlier result", separator=",")
        yield from wrap(f"  based on {results} of the same targets and cases")


def _total_row(name: str, figure: ForecastFigure | None, text: Format) -> Row:
    if figure is None:
        return name, UNKNOWN, "", ""
    likely = "exactly"
    if figure.low < figure.high:
        likely = f"{text(figure.low)} to {text(figure.high)}"
    return name, text(figure.expected), likely, figure.basis


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.1f} s"
    hours = seconds / 3600
    if hours < 2:
        return format_duration(seconds * 1000)
    if hours < 100:
        return f"{hours:.1f} h"
    return f"{hours / 24:,.0f} days"


def _part_lines(forecast: Forecast) -> Iterator[str]:
    """Yield the calls, tokens and cost of each target and judge, and what is in the cache."""
    rows = [("", "calls", "tokens", "cost")]
    for part in forecast.targets:
        rows.append(_part_row(f"target {part.name}", part))
    for part in forecast.judges:
        rows.append(_part_row(f"judge {part.name}", part))
    if forecast.checks is not None:
        rows.append(_part_row(forecast.checks.name, forecast.checks))
    yield from table(rows)
    for part in forecast.targets:
        if part.cached:
            answers = plural(part.cached, "answer", separator=",")
            yield from wrap(f"  {answers} of target {part.name} in the cache")
    for what in forecast.unknown:
        yield from wrap(f"  {what}")


def _part_row(name: str, part: PartForecast) -> Row:
    calls = format_count(part.calls.expected)
    if part.calls.low < part.calls.high:
        calls += f" ({format_count(part.calls.low)} to {format_count(part.calls.high)})"
    tokens = UNKNOWN
    if part.tokens is not None:
        tokens = format_count(part.tokens.expected)
    cost = UNKNOWN
    if part.cost_usd is not None:
        cost = format_money(part.cost_usd.expected)
    return name.strip(), calls, tokens, cost


def _effect_lines(forecast: Forecast) -> Iterator[str]:
    """Yield the minimum detectable effect, and how many cases smaller effects need."""
    if forecast.detectable_effect is None:
        yield f"minimum detectable effect: none, at least {MIN_PAIRS} cases needed"
    else:
        smallest = "none, too few cases"
        if forecast.detectable_effect < 1:
            smallest = f"{forecast.detectable_effect:.3f}"
        basis = "assuming typical scores"
        if forecast.effect_basis == "history":
            basis = "from the scores of earlier results"
        yield f"minimum detectable effect: {smallest}"
        yield f"(80% power, 5% level, {basis})"
    for effect, cases in forecast.cases_for.items():
        yield f"to detect {effect}: {plural(cases, 'case', separator=',')}"
