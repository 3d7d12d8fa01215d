"""Estimate the tokens, cost and time of requests: from earlier results, or else from the lengths of texts."""

from typing import NamedTuple

from agentv.budget.demand import JudgeDemand, TargetDemand, is_batch
from agentv.budget.history import EarlierUsage
from agentv.budget.ranges import ZERO, Range
from agentv.providers.mock import MockSettings
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.pricing import Pricing
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.records import TokenUsage
from agentv.targets.prices import own_pricing, takes_pricing

TOKENS_PER_CHARACTER = Range(1 / 6, 1 / 4, 1 / 2)
"""English text has about four characters per token, other text has fewer."""
REQUEST_OVERHEAD_TOKENS = Range(0, 10, 60)
"""Tokens of a request in addition to its text."""
MEDIA_TOKENS = Range(80, 1000, 6000)
"""Tokens of an image or a PDF."""
ANSWER_TOKENS = Range(1, 300, 4096)
"""Tokens of an answer. The maximum is `max_output_tokens` if that is set."""
ANSWER_CHARACTERS = Range(0, 1200, 16_000)
JUDGE_PROMPT_CHARACTERS = Range(500, 2000, 6000)
"""Characters of the part that all prompts of judges share."""
JUDGEMENT_TOKENS = Range(5, 150, 1500)
MODEL_SECONDS = Range(0, 3, 60)
AGENT_SECONDS = Range(0, 90, 600)
OTHER_SECONDS = Range(0, 1, 60)


class Amounts(NamedTuple):
    """The total tokens, cost and time of requests. Tokens and cost may be unknown."""

    tokens: Range | None
    cost: Range | None
    seconds: Range
    unknown: str = ""
    """Why the cost is unknown."""


def retries_of(
    settings: TargetSettings | None,
    max_retries: int | None,
) -> int:
    """Return the maximum number of retries of a call; `max_retries` is the option of the run."""
    if max_retries is not None:
        return max_retries
    if not isinstance(settings, RetrySettings):
        return 0
    if isinstance(settings.max_retries, int):
        return settings.max_retries
    return settings.retries


def answer_amounts(
    target: TargetDemand,
    usage: EarlierUsage | None,
    *,
    is_free: bool,
) -> Amounts:
    """Return the amounts for all answers of a target that are not in the cache."""
    requests = target.requests
    settings = target.settings
    if settings is not None and settings.is_free:
        is_free = True
    if is_free:
        return Amounts(
            tokens=ZERO,
            cost=ZERO,
            seconds=_mock_seconds(settings).times_exactly(requests),
        )
    if usage is not None:
        return _from_history(usage, requests, target.calls, settings)
    seconds = _seconds_per_call(settings).times_exactly(target.calls)
    if not isinstance(settings, LanguageModelSettings):
        return Amounts(None, None, seconds, _why_unknown(settings))
    characters = target.characters + requests * len(settings.system_prompt or "")
    text = TOKENS_PER_CHARACTER.times_exactly(characters)
    overhead = REQUEST_OVERHEAD_TOKENS.times_exactly(requests)
    media = MEDIA_TOKENS.times_exactly(target.media)
    answers = _limit_output(ANSWER_TOKENS, settings).times_exactly(requests)
    return _with_cost(
        sent=text + overhead + media,
        received=answers,
        seconds=seconds,
        requests=requests,
        settings=settings,
    )


def judge_amounts(
    judge: JudgeDemand,
    usage: EarlierUsage | None,
) -> Amounts:
    """Return the amounts for all judgements of a judge."""
    settings = judge.settings
    calls = (judge.low, judge.calls, judge.high)
    if settings.is_free:
        return Amounts(
            tokens=ZERO,
            cost=ZERO,
            seconds=_mock_seconds(settings).times(*calls),
        )
    if usage is not None:
        amounts = _from_history(usage, judge.answers, judge.answers, settings)
        if judge.low == 0:
            # the cache may have all judgements
            amounts = _from_zero(amounts)
        return amounts
    seconds = _seconds_per_call(settings).times(*calls)
    if not isinstance(settings, LanguageModelSettings):
        return Amounts(None, None, seconds, _why_unknown(settings))
    own_characters: float = len(settings.system_prompt or "")
    if judge.calls:
        own_characters += judge.characters / judge.calls
    own = Range(own_characters, own_characters, own_characters)
    prompt = JUDGE_PROMPT_CHARACTERS + ANSWER_CHARACTERS + own
    text = prompt.times(*calls).times(*TOKENS_PER_CHARACTER)
    overhead = REQUEST_OVERHEAD_TOKENS.times(*calls)
    judgements = _limit_output(JUDGEMENT_TOKENS, settings).times(*calls)
    return _with_cost(
        sent=text + overhead,
        received=judgements,
        seconds=seconds,
        requests=judge.calls,
        settings=settings,
    )


def _from_zero(amounts: Amounts) -> Amounts:
    """Return the amounts with 0 as the lower bound of tokens and cost."""
    tokens = amounts.tokens
    if tokens is not None:
        tokens = tokens._replace(low=0.0)
    cost = amounts.cost
    if cost is not None:
        cost = cost._replace(low=0.0)
    return amounts._replace(tokens=tokens, cost=cost)


def _from_history(
    usage: EarlierUsage,
    results: int,
    calls: int,
    settings: TargetSettings | None,
) -> Amounts:
    """Return the amounts for a number of results, based on earlier ones, and on `calls` if these had no duration."""
    tokens = None
    if usage.input.count or usage.output.count:
        sent = usage.input.predict_sum(results)
        received = usage.output.predict_sum(results)
        tokens = sent + received
    seconds = _seconds_per_call(settings).times_exactly(calls)
    if usage.seconds.count:
        seconds = usage.seconds.predict_sum(results)
    # durations vary with the load, and a single slow call may be the last one
    slowest = Range(0, 0, usage.seconds.largest)
    seconds = seconds.times(0.5, 1, 2) + slowest
    if not usage.cost.count:
        return Amounts(tokens, None, seconds, _why_unknown(settings))
    return Amounts(tokens, usage.cost.predict_sum(results), seconds)


def _with_cost(
    sent: Range,
    received: Range,
    seconds: Range,
    requests: int,
    settings: TargetSettings,
) -> Amounts:
    """Return the amounts for these tokens, with their cost at the prices of the target."""
    tokens = sent + received
    pricing = own_pricing(settings)
    if pricing is None:
        return Amounts(tokens, None, seconds, _why_unknown(settings))
    batch = is_batch(settings)
    cost = Range(
        _cost(pricing, sent.low, received.low, requests, batch=batch),
        _cost(pricing, sent.expected, received.expected, requests, batch=batch),
        _cost(pricing, sent.high, received.high, requests, batch=batch),
    )
    return Amounts(tokens, cost, seconds)


def _cost(
    pricing: Pricing,
    sent: float,
    received: float,
    requests: int,
    *,
    batch: bool,
) -> float:
    """Return the cost of a number of requests with these tokens in total."""
    requests = max(requests, 1)
    scale = 1000  # tokens are whole numbers: price a thousand average requests, which loses less by rounding
    if pricing.long:
        scale = 1  # prices depend on the length of a single request
    usage = TokenUsage(
        input=round(scale * sent / requests),
        output=round(scale * received / requests),
    )
    return pricing.cost(usage, batch=batch) * requests / scale


def _limit_output(
    tokens: Range,
    settings: LanguageModelSettings,
) -> Range:
    """Return the range of output tokens under the limit that the target sets."""
    limit = settings.max_output_tokens
    if not isinstance(limit, int):
        return tokens
    return Range(
        low=min(tokens.low, limit),
        expected=min(tokens.expected, limit),
        high=limit,
    )


def _seconds_per_call(settings: TargetSettings | None) -> Range:
    if isinstance(settings, LanguageModelSettings):
        return MODEL_SECONDS
    if settings is not None and settings.reads_files:
        return AGENT_SECONDS
    return OTHER_SECONDS


def _mock_seconds(settings: TargetSettings | None) -> Range:
    """Return the seconds of one call of a mock target: its delay, and a little more."""
    if not isinstance(settings, MockSettings):
        return Range(0, 0.001, 0.1)
    delays = []
    for delay in (settings.delay_min_ms, settings.delay_ms, settings.delay_max_ms):
        if delay:
            delays.append(float(delay) / 1000)
    shortest = min(delays, default=0.0)
    longest = max(delays, default=0.0)
    return Range(
        low=shortest,
        expected=(shortest + longest) / 2 + 0.001,
        high=longest + 0.1,
    )


def _why_unknown(settings: TargetSettings | None) -> str:
    """Return why the cost of a target is unknown."""
    if isinstance(settings, LanguageModelSettings):
        return "it has no 'pricing', and its model is not in any price list"
    if settings is not None and takes_pricing(settings):
        return "the token usage of an agent is estimated from earlier results, and there are none"
    return "its cost is known only from earlier results, and none reports a cost"
