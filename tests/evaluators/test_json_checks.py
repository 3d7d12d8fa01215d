"""Checks that an answer is JSON and matches a schema."""

from pathlib import Path
from typing import Any

import pytest

from agentv.errors import AgentvError, ConfigError
from agentv.evaluators.checks.json_checks import IsJson, JsonSchema
from agentv.records import Score
from tests.kits.evaluators import made, misfit, score
from tests.kits.project import Write

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize(
    "answer", ["{}", " [1] ", "1", "null", '"```"', "```json\n{}\n```", "Here:\n```\n[]\n```\nBye", "```{}```"]
)
def test_json_is_found_bare_or_in_the_only_fence(answer: str) -> None:
    assert score(made(IsJson), answer) == Score(score=1.0, hits=("is valid JSON",))
    assert score(made(IsJson, negate=True), answer) == Score(score=0.0, misses=("is valid JSON",))


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ("", "it is empty"),
        ("hello", "expecting value, line 1, column 1"),
        ('{"a": 1,\n}', "line 2, column 1"),
        ("{} {}", "extra data, line 1, column 4"),
        ("[NaN]", "NaN is not valid JSON"),
        ("-Infinity", "-Infinity is not valid JSON"),
        ("```\n{}\n```\n```\n{}\n```", "line 1, column 1"),
        ("[" * 200_000, "nested too deeply"),
        ("9" * 5000, "Exceeds the limit"),
    ],
)
def test_invalid_json_is_reported_with_its_position(answer: str, where: str) -> None:
    found = score(made(IsJson), answer)
    assert found.score == 0.0
    assert found.misses[0].startswith("is not valid JSON: ")
    assert where in found.misses[0]
    assert score(made(IsJson, negate=True), answer).score == 1.0


@pytest.mark.parametrize(
    ("schema", "answer", "miss"),
    [
        (PERSON, '{"name": 1}', "name must be string (type)"),
        (PERSON, "{}", "the answer must contain ['name'] properties (required)"),
        ({"items": {"properties": {"n": {"maximum": 3}}}}, '[{"n": 1}, {"n": 4}]', "[1].n must be smaller than or equal to 3 (maximum)"),
        ({"additionalProperties": False}, '{"{x}": 1}', "the answer must not contain {'{x}'} properties (additionalProperties)"),
        ({"additionalProperties": {"type": "null"}}, '{"{x.__class__}": 1}', "{x.__class__} must be null (type)"),
        ({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}, '"1"', "the answer must be integer (type)"),
        (PERSON, "no", "is not valid JSON: expecting value, line 1, column 1"),
    ],
)  # fmt: skip
def test_a_miss_names_the_path_and_the_rule(schema: Any, answer: str, miss: str) -> None:
    assert score(made(JsonSchema, schema=schema), answer) == Score(score=0.0, misses=(miss,))
    assert score(made(JsonSchema, schema=schema, negate=True), answer) == Score(score=1.0, hits=(miss,))


def test_an_answer_that_matches_the_schema() -> None:
    for answer in ('{"name": "Ada"}', '```json\n{"name": "Ada", "more": 1}\n```'):
        assert score(made(JsonSchema, schema=PERSON), answer) == Score(score=1.0, hits=("matches the schema",))
    assert score(made(JsonSchema, schema=PERSON, negate=True), '{"name": ""}').misses == ("matches the schema",)


def test_the_schema_may_be_a_file_next_to_the_eval_file(write: Write, tmp_path: Path) -> None:
    write("evals/a.json", '{"type": "string"}')
    write("evals/b.yaml", "type: string")
    for name in ("a.json", "b.yaml"):
        evaluator = made(JsonSchema, tmp_path / "evals", schema=name)
        assert [score(evaluator, answer).score for answer in ('"x"', "1")] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.json", None, "no such file"),
        ("bad.json", "{", "invalid JSON: Input data was truncated"),
        ("bytes.json", b"\xff\xfe", "invalid JSON: "),
        ("bad.yaml", "a: [", "Invalid YAML: "),
        ("list.json", "[]", "schema: expected an object, got an array"),
        ("strin.yaml", "type: strin", "schema.type: unknown type 'strin'"),
    ],
)
def test_an_invalid_schema_file_is_an_error_before_the_run(
    name: str, content: Any, message: str, write: Write, tmp_path: Path
) -> None:
    if content is not None:
        write(name, content)
    with pytest.raises(ConfigError) as caught:
        made(JsonSchema, tmp_path, schema=name)
    assert caught.value.message.startswith(message)
    assert caught.value.file == tmp_path / name


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strin"}, "schema.type: unknown type 'strin'"),
        ({"properties": []}, "schema.properties: expected an object, got an array"),
        ({"minimum": "1"}, "schema.minimum: expected a number"),
        ({"required": "name"}, "schema.required: expected an array"),
        ({"allOf": [{"items": {"multipleOf": 0}}]}, "schema.allOf[0].items.multipleOf: must be greater than 0"),
        ({"pattern": "("}, "invalid schema: "),
        ({"$ref": "#/$defs/gone"}, "invalid schema: Unresolvable ref"),
        ({"$ref": "http://localhost:1/x.json"}, "$ref to 'http://localhost:1/x.json': remote schemas are not fetched"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "$ref to 'file:///etc/passwd': remote schemas are not fetched"),
        ({"items": [{"$ref": "other.json#/a"}]}, "$ref to 'other.json': remote schemas are not fetched"),
        ({"$id": "http://x.test/a", "$ref": "b"}, "$ref to "),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, "schema.$schema: 'https://json-schema.org/draft/2020-12/schema' is not supported"),
        ({"prefixItems": []}, "schema.prefixItems: was added after draft 7 and is not supported"),
        ({"properties": {"a": {"anyOf": [True, {"unevaluatedProperties": False}]}}}, "schema.properties.a.anyOf[1].unevaluatedProperties: was added after"),
        ({"$defs": {"a": {"dependentRequired": {}}}}, "schema.$defs.a.dependentRequired: was added after"),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_an_error_before_the_run(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(JsonSchema, schema=schema)
    assert caught.value.message.startswith(message)


def test_names_of_newer_keywords_are_accepted_as_property_names() -> None:
    schema = {"properties": {"prefixItems": {"type": "array"}, "type": {"const": "x"}}, "enum": [{"minContains": 1}]}
    assert score(made(JsonSchema, schema=schema), '{"minContains": 1}').score == 1.0


def test_drafts_4_6_and_7_are_supported() -> None:
    for draft in ("draft-04", "draft-06", "draft-07"):
        schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "type": "integer"}
        assert score(made(JsonSchema, schema=schema), "1").score == 1.0


def test_the_settings_are_left_as_they_are() -> None:
    schema = {
        "$id": "http://x.test/a",
        "properties": {"a": {"$ref": "#/definitions/b"}},
        "definitions": {"b": {"type": "null"}},
    }
    before = repr(schema)
    assert score(made(JsonSchema, schema=schema), '{"a": 1}').score == 0.0
    assert repr(schema) == before


def test_an_endless_pattern_in_a_schema_times_out() -> None:
    with pytest.raises(AgentvError, match="validating against the schema took longer than 1 s"):
        score(made(JsonSchema, schema={"pattern": "^(a+)+$"}), '"' + "a" * 40 + 'b"')


def test_a_long_miss_is_cut() -> None:
    answer = "{" + ",".join(f'"{number}": 1' for number in range(100_000)) + "}"
    found = score(made(JsonSchema, schema={"additionalProperties": False}), answer)
    assert len(found.misses[0]) < 600


def test_a_schema_is_an_object_or_a_path() -> None:
    assert misfit(JsonSchema, schema=3) == "expected a string or an object, got an integer"
    assert misfit(JsonSchema) == "missing schema"
