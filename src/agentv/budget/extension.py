"""Limits on the cost and the duration of a run, as a run extension.

A case is started only if the money spent so far, the expected cost of the cases in flight and the expected cost of one
more case are within the limit. The expected cost of a case is the mean of the finished cases of its target.

The limit on the duration is also a deadline: when it is reached, the cases in flight are cancelled.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from agentv.budget.forecast import forecast_known_cases
from agentv.budget.records import Forecast, ForecastFigure, PartForecast
from agentv.errors import ConfigError
from agentv.providers.settings import TargetSettings
from agentv.records import EvalResult, ResultKey
from agentv.run.extensions import Extension
from agentv.run.features import Opening
from agentv.run.jobs import Job
from agentv.run.options import EvalOptions, Limits
from agentv.run.planning.plan import Plan
from agentv.run.report import RunReport

ROUNDING = 1e-12
"""Tolerance for sums of floating-point costs."""


class ExpectedCase(NamedTuple):
    """The expected cost and duration of one case of a target, before any case has run."""

    cost: float
    seconds: float


class _RunningMean:
    """The mean of the values so far, or an initial value if there are none."""

    def __init__(self, initial: float):
        self._initial = initial
        self._total = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        self._total += value
        self._count += 1

    @property
    def value(self) -> float:
        if not self._count:
            return self._initial
        return self._total / self._count


class Budget(Extension):
    """Admits cases as long as their expected cost and duration are within the limits."""

    def __init__(
        self,
        limits: Limits,
        expected: Mapping[str, ExpectedCase],
        reserved: float = 0.0,
        free: Collection[str] = (),
    ):
        """Create the budget of a run.

        `expected` is keyed by target. `reserved` is the money for calls after the last case. Answers of the targets in
        `free` cost nothing.
        """
        self.limits = limits
        self.spent = 0.0
        self.is_exhausted = False
        self._reserved = reserved
        self._free = frozenset(free)
        self._costs: dict[str, _RunningMean] = {}
        self._seconds: dict[str, _RunningMean] = {}
        self._in_flight: dict[str, int] = {}
        """The number of cases in flight, by target."""
        for name, case in expected.items():
            self._costs[name] = _RunningMean(case.cost)
            self._seconds[name] = _RunningMean(case.seconds)
            self._in_flight[name] = 0
        self._admitted: dict[ResultKey, float] = {}
        """The time at which each case in flight was admitted."""
        self.cut_off = 0
        """The number of cases that the deadline has cancelled."""
        self._changed = asyncio.Event()
        self._start = 0.0
        """When the run started, by the clock of the event loop. A budget that is only planned has none."""

    @classmethod
    async def join(cls, opening: Opening) -> "Budget | None":
        """Return the budget of a run, if it has one. Raise `ConfigError` if it cannot be enforced."""
        options = opening.options
        if options is None:
            return None
        return budget_of(options, opening.plan)

    async def start(self, run: object, tasks: object) -> None:
        self._start = _now()
        if self.limits.max_duration is not None:
            self.deadline = self._start + self.limits.max_duration

    def add_to(self, report: RunReport) -> RunReport:
        return report._replace(budget=self)

    async def admit(self, job: Job) -> bool:
        """Return whether a case may start.

        A case that exceeds the limit on the cost waits for the cases in flight, which may cost less than expected.
        """
        target = job.planned.name
        while not self.is_exhausted:
            if not self._has_time_for(target):
                break
            if self._has_money_for(target):
                self._in_flight[target] += 1
                self._admitted[job.key] = _now()
                return True
            if not any(self._in_flight.values()):
                break
            self._changed.clear()
            await self._changed.wait()
        self._stop()
        return False

    def _stop(self) -> None:
        """Admit no more cases."""
        self.is_exhausted = True
        self.stopped_by = "budget"
        self._changed.set()

    def written(self, result: EvalResult) -> None:
        """Count the cost and the duration of an admitted case."""
        target = result.target
        seconds = _now() - self._admitted.pop(result.key)
        self._in_flight[target] -= 1
        self._seconds[target].add(seconds)
        cost = cost_of(result, is_free=target in self._free)
        if cost is None:
            self.spent += self._costs[target].value
        else:
            self.spent += cost
            if result.error is None:
                self._costs[target].add(cost)
        self._changed.set()

    def cancelled(self, job: Job, costs: Sequence[float | None]) -> None:
        """Count the cost of a case that was cancelled, by the deadline or by a signal."""
        target = job.planned.name
        self._admitted.pop(job.key, None)
        self._in_flight[target] -= 1
        for cost in costs:
            if cost is not None:
                self.spent += cost
            elif target not in self._free:
                self.spent += self._costs[target].value
        if self.deadline is not None and _now() >= self.deadline:
            self.cut_off += 1
            self._stop()

    def _has_money_for(self, target: str) -> bool:
        max_cost = self.limits.max_cost
        if max_cost is None:
            return True
        committed = self.spent + self._reserved + self._costs[target].value
        for name, count in self._in_flight.items():
            committed += count * self._costs[name].value
        return committed <= max_cost + ROUNDING

    def _has_time_for(self, target: str) -> bool:
        max_duration = self.limits.max_duration
        if max_duration is None:
            return True
        elapsed = _now() - self._start
        return elapsed + self._seconds[target].value <= max_duration

    def case_cost(self) -> float:
        """Return the expected cost of a case of the most expensive target."""
        return max((mean.value for mean in self._costs.values()), default=0.0)


def _now() -> float:
    """Return the time of the event loop, which is that of its deadlines."""
    return asyncio.get_running_loop().time()


def cost_of(result: EvalResult, *, is_free: bool = False) -> float | None:
    """Return the cost of a case in this run, or None if it is unknown. Failed calls cost nothing.

    With `is_free`, the answers of the target cost nothing.
    """
    judge_metrics = result.judge_metrics or {}
    judging = sum(judge.cost_usd or 0.0 for judge in judge_metrics.values())
    metrics = result.execution_metrics
    if is_free:
        return judging
    earlier = 0.0
    if metrics is not None:
        if metrics.cached:
            return judging
        if metrics.retries is not None:
            earlier = metrics.retries.cost_usd or 0.0
        if metrics.cost_usd is not None:
            return metrics.cost_usd + earlier + judging
    if result.error is None or result.failure == "timeout":
        return None
    return earlier + judging


def budget_of(options: EvalOptions, plan: Plan) -> Budget | None:
    """Return the budget of a run, or None without limits; raise `ConfigError` if the limits cannot be enforced."""
    if not options.limits.has_budget:
        return None
    if options.cluster is not None:
        raise ConfigError("a budget cannot be combined with a cluster: its workers start cases on their own")
    if plan.stand_in is None:
        for target in plan.targets:
            if target.settings is not None and target.settings.answers_at_once:
                raise ConfigError(
                    f"target {target.name!r} answers all its cases at once, so a budget cannot stop it",
                    hint="remove the budget, or call the target for one case at a time",
                )
    if not plan.dry_run:
        for judge in _judges_of(plan):
            if judge.answers_at_once:
                raise ConfigError(
                    f"target {judge.name!r} judges all answers at once, so a budget cannot stop it",
                    hint="remove the budget, or set 'batch_api: false' in the target",
                )
    return make_budget(options.limits, forecast_known_cases(plan, options))


def _judges_of(plan: Plan) -> Iterable[TargetSettings]:
    for file in plan.files:
        for name in file.judges.values():
            yield file.settings[name]


def make_budget(limits: Limits, forecast: Forecast) -> Budget:
    """Return the budget of a run; raise `ConfigError` if a price is unknown or not even one case is affordable."""
    if limits.max_cost is not None:
        _check_prices(forecast)
    reserved = 0.0
    if forecast.checks is not None:
        reserved = _expected(forecast.checks.cost_usd)
    judging = sum(_expected(judge.cost_usd) for judge in forecast.judges)
    judging_per_case = judging / max(forecast.jobs, 1)
    expected = {}
    free = []
    for target in forecast.targets:
        answers = max(target.answers, 1)
        expected[target.name] = ExpectedCase(
            cost=_expected(target.cost_usd) / answers + judging_per_case,
            seconds=_known_seconds(target) / answers,
        )
        if target.cost_usd is not None and not target.cost_usd.high:
            free.append(target.name)
    if limits.max_cost is not None and forecast.jobs:
        _check_one_case(limits.max_cost, expected, reserved)
    return Budget(limits, expected, reserved, free)


def _expected(figure: ForecastFigure | None) -> float:
    if figure is None:
        return 0.0
    return figure.expected


def _known_seconds(target: PartForecast) -> float:
    """Return the total duration of the answers if it is known from earlier results, or else 0.

    An estimate must not prevent a case from running.
    """
    duration = target.duration_seconds
    if duration is None or duration.basis != "history":
        return 0.0
    return duration.expected


def _check_prices(forecast: Forecast) -> None:
    """Raise `ConfigError` if the cost of a target or a judge is unknown."""
    if forecast.unknown:
        hint = "set 'pricing', pass a price list with --prices, or run a few cases without --max-cost first"
        raise ConfigError(f"--max-cost: {forecast.unknown[0]}", hint=hint)


def _check_one_case(
    max_cost: float,
    expected: Mapping[str, ExpectedCase],
    reserved: float,
) -> None:
    """Raise `ConfigError` if the limit is below the expected cost of a case of the cheapest target."""
    name = min(expected, key=lambda target: expected[target].cost)
    cost = expected[name].cost
    if cost <= max_cost - reserved + ROUNDING:
        return
    message = f"--max-cost ${max_cost:.4g} is less than the expected cost of one case: ${cost:.4g} for target {name!r}"
    if reserved:
        message += f", and ${reserved:.4g} for the checks of judges"
    raise ConfigError(message, hint="use 'agentv eval ... --plan' to estimate the cost of a run")
