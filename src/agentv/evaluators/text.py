"""Checks on the words of an answer."""

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agentv.records import Exchange, Score

Text = Annotated[str, Meta(min_length=1)]


class _Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compares the answer with one text, or with several of which all or any must hold."""

    value: str | Annotated[tuple[str, ...], Meta(min_length=1)]
    require: Literal["all", "any"] = "all"
    negate: bool = False
    case_sensitive: bool = True

    def _score(self, exchange: Exchange, holds: Callable[[str, str], bool], verb: str) -> Score:
        answer = self._folded(exchange.response.text)
        hits: list[str] = []
        misses: list[str] = []
        for value in (self.value,) if isinstance(self.value, str) else self.value:
            held = holds(answer, self._folded(value))
            words = f"{verb}s {value!r}" if held else f"does not {verb} {value!r}"
            (hits if held is not self.negate else misses).append(words)
        passed = not misses if self.require == "all" else bool(hits)
        return Score(score=1.0 if passed else 0.0, hits=tuple(hits), misses=() if passed else tuple(misses))

    def _folded(self, text: str) -> str:
        return text if self.case_sensitive else text.casefold()


class Contains(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the value stands somewhere in the answer."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, lambda answer, value: value in answer, "contain")


class Equals(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer is the value, white space around it aside."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, lambda answer, value: answer.strip() == value.strip(), "equal")
