"""The forecast of a run: expected calls, tokens, cost, duration and minimum detectable effect."""

from typing import Literal

import msgspec

from agentv.stats.fields import Fields
from agentv.text import format_money, plural

Basis = Literal["history", "estimate"]
"""Whether a figure comes from earlier results of the same targets and cases, or from the lengths of texts."""


class ForecastFigure(Fields, frozen=True, kw_only=True):
    """An estimate: the expected value, and the bounds of its likely range."""

    low: float
    expected: float
    high: float
    basis: Basis


class PartForecast(Fields, frozen=True, kw_only=True, omit_defaults=True):
    """The expected usage of one target or judge."""

    name: str
    called: str = ""
    """Its provider and model, such as `openai gpt-5`."""
    answers: int = msgspec.field(default_factory=int)
    """The number of answers that it gives or judges."""
    cached: int = 0
    """The number of these answers that are in the cache; always 0 for judges."""
    calls: ForecastFigure
    tokens: ForecastFigure | None = None
    cost_usd: ForecastFigure | None = None
    duration_seconds: ForecastFigure | None = None
    """The total duration of all its calls."""
    results: int = 0
    """The number of earlier results that the figures are based on."""
    unknown: str = ""
    """Why its cost is unknown."""


class Forecast(Fields, frozen=True, kw_only=True):
    """The expected work and usage of a run."""

    cases: int
    trials: int
    jobs: int
    """The number of runs of cases that remain to be done."""
    workers: int
    results: int
    """The number of earlier results of the same targets and cases that the figures are based on."""
    calls: ForecastFigure
    tokens: ForecastFigure | None
    cost_usd: ForecastFigure | None
    duration_seconds: ForecastFigure
    detectable_effect: float | None
    """The minimum difference to another run of the same cases that is detected with 80% power at the 5% level."""
    cases_for: dict[str, int]
    """The number of cases needed to detect a difference of each size."""
    effect_basis: Basis
    targets: tuple[PartForecast, ...]
    judges: tuple[PartForecast, ...] = ()
    checks: PartForecast | None = None
    """The expected usage of `--check-judge`."""
    unknown: tuple[str, ...] = ()
    """What is unknown, and how to provide it."""

    def __repr__(self) -> str:
        """Return the expected calls and their cost, for an interpreter that shows the forecast as a value."""
        cases = plural(self.cases, "case", separator=",")
        calls = plural(round(self.calls.expected), "call", separator=",")
        cost = "unknown cost"
        if self.cost_usd is not None:
            cost = format_money(self.cost_usd.expected)
        return f"<Forecast: {cases}, {calls}, {cost}>"
