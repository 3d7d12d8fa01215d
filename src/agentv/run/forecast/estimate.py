"""What a target is asked for -> tokens, money and time, from earlier results, else from the lengths of texts."""

from typing import NamedTuple

from agentv.providers.mock import MockSettings
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.pricing import Pricing
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.records import TokenUsage
from agentv.run.forecast.amounts import NOTHING, Range
from agentv.run.forecast.demand import JudgeDemand, TargetDemand, is_batch
from agentv.run.forecast.history import Taken
from agentv.targets.prices import own_pricing, takes_pricing

CHARACTERS = Range(1 / 6, 1 / 4, 1 / 2)
"""Tokens for each character: text in English has about four characters a token, other text has fewer."""
OVERHEAD = Range(0, 10, 60)
"""Tokens that a request has besides its text."""
MEDIA = Range(80, 1000, 6000)
"""Tokens of an image or a PDF."""
ANSWER = Range(1, 300, 4096)
"""Tokens of an answer; at most `max_output_tokens`, if that is set."""
ANSWER_CHARACTERS = Range(0, 1200, 16_000)
JUDGE_PROMPT = Range(500, 2000, 6000)
"""Characters of what all prompts of judges share."""
JUDGEMENT = Range(5, 150, 1500)
MODEL_SECONDS, AGENT_SECONDS, OTHER_SECONDS = Range(0, 3, 60), Range(0, 90, 600), Range(0, 1, 60)


class Amounts(NamedTuple):
    """What calls take: tokens and money may not be known."""

    tokens: Range | None
    cost: Range | None
    seconds: Range
    unknown: str = ""
    """Why the cost is not known."""


def retries_of(settings: TargetSettings | None, asked: int | None) -> int:
    """Return how often a failed call is repeated at most."""
    if asked is not None:
        return asked
    if not isinstance(settings, RetrySettings):
        return 0
    return settings.max_retries if isinstance(settings.max_retries, int) else settings.retries


def answer_amounts(target: TargetDemand, taken: Taken | None, *, is_free: bool) -> Amounts:
    """Return what the answers of a target take that the cache does not have."""
    asked, settings = target.jobs - target.cached, target.settings
    if is_free or (settings is not None and settings.is_free):
        seconds = _mock_seconds(settings).times(asked, asked, asked)
        return Amounts(NOTHING, NOTHING, seconds)
    if taken is not None:
        return _from_history(taken, asked, settings)
    seconds = _seconds(settings).times(asked, asked, asked)
    if not isinstance(settings, LanguageModelSettings):
        return Amounts(None, None, seconds, _why_unknown(settings))
    texts = CHARACTERS.times(*[target.characters + asked * len(settings.system_prompt or "")] * 3)
    own = _limited(ANSWER, settings).times(asked, asked, asked)
    sent = texts + OVERHEAD.times(asked, asked, asked) + MEDIA.times(*[target.media] * 3)
    return _priced(sent, own, seconds, asked, settings)


def judge_amounts(judge: JudgeDemand, taken: Taken | None, most: int) -> Amounts:
    """Return what the judgements of a judge take; `most` is the number of calls at most."""
    if judge.settings.is_free:
        return Amounts(NOTHING, NOTHING, _mock_seconds(judge.settings).times(judge.low, judge.calls, most))
    if taken is not None:
        found = _from_history(taken, judge.answers * judge.share, judge.settings)
        if judge.low == 0:  # the cache may have all of them
            found = found._replace(
                tokens=found.tokens and found.tokens._replace(low=0.0), cost=found.cost and found.cost._replace(low=0.0)
            )
        return found
    settings, low, calls = judge.settings, judge.low, judge.calls
    seconds = _seconds(settings).times(low, calls, most)
    if not isinstance(settings, LanguageModelSettings):
        return Amounts(None, None, seconds, _why_unknown(settings))
    system = len(settings.system_prompt or "")
    shared = (JUDGE_PROMPT + ANSWER_CHARACTERS + Range(system, system, system)).times(low, calls, most)
    share = judge.characters / calls if calls else 0.0
    texts = shared + Range(share * low, share * calls, share * most)
    sent = texts.times(*CHARACTERS) + OVERHEAD.times(low, calls, most)
    return _priced(sent, _limited(JUDGEMENT, settings).times(low, calls, most), seconds, calls, settings)


def _from_history(taken: Taken, more: float, settings: TargetSettings | None) -> Amounts:
    tokens = taken.input.sum_of(more) + taken.output.sum_of(more) if taken.input.count or taken.output.count else None
    cost = taken.cost.sum_of(more) if taken.cost.count else None
    whole = taken.seconds.sum_of(more) if taken.seconds.count else _seconds(settings).times(more, more, more)
    seconds = whole.times(0.5, 1, 2) + Range(0, 0, taken.seconds.most)
    return Amounts(tokens, cost, seconds, "" if cost is not None else _why_unknown(settings))


def _priced(sent: Range, said: Range, seconds: Range, asked: int, settings: TargetSettings) -> Amounts:
    """Return what tokens that are sent and given cost."""
    pricing = own_pricing(settings)
    if pricing is None:
        return Amounts(sent + said, None, seconds, _why_unknown(settings))
    costs = [_cost(pricing, tokens, max(asked, 1), is_batch(settings)) for tokens in zip(sent, said, strict=True)]
    return Amounts(sent + said, Range(*costs), seconds)


def _cost(pricing: Pricing, tokens: tuple[float, float], asked: int, batch: bool) -> float:
    """Return what the tokens of so many requests cost; a single one may have another price, being long."""
    usage = TokenUsage(input=round(1000 * tokens[0] / asked), output=round(1000 * tokens[1] / asked))
    whole = TokenUsage(input=round(tokens[0] / asked), output=round(tokens[1] / asked))
    if pricing.long:
        return pricing.cost(whole, batch=batch) * asked
    return pricing.cost(usage, batch=batch) * asked / 1000


def _limited(tokens: Range, settings: LanguageModelSettings) -> Range:
    limit = settings.max_output_tokens
    if not isinstance(limit, int):
        return tokens
    return Range(min(tokens.low, limit), min(tokens.expected, limit), limit)


def _seconds(settings: TargetSettings | None) -> Range:
    """Return the seconds of one call."""
    if isinstance(settings, LanguageModelSettings):
        return MODEL_SECONDS
    return AGENT_SECONDS if settings is not None and settings.reads_files else OTHER_SECONDS


def _mock_seconds(settings: TargetSettings | None) -> Range:
    if not isinstance(settings, MockSettings):
        return Range(0, 0.001, 0.1)
    delays = [
        float(delay) / 1000 for delay in (settings.delay_min_ms, settings.delay_ms, settings.delay_max_ms) if delay
    ]
    low, high = min(delays, default=0.0), max(delays, default=0.0)
    return Range(low, (low + high) / 2 + 0.001, high + 0.1)


def _why_unknown(settings: TargetSettings | None) -> str:
    if isinstance(settings, LanguageModelSettings):
        return "it has no 'pricing', and no price list that was named has its model"
    if settings is not None and takes_pricing(settings):
        return "how many tokens an agent uses is known from earlier results only, and there are none"
    return "it would have to report its cost itself, and no earlier results of it have one"
