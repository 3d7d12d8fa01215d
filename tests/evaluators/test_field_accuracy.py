"""Fields of an answer, compared with those of the expected answer."""

import json
from functools import partial
from typing import Any

import pytest

from agentv.errors import ConfigError
from agentv.evaluators.checks.field_accuracy import FieldAccuracy
from agentv.files.written_values import parse_number
from agentv.records import Score
from tests.kits.evaluators import made, misfit, score
from tests.kits.work import lines_run


def compared(expected: Any, answer: Any, *fields: Any, **settings: Any) -> Score:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    written = [{"path": field} if isinstance(field, str) else field for field in fields]
    return score(made(FieldAccuracy, fields=written, **settings), text, expected=expected)


def met(expected: Any, given: Any, **field: Any) -> bool:
    return compared({"a": expected}, {"a": given}, {"path": "a", **field}).score == 1.0


def test_every_field_has_its_hit_or_miss_and_its_details() -> None:
    expected = {"invoice": {"no": "A-1", "total": 10}}
    answer = {"invoice": {"no": " A-1 ", "total": 11}}
    assert compared(expected, answer, "invoice.no", {"path": "invoice.total", "weight": 3}) == Score(
        score=0.25,
        hits=('invoice.no: " A-1 "',),
        misses=("invoice.total: expected 10, got 11",),
        details=[
            {"path": "invoice.no", "score": 1.0, "expected": "A-1", "actual": " A-1 "},
            {"path": "invoice.total", "score": 0.0, "expected": 10, "actual": 11},
        ],
    )


@pytest.mark.parametrize(
    ("expected", "given", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        ("a", "A", False),
        ("1", 1, False),
        ([1, {"b": " x"}], [1.0, {"b": "x "}], True),
        ({"b": 1}, {"b": 1, "c": 2}, False),
        ([1], [1, 2], False),
    ],
)
def test_exact(expected: Any, given: Any, equal: bool) -> None:
    assert met(expected, given) is equal


@pytest.mark.parametrize("path", ["a.b[1].c", 'a["b"][1].c', "a['b'][1]['c']", '["a"].b[1].c'])
def test_paths(path: str) -> None:
    value = {"a": {"b": [0, {"c": "x"}]}}
    assert compared(value, value, path).score == 1.0


@pytest.mark.parametrize(
    ("path", "value"), [('["odd key"]["a.b"]', 1), ("odd key['*']", 2), ('odd key[""]', 3), ("odd key.*", 2)]
)
def test_keys_with_special_characters(path: str, value: int) -> None:
    whole = {"odd key": {"a.b": 1, "*": 2, "": 3}}
    assert compared(whole, whole, path).hits == (f"{path}: {value}",)


@pytest.mark.parametrize("path", ["a..b", "a.", "a[x]", "a[-1]", "a[0", "a]b", "a[0]b", 'a["b]'])
def test_an_invalid_path_is_an_error_before_the_run(path: str) -> None:
    with pytest.raises(ConfigError, match="invalid path"):
        made(FieldAccuracy, fields=[{"path": path}])


def test_items_are_compared_one_by_one() -> None:
    expected = {"lines": [{"n": 1}, {"n": 2}, {"n": 3}]}
    found = compared(expected, {"lines": [{"n": 1}, {"n": 5}]}, "lines[*].n")
    assert found.score == pytest.approx(1 / 3)
    assert found.misses == ("lines[*].n: expected 2, got 5", "lines[*].n: missing in the answer, expected 3")
    assert found.details[0]["expected"] == [1, 2, 3]
    assert found.details[0]["actual"] == [1, 5, None]


@pytest.mark.parametrize(
    ("expected", "given", "value"),
    [
        ([], [], 1.0),
        ([], [{"n": 1}], 0.0),
        ([], None, 0.0),
        ([{"n": 1}], [{"n": 1}, {"n": 2}], 0.5),
        ([{"n": 1}], "text", 0.0),
        ("text", [{"n": 1}], 0.0),
    ],
)
def test_lists_of_different_lengths_and_values_that_are_not_lists(expected: Any, given: Any, value: float) -> None:
    assert compared({"l": expected}, {"l": given}, "l[*].n").score == value


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1,234.50", "1234.5"),
        ("1.234,50", "1234.5"),
        ("€ 1 234,50", "1234.5"),
        ("1\u00a0234,50 €", "1234.5"),
        ("1'234.50", "1234.5"),
        ("(5.00)", "-5"),
        ("($1,000)", "-1000"),
        ("-5", "-5"),
        ("−5", "-5"),
        ("-$5", "-5"),
        ("1,234", "1234"),
        ("1.234", "1.234"),
        ("1,234,567", "1234567"),
        ("1.234.567", "1234567"),
        ("12,34,567.5", "1234567.5"),
        ("0,234", "0.234"),
        ("1,5", "1.5"),
        ("USD 5", "5"),
        ("1e3", "1000"),
        (7, "7"),
        (0.1, "0.1"),
        (10**400, None),
    ],
)
def test_numbers_in_human_notation(written: Any, number: str | None) -> None:
    found = parse_number(written)
    assert found is not None
    assert found == (10**400 if number is None else type(found)(number))


@pytest.mark.parametrize(
    "written",
    ["", "abc", "5%", "nan", "inf", "1,2,3", "1.2,3.4", "1,23.4", "--5", "-(5)", "٣", "1e99999", "1" * 101, True, None, [], {}, float("inf"), float("nan")],
)  # fmt: skip
def test_values_that_are_not_numbers(written: Any) -> None:
    assert parse_number(written) is None


def test_numeric_tolerance() -> None:
    assert met("1.234,50 €", 1234.5, match="numeric_tolerance")
    assert not met(10, 10.01, match="numeric_tolerance")
    assert met(1.0, 1.1, match="numeric_tolerance", tolerance=0.1)
    assert met(-200, -198, match="numeric_tolerance", tolerance=0.01, relative=True)
    assert not met(200, 197.9, match="numeric_tolerance", tolerance=0.01, relative=True)
    assert not met(10, "ten", match="numeric_tolerance", tolerance=100)
    assert not compared('{"a": 1}', '{"a": 1e999}', {"path": "a", "match": "numeric_tolerance", "tolerance": 9}).score


@pytest.mark.parametrize(
    ("expected", "given", "formats", "same"),
    [
        ("2024-01-15", "2024-01-15T10:00:00Z", [], True),
        ("2024-01-15", "15/01/2024", ["DD/MM/YYYY"], True),
        ("15-JAN-2024", "January 15, 2024", ["DD-MMM-YYYY", "MMMM D, YYYY"], True),
        ("2024-01-05", "Jan 5, 2024", ["MMM D, YYYY"], True),
        ("2024-01-15", "15.01.24", ["%d.%m.%y"], True),
        ("2024-01-15", "2024-01-16", [], False),
        ("2024-01-15", "15/01/2024", [], False),
        ("2024-01-15", 20240115, [], False),
        ("soon", "soon", [], True),  # equal values match under every `match`
        ("soon", "later", [], False),
        ("2024-01-15", "2024-02-31", [], False),
        ("2024-01-15", "2" * 1_000_000, ["DD/MM/YYYY"], False),
    ],
)
def test_dates(expected: Any, given: Any, formats: list[str], same: bool) -> None:
    assert met(expected, given, match="date", formats=formats) is same


@pytest.mark.parametrize("written", ["MM/YYYY", "%Q", "%", "", "today", "%H:%M"])
def test_an_invalid_date_format_is_an_error_before_the_run(written: str) -> None:
    with pytest.raises(ConfigError, match="is not the format of a complete date"):
        made(FieldAccuracy, fields=[{"path": "a", "match": "date", "formats": [written]}])


def test_missing_values_are_reported() -> None:
    found = compared({"a": 1}, {"b": 1}, "a")
    assert (found.score, found.failed) == (0.0, False)
    assert found.misses == ("a: missing in the answer, expected 1",)
    assert found.details == [{"path": "a", "score": 0.0, "expected": 1, "actual": None}]


ABSENT = "missing in the expected answer; if the field is optional, set 'required: false'"


@pytest.mark.parametrize(
    ("expected", "path"),
    [({"a": 1}, "b"), ({"a": 1}, "a.b"), ({"l": [{"n": 1}, {}]}, "l[*].n"), ({"l": "text"}, "l[*].n"), (None, "a")],
)
def test_a_path_that_the_expected_answer_lacks_is_a_judge_failure(expected: Any, path: str) -> None:
    found = compared(expected, {"a": 1, "b": 1}, path)
    assert (found.score, found.failed, found.misses) == (0.0, True, (f"{path}: {ABSENT}",))


@pytest.mark.parametrize("match", ["exact", "numeric_tolerance", "date"])
@pytest.mark.parametrize("value", [None, "", "n/a", True, [], {"b": None}])
def test_equal_values_match_under_every_match(match: str, value: Any) -> None:
    assert met(value, value, match=match)
    assert not met(value, "other", match=match)


def test_fields_that_are_not_required_are_skipped_if_not_expected() -> None:
    optional = {"path": "b", "required": False}
    assert compared({"a": 1}, {"a": 1, "b": 2}, "a", optional).score == 1.0
    assert compared({"a": 1, "b": 3}, {"a": 1}, "a", optional).score == 0.5
    assert compared({"l": []}, {"l": []}, {"path": "l[*].n", "required": False}).score == 1.0
    for answer in ({}, {"b": 2}, "not JSON"):
        assert compared({"a": 1}, answer, optional).applicable is False
    assert compared(None, {}, optional).applicable is False


def test_all_or_nothing() -> None:
    def whole(answer: Any) -> float:
        optional = {"path": "b", "required": False}
        return compared({"a": 1, "b": 2}, answer, "a", optional, aggregation="all_or_nothing").score

    assert [whole({"a": 1, "b": 2}), whole({"a": 1}), whole({"a": 1, "b": 3}), whole({"b": 2})] == [1.0, 1.0, 0.0, 0.0]


def test_the_expected_answer_may_be_text_and_the_answer_fenced() -> None:
    assert compared('{"a": 1}', 'So:\n```json\n{"a": 1}\n```', "a").score == 1.0
    assert compared('[{"a": 1}]', [{"a": 1}], "[0].a").score == 1.0


def test_invalid_json_on_either_side() -> None:
    assert compared({"a": 1}, "sorry", "a") == Score(
        score=0.0, misses=("the answer is not valid JSON: expecting value, line 1, column 1",), missing_data=True
    )
    broken = compared("sorry", "{}", "a")
    assert (broken.score, broken.failed) == (0.0, True)


@pytest.mark.parametrize("answer", ["1", "null", '"text"', "[]", '{"a": {"b": 1}}'])
def test_unexpected_answers_are_misses(answer: str) -> None:
    assert compared({"a": [1]}, answer, "a[0]").score == 0.0


def test_weights_of_zero_score_zero() -> None:
    assert compared({"a": 1}, {"a": 1}, {"path": "a", "weight": 0}).score == 0.0


def test_a_huge_answer_is_bounded() -> None:
    found = compared({"l": [1]}, {"l": [1] * 300_000}, "l[*]")
    assert found.score == pytest.approx(1 / 300_000)
    assert len(found.misses) == len(found.details[0]["actual"]) == 20
    long = compared({"a": 1}, {"a": "x" * 1_000_000}, "a")
    assert len(long.misses[0]) < 200


def test_the_work_is_linear_in_the_answer() -> None:
    some, more = (lines_run(partial(compared, {"l": [1]}, {"l": [1] * n}, "l[*]")) for n in (1_000, 4_000))
    assert 1_000 < some < more < 5 * some


@pytest.mark.parametrize("number", [-1, float("inf"), float("nan"), "1"])
def test_weights_and_tolerances_are_finite_numbers(number: Any) -> None:
    assert misfit(FieldAccuracy, fields=[{"path": "a", "weight": number}])
    assert misfit(FieldAccuracy, fields=[{"path": "a", "tolerance": number}])


def test_invalid_settings_are_reported() -> None:
    assert misfit(FieldAccuracy, fields=[]) == "must not be empty"
    assert misfit(FieldAccuracy, fields=[{"path": "a", "match": "fuzzy"}]) == "unknown match 'fuzzy'"
    with pytest.raises(ConfigError, match="'tolerance' requires"):
        made(FieldAccuracy, fields=[{"path": "a", "tolerance": 1}])
    with pytest.raises(ConfigError, match="'formats' requires"):
        made(FieldAccuracy, fields=[{"path": "a", "formats": ["%Y"]}])
