"""Forecast a run from its plan and from earlier results, without calling anything."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from agentv.budget.demand import Demand, JudgeDemand, TargetDemand, TargetId, demand_of, is_batch, runs_folder
from agentv.budget.estimate import Amounts, answer_amounts, judge_amounts, retries_of
from agentv.budget.history import EarlierUsage, History, read_history
from agentv.budget.ranges import ZERO, Range
from agentv.budget.records import Basis, Forecast, ForecastFigure, PartForecast
from agentv.calls.caller import TIMEOUT_SECONDS
from agentv.providers.settings import RetrySettings
from agentv.run.jobs import IsDone
from agentv.run.options import EvalOptions
from agentv.run.planning.plan import Plan
from agentv.stats.inference import MIN_PAIRS, POWER_Z

BETWEEN_CASES = 4 / 9
"""The part of the variance of scores that remains in the difference of two runs.

For pass or fail with equal probability the variance of differences is 1/9 between cases and 1/6 within them, which is
the usual assumption if nothing is known."""
WITHIN_CASES = 2 / 3
"""The part of the variance of scores that averages out over the trials of a case."""
DEFAULT_VARIANCE = 1 / 4
MIN_VARIANCE = 0.01
EFFECTS = (0.05, 0.02)
BATCH_SECONDS = Range(0.0, 1800.0, 86_400.0)
"""How long a vendor takes for a batch: at most a day, and usually much less."""
START_SECONDS = Range(0.0, 0.5, 10.0)
"""How long a run takes in addition to its calls."""


def make_forecast(plan: Plan, options: EvalOptions, is_done: IsDone | None = None) -> Forecast:
    """Return the expected calls, usage and detectable effect of a run. `is_done` excludes trials that need not run."""
    demand = demand_of(plan, options, plan.cases_of, is_done)
    return _forecast(plan, options, demand)


def forecast_known_cases(plan: Plan, options: EvalOptions) -> Forecast:
    """Return the forecast of the cases that are known before the run starts: of an iterable, the first ones."""
    demand = demand_of(plan, options, plan.known_cases_of)
    return _forecast(plan, options, demand)


def _forecast(plan: Plan, options: EvalOptions, demand: Demand) -> Forecast:
    history = History()
    runs = runs_folder(options)
    if runs is not None:
        history = read_history(demand, runs)
    targets = [_forecast_target(plan, target, history, options) for target in demand.targets.values()]
    judges = []
    for judge in demand.judges.values():
        usage = history.judges.get(judge.name)
        judges.append(_forecast_judge(judge, usage, options))
    parts = [*targets, *judges]
    checks = None
    if options.check_judge and demand.judges:
        checks = _forecast_checks(demand.judges, history, options)
        parts.append(checks)
    workers = plan.workers(options.run.workers)
    unit_variance = _unit_variance(history, plan.trials)
    detectable_effect = None
    if demand.cases >= MIN_PAIRS:
        detectable_effect = round(POWER_Z * math.sqrt(unit_variance / demand.cases), 4)
    return Forecast(
        cases=demand.cases,
        trials=plan.trials,
        jobs=demand.jobs,
        workers=workers,
        results=sum(usage.results for usage in history.targets.values()),
        calls=_total_calls(parts),
        tokens=_total([part.tokens for part in parts]),
        cost_usd=_total_cost(parts),
        duration_seconds=_run_duration(parts, demand, workers),
        detectable_effect=detectable_effect,
        cases_for={f"{effect:g}": _cases_for(effect, unit_variance) for effect in EFFECTS},
        effect_basis=_basis(history.scores.count > 1),
        targets=tuple(targets),
        judges=tuple(judges),
        checks=checks,
        unknown=tuple(_unknown_costs(targets, judges)),
    )


def _unit_variance(history: History, trials: int) -> float:
    """Return the variance of the difference between two runs of one case."""
    variance = DEFAULT_VARIANCE
    if history.scores.count > 1:
        variance = max(history.scores.variance, MIN_VARIANCE)
    return variance * (BETWEEN_CASES + 2 * WITHIN_CASES / trials)


def _cases_for(effect: float, unit_variance: float) -> int:
    """Return the number of cases needed to detect an effect of this size."""
    cases = math.ceil(POWER_Z**2 * unit_variance / effect**2)
    return max(cases, MIN_PAIRS)


def _forecast_target(
    plan: Plan,
    target: TargetDemand,
    history: History,
    options: EvalOptions,
) -> PartForecast:
    max_attempts = 1 + retries_of(target.settings, options.run.max_retries)
    usage = history.targets.get(target.digest)
    attempts = 1.0
    if usage is not None and not plan.dry_run:
        attempts = min(usage.calls.mean, max_attempts)
    calls = Range(target.calls, target.calls * attempts, target.calls * max_attempts)
    called = ""
    if plan.dry_run:
        called = "mock"
        amounts = answer_amounts(target, None, is_free=True)
    else:
        amounts = answer_amounts(target, usage, is_free=False)
        if target.settings is not None and not plan.stand_in:
            called = target.settings.describe()
    part = _forecast_part(target.name, calls, amounts, usage)
    return msgspec.structs.replace(
        part,
        called=called,
        answers=target.jobs,
        cached=target.cached,
    )


def _forecast_judge(
    judge: JudgeDemand,
    usage: EarlierUsage | None,
    options: EvalOptions,
) -> PartForecast:
    max_calls = judge.high * (1 + retries_of(judge.settings, options.run.max_retries))
    expected: float = judge.calls
    if usage is not None:
        expected = judge.answers * usage.calls.mean
    calls = Range(judge.low, min(expected, max_calls), max_calls)
    amounts = judge_amounts(judge, usage)
    part = _forecast_part(judge.name, calls, amounts, usage)
    return msgspec.structs.replace(
        part,
        called=judge.settings.describe(),
        answers=judge.answers,
    )


def _forecast_part(
    name: str,
    calls: Range,
    amounts: Amounts,
    usage: EarlierUsage | None,
) -> PartForecast:
    results = 0
    if usage is not None:
        results = usage.results
    basis = _basis(results > 0)
    tokens = None
    if amounts.tokens is not None:
        tokens = _whole_figure(amounts.tokens, basis)
    cost = None
    if amounts.cost is not None:
        cost = _figure(amounts.cost, basis)
    return PartForecast(
        name=name,
        calls=_whole_figure(calls, basis),
        tokens=tokens,
        cost_usd=cost,
        duration_seconds=_figure(amounts.seconds, basis),
        results=results,
        unknown=amounts.unknown,
    )


def _forecast_checks(
    judges: Mapping[TargetId, JudgeDemand],
    history: History,
    options: EvalOptions,
) -> PartForecast:
    """Return the usage of `--check-judge`. Its calls are made outside of batch APIs and cost as much as other calls."""
    parts = [_forecast_check(judge, history, options) for judge in judges.values()]
    unknown = ""
    for part in parts:
        if part.cost_usd is None:
            unknown = part.unknown
            break
    return PartForecast(
        name="checks",
        calls=_total_calls(parts),
        tokens=_total([part.tokens for part in parts]),
        cost_usd=_total_cost(parts),
        duration_seconds=_total([part.duration_seconds for part in parts]),
        unknown=unknown,
    )


def _forecast_check(
    judge: JudgeDemand,
    history: History,
    options: EvalOptions,
) -> PartForecast:
    """Return the usage of the checks of one judge, in proportion to that of its calls in the run."""
    usage = history.judges.get(judge.name)
    if usage is not None:
        usage = usage.live()
    live_settings = msgspec.structs.replace(judge.settings, batch_api=False)
    live_judge = replace(judge, settings=live_settings)
    in_run = _forecast_judge(live_judge, usage, options)
    share = judge.checks / max(in_run.calls.expected, 1)
    calls = _check_range(in_run.calls, share)
    tokens = None
    if in_run.tokens is not None:
        tokens = _whole_figure(_check_range(in_run.tokens, share), in_run.tokens.basis)
    cost = None
    if in_run.cost_usd is not None:
        cost = _figure(_check_range(in_run.cost_usd, share), in_run.cost_usd.basis)
    duration = None
    if in_run.duration_seconds is not None:
        duration = _figure(_check_range(in_run.duration_seconds, share), in_run.duration_seconds.basis)
    return PartForecast(
        name=judge.name,
        calls=_whole_figure(calls, in_run.calls.basis),
        tokens=tokens,
        cost_usd=cost,
        duration_seconds=duration,
        unknown=in_run.unknown,
    )


def _check_range(figure: ForecastFigure, share: float) -> Range:
    # checks make fewer calls if there are few usable answers, and repeat calls more often than the run does
    return Range(0, figure.expected * share, figure.high * 3 * share)


def _total_calls(parts: Sequence[PartForecast]) -> ForecastFigure:
    total = _total([part.calls for part in parts])
    assert total is not None  # all parts have calls
    return total


def _total_cost(parts: Sequence[PartForecast]) -> ForecastFigure | None:
    """Return the total cost, or None if the cost of any part is unknown."""
    costs = [part.cost_usd for part in parts]
    if None in costs:
        return None
    return _total(costs)


def _total(figures: Sequence[ForecastFigure | None]) -> ForecastFigure | None:
    """Return the sum of the known figures; None if all are unknown. The basis is history if it is for all of them."""
    known = [figure for figure in figures if figure is not None]
    if not known:
        if figures:
            return None
        return _whole_figure(ZERO, "estimate")
    total = Range(
        sum(figure.low for figure in known),
        sum(figure.expected for figure in known),
        sum(figure.high for figure in known),
    )
    has_estimate = any(figure.basis == "estimate" for figure in known if figure.high)
    is_history = not has_estimate and total.high > 0
    return _figure(total, _basis(is_history))


def _basis(is_history: bool) -> Basis:
    if is_history:
        return "history"
    return "estimate"


def _figure(value: Range, basis: Basis) -> ForecastFigure:
    return ForecastFigure(
        low=value.low,
        expected=value.expected,
        high=value.high,
        basis=basis,
    )


def _whole_figure(value: Range, basis: Basis) -> ForecastFigure:
    """Return a figure in whole numbers."""
    return ForecastFigure(
        low=math.floor(value.low),
        expected=round(value.expected),
        high=math.ceil(value.high),
        basis=basis,
    )


def _run_duration(
    parts: Sequence[PartForecast],
    demand: Demand,
    workers: int,
) -> ForecastFigure:
    """Return the duration of the run: the total work divided among the workers, or longer if limits require it."""
    work = _total([part.duration_seconds for part in parts])
    if work is None:
        work = _figure(ZERO, "estimate")
    busy_workers = max(1, min(workers, demand.jobs))
    total_work = Range(work.low, work.expected, work.high)
    time = total_work.times_exactly(1 / busy_workers)
    time += START_SECONDS
    settings = [target.settings for target in demand.targets.values()]
    settings.extend(judge.settings for judge in demand.judges.values())
    batches = sum(is_batch(each) for each in settings)
    time += BATCH_SECONDS.times_exactly(batches)
    longest_call = max((_max_seconds_per_answer(part) for part in parts), default=0.0)
    last_call = min(longest_call, TIMEOUT_SECONDS)
    # targets come first in the parts
    by_limits = max(map(_seconds_by_limits, demand.targets.values(), parts), default=0.0)
    total = Range(
        time.low,
        max(time.expected, by_limits),
        max(time.high + last_call, 2 * by_limits),
    )
    return _figure(total, work.basis)


def _max_seconds_per_answer(part: PartForecast) -> float:
    if part.duration_seconds is None:
        return 0.0
    return part.duration_seconds.high / max(part.answers, 1)


def _seconds_by_limits(target: TargetDemand, part: PartForecast) -> float:
    """Return the minimum seconds of a target under its limits on concurrent calls and on requests per minute."""
    settings = target.settings
    by_rate = 0.0
    if isinstance(settings, RetrySettings) and isinstance(settings.requests_per_minute, int | float):
        by_rate = 60 * target.requests / settings.requests_per_minute
    work = 0.0
    if part.duration_seconds is not None:
        work = part.duration_seconds.expected
    return max(by_rate, work / target.limit)


def _unknown_costs(
    targets: Iterable[PartForecast],
    judges: Iterable[PartForecast],
) -> Iterator[str]:
    for part in targets:
        if part.cost_usd is None:
            yield f"the cost of target {part.name!r} is unknown: {part.unknown}"
    for part in judges:
        if part.cost_usd is None:
            yield f"the cost of judge {part.name!r} is unknown: {part.unknown}"
