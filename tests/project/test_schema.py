"""The published schemas agree with the parser."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv import AgentvError, collect_warnings, load_eval_cases
from agentv.project.schema import KINDS, json_schema
from agentv.targets.read import RETRY_NAMES, read_targets, spellings
from tests.kits.generated import files, junk, spoiled
from tests.kits.project import agentv

VALIDATORS = {kind: jsonschema.Draft202012Validator(json_schema(kind)) for kind in KINDS}


def loads(path: Path) -> bool:
    """Whether the file is accepted without skipping a case."""
    with collect_warnings() as warnings:
        try:
            return bool(list(load_eval_cases(path))) and not warnings
        except AgentvError:
            return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schema")


@pytest.mark.slow  # generated values take seconds, few or many
@given(spoiled())
def test_schema_and_parser_agree_on_a_line_of_jsonl(folder: Path, case: dict[str, Any]) -> None:
    path = folder / "lines.jsonl"
    path.write_text(json.dumps(case) + "\n")
    assert VALIDATORS["case"].is_valid(case) == loads(path)


@pytest.mark.slow  # generated values take seconds, few or many
@given(st.fixed_dictionaries({}, optional={"evalcases": files | junk, "execution": junk, "dataset": junk, "x": junk}))
def test_schema_and_parser_agree_on_a_yaml_file(folder: Path, value: dict[str, Any]) -> None:
    path = folder / "file.yaml"
    path.write_text(json.dumps(value, ensure_ascii=False))  # JSON is YAML too
    assert VALIDATORS["eval"].is_valid(value) == loads(path)


providers = st.sampled_from(
    [*json_schema("targets")["properties"]["targets"]["items"]["properties"]["provider"]["enum"]]
)
FIELDS = ["model", "command_template", "url", "function", "endpoint", "workers", "temperature", "pricing", "headers"]
FIELDS += ["healthcheck", "timeout_seconds", "delay_ms", "options", "args", "judge_target", "nonsense", *RETRY_NAMES]
good = st.sampled_from(["x", 1, 2.5, {}, ["a"], {"type": "http", "url": "u"}, {"input": 1}, "${{ X }}", True])


BEYOND_A_SCHEMA = ("url: must begin with http://",)


@pytest.mark.slow  # generated values take seconds, few or many
@given(st.data())
def test_schema_and_parser_agree_on_a_target(folder: Path, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(FIELDS), max_size=4, unique=True))
    target = {data.draw(st.sampled_from(spellings(name))): data.draw(good | junk) for name in names}
    target["name"] = data.draw(st.sampled_from(["a", "a", "a", "", 1]))
    target["provider"] = data.draw(providers | st.sampled_from(["unknown", 5]))
    path = folder / "targets.yaml"
    path.write_text(json.dumps({"targets": [target]}))
    errors = [problem for problem in read_targets(path, {}).problems if problem.severity == "error"]
    errors = [problem for problem in errors if not any(words in problem.message for words in BEYOND_A_SCHEMA)]
    assert VALIDATORS["targets"].is_valid({"targets": [target]}) == (not errors)


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_published_schemas_are_up_to_date(kind: str) -> None:
    published = Path(__file__).parent.parent.parent / "schemas" / f"{kind}.schema.json"
    ran = agentv("schema", kind)
    assert (ran.stdout, ran.returncode) == (published.read_text(), 0)
    jsonschema.Draft202012Validator.check_schema(json.loads(ran.stdout))


def test_eval_is_the_default_and_unknown_kinds_are_rejected() -> None:
    assert agentv("schema").stdout == agentv("schema", "eval").stdout
    ran = agentv("schema", "nonsense")
    assert ran.returncode == 2
    assert "'nonsense' is not one of 'eval', 'sidecar', 'case', 'targets', 'config', 'result', 'label'" in ran.stderr


def test_a_result_of_the_contract_is_accepted() -> None:
    evaluator = {"name": "n", "type": "contains", "score": 1, "weight": 1, "verdict": "pass", "hits": ["x"]}
    result = {
        "timestamp": "2026-11-15T00:00:00Z",
        "eval_id": "a",
        "dataset": "d",
        "target": "default",
        "attempt": 1,
        "score": 0.5,
        "verdict": "fail",
        "candidate_answer": "",
        "evaluator_results": [evaluator],
        "trace_summary": {"eventCount": 1, "toolNames": ["t"], "toolCallsByName": {"t": 1}, "errorCount": 0},
        "execution_metrics": {"token_usage": {"input": 1}, "cost_usd": 0.1, "duration_ms": 12},
    }
    assert VALIDATORS["result"].is_valid(result)
    assert not VALIDATORS["result"].is_valid(result | {"score": 1.5})
    assert not VALIDATORS["result"].is_valid(result | {"trace_summary": {"event_count": 1}})


def test_a_label_of_the_contract_is_accepted() -> None:
    label = {"eval_id": "a", "dataset": "d", "trial": 1, "answer_digest": "0123456789abcdef", "label": "pass"}
    more = {"score": 0.5, "evaluator": "e", "reviewer": "ann", "note": "n", "sampling": "random", "at": "2026-11-17"}
    assert VALIDATORS["label"].is_valid(label)
    assert VALIDATORS["label"].is_valid(label | more)
    for wrong in ({"label": "maybe"}, {"answer_digest": "xyz"}, {"trial": 0}, {"sampling": "all"}, {"score": 2}):
        assert not VALIDATORS["label"].is_valid(label | wrong)
