"""Parse filters: `tag:smoke -metadata.level>=3 id:"two words"` -> terms.

The pages have the same parser in JavaScript. `tests/kits/filters.json` has the filters that both must read alike.
"""

import re
from typing import Literal, NamedTuple, cast

from agentv.errors import ConfigError, closest, nearest
from agentv.filters.keys import KEYS, ON, Key, On, keys_on

SPACES = " \t\n\r\f\v"
"""What separates terms: the same characters in Python and JavaScript."""
Operator = Literal[":", "<", "<=", ">", ">="]
_QUOTED = r'"(?:\\["\\]|\\(?!["\\])|[^"\\])*"'
_TERM = re.compile(
    "(?P<minus>-?)"
    rf'(?P<key>[^{SPACES}"<>=:.]+)'
    rf'(?:\.(?P<name>{_QUOTED}|[^{SPACES}"<>=:]+))?'
    "(?P<operator><=|>=|<|>|=|:)"
    rf'(?P<value>{_QUOTED}|(?!")[^{SPACES}]*)'
    rf"(?=[{SPACES}]|\Z)",
)
_WORD = re.compile(rf"-?{_QUOTED}|[^{SPACES}]+")
_NUMBER = re.compile(r"[-−]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ESCAPED = re.compile(r'\\(["\\])')
_NEEDS_QUOTES = re.compile(rf'^$|^"|[{SPACES}]')
_NAME_NEEDS_QUOTES = re.compile(rf'[{SPACES}"<>=:]')
EXAMPLE = "for example tag:smoke or metadata.level>=3"


class Term(NamedTuple):
    """A part of a filter, such as `-metadata.level>=3`. The operator `=` is read as `:`."""

    key: str
    name: str
    """The name after the key, such as `level`; empty if there is none."""
    operator: Operator
    value: str
    is_negated: bool = False

    def __str__(self) -> str:
        """Return the term in the syntax of filters."""
        minus = ""
        if self.is_negated:
            minus = "-"
        name = ""
        if self.name:
            name = "." + _quote(self.name, _NAME_NEEDS_QUOTES)
        value = _quote(self.value, _NEEDS_QUOTES)
        return f"{minus}{self.key}{name}{self.operator}{value}"


def parse_terms(text: str, on: On) -> tuple[Term, ...]:
    """Return the terms of a filter for cases or for results. Raise `ConfigError` if it is invalid."""
    terms = []
    at = 0
    while True:
        while at < len(text) and text[at] in SPACES:
            at += 1
        if at == len(text):
            break
        found = _TERM.match(text, at)
        if found is None:
            raise _invalid(text, _explain_unreadable(text, at))
        at = found.end()
        term = _term(found)
        problem = _find_problem(found, term, on)
        if problem is not None:
            raise _invalid(text, problem)
        terms.append(term)
    if not terms:
        raise _invalid(text, _Problem("no term", EXAMPLE))
    return tuple(terms)


def number_of(text: str) -> float | None:
    """Return the number that a text is, or None if it is not a number."""
    if _NUMBER.fullmatch(text) is None:
        return None
    return float(text.replace("−", "-"))


def _term(found: "re.Match[str]") -> Term:
    operator = found["operator"]
    if operator == "=":
        operator = ":"
    return Term(
        key=found["key"],
        name=_unquote(found["name"] or ""),
        operator=cast(Operator, operator),
        value=_unquote(found["value"]),
        is_negated=bool(found["minus"]),
    )


def _unquote(text: str) -> str:
    if not text.startswith('"'):
        return text
    return _ESCAPED.sub(r"\1", text[1:-1])


def _quote(text: str, needs_quotes: "re.Pattern[str]") -> str:
    """Return a text in quotes if it needs them."""
    if needs_quotes.search(text) is None:
        return text
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


class _Problem(NamedTuple):
    message: str
    hint: str


def _invalid(text: str, problem: _Problem) -> ConfigError:
    return ConfigError(f"invalid filter {text!r}: {problem.message}", hint=problem.hint)


def _explain_unreadable(text: str, at: int) -> _Problem:
    """Return the problem of the text at a position where no term can be parsed."""
    found = _WORD.match(text, at)
    assert found is not None
    word = found[0]
    without_escapes = _ESCAPED.sub("", text[at:])
    quotes = without_escapes.count('"')
    if quotes % 2:
        return _Problem(f"the closing quote is missing in {text[at:]!r}", r"write a quote inside a value as \"")
    if re.match(rf'-?[^{SPACES}"<>=:]+[<>=:]+"', word):
        return _Problem("unexpected text after a closing quote", "separate terms with spaces")
    if re.search("[<>=:]", word):
        return _Problem(f"{word!r} does not start with a key", EXAMPLE)
    return _Problem(f"{word!r} is not a term (expected KEY:VALUE)", EXAMPLE)


def _find_problem(found: "re.Match[str]", term: Term, on: On) -> _Problem | None:
    """Return the problem of a term, if any."""
    problem = _find_key_problem(term, on)
    if problem is not None:
        return problem
    if not found["value"]:
        return _Problem(f"a value is missing after {found[0]!r}", 'write an empty value as ""')
    key = KEYS[term.key]
    return _find_value_problem(term, key)


def _find_key_problem(term: Term, on: On) -> _Problem | None:
    """Return the problem of a term's key, if any."""
    key = KEYS.get(term.key)
    if key is None:
        return _Problem(f"unknown key {term.key!r}", _suggest_key(term.key, on))
    if key.on == "comparisons" and on != "comparisons":
        return _Problem(f"{on} have no {term.key}", "only pages of comparisons have it")
    if ON.index(key.on) > ON.index(on):
        known = ", ".join(keys_on(on))
        return _Problem(f"{on} have no {term.key}", f"keys of {on}: {known}")
    if key.needs_name and not term.name:
        return _Problem(f"{term.key} needs a name", f"write {term.key}.KEY{term.operator}{term.value}")
    if term.name and not key.takes_name:
        return _Problem(f"{term.key} takes no name", f"write {term.key}{term.operator}{term.value}")
    return None


def _suggest_key(word: str, on: On) -> str:
    """Return a hint with the key that an unknown one resembles, otherwise with all keys."""
    names = keys_on(on)
    close = closest(word.lower(), names, cutoff=0.6)
    if close is not None:
        return f"did you mean {close!r}?"
    known = ", ".join(names)
    return f"keys of {on}: {known}"


def _find_value_problem(term: Term, key: Key) -> _Problem | None:
    """Return the problem of a term's value, if any."""
    is_comparison = term.operator != ":"
    is_number = number_of(term.value) is not None
    is_evaluator = key.values == "evaluator"
    is_evaluator_result = is_evaluator and term.name != ""
    takes_numbers = key.values in ("any", "number") or is_evaluator_result
    needs_number = is_comparison or key.values == "number"
    needs_choice = key.values == "choice" or is_evaluator_result
    if is_comparison and is_evaluator and not is_evaluator_result:
        return _Problem("evaluator is not a number", f"write evaluator.NAME{term.operator}{term.value}")
    if is_comparison and not takes_numbers:
        value = term.value or "VALUE"
        return _Problem(f"{term.key} is not a number", f"write {term.key}:{value}")
    if needs_number and not is_number:
        return _Problem(f"{term.value!r} is not a number", f"write a number after {term.operator!r}")
    if is_evaluator_result and is_number:
        return None
    if needs_choice and term.value not in key.choices:
        known = ", ".join(key.choices)
        hint = nearest(term.value, key.choices)
        return _Problem(f"{term.value!r} is not one of {known}", hint)
    return None
