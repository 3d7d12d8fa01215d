"""The scenarios of the JSONL dataset format, each under its own title."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentv import AgentvError, EvalCase, Message, collect_warnings, load_eval_cases
from agentv.cases.request import Files, build_request
from agentv.config import guideline_patterns
from agentv.records import Execution
from tests.kits.cases import ONE_LINE, SAME_IN_YAML
from tests.kits.project import Write, a_case, agentv


def cases(path: Path) -> list[EvalCase]:
    return list(load_eval_cases(path))


def error(path: Path) -> AgentvError:
    with pytest.raises(AgentvError) as caught:
        cases(path)
    return caught.value


# Requirement: JSONL File Format Detection


def test_detect_jsonl_file_by_extension(write: Write) -> None:
    found = load_eval_cases(write("data.jsonl", [a_case("a"), a_case("b")]))

    assert isinstance(found, Iterator)
    assert [case.id for case in found] == ["a", "b"]


@pytest.mark.parametrize("extension", ["yaml", "yml", "YAML"])
def test_detect_yaml_file_by_extension(write: Write, extension: str) -> None:
    assert [case.id for case in cases(write(f"data.{extension}", SAME_IN_YAML))] == ["test-1"]


@pytest.mark.parametrize("name", ["data.json", "data.txt", "data", "data.jsonl.bak"])
def test_reject_unsupported_file_extensions(write: Write, name: str) -> None:
    path = write(name, ONE_LINE)

    with pytest.raises(AgentvError) as caught:
        load_eval_cases(path)  # at once, not at the first case

    assert ".yaml, .yml, .jsonl" in str(caught.value)
    assert name in str(caught.value)


# Requirement: JSONL Line Parsing


def test_parse_valid_single_line_jsonl(write: Write) -> None:
    (case,) = cases(write("data.jsonl", ONE_LINE))

    assert (case.id, case.expected_outcome) == ("test-1", "Goal")
    assert case.input_messages == (Message(role="user", content="Query"),)


def test_parse_multi_line_jsonl(write: Write) -> None:
    found = cases(write("data.jsonl", [a_case(f"test-{n}", expected_outcome=f"Goal {n}") for n in (1, 2, 3)]))

    assert [(case.id, case.expected_outcome) for case in found] == [
        ("test-1", "Goal 1"),
        ("test-2", "Goal 2"),
        ("test-3", "Goal 3"),
    ]


def test_skip_empty_lines(write: Write) -> None:
    first, second, third = (ONE_LINE.replace("test-1", f"test-{n}") for n in (1, 2, 3))
    text = first + "\n" + second + "   \n\t\r\n" + third

    with collect_warnings() as warnings:
        found = cases(write("data.jsonl", text))

    assert [(case.id, case.line) for case in found] == [("test-1", 1), ("test-2", 3), ("test-3", 6)]
    assert warnings == []


def test_error_on_malformed_json(write: Write) -> None:
    good = "".join(ONE_LINE.replace("test-1", f"test-{n}") for n in range(1, 5))
    bad = '{"id": "test-5", "expected_outcome": "Goal 5" "input_messages": []}\n'
    path = write("data.jsonl", good + bad)

    caught = error(path)

    assert str(caught) == f"{path}:5:47: Line 5: Invalid JSON: Expecting ',' delimiter"
    assert (caught.file, caught.line, caught.column) == (path, 5, 47)


def test_error_on_missing_required_fields(write: Write) -> None:
    incomplete = {"id": "test-3", "input_messages": [{"role": "user", "content": "Query"}]}
    path = write("data.jsonl", [a_case("test-1"), a_case("test-2"), incomplete, a_case("test-4")])

    with collect_warnings() as warnings:
        found = cases(path)

    assert [case.id for case in found] == ["test-1", "test-2", "test-4"]
    assert [(w.severity, w.line, w.message) for w in warnings] == [
        ("warning", 3, "Line 3: missing expected_outcome; case 'test-3' is skipped")
    ]


# Requirement: Sidecar Metadata File

SIDECAR = """
description: Test dataset
dataset: my-tests
execution:
  target: azure_base
evaluator: llm_judge
"""


def test_load_metadata_from_sidecar_yaml(write: Write) -> None:
    write("dataset.yaml", SIDECAR)

    for case in cases(write("dataset.jsonl", [a_case("a"), a_case("b")])):
        assert case.execution == Execution(target="azure_base", evaluators=())
        assert (case.target, case.evaluator) == ("azure_base", "llm_judge")
        assert (case.dataset, case.description) == ("my-tests", "Test dataset")


def test_use_defaults_when_sidecar_not_found(write: Write) -> None:
    (case,) = cases(write("dataset.jsonl", [a_case()]))

    assert (case.dataset, case.execution.target, case.evaluator, case.description) == (
        "dataset",
        "default",
        "llm_judge",
        "",
    )


def test_look_for_companion_yaml_with_same_base_name(write: Write) -> None:
    write("evals/subfolder/dataset.yaml", "execution: {target: wrong}\n")
    write("evals/subfolder/mytest.yml", "execution: {target: wrong}\n")
    path = write("evals/subfolder/mytest.jsonl", [a_case()])
    assert cases(path)[0].target == "default"

    write("evals/subfolder/mytest.yaml", "execution: {target: right}\n")
    assert cases(path)[0].target == "right"


# Requirement: Per-Case Field Overrides


def test_override_execution_target_per_case(write: Write) -> None:
    write("dataset.yaml", "execution: {target: azure_base}\n")
    path = write("dataset.jsonl", [a_case("a", execution={"target": "openai_gpt4"}), a_case("b")])

    assert [case.target for case in load_eval_cases(path)] == ["openai_gpt4", "azure_base"]


def test_override_evaluators_per_case(write: Write) -> None:
    write("dataset.yaml", "evaluator: llm_judge\n")
    rubric = {"type": "rubric", "rubrics": ["Must be polite"]}
    path = write("dataset.jsonl", [a_case("a", evaluators=[rubric]), a_case("b")])

    first, second = load_eval_cases(path)

    assert first.evaluators == (rubric,)
    assert (second.evaluators, second.evaluator) == ((), "llm_judge")


def test_merge_defaults_with_per_case_fields(write: Write) -> None:
    write("dataset.yaml", "execution: {target: azure_base, evaluators: [{type: contains}]}\nevaluator: rubric\n")
    (case,) = cases(write("dataset.jsonl", [a_case(execution={"target": "openai"})]))

    assert (case.target, case.evaluator, case.evaluators) == ("openai", "rubric", ({"type": "contains"},))


# Requirement: File Reference Resolution


def with_file(path: str) -> dict[str, object]:
    return a_case(input_messages=[{"role": "user", "content": [{"type": "file", "value": path}]}])


def test_resolve_relative_file_reference(write: Write) -> None:
    write("evals/tests/code.py", "print('the right one')\n")
    write("code.py", "print('the wrong one')\n")
    (case,) = cases(write("evals/tests/dataset.jsonl", [with_file("./code.py")]))

    request = build_request(case, guideline_patterns(case.file.path.parent), Files.INLINE)

    assert request.question == "<file path=\"./code.py\">\nprint('the right one')\n\n</file>"


def test_resolve_guideline_files_from_jsonl(write: Write) -> None:
    write(".agentv/config.yaml", 'guideline_patterns: ["*.instructions.md"]\n')
    write("evals/python.instructions.md", "Use type hints.")
    (case,) = cases(write("evals/dataset.jsonl", [with_file("python.instructions.md")]))

    request = build_request(case, guideline_patterns(case.file.path.parent), Files.INLINE)

    assert request.guidelines == "Use type hints."
    assert request.question == "<Attached: python.instructions.md>"
    assert request.chat_prompt[0].content == "[[ ## Guidelines ## ]]\n\nUse type hints."


# Requirement: Schema Compatibility


def test_jsonl_and_yaml_produce_same_eval_case(write: Write) -> None:
    from_yaml = cases(write("one.yaml", SAME_IN_YAML))
    from_jsonl = cases(write("two.jsonl", ONE_LINE))

    assert from_yaml == from_jsonl
    assert from_yaml[0].dataset == "one"


def test_all_eval_case_fields_supported_in_jsonl(write: Write) -> None:
    call = {"tool": "search", "input": {"q": "x"}, "output": [1], "id": "c1", "timestamp": "2026-01-01T00:00:00Z"}
    written = a_case(
        "full-test",
        conversation_id="conv-1",
        input_messages=[{"role": "user", "content": "Query", "name": "ann"}],
        expected_messages=[{"role": "assistant", "tool_calls": [call]}],
        execution={"target": "azure"},
        evaluators=[{"type": "contains", "value": "x"}],
        rubrics=["Polite", {"id": "short", "description": "Short", "weight": 2}],
        evaluator="rubric",
        description="All of it",
        metadata={"tags": ["a"]},
    )
    (case,) = cases(write("data.jsonl", [written]))

    (message,) = case.expected_messages
    assert message.tool_calls is not None
    assert message.tool_calls[0].tool == "search"
    assert message.tool_calls[0].input == {"q": "x"}
    assert case.input_messages[0].name == "ann"
    assert (case.conversation_id, case.target) == ("conv-1", "azure")
    assert case.evaluators == ({"type": "contains", "value": "x"},)
    assert case.rubrics == ("Polite", {"id": "short", "description": "Short", "weight": 2})
    assert (case.evaluator, case.description, case.metadata) == ("rubric", "All of it", {"tags": ["a"]})


# Requirement: Error Reporting


def test_line_number_in_parse_errors(write: Write) -> None:
    lines = [ONE_LINE.replace("test-1", f"test-{n}") for n in range(1, 42)]
    caught = error(write("data.jsonl", "".join(lines) + '{"id": "x",,}\n'))

    assert "Line 42: Invalid JSON: Expecting property name enclosed in double quotes" in str(caught)


def test_field_validation_errors_reference_line(write: Write) -> None:
    entries = [a_case(f"test-{n}") for n in range(1, 10)] + [a_case("test-10", input_messages="Query")]
    caught = error(write("data.jsonl", entries))

    assert "Line 10: input_messages: expected an array, got a string" in str(caught)


def test_sidecar_not_found_is_a_warning_not_error(write: Write) -> None:
    path = write("data.jsonl", [a_case()])

    with collect_warnings(logging.INFO) as when_verbose:
        assert len(cases(path)) == 1
    with collect_warnings() as otherwise:
        assert len(cases(path)) == 1

    assert [w.message for w in when_verbose] == ["no sidecar data.yaml beside this file: using the defaults"]
    assert otherwise == []


# Requirement: Backward Compatibility


def test_existing_yaml_files_work_unchanged(write: Write) -> None:
    text = """
description: An old file
execution:
  target: azure_base
evalcases:
  - id: simple
    outcome: Goal
    input: |
      Two
      lines
    expected_output: {answer: 42}
"""
    (case,) = cases(write("old.yaml", text))

    assert case.input_messages == (Message(role="user", content="Two\nlines\n"),)
    assert case.expected_messages == (Message(role="assistant", content={"answer": 42}),)
    assert (case.target, case.description, case.expected_outcome) == ("azure_base", "An old file", "Goal")


def test_mixed_yaml_and_jsonl_in_same_repo(write: Write) -> None:
    write("evals/test1.yaml", SAME_IN_YAML)
    write("evals/test2.jsonl", ONE_LINE)

    ran = agentv("validate", "evals/test1.yaml", "evals/test2.jsonl")

    assert (ran.stdout, ran.returncode) == ("2 files, 2 cases: 0 errors, 0 warnings\n", 0)
