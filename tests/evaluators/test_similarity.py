"""The similarity of two texts."""

import pytest

from agentv.evaluators.checks.similarity import Similarity, similarity
from agentv.records import Score
from tests.kits.evaluators import made, misfit, score


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("kitten", "sitting", 1 - 3 / 7),
        ("", "", 1.0),
        ("", "abc", 0.0),
        ("abc", "abc", 1.0),
        ("abc", "xyz", 0.0),
        ("e\u0301", "e", 0.5),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "x", 0.0),
        ("a\r\nb", "a\nb", 0.75),
        ("\ud800", "x", 0.0),
        ("a\ud800", "a", 0.5),
    ],
)
def test_the_share_of_characters_that_need_no_edit(one: str, other: str, alike: float) -> None:
    assert similarity(one, other) == pytest.approx(alike)
    assert similarity(other, one) == pytest.approx(alike)


def test_the_reference_answer_is_compared_with_if_there_is_no_value() -> None:
    assert score(made(Similarity), "abcd", expected="abcx") == Score(score=0.75, misses=("similarity 0.750",))
    assert score(made(Similarity, value="abcd"), "abcd", expected="x") == Score(score=1.0, hits=("similarity 1.000",))
    assert score(made(Similarity, value=""), "").score == 1.0


def test_nothing_to_compare_with_is_a_failure() -> None:
    found = score(made(Similarity), "abc")
    words = "nothing to compare with: no value and no reference answer"
    assert found == Score(score=0.0, misses=(words,), failed=True)


def test_a_threshold_makes_it_1_or_0() -> None:
    evaluator = made(Similarity, value="abcd", threshold=0.75)
    assert score(evaluator, "abcx") == Score(score=1.0, hits=("similarity 0.750, threshold 0.75",))
    assert score(evaluator, "abxx") == Score(score=0.0, misses=("similarity 0.500, threshold 0.75",))
    assert score(made(Similarity, value="ABCD", threshold=1, case_sensitive=False), "abcd").score == 1.0


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("inf"), float("nan"), "high"])
def test_a_threshold_is_between_0_and_1(threshold: object) -> None:
    assert misfit(Similarity, threshold=threshold)


def test_texts_too_long_to_compare_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jellyfish.levenshtein_distance", lambda *_: pytest.fail("this would take hours"))
    found = score(made(Similarity, value="a" * 1_000_000), "b" * 1_000_000)
    assert (found.score, found.failed) == (0.0, True)
    assert found.misses == ("too long to compare: 1000000 and 1000000 characters",)
