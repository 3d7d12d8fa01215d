"""The scenarios of the cli provider, each under its own title."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentv.files.wire import answer_from, response_from, response_json
from agentv.records import ProviderResponse, ToolCall
from tests.kits.project import Write, a_case
from tests.kits.runs import ECHO, Batch, evaluate, results, target

CALLS = [{"tool": "search", "input": {"topK": 1}, "output": [1]}, {"tool": "read", "input": "b"}]
MESSAGES = [{"role": "assistant", "name": "bot", "content": "done", "tool_calls": CALLS}]


class TestCliProviderJsonlBatchOutput:
    def test_successful_jsonl_batch_output_mapping(self, batch: Batch) -> None:
        trace = [{"type": "tool_call", "name": "search"}]
        found = batch.run(
            {"id": "b", "text": "B"}, {"id": "a", "text": "A", "trace": trace, "more": 1}, "", {"id": "z"}
        )
        assert {id_: result["candidate_answer"] for id_, result in found.items()} == {"a": "A", "b": "B"}
        assert found["a"]["trace_summary"]["toolNames"] == ["search"]
        assert "trace_summary" not in found["b"]

    def test_missing_eval_case_result(self, batch: Batch) -> None:
        error = batch.fails({"id": "b", "text": "B"}, ids=("a", "b", "c"))
        assert error.startswith(
            "the output of the batch has no record for 2 of 3 cases: a, c; its raw output is kept: "
        )

    def test_invalid_jsonl_line(self, batch: Batch) -> None:
        error = batch.fails({"id": "a", "text": "A"}, "", '{"id": "b", "text": ' + "x" * 500)
        assert error.startswith(
            'the output of the batch, line 3: Invalid JSON: Expecting value: {"id": "b", "text": xxx'
        )
        assert "x" * 60 in error
        assert "x" * 100 not in error

    def test_ignore_invalid_trace_events(self, batch: Batch) -> None:
        valid = [
            {"type": "tool_call", "name": "x", "timestamp": "2026-01-01T00:00:00Z"},
            {"type": "error", "text": "y"},
        ]
        odd = [{"type": "bogus"}, "text", {"name": "x"}, None, {"type": "message", "text": 7}]
        late = {"type": "message", "timestamp": "yesterday"}
        record = {"id": "a", "text": "A", "trace": [odd[0], valid[0], *odd[1:], late, valid[1]]}
        found = batch.run(record, ids=("a",), args=("--include-trace",))
        assert found["a"]["trace"] == valid
        assert found["a"]["trace_summary"] == {
            "eventCount": 2,
            "toolNames": ["x"],
            "toolCallsByName": {"x": 1},
            "errorCount": 1,
        }


def one_answer(write: Write, content: str, *args: str) -> dict[str, Any]:
    """The result of one case whose command writes this to its output file."""
    write("targets.yaml", target("cp answer {OUTPUT_FILE}"))
    write("answer", content)
    write("cases.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": ""}])])
    evaluate("cases.jsonl", "--out", "out.jsonl", *args)
    (result,) = results("out.jsonl")
    return result


class TestCliProviderBackwardsCompatibleOutputParsing:
    def test_single_json_output(self, write: Write) -> None:
        trace = [{"type": "tool_call", "name": "search", "input": {"q": 1}}]
        result = one_answer(write, json.dumps({"text": "Paris", "trace": [*trace, 7]}, indent=2), "--include-trace")
        assert result["candidate_answer"] == "Paris"
        assert result["trace"] == trace

    @pytest.mark.parametrize("content", ["Paris\n", '{"text": "Par', '["a"]', '{"capital": "Paris"}', "", '{"text"} x'])
    def test_plain_text_output(self, write: Write, content: str) -> None:
        assert one_answer(write, content)["candidate_answer"] == content


class TestCliProviderSupportsOutputMessagesFormat:
    def test_jsonl_record_with_output_messages(self, batch: Batch) -> None:
        record = {"id": "a", "text": "A", "output_messages": MESSAGES}
        response = response_from(record)
        assert json.loads(response_json(response)) == {
            "text": "A",
            "outputMessages": [{"role": "assistant", "name": "bot", "content": "done", "toolCalls": CALLS}],
        }
        assert batch.run(record, ids=("a",))["a"]["trace_summary"]["toolNames"] == ["read", "search"]

    def test_output_messages_with_tool_calls(self, batch: Batch) -> None:
        calls = [{"tool": name, "input": name, "output": name} for name in "cab"]
        record = {"id": "a", "text": "A", "output_messages": [{"role": "assistant", "tool_calls": calls}]}
        trace = batch.run(record, ids=("a",), args=("--include-trace",))["a"]["trace"]
        assert trace == [{"type": "tool_call", "name": n, "input": n, "output": n} for n in "cab"]

    def test_single_case_output_with_output_messages(self, write: Write) -> None:
        content = json.dumps({"text": "Paris", "output_messages": MESSAGES})
        assert answer_from(content.encode()).output_messages == response_from(json.loads(content)).output_messages
        result = one_answer(write, content)
        assert result["candidate_answer"] == "Paris"
        assert result["trace_summary"]["toolCallsByName"] == {"read": 1, "search": 1}

    def test_backward_compatibility_with_trace_field(self, batch: Batch) -> None:
        record = {"id": "a", "text": "A", "trace": [{"type": "message", "text": "hm"}], "output_messages": MESSAGES}
        response = response_from(record)
        assert response.trace and response.output_messages
        assert batch.run(record, ids=("a",))["a"]["trace_summary"]["eventCount"] == 1


def test_the_json_form_of_a_response_is_camel_case() -> None:
    response = response_from(
        {
            "text": "A",
            "output_messages": MESSAGES,
            "trace": [{"type": "tool_call", "name": "x", "input": {"snake_case": 1}}],
            "token_usage": {"input": 1, "output": 2, "cached": 0},
            "cost_usd": 0.5,
            "duration_ms": 3,
        }
    )
    assert json.loads(response_json(response)) == {
        "text": "A",
        "outputMessages": [{"role": "assistant", "name": "bot", "content": "done", "toolCalls": CALLS}],
        "trace": [{"type": "tool_call", "name": "x", "input": {"snake_case": 1}}],
        "tokenUsage": {"input": 1, "output": 2, "cached": 0},
        "costUsd": 0.5,
        "durationMs": 3.0,
    }
    assert response_from(json.loads(response_json(response))) == response
    assert response_json(ProviderResponse(text="A")) == b'{"text":"A"}'
    assert response.output_messages is not None
    assert (response.output_messages[0].tool_calls or ())[0] == ToolCall(tool="search", input={"topK": 1}, output=[1])


class TestDesign:
    """Decisions of the design document."""

    @pytest.mark.parametrize(
        ("text", "answer"),
        [(7, "7"), (None, "null"), ({"a": [1]}, '{"a":[1]}'), (True, "true"), (["x"], '["x"]')],
    )
    def test_text_is_coerced_to_a_string(self, batch: Batch, text: Any, answer: str) -> None:
        assert batch.run({"id": "a", "text": text}, ids=("a",))["a"]["candidate_answer"] == answer

    def test_failure_mode_non_zero_exit_code(self, batch: Batch) -> None:
        batch.write("targets.yaml", target("echo oh no >&2; exit 3", provider_batching=True))
        assert batch.fails() == "the command failed with exit code 3: oh no"

    def test_one_invocation_regardless_of_the_number_of_cases(self, write: Write) -> None:
        command = f"echo {{EVAL_ID}} >> count; {sys.executable} all.py {{BATCH_FILE}} {{OUTPUT_FILE}}"
        write("targets.yaml", target(command, provider_batching=True))
        write("all.py", ECHO)
        write("cases.jsonl", [a_case(str(n), evaluators=[{"type": "contains", "value": "Q"}]) for n in range(300)])
        evaluate("cases.jsonl", "--workers", "20", "--out", "out.jsonl")
        assert Path("count").read_text() == "batch\n"
        assert len(results("out.jsonl")) == 300
