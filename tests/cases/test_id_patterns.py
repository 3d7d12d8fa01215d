"""The ids and globs of `--eval-id`: the same matches as one glob at a time, in the same time for any number of them."""

import itertools
from fnmatch import fnmatchcase

import pytest

from agentv.cases.id_patterns import IdPatterns

SIGNS = ("a", "b", "*", "?", "[", "]", "!", "[ab]", "[!a]", "[*]")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_patterns_match_like_each_of_them_alone(size: int) -> None:
    patterns = ["".join(signs) for signs in itertools.product(SIGNS, repeat=size)]
    ids = IdPatterns(tuple(patterns))
    for id_ in ("", "a", "b", "ab", "ba", "a[", "[]", "[!]", "[!a]", "[ab]", "*", "?", "a]", "abab", "aab"):
        expected = {pattern for pattern in patterns if pattern == id_ or fnmatchcase(id_, pattern)}
        assert set(ids.matching(id_)) == expected
        assert ids.matches(id_) == bool(expected)
        assert ids.names(id_) == (id_ in patterns)


def test_ids_of_families_match_themselves_in_any_number() -> None:
    family = [f"ask[order=A{number},tone=polite]" for number in range(10_000)]
    ids = IdPatterns(tuple(family))
    assert all(list(ids.matching(id_)) == [id_] for id_ in family)


def test_without_patterns_nothing_is_selected_by_id() -> None:
    assert not IdPatterns()
    assert not IdPatterns().matches("a")
