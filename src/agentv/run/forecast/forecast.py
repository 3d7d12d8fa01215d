"""A plan, and earlier results -> what a run is expected to do, to take and to find. Nobody is asked."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from agentv.calls.caller import TIMEOUT_SECONDS
from agentv.providers.settings import RetrySettings
from agentv.results.forecast import Basis, Figure, Forecast, PartForecast
from agentv.run.forecast.amounts import NOTHING, Range
from agentv.run.forecast.demand import Demand, ForecastOptions, JudgeDemand, Key, TargetDemand, demand_of, is_batch
from agentv.run.forecast.estimate import Amounts, answer_amounts, judge_amounts, retries_of
from agentv.run.forecast.history import History, Taken, read_history
from agentv.run.jobs import IsDone
from agentv.run.plan import Plan
from agentv.stats.inference import POWER_Z

BETWEEN, WITHIN = 4 / 9, 2 / 3
"""Of the variance of scores, how much stays in the difference of two runs, and how much repeating a case averages out.

With pass or fail at even odds these are 1/9 and 1/6, the usual assumptions where nothing is known."""
VARIANCE, LEAST_VARIANCE = 1 / 4, 0.01
EFFECTS = (0.05, 0.02)
BATCH_SECONDS = Range(0.0, 1800.0, 86_400.0)
"""How long a vendor takes for its batches: no more than a day, and mostly far less."""
START_SECONDS = Range(0.0, 0.5, 10.0)
"""How long a run takes besides its calls."""


def make_forecast(plan: Plan, options: ForecastOptions, is_done: IsDone | None = None) -> Forecast:
    """Return what a run of the plan is expected to do and to take; `is_done` tells what need not be run."""
    demand = demand_of(plan, options, is_done)
    history = read_history(demand, options.runs) if options.runs is not None and options.has_runs else History()
    targets = {key: _target(plan, target, history, options) for key, target in demand.targets.items()}
    judges = {key: _judge(judge, history.judges.get(judge.name), options) for key, judge in demand.judges.items()}
    checks = _checks(demand.checked, history, options) if demand.checked else None
    parts = [*targets.values(), *judges.values(), *([checks] if checks is not None else [])]
    variance = max(history.scores.variance, LEAST_VARIANCE) if history.scores.count > 1 else VARIANCE
    unit = variance * (BETWEEN + 2 * WITHIN / options.trials)
    workers = plan.workers(options.workers)
    return Forecast(
        cases=demand.cases,
        trials=options.trials,
        jobs=demand.jobs,
        workers=workers,
        results=sum(taken.results for taken in history.targets.values()),
        calls=_total(parts, "calls") or _whole(NOTHING, "estimate"),
        tokens=_total(parts, "tokens"),
        cost_usd=None if any(part.cost_usd is None for part in parts) else _total(parts, "cost_usd"),
        duration_seconds=_duration(parts, demand, workers),
        detectable_effect=round(POWER_Z * math.sqrt(unit / demand.cases), 4) if demand.cases else None,
        cases_for={f"{effect:g}": math.ceil(POWER_Z**2 * unit / effect**2) for effect in EFFECTS},
        effect_basis="history" if history.scores.count > 1 else "estimate",
        targets=tuple(targets.values()),
        judges=tuple(judges.values()),
        checks=checks,
        unknown=tuple(_unknown(targets.values(), judges.values())),
    )


def _target(plan: Plan, target: TargetDemand, history: History, options: ForecastOptions) -> PartForecast:
    taken = history.targets.get(target.digest)
    asked = target.jobs - target.cached
    again = 1 + retries_of(target.settings, options.max_retries)
    attempts = taken.calls.mean if taken is not None and not plan.dry_run else 1.0
    calls = Range(asked, asked * min(attempts, again), asked * again)
    amounts = answer_amounts(target, None if plan.dry_run else taken, is_free=plan.dry_run)
    called = "mock" if plan.dry_run else target.settings.describe() if target.settings and not plan.stand_in else ""
    return _part(target.name, called, calls, amounts, taken, answers=target.jobs, cached=target.cached)


def _judge(judge: JudgeDemand, taken: Taken | None, options: ForecastOptions) -> PartForecast:
    most = judge.high * (1 + retries_of(judge.settings, options.max_retries))
    expected = judge.answers * judge.share * taken.calls.mean if taken is not None else judge.calls
    calls = Range(judge.low, min(expected, most), most)
    amounts = judge_amounts(judge, taken, judge.high)
    called = judge.settings.describe()
    return _part(judge.name, called, calls, amounts, taken, answers=judge.answers, cached=judge.cached)


def _part(  # noqa: PLR0913
    name: str, called: str, calls: Range, amounts: Amounts, taken: Taken | None, *, answers: int, cached: int = 0
) -> PartForecast:
    basis: Basis = "history" if taken is not None and taken.results else "estimate"
    return PartForecast(
        name=name,
        called=called,
        answers=answers,
        cached=cached,
        calls=_whole(calls, basis),
        tokens=_whole(amounts.tokens, basis) if amounts.tokens is not None else None,
        cost_usd=_figure(amounts.cost, basis) if amounts.cost is not None else None,
        duration_seconds=_figure(amounts.seconds, basis),
        results=taken.results if taken is not None else 0,
        unknown=amounts.unknown,
    )


def _checks(demand: Mapping[Key, JudgeDemand], history: History, options: ForecastOptions) -> PartForecast:
    """Return what `--check-judge` takes: as many calls as it makes, each as dear as one outside of batches."""
    parts = []
    for asked in demand.values():
        taken, checks = history.judges.get(asked.name), asked.checks
        judge = _judge(_live(asked), taken.live() if taken is not None else None, options)
        share = checks / max(judge.calls.expected, 1)
        figures: dict[str, Any] = {}
        for name in ("calls", "tokens", "cost_usd", "duration_seconds"):
            figure = getattr(judge, name)
            if figure is not None:
                whole = Range(0, figure.expected * share, figure.high * 3 * share)
                figures[name] = (_whole if name in ("calls", "tokens") else _figure)(whole, figure.basis)
        parts.append(PartForecast(name=judge.name, unknown=judge.unknown, **figures))
    unknown = next((part.unknown for part in parts if part.cost_usd is None), "")
    return PartForecast(
        name="checks",
        calls=_total(parts, "calls") or _whole(NOTHING, "estimate"),
        tokens=_total(parts, "tokens"),
        cost_usd=None if any(part.cost_usd is None for part in parts) else _total(parts, "cost_usd"),
        duration_seconds=_total(parts, "duration_seconds"),
        unknown=unknown,
    )


def _live(judge: JudgeDemand) -> JudgeDemand:
    return replace(judge, settings=msgspec.structs.replace(judge.settings, batch_api=False))


def _total(parts: Sequence[PartForecast], name: str) -> Figure | None:
    """Return the sum of a figure over those that have it; from history if all of them are."""
    figures = [figure for part in parts if (figure := getattr(part, name)) is not None]
    if not figures:
        return None if parts else _whole(NOTHING, "estimate")
    total = Range(*(sum(getattr(each, end) for each in figures) for end in Range._fields))
    is_known = all(figure.basis == "history" for figure in figures if figure.high)
    return _figure(total, "history" if is_known and total.high else "estimate")


def _figure(value: Range, basis: Basis) -> Figure:
    return Figure(low=value.low, expected=value.expected, high=value.high, basis=basis)


def _whole(value: Range, basis: Basis) -> Figure:
    """Return a figure of things that are counted."""
    return Figure(low=math.floor(value.low), expected=round(value.expected), high=math.ceil(value.high), basis=basis)


def _duration(parts: Sequence[PartForecast], demand: Demand, workers: int) -> Figure:
    """Return how long the run takes: all the work, divided among the workers, and no faster than limits allow."""
    whole = _total(parts, "duration_seconds") or _figure(NOTHING, "estimate")
    share = 1 / max(1, min(workers, max(demand.jobs, 1)))
    longest = max(
        (part.duration_seconds.high / max(part.answers, 1) for part in parts if part.duration_seconds), default=0
    )
    time = Range(whole.low, whole.expected, whole.high).times(share, share, share) + START_SECONDS
    asked = [*(target.settings for target in demand.targets.values())]
    batches = sum(map(is_batch, [*asked, *(judge.settings for judge in demand.judges.values())]))
    time += BATCH_SECONDS.times(batches, batches, batches)
    slowest = max(map(_slowest, demand.targets.values(), parts), default=0.0)  # targets come first in the parts
    high = max(time.high + min(longest, TIMEOUT_SECONDS), 2 * slowest)
    return _figure(Range(time.low, max(time.expected, slowest), high), whole.basis)


def _slowest(target: TargetDemand, part: PartForecast) -> float:
    """Return the seconds that a target takes at least, by its limits: of calls at once, and of requests a minute."""
    asked, settings = target.jobs - target.cached, target.settings
    rate = settings.requests_per_minute if isinstance(settings, RetrySettings) else None
    paced = 60 * asked / rate if isinstance(rate, int | float) else 0.0
    work = part.duration_seconds.expected if part.duration_seconds is not None else 0.0
    return max(paced, work / target.limit)


def _unknown(targets: Iterable[PartForecast], judges: Iterable[PartForecast]) -> Iterable[str]:
    for kind, parts in (("target", targets), ("judge", judges)):
        yield from (
            f"what {kind} {part.name!r} costs is not known: {part.unknown}" for part in parts if part.cost_usd is None
        )
