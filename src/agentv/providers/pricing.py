"""What the tokens of a language model cost."""

from typing import Annotated

import msgspec
from msgspec import Meta

from agentv.providers.settings import Amount
from agentv.records import TokenUsage


class LongPricing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD for a million tokens of a request with a long input; what is left out costs as it does otherwise."""

    above: Annotated[int, Meta(ge=1, description="The prices are for requests with more input tokens than this.")]
    input: Amount | None = None
    output: Amount | None = None
    cached: Amount | None = None
    cache_write: Amount | None = None


class Pricing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD for a million tokens."""

    input: Amount | None = None
    output: Amount | None = None
    cached: Annotated[Amount | None, Meta(description="Read from the cache; as input if left out.")] = None
    cache_write: Annotated[Amount | None, Meta(description="Written to the cache; as input if left out.")] = None
    reasoning: Annotated[Amount | None, Meta(description="Thought before the answer; as output if left out.")] = None
    batch_input: Annotated[
        Amount | None, Meta(description="Input that is sent through a batch API; half of input if left out.")
    ] = None
    batch_output: Annotated[
        Amount | None, Meta(description="Output that comes from a batch API; half of output if left out.")
    ] = None
    long: Annotated[tuple[LongPricing, ...] | None, Meta(description="Other prices for long inputs.")] = None

    def cost(self, usage: TokenUsage, *, batch: bool = False) -> float:
        """Return what the tokens cost in USD; of a request that went through a batch API, if `batch` is true."""
        tier = self._long(usage.input or 0)
        price, output = _first(tier.input, self.input, 0), _first(tier.output, self.output, 0)
        cached_price = _first(tier.cached, self.cached, price)
        written_price = _first(tier.cache_write, self.cache_write, price)
        thought_price = _first(tier.output, self.reasoning, output)
        if batch:
            listed = (self.batch_input, self.batch_output) if not tier.above else (None, None)
            price, output = _first(listed[0], price / 2), _first(listed[1], output / 2)
            cached_price, written_price = cached_price / 2, written_price / 2
            thought_price = output if self.reasoning is None else thought_price / 2
        cached, written, thought = usage.cached or 0, usage.cache_write or 0, usage.reasoning or 0
        fresh, said = max(0, (usage.input or 0) - cached - written), max(0, (usage.output or 0) - thought)
        tokens = fresh * price + cached * cached_price + written * written_price
        return (tokens + said * output + min(thought, usage.output or 0) * thought_price) / 1_000_000

    def _long(self, tokens: int) -> LongPricing:
        """Return the prices for this much input that are others; none, if they are not."""
        found = [tier for tier in self.long or () if tokens > tier.above]
        return max(found, key=lambda tier: tier.above, default=_NOT_LONG)


_NOT_LONG = LongPricing(above=0)


def _first(*prices: float | str | None) -> float:
    """Return the first price that is given; variables have been filled in by now."""
    return next(float(price) for price in prices if price is not None)
