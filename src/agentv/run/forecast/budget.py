"""Money and time that a run may take: which cases still fit, and which are not started any more.

A case is started if what was spent, what the cases in flight are expected to cost and what one more is expected to cost
are within the budget. What is expected is the mean of what cases of the target have cost so far.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from agentv.errors import ConfigError
from agentv.records import EvalResult, ResultKey
from agentv.results.forecast import Forecast, PartForecast
from agentv.run.extensions import Extension
from agentv.run.forecast.demand import ForecastOptions
from agentv.run.forecast.forecast import make_forecast
from agentv.run.jobs import Job
from agentv.run.plan import Plan

ROUNDING = 1e-12


class Limits(NamedTuple):
    """What a run may take."""

    max_cost: float | None = None
    max_duration: float | None = None


class Expected(NamedTuple):
    """What one case of a target is expected to take, before any has run."""

    cost: float
    seconds: float


class _Mean:
    """What cases of one target have taken so far, or else are expected to."""

    def __init__(self, start: float):
        self._start, self._total, self._count = start, 0.0, 0

    def add(self, value: float) -> None:
        self._total += value
        self._count += 1

    @property
    def value(self) -> float:
        return self._total / self._count if self._count else self._start


class Budget(Extension):
    """Admits cases as long as what they are expected to take fits into the limits."""

    def __init__(
        self,
        limits: Limits,
        expected: Mapping[str, Expected],
        reserved: float = 0.0,
        free: Collection[str] = (),
    ):
        """`expected` is by target; `reserved` is money that is kept back for what comes after the cases.

        The answers of `free` targets cost nothing.
        """
        self._free = frozenset(free)
        self.limits = limits
        self.spent = 0.0
        self.is_exhausted = False
        self._costs = {name: _Mean(each.cost) for name, each in expected.items()}
        self._seconds = {name: _Mean(each.seconds) for name, each in expected.items()}
        self._reserved = reserved
        self._in_flight: dict[str, int] = dict.fromkeys(expected, 0)
        self._admitted: dict[ResultKey, float] = {}
        """When each case in flight was admitted."""
        self._changed = asyncio.Event()
        self._start = time.monotonic()

    def start(self) -> None:
        self._start = time.monotonic()

    async def admit(self, job: Job) -> bool:
        """Return whether a case may start.

        One that does not fit waits for cases in flight: they may cost less than expected.
        """
        target = job.planned.name
        while not self.is_exhausted:
            if not self._is_time_for(target):
                break
            if self._is_money_for(target):
                self._in_flight[target] += 1
                self._admitted[job.key] = time.monotonic()
                return True
            if not any(self._in_flight.values()):
                break
            self._changed.clear()
            await self._changed.wait()
        self.is_exhausted = True
        self.stopped_by = "budget"
        self._changed.set()
        return False

    def written(self, result: EvalResult) -> None:
        """Count what an admitted case took."""
        target = result.target
        seconds = time.monotonic() - self._admitted.pop(result.key)
        self._in_flight[target] -= 1
        cost = cost_of(result, is_free=target in self._free)
        self.spent += self._costs[target].value if cost is None else cost
        if cost is not None and result.error is None:
            self._costs[target].add(cost)
        self._seconds[target].add(seconds)
        self._changed.set()

    def _is_money_for(self, target: str) -> bool:
        most = self.limits.max_cost
        if most is None:
            return True
        in_flight = sum(count * self._costs[name].value for name, count in self._in_flight.items())
        return self.spent + in_flight + self._costs[target].value <= most - self._reserved + ROUNDING

    def _is_time_for(self, target: str) -> bool:
        most = self.limits.max_duration
        return most is None or time.monotonic() - self._start + self._seconds[target].value <= most

    def case_cost(self) -> float:
        """Return what a case of the dearest target is expected to cost."""
        return max((mean.value for mean in self._costs.values()), default=0.0)


def cost_of(result: EvalResult, *, is_free: bool = False) -> float | None:
    """Return what a case has cost this run; None if that is not known. A call that has failed costs nothing.

    `is_free` says that answers of the target cost nothing.
    """
    metrics = result.execution_metrics
    judges = [judge.cost_usd or 0.0 for judge in (result.judge_metrics or {}).values()]
    if is_free or (metrics is not None and metrics.cached):
        return sum(judges)
    cost = metrics.cost_usd if metrics is not None else None
    if cost is None:
        return None if result.error is None or result.failure == "timeout" else sum(judges)
    return cost + sum(judges)


def check_limits(limits: Limits) -> None:
    """Raise `ConfigError` for a budget that is none."""
    for name, value in zip(("max_cost", "max_duration"), limits, strict=True):
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(f"{name} is {value!r}", hint="a budget is a finite number above 0")


def budget_of(limits: Limits, plan: Plan, options: ForecastOptions, *, on_cluster: bool) -> Budget | None:
    """Return the budget of a run, if it has one; raise `ConfigError` if it cannot be kept."""
    check_limits(limits)
    if limits == Limits():
        return None
    if on_cluster:
        raise ConfigError("a budget does not go with a cluster: its workers start cases on their own")
    for target in plan.targets:
        if plan.stand_in is None and target.settings is not None and target.settings.answers_at_once:
            message = f"target {target.name!r} answers all its cases at once, which no budget can stop"
            raise ConfigError(message, hint="leave the budget out, or ask the target for one case at a time")
    judges = (file.settings[name] for file in plan.files for name in file.judges.values())
    for judge in judges if not plan.dry_run else ():
        if judge.answers_at_once:
            message = f"target {judge.name!r} judges all answers at once, which no budget can stop"
            raise ConfigError(message, hint="leave the budget out, or set 'batch_api: false' on it")
    return make_budget(limits, make_forecast(plan, options))


def make_budget(limits: Limits, forecast: Forecast) -> Budget:
    """Return the budget of a run; raise `ConfigError` if its price is not known, or not even one case fits."""
    jobs = max(forecast.jobs, 1)
    checks = forecast.checks
    if limits.max_cost is not None:
        _check_prices(forecast)
    reserved = checks.cost_usd.expected if checks is not None and checks.cost_usd is not None else 0.0
    judging = sum(judge.cost_usd.expected for judge in forecast.judges if judge.cost_usd is not None) / jobs
    expected = {
        part.name: Expected(_each(part, "cost_usd") + judging, _known_seconds(part)) for part in forecast.targets
    }
    free = [part.name for part in forecast.targets if part.cost_usd is not None and not part.cost_usd.high]
    budget = Budget(limits, expected, reserved, free)
    if limits.max_cost is not None and forecast.jobs:
        _check_one_case(limits.max_cost, expected, reserved)
    return budget


def _each(part: PartForecast, name: str) -> float:
    """Return what one answer of a target is expected to take; those of the cache take nothing."""
    figure = getattr(part, name)
    return figure.expected / max(part.answers, 1) if figure is not None else 0.0


def _known_seconds(part: PartForecast) -> float:
    """Return how long an answer takes, if earlier results tell it; a guess must not keep any case from running."""
    figure = part.duration_seconds
    return _each(part, "duration_seconds") if figure is not None and figure.basis == "history" else 0.0


def _check_prices(forecast: Forecast) -> None:
    for what in forecast.unknown:
        hint = "give it a 'pricing', or name a price list with --prices; or run a few cases first, without --max-cost"
        raise ConfigError(f"--max-cost: {what}", hint=hint)


def _check_one_case(most: float, expected: Mapping[str, Expected], reserved: float) -> None:
    name, least = min(((name, each.cost) for name, each in expected.items()), key=lambda pair: pair[1])
    if least > most - reserved + ROUNDING:
        kept = f", and the checks of judges ${reserved:.4g}" if reserved else ""
        message = f"--max-cost ${most:.4g} is less than one case: one of target {name!r} is expected to cost "
        raise ConfigError(f"{message}${least:.4g}{kept}", hint="see 'agentv eval ... --plan' for what a run costs")
