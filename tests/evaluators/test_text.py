"""Checks on words that test_evaluating.py does not have."""

import pytest

from agentv.evaluators.checks.text import Contains, Equals, IContains, StartsWith
from agentv.records import Score
from tests.kits.evaluators import made, misfit, score


def test_icontains_ignores_case() -> None:
    assert score(made(IContains, value="PARIS"), "paris") == Score(score=1.0, hits=("contains 'PARIS'",))
    assert score(made(IContains, value="STRASSE"), "Hauptstraße").score == 1.0
    assert score(made(IContains, value=["x", "PARIS"]), "paris").misses == ("does not contain 'x'",)
    assert score(made(IContains, value="paris", negate=True), "PARIS").score == 0.0


def test_starts_with_checks_only_the_beginning() -> None:
    assert score(made(StartsWith, value="Yes"), "\n Yes, it is") == Score(score=1.0, hits=("starts with 'Yes'",))
    assert score(made(StartsWith, value="Yes"), "Oh. Yes") == Score(score=0.0, misses=("does not start with 'Yes'",))
    assert score(made(StartsWith, value="yes", case_sensitive=False), "YES").score == 1.0
    assert score(made(StartsWith, value=["No", "Yes"], require="any"), "Yes").score == 1.0
    assert score(made(StartsWith, value="Yes"), "").score == 0.0


def test_invalid_settings_are_reported() -> None:
    assert misfit(StartsWith, value=[]) == "must not be empty"
    assert misfit(IContains, value="a", require="some") == "unknown require 'some'"
    assert misfit(IContains, value="a", values="b") == "unknown field"


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(Contains, "It is Paris."), (IContains, "it is PARIS"), (StartsWith, "Paris!"), (Equals, " Paris ")],
)
def test_without_a_value_the_reference_answer_counts(kind: type, answer: str) -> None:
    assert score(made(kind), answer, "Paris\n").score == 1.0
    assert score(made(kind), "Rome", "Paris\n").misses[0].endswith("'Paris'")
    assert score(made(kind, negate=True), "Rome", "Paris").score == 1.0


def test_without_value_and_reference_answer_it_is_a_failure() -> None:
    expected = Score(
        score=0.0,
        misses=("nothing to compare with: no value and no reference answer",),
        failed=True,
    )
    assert score(made(Contains), "Paris") == expected
    assert score(made(Contains, negate=True), "Paris") == expected
