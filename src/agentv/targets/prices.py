"""A price list -> what the tokens of a target cost.

The list is JSON in the form of LiteLLM's model price list: an object with an entry for each model, whose prices are USD
for one token. No prices are built in: they change, and a stale price is a wrong figure.
"""

import math
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import ConfigError
from agentv.formats.yaml import Place
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
"""How the list calls what a `Pricing` has."""
LONG = ("input", "output", "cached", "cache_write")
_ABOVE = re.compile(r"(\w+?)_above_(\d+)k_tokens")
MILLION = 1_000_000
CALLED = ("model", "deployment")
SHOWN_NAMES = 3


class PriceList:
    """The prices of models, by their names."""

    def __init__(self, path: Path):
        """Raise `ConfigError` if the file is no price list."""
        self.path = path
        try:
            found = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            hint = "name a JSON file in the form of LiteLLM's model price list"
            raise ConfigError(f"the price list cannot be read: {error.strerror}", file=path, hint=hint) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"the price list is no JSON: {error}", file=path, hint=FORM) from error
        if not isinstance(found, dict):
            raise ConfigError("the price list is no JSON object", file=path, hint=FORM)
        self._entries: dict[str, Any] = found

    def pricing(self, settings: TargetSettings) -> Pricing | None:
        """Return what a target's tokens cost; None if the list does not have its model.

        Raise `ConfigError` if what it says cannot be used.
        """
        for name in price_names(settings):
            if name in self._entries:
                return self._convert(name, self._entries[name])
        return None

    def like(self, model: str) -> list[str]:
        """Return the names in the list that come near to that of a model, the nearest first."""
        from difflib import get_close_matches

        tails: dict[str, str] = {}
        for name in self._entries:
            tails.setdefault(name.rpartition("/")[2], name)
        return [tails[tail] for tail in get_close_matches(model, list(tails), n=SHOWN_NAMES, cutoff=0.6)]

    def _convert(self, name: str, entry: Any) -> Pricing:
        if not isinstance(entry, dict):
            raise ConfigError(f"the entry of {name!r} is no object", file=self.path, hint=FORM)
        known = {field: self._price(name, entry, key) for field, key in PRICES.items()}
        if known["input"] is None or known["output"] is None:
            missing = next(key for field, key in PRICES.items() if known[field] is None)
            hint = "give the target a 'pricing' of its own"
            raise ConfigError(f"the entry of {name!r} has no {missing}", file=self.path, hint=hint)
        return Pricing(**known, long=tuple(self._long(name, entry)) or None)

    def _long(self, name: str, entry: dict[str, Any]) -> Iterator[LongPricing]:
        """Yield the prices for long inputs, which have the limit in their names."""
        fields = {PRICES[field]: field for field in LONG}
        found: dict[int, dict[str, float | None]] = {}
        for key in entry:
            if (match := _ABOVE.fullmatch(key)) is not None and match[1] in fields:
                found.setdefault(int(match[2]) * 1000, {})[fields[match[1]]] = self._price(name, entry, key)
        for above, prices in sorted(found.items()):
            yield LongPricing(above=above, **prices)

    def _price(self, name: str, entry: dict[str, Any], key: str) -> float | None:
        """Return a price in USD for a million tokens."""
        value = entry.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{name!r}: {key} is {value!r}, and no number", file=self.path, hint=FORM)
        if value < 0:
            hint = "a price is 0 or more"
            raise ConfigError(f"{name!r}: {key} is {value!r}, which is negative", file=self.path, hint=hint)
        return round(value * MILLION, 9)


FORM = """write it in the form of LiteLLM's model price list:
{"MODEL": {"input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05}}"""


class PriceLists:
    """Gives targets their prices: those of their own, else those of a list, which is read once."""

    def __init__(self) -> None:
        self._lists: dict[Path, PriceList] = {}

    def apply(self, read: TargetList, path: Path | None, used: Collection[str]) -> tuple[TargetList, list[Problem]]:
        """Return the targets with the prices of a list, and what a user of the `used` ones must know.

        Raise `ConfigError` if the list cannot be used.
        """
        if path is None:
            return read, []
        if path not in self._lists:
            self._lists[path] = PriceList(path)
        problems: list[Problem] = []
        entries = [_priced(entry, self._lists[path], problems, entry.name in used) for entry in read.entries]
        return read._replace(entries=tuple(entries)), problems


def _priced(entry: TargetEntry, prices: PriceList, problems: list[Problem], is_used: bool) -> TargetEntry:
    """Return a target with its prices; add to the problems that they are not known, if it is used."""
    settings = entry.settings
    if settings is None or not takes_pricing(settings) or own_pricing(settings) is not None:
        return entry
    try:
        pricing = prices.pricing(settings)
    except ConfigError as error:
        if is_used:
            message = f"target {entry.name!r}: {error.message}"
            raise ConfigError(message, file=error.file, hint=error.hint) from error
        return entry
    if pricing is None:
        if is_used:
            problems.append(_unknown(entry, settings, prices))
        return entry
    return entry._replace(settings=msgspec.structs.replace(settings, pricing=pricing))


def takes_pricing(settings: TargetSettings) -> bool:
    """Return whether a target has tokens that can be priced."""
    return "pricing" in settings.__struct_fields__


def own_pricing(settings: TargetSettings) -> Pricing | None:
    """Return what a target's tokens cost, if that is known."""
    found = getattr(settings, "pricing", None)
    return found if isinstance(found, Pricing) else None


def price_names(settings: TargetSettings) -> list[str]:
    """Return the names under which a list may have a target's model: as it is written, then with who sells it."""
    models = [str(model) for name in CALLED if (model := getattr(settings, name, None))]
    prefix = getattr(settings, "price_prefix", settings.provider)
    return [*models, *(f"{prefix}/{model}" for model in models)]


def _unknown(entry: TargetEntry, settings: TargetSettings, prices: PriceList) -> Problem:
    """Return that the price of a target is not known, and why."""
    names = price_names(settings)
    hint = "give the target a 'pricing' of its own"
    if not names:
        what = f"it names no model to look up in {prices.path}"
    else:
        what = f"{prices.path} has no model {names[0]!r}"
        if like := prices.like(names[0]):
            hint = f"it has {', '.join(map(repr, like))}; or {hint}"
    place = entry.places.get("model") or entry.places.get("deployment") or entry.places.get("") or Place(1, 1)
    message = f"{entry.title}: what its tokens cost is not known: {what}"
    return Problem(message=message, severity="warning", line=place.line, column=place.column, hint=hint)
