"""Token prices of a language model, and the cost of a request."""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from agentv.providers.settings import Amount
from agentv.records import TokenUsage


class LongPricing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens of a request with a long input. Omitted prices are the same as for other requests."""

    above: Annotated[
        int,
        Meta(ge=1, description="The prices apply to requests with more input tokens than this."),
    ]
    input: Amount | None = None
    """Input tokens."""
    output: Amount | None = None
    """Output tokens."""
    cached: Amount | None = None
    """Input read from the cache."""
    cache_write: Amount | None = None
    """Input written to the cache."""


class Pricing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD for a million tokens."""

    input: Amount | None = None
    """Input tokens."""
    output: Amount | None = None
    """Output tokens."""
    cached: Annotated[
        Amount | None,
        Meta(description="Input read from the cache; defaults to the price of input."),
    ] = None
    cache_write: Annotated[
        Amount | None,
        Meta(description="Input written to the cache; defaults to the price of input."),
    ] = None
    reasoning: Annotated[
        Amount | None,
        Meta(description="Reasoning; defaults to the price of output."),
    ] = None
    batch_input: Annotated[
        Amount | None,
        Meta(description="Input of a batch API; defaults to half the price of input."),
    ] = None
    batch_output: Annotated[
        Amount | None,
        Meta(description="Output of a batch API; defaults to half the price of output."),
    ] = None
    long: Annotated[
        tuple[LongPricing, ...] | None,
        Meta(description="Other prices for long inputs."),
    ] = None

    def cost(self, usage: TokenUsage, *, batch: bool = False) -> float:
        """Return the cost of the tokens in USD, at the prices of the batch API if `batch` is true."""
        input_tokens = usage.input or 0
        output_tokens = usage.output or 0
        cached = usage.cached or 0
        written = usage.cache_write or 0
        reasoning = usage.reasoning or 0

        tier = self._long_tier(input_tokens)
        prices = self._tier_prices(tier)
        if batch:
            prices = self._batch_prices(tier, prices)

        # `usage.input` includes the cached and written tokens, `usage.output` the reasoning tokens. A vendor's counts
        # may be inconsistent, hence the bounds.
        uncached = max(0, input_tokens - cached - written)
        answer = max(0, output_tokens - reasoning)
        input_cost = uncached * prices.input + cached * prices.cached + written * prices.cache_write
        answer_cost = answer * prices.output
        reasoning_cost = min(reasoning, output_tokens) * prices.reasoning
        return (input_cost + answer_cost + reasoning_cost) / 1_000_000

    def _long_tier(self, input_tokens: int) -> LongPricing:
        """Return the highest tier that applies to an input of this length, or `_NOT_LONG`."""
        tiers = [tier for tier in self.long or () if input_tokens > tier.above]
        return max(tiers, key=lambda tier: tier.above, default=_NOT_LONG)

    def _tier_prices(self, tier: LongPricing) -> "_Prices":
        """Return the prices in a tier, with every default filled in."""
        input_price = _first_set(tier.input, self.input, 0)
        output_price = _first_set(tier.output, self.output, 0)
        return _Prices(
            input=input_price,
            output=output_price,
            cached=_first_set(tier.cached, self.cached, input_price),
            cache_write=_first_set(tier.cache_write, self.cache_write, input_price),
            reasoning=_first_set(tier.output, self.reasoning, output_price),
        )

    def _batch_prices(self, tier: LongPricing, prices: "_Prices") -> "_Prices":
        """Return the prices of the batch API: half of the others, unless the settings state them."""
        input_price = prices.input / 2
        output_price = prices.output / 2
        if not tier.above:  # the batch prices in the settings are those of short inputs
            input_price = _first_set(self.batch_input, input_price)
            output_price = _first_set(self.batch_output, output_price)
        reasoning_price = output_price
        if self.reasoning is not None:
            reasoning_price = prices.reasoning / 2
        return _Prices(
            input=input_price,
            output=output_price,
            cached=prices.cached / 2,
            cache_write=prices.cache_write / 2,
            reasoning=reasoning_price,
        )


_NOT_LONG = LongPricing(above=0)
"""The tier of short inputs, which changes no price."""


class _Prices(NamedTuple):
    """USD per million tokens of one request."""

    input: float
    output: float
    cached: float
    cache_write: float
    reasoning: float


def _first_set(*prices: float | str | None) -> float:
    """Return the first price that is not None. Variables have been filled in by now."""
    return next(float(price) for price in prices if price is not None)
