"""Look up what the tokens of a target cost in a price list.

The list is JSON in the format of LiteLLM's model price list: an object with an entry per model, whose prices are in
USD per token. No prices are built in: they change, and an outdated price would give a wrong cost.
"""

import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import ConfigError
from agentv.providers.pricing import LongPricing, Pricing
from agentv.providers.settings import TargetSettings
from agentv.records import Problem
from agentv.targets.read import TargetEntry, TargetList

PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
    "batch_input": "input_cost_per_token_batches",
    "batch_output": "output_cost_per_token_batches",
}
"""The key in the list of each field of a `Pricing`."""
LONG = ("input", "output", "cached", "cache_write")
"""The prices that may differ for long inputs."""
_ABOVE = re.compile(r"(\w+?)_above_(\d+)k_tokens")
MILLION = 1_000_000
MODEL_SETTINGS = ("model", "deployment")
"""The settings that may name the model of a target."""
SHOWN_NAMES = 3
FORM = """write it in the form of LiteLLM's model price list:
{"MODEL": {"input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05}}"""


class PriceList:
    """The prices of models, by name."""

    def __init__(self, path: Path):
        """Read a price list; raise `ConfigError` if the file is not one."""
        self.path = path
        try:
            entries = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"the price list cannot be read: {error.strerror}",
                file=path,
                hint="pass a JSON file in the format of LiteLLM's model price list",
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"the price list is not valid JSON: {error}", file=path, hint=FORM) from error
        if not isinstance(entries, dict):
            raise ConfigError("the price list must be a JSON object", file=path, hint=FORM)
        self._entries: dict[str, Any] = entries

    def pricing(self, settings: TargetSettings) -> Pricing | None:
        """Return the prices of a target's model, or None if the list does not contain it.

        Raise `ConfigError` if the entry of the model is invalid.
        """
        for name in price_names(settings):
            if name in self._entries:
                return self._convert(name, self._entries[name])
        return None

    def similar_names(self, model: str) -> list[str]:
        """Return the names in the list that are similar to a model's name, the most similar first."""
        from difflib import get_close_matches

        full_names: dict[str, str] = {}
        for name in self._entries:
            last_part = name.rpartition("/")[2]
            full_names.setdefault(last_part, name)
        matches = get_close_matches(model, list(full_names), n=SHOWN_NAMES, cutoff=0.6)
        return [full_names[match] for match in matches]

    def _convert(self, name: str, entry: Any) -> Pricing:
        if not isinstance(entry, dict):
            raise ConfigError(f"the entry of {name!r} must be an object", file=self.path, hint=FORM)
        prices = {}
        for field, key in PRICES.items():
            prices[field] = self._price(name, entry, key)
        for field in ("input", "output"):
            if prices[field] is None:
                raise ConfigError(
                    f"the entry of {name!r} has no {PRICES[field]}",
                    file=self.path,
                    hint="give the target a 'pricing' of its own",
                )
        return Pricing(**prices, long=self._long_prices(name, entry) or None)

    def _long_prices(self, name: str, entry: dict[str, Any]) -> tuple[LongPricing, ...]:
        """Return the prices for long inputs, whose keys contain the limit: `input_cost_per_token_above_200k_tokens`."""
        fields = {PRICES[field]: field for field in LONG}
        prices_above: dict[int, dict[str, float | None]] = {}
        for key in entry:
            match = _ABOVE.fullmatch(key)
            if match is None or match[1] not in fields:
                continue
            field = fields[match[1]]
            limit = int(match[2]) * 1000
            prices = prices_above.setdefault(limit, {})
            prices[field] = self._price(name, entry, key)
        tiers = []
        for limit, prices in sorted(prices_above.items()):
            tiers.append(LongPricing(above=limit, **prices))
        return tuple(tiers)

    def _price(self, name: str, entry: dict[str, Any], key: str) -> float | None:
        """Return a price in USD per million tokens; raise `ConfigError` if it is not a price."""
        value = entry.get(key)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise ConfigError(f"{name!r}: {key} is {value!r}, not a number", file=self.path, hint=FORM)
        if value < 0:
            raise ConfigError(
                f"{name!r}: {key} is {value!r}, which is negative",
                file=self.path,
                hint="prices must be at least 0",
            )
        price: float = value * MILLION
        return round(price, 9)  # 0.1e-06 * 1,000,000 is 0.09999999999999999


class PriceLists:
    """Set the prices of targets that have none of their own. Each list is read once."""

    def __init__(self) -> None:
        self._lists: dict[Path, PriceList] = {}

    def apply(
        self,
        read: TargetList,
        path: Path | None,
        used: Collection[str],
    ) -> tuple[TargetList, list[Problem]]:
        """Return the targets with prices from a list, and warnings for the `used` ones without a known price.

        Raise `ConfigError` if the list is invalid.
        """
        if path is None:
            return read, []
        if path not in self._lists:
            self._lists[path] = PriceList(path)
        prices = self._lists[path]
        entries = []
        problems: list[Problem] = []
        for entry in read.entries:
            settings = entry.settings
            if settings is None or not _needs_pricing(settings):
                entries.append(entry)
                continue
            is_used = entry.name in used
            pricing = _find_pricing(entry, settings, prices, is_used)
            if pricing is None:
                entries.append(entry)
                if is_used:
                    problems.append(_unknown_price(entry, settings, prices))
                continue
            priced = msgspec.structs.replace(settings, pricing=pricing)
            entries.append(entry._replace(settings=priced))
        return read._replace(entries=tuple(entries)), problems


def _find_pricing(
    entry: TargetEntry,
    settings: TargetSettings,
    prices: PriceList,
    is_used: bool,
) -> Pricing | None:
    """Return the prices of a target's model; raise `ConfigError` if they are invalid and the target is used."""
    try:
        return prices.pricing(settings)
    except ConfigError as error:
        if not is_used:
            return None
        raise ConfigError(
            f"target {entry.name!r}: {error.message}",
            file=error.file,
            hint=error.hint,
        ) from error


def _needs_pricing(settings: TargetSettings) -> bool:
    return takes_pricing(settings) and own_pricing(settings) is None


def takes_pricing(settings: TargetSettings) -> bool:
    """Return whether a target has tokens that can be priced."""
    return "pricing" in settings.__struct_fields__


def own_pricing(settings: TargetSettings) -> Pricing | None:
    """Return the prices in a target's settings, or None if it has none."""
    pricing = getattr(settings, "pricing", None)
    if isinstance(pricing, Pricing):
        return pricing
    return None


def price_names(settings: TargetSettings) -> list[str]:
    """Return the names to look up for a target's model: as configured, then with the vendor as a prefix."""
    models = []
    for name in MODEL_SETTINGS:
        model = getattr(settings, name, None)
        if model:
            models.append(str(model))
    prefix = getattr(settings, "price_prefix", settings.provider)
    prefixed = [f"{prefix}/{model}" for model in models]
    return models + prefixed


def _unknown_price(
    entry: TargetEntry,
    settings: TargetSettings,
    prices: PriceList,
) -> Problem:
    """Return a warning that the price of a target is not known, and why."""
    names = price_names(settings)
    hint = "give the target a 'pricing' of its own"
    if not names:
        reason = f"it has no model to look up in {prices.path}"
    else:
        reason = f"{prices.path} has no model {names[0]!r}"
        similar = prices.similar_names(names[0])
        if similar:
            hint = f"it has {', '.join(map(repr, similar))}; or {hint}"
    place = entry.place(*MODEL_SETTINGS)
    return Problem(
        message=f"{entry.title}: unknown token prices: {reason}",
        severity="warning",
        line=place.line,
        column=place.column,
        hint=hint,
    )
