"""Checks whether an answer contains, starts with or equals a text."""

from collections.abc import Callable
from typing import ClassVar

from agentv.evaluators.checks.matching import CheckSettings, Require, Values, Verbs, score_check, score_checks
from agentv.evaluators.judging.payload import reference_answer
from agentv.evaluators.judging.reply import failed_score
from agentv.records import Exchange, Score

Holds = Callable[[str, str], bool]
"""Takes the answer and a value, and returns whether the check holds."""
CONTAINS = ("contains", "contain")
STARTS_WITH = ("starts with", "start with")
EQUALS = ("equals", "equal")


class _Check(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compare the answer with one text, or with several of which all or any must match.

    Without `value`, compare it with the reference answer.
    """

    waits: ClassVar[bool] = False

    value: Values | None = None
    """A text, or a list of texts. Defaults to the reference answer."""
    require: Require = "all"
    """Whether all texts must match, or any of them."""
    negate: bool = False
    """Pass if the text does not match."""
    case_sensitive: bool = True
    """Whether matching is case-sensitive."""

    def needs_reference(self) -> bool:
        return self.value is None

    def _score(self, exchange: Exchange, holds: Holds, verbs: Verbs) -> Score:
        answer = self._fold(exchange.response.text)
        wanted = self.value
        if wanted is None:
            wanted = reference_answer(exchange.case).strip()
            if not wanted:
                return failed_score("nothing to compare with: no value and no reference answer")
        if isinstance(wanted, str):
            held = holds(answer, self._fold(wanted))
            return score_check(wanted, held, verbs, negate=self.negate)
        checks = []
        for value in wanted:
            held = holds(answer, self._fold(value))
            checks.append((value, held))
        return score_checks(
            checks,
            verbs,
            require=self.require,
            negate=self.negate,
        )

    def _fold(self, text: str) -> str:
        """Return the text in the form in which it is compared."""
        if self.case_sensitive:
            return text
        return text.casefold()


def _contains(answer: str, value: str) -> bool:
    return value in answer


def _starts_with(answer: str, value: str) -> bool:
    return answer.lstrip().startswith(value.lstrip())


def _equals(answer: str, value: str) -> bool:
    return answer.strip() == value.strip()


class Contains(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer contains the value."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, _contains, CONTAINS)


class IContains(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer contains the value, ignoring case."""

    case_sensitive: bool = False

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, _contains, CONTAINS)


class StartsWith(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer starts with the value, ignoring leading white space of both."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, _starts_with, STARTS_WITH)


class Equals(_Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer equals the value, ignoring white space around both."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return self._score(exchange, _equals, EQUALS)
