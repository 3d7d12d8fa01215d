"""The filter language: terms, values and error messages."""

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.errors import ConfigError
from agentv.filters.keys import KEYS, On
from agentv.filters.match import CaseRow, Filter
from agentv.filters.parse import Operator, Term, parse_terms
from agentv.records import EvalResult
from agentv.results.views import FilterRow

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "kits" / "filters.json").read_text())
"""Filters with a result and whether it matches, or with an error. The pages read them alike."""
MATCHES = [vector for vector in VECTORS if "matches" in vector]
ERRORS = [vector for vector in VECTORS if "error" in vector]


def matches(text: str, row: object) -> bool:
    return Filter.parse([text], "results").matches(row)


def test_rows_match_the_shared_test_vectors() -> None:
    wrong = []
    for vector in MATCHES:
        row = msgspec.convert(vector["row"], FilterRow)
        if matches(vector["filter"], row) is not vector["matches"]:
            wrong.append(vector)
    assert len(MATCHES) > 400
    assert wrong == []


@pytest.mark.parametrize("vector", ERRORS, ids=lambda vector: vector["filter"])
def test_invalid_filters_are_explained(vector: dict[str, Any]) -> None:
    on: On = vector.get("on", "results")
    with pytest.raises(ConfigError) as caught:
        parse_terms(vector["filter"], on)
    assert caught.value.message == f"invalid filter {vector['filter']!r}: {vector['error']}"
    assert caught.value.hint == vector["hint"]


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_filter_needs_a_term(blank: str) -> None:
    with pytest.raises(ConfigError, match="no term"):
        parse_terms(blank, "cases")


def test_several_filters_must_all_match() -> None:
    both = Filter.parse(["tag:a", "tag:b -tag:c"], "cases")
    row = CaseRow("x", "d", "t", ("a", "b"), None, None)
    assert both.matches(row)
    assert not both.matches(row._replace(tags=("a",)))
    assert not both.matches(row._replace(tags=("a", "b", "c")))
    assert str(both) == "tag:a tag:b -tag:c"
    assert pickle.loads(pickle.dumps(both)).matches(row)
    assert not Filter.parse([], "cases")


def test_results_in_memory_match_like_stored_ones() -> None:
    result = EvalResult(
        timestamp="",
        eval_id="a",
        dataset="d",
        target="t",
        attempt=1,
        score=0.5,
        verdict="fail",
        candidate_answer="",
        tags=("smoke",),
        vars={"level": 3},
    )
    assert matches("tag:smoke vars.level>2 verdict:fail -evaluator:* error:no note:no", result)


WORDS = st.text(min_size=1, max_size=6)
OPERATORS: list[Operator] = [":", "<", "<=", ">", ">="]


@st.composite
def terms(draw: st.DrawFn) -> Term:
    """Draw any valid term."""
    name = draw(st.sampled_from(sorted(KEYS)))
    key = KEYS[name]
    number = str(draw(st.floats(allow_nan=False, allow_infinity=False)))
    is_negated = draw(st.booleans())
    if key.values == "choice":
        return Term(name, "", ":", draw(st.sampled_from(list(key.choices))), is_negated)
    if key.values == "number":
        return Term(name, "", draw(st.sampled_from(OPERATORS)), number, is_negated)
    if key.values == "text":
        return Term(name, "", ":", draw(st.text(max_size=6)), is_negated)
    own_name = draw(WORDS)
    if draw(st.booleans()):
        return Term(name, own_name, draw(st.sampled_from(OPERATORS)), number, is_negated)
    if key.values == "evaluator":
        return Term(name, "", ":", draw(st.text(max_size=6)), is_negated)
    return Term(name, own_name, ":", draw(st.text(max_size=6)), is_negated)


@given(st.lists(terms(), min_size=1, max_size=4))
def test_terms_are_read_as_they_are_written(written: list[Term]) -> None:
    text = " ".join(map(str, written))
    assert parse_terms(text, "comparisons") == tuple(written)


@given(st.text(alphabet='ab.:<>="-\\* \t1٣−' + "idtagscore", max_size=20) | st.text(max_size=20))
def test_any_text_is_a_filter_or_an_error(text: str) -> None:
    row = CaseRow("a", "a", "a", ("a",), {"a": {"b": [1, None, {}]}}, {"a": 1})
    try:
        Filter.parse([text], "cases").matches(row)
    except ConfigError as error:
        assert error.message.startswith("invalid filter ")
        assert error.hint


@given(st.text(max_size=20))
def test_a_text_matches_itself(text: str) -> None:
    term = Term("id", "", ":", text)
    assert Filter([term]).matches(CaseRow(text, "", "", (), None, None))
