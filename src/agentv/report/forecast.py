"""What a run would take -> the lines that `agentv eval --plan` prints."""

from collections.abc import Callable, Iterator

from agentv.report.layout import table, wrap
from agentv.report.quantities import format_count, format_duration, format_money
from agentv.results.forecast import Figure, Forecast, PartForecast


def forecast_lines(forecast: Forecast) -> Iterator[str]:
    """Yield what a run would do and take, and what it could find."""
    yield "PLAN"
    cases, workers = _count(forecast.cases, "case"), _count(forecast.workers, "worker")
    trials = f", {forecast.trials} trials each ({forecast.jobs:,} runs)" if forecast.trials > 1 else ""
    yield f"  {cases}{trials}, {workers}"
    yield from table(
        [
            ("", "expected", "range", "basis"),
            _row("calls", forecast.calls, format_count),
            _row("tokens", forecast.tokens, format_count),
            _row("cost", forecast.cost_usd, format_money),
            _row("time", forecast.duration_seconds, _time),
        ]
    )
    if forecast.results:
        yield from wrap(f"  history: {_count(forecast.results, 'earlier result')} of the same targets and cases")
    parts = [*(("target", part) for part in forecast.targets), *(("judge", part) for part in forecast.judges)]
    parts += [("", forecast.checks)] if forecast.checks is not None else []
    yield ""
    yield "WHO IS ASKED"
    rows = [("", "calls", "tokens", "cost")]
    rows += [(f"{kind} {part.name}".strip(), *_amounts(part)) for kind, part in parts]
    yield from table(rows)
    for part in forecast.targets:
        if part.cached:
            yield from wrap(f"  the cache has {_count(part.cached, 'answer')} of target {part.name}")
    for part in forecast.judges:
        if part.cached:
            yield from wrap(f"  the cache has what judge {part.name} says of {_count(part.cached, 'answer')}")
    for what in forecast.unknown:
        yield from wrap(f"  {what}")
    yield ""
    yield "WHAT IT CAN FIND"
    yield from map("  {}".format, _effect_lines(forecast))


def _effect_lines(forecast: Forecast) -> Iterator[str]:
    basis = "by the scores of earlier results" if forecast.effect_basis == "history" else "by the usual assumptions"
    if forecast.detectable_effect is not None:
        effect = f"{forecast.detectable_effect:.3f}" if forecast.detectable_effect < 1 else "none, with so few cases"
        yield f"smallest detectable effect: {effect}"
        yield f"(80% power, 5% level, {basis})"
    for effect, cases in forecast.cases_for.items():
        yield f"to find {effect} it takes {_count(cases, 'case')}"


def _row(name: str, figure: Figure | None, text: Callable[[float], str]) -> tuple[str, str, str, str]:
    if figure is None:
        return name, "unknown", "", ""
    between = f"{text(figure.low)} to {text(figure.high)}" if figure.low < figure.high else "exactly"
    return name, text(figure.expected), between, figure.basis


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.1f} s"
    hours = seconds / 3600
    return (
        format_duration(seconds * 1000) if hours < 2 else f"{hours:.1f} h" if hours < 100 else f"{hours / 24:,.0f} days"
    )


def _amounts(part: PartForecast) -> tuple[str, str, str]:
    calls = format_count(part.calls.expected)
    if part.calls.low < part.calls.high:
        calls += f" ({format_count(part.calls.low)} to {format_count(part.calls.high)})"
    tokens = "unknown" if part.tokens is None else format_count(part.tokens.expected)
    return calls, tokens, "unknown" if part.cost_usd is None else format_money(part.cost_usd.expected)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
