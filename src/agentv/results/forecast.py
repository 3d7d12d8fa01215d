"""What a run is expected to do, to take and to find: a value, which is printed, and which budgets start from."""

from typing import Literal

import msgspec

Basis = Literal["history", "estimate"]
"""Earlier results of the same targets and cases, or the lengths of texts."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that is not known yet: what is expected, and the least and the most that is likely."""

    low: float
    expected: float
    high: float
    basis: Basis


class PartForecast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one target, or one judge, is expected to take."""

    name: str
    called: str = ""
    """What kind it is, and what it calls: `openai gpt-5`."""
    answers: int = msgspec.field(default_factory=int)
    """How many answers it gives, or judges."""
    cached: int = 0
    """Of those, how many the cache has."""
    calls: Figure
    tokens: Figure | None = None
    cost_usd: Figure | None = None
    duration_seconds: Figure | None = None
    """The time of all its calls, one after another."""
    results: int = 0
    """How many earlier results the figures are from."""
    unknown: str = ""
    """Why its cost is not known."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is expected to do and to take."""

    cases: int
    trials: int
    jobs: int
    """How many runs of cases are left to do."""
    workers: int
    results: int
    """How many earlier results of the same targets and cases the figures are from; 0 if there are none."""
    calls: Figure
    tokens: Figure | None
    cost_usd: Figure | None
    duration_seconds: Figure
    detectable_effect: float | None
    """The smallest difference to another run of the same cases that is found in 80% of such runs, at a level of 5%."""
    cases_for: dict[str, int]
    """How many cases it takes to find a difference of this size."""
    effect_basis: Basis
    targets: tuple[PartForecast, ...]
    judges: tuple[PartForecast, ...] = ()
    checks: PartForecast | None = None
    """What `--check-judge` takes."""
    unknown: tuple[str, ...] = ()
    """What is not known, and what to do about it."""
