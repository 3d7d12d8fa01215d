"""Checks on the words of an answer."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.evaluators.checks.matching import Require, score_check, score_checks
from agentv.judges.payload import reference_answer
from agentv.protocols import EvaluatorSettings
from agentv.records import Exchange, Score

CONTAINS = ("contains", "contain")


class _Check(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compares the answer with one text, or with several of which all or any must hold; else with the reference."""

    waits: ClassVar[bool] = False

    value: str | Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    require: Require = "all"
    negate: bool = False
    case_sensitive: bool = True

    def needs_reference(self) -> bool:
        return self.value is None

    def _score(self, exchange: Exchange, holds: Callable[[str, str], bool], verbs: tuple[str, str]) -> Score:
        answer = self._fold(exchange.response.text)
        given = self.value
        if given is None:
            given = reference_answer(exchange.case).strip()
            if not given:
                return Score(score=0.0, misses=("there is neither a value nor a reference answer",), failed=True)
        if isinstance(given, str):
            return score_check(given, holds(answer, self._fold(given)), verbs, negate=self.negate)
        found = ((value, holds(answer, self._fold(value))) for value in given)
        return score_checks(found, verbs, require=self.require, negate=self.negate)

    def _fold(self, text: str) -> str:
        return text if self.case_sensitive else text.casefold()


class Contains(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the value stands somewhere in the answer."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, lambda answer, value: value in answer, CONTAINS)


class IContains(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the value stands somewhere in the answer, in capitals or not."""

    case_sensitive: bool = False

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, lambda answer, value: value in answer, CONTAINS)


class StartsWith(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer begins with the value, white space before either aside."""

    async def evaluate(self, exchange: Exchange) -> Score:
        verbs = ("starts with", "start with")
        return self._score(exchange, lambda answer, value: answer.lstrip().startswith(value.lstrip()), verbs)


class Equals(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer is the value, white space around it aside."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, lambda answer, value: answer.strip() == value.strip(), ("equals", "equal"))
