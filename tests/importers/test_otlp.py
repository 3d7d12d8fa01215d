"""`agentv import --from otlp`: traces of OpenTelemetry become answers, in either convention."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.project import Write, a_case, agentv, flat

SECOND = 1_000_000_000


def value(given: Any) -> dict[str, Any]:
    if isinstance(given, bool):
        return {"boolValue": given}
    return {"intValue": str(given)} if isinstance(given, int) else {"stringValue": given}


def attributes(**given: Any) -> list[dict[str, Any]]:
    return [{"key": key.replace("__", "."), "value": value(each)} for key, each in given.items()]


def span(id_: str, parent: str, at: int, took: int, given: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "traceId": fields.pop("trace", "a" * 32),
        "spanId": id_,
        "parentSpanId": parent,
        "name": id_,
        "startTimeUnixNano": str(1_700_000_000 * SECOND + at * SECOND),
        "endTimeUnixNano": str(1_700_000_000 * SECOND + (at + took) * SECOND),
        "attributes": [{"key": key, "value": value(each)} for key, each in given.items()],
    } | fields


def document(*spans: dict[str, Any], **resource: Any) -> dict[str, Any]:
    shared = [{"key": key, "value": value(each)} for key, each in resource.items()]
    return {"resourceSpans": [{"resource": {"attributes": shared}, "scopeSpans": [{"spans": list(spans)}]}]}


def said(text: str) -> str:
    return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])


GEN_AI = document(
    span("tool", "agent", 2, 1, {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.arguments": '{"q": "Norway"}',
        "gen_ai.tool.call.result": "Oslo",
    }),
    span("chat", "agent", 1, 1, {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3,
    }),
    span("chat2", "agent", 3, 2, {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5,
        "gen_ai.output.messages": said("It is Oslo."),
    }),
    span("agent", "", 0, 6, {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 17}),
)  # fmt: skip
OPEN_INFERENCE = document(
    span("agent", "", 0, 6, {"openinference.span.kind": "AGENT", "output.value": "It is Oslo."}),
    span("llm", "agent", 1, 1, {
        "openinference.span.kind": "LLM", "llm.token_count.prompt": 17, "llm.token_count.completion": 8,
        "llm.output_messages.0.message.content": "thinking",
    }),
    span("tool", "agent", 2, 1, {
        "openinference.span.kind": "TOOL", "tool.name": "search", "input.value": '{"q": "Norway"}', "output.value": "Oslo",
    }),
)  # fmt: skip
EVENTS = document(
    span("chat", "", 0, 6, {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 17, "gen_ai.usage.output_tokens": 8},
        events=[{"name": "gen_ai.choice", "attributes": attributes(message='{"content": "It is Oslo."}')}]),
    span("tool", "chat", 2, 1, {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
        "gen_ai.tool.call.arguments": '{"q": "Norway"}', "gen_ai.tool.call.result": "Oslo",
    }),
)  # fmt: skip


def imported(*args: str, code: int = 0) -> str:
    ran = agentv("import", "traces.json", "--out", "answers.jsonl", "--overwrite", *args)
    assert ran.returncode == code, ran.stderr
    return flat(ran.stderr)


def answers() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("trace", [GEN_AI, OPEN_INFERENCE, EVENTS], ids=["messages", "openinference", "events"])
def test_a_trace_is_an_answer_with_its_tools_and_tokens(write: Write, trace: dict[str, Any]) -> None:
    write("traces.json", json.dumps(trace))
    assert "otlp" in imported()
    (answer,) = answers()
    assert answer["id"] == "a" * 32
    assert answer["text"] == "It is Oslo."
    tokens = answer.get("token_usage") or answer["tokenUsage"]
    assert (tokens["input"], tokens["output"]) == (17, 8)
    (call,) = (event for event in answer["trace"] if event["type"] == "tool_call")
    assert (call["name"], call["input"], call["output"]) == ("search", {"q": "Norway"}, "Oslo")
    assert call["timestamp"] == "2023-11-14T22:13:22.000Z"
    assert call["metadata"]["duration_ms"] == 1000


def test_traces_on_several_lines_are_combined_and_named_by_their_case(write: Write) -> None:
    named = document(
        span("x", "", 0, 1, {"openinference.span.kind": "AGENT", "output.value": "Hi"}, trace="b" * 32),
        **{"test.case.id": "greets"},
    )
    first, *rest = GEN_AI["resourceSpans"][0]["scopeSpans"][0]["spans"]
    write("traces.json", [document(*rest), named, document(first)])
    imported("--from", "otlp")
    assert [(answer["id"], answer["text"]) for answer in answers()] == [("a" * 32, "It is Oslo."), ("greets", "Hi")]
    assert [event["name"] for event in answers()[0]["trace"]] == ["m", "search", "m"]


def test_tool_trajectory_scores_imported_traces_unless_they_are_incomplete(write: Write) -> None:
    orphan = span(
        "lost", "nobody", 1, 1, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x"}, trace="b" * 32
    )
    other = span(
        "lost2", "nothing", 1, 1, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x"}, trace="b" * 32
    )
    write("traces.json", [GEN_AI, document(orphan, other)])
    imported()
    write("targets.yaml", "targets: [{name: default, provider: replay, file: answers.jsonl}]\n")
    write("cases.jsonl", [a_case("a" * 32), a_case("b" * 32)])
    write("cases.yaml", "evaluators: [{type: tool_trajectory, mode: any_order, minimums: {search: 1}}]\n")
    ran = agentv("eval", "cases.jsonl", "--out", "out.jsonl")
    assert ran.returncode == 1, ran.stderr
    assert "error: 1 case was not judged" in ran.stderr
    whole, truncated = (json.loads(line) for line in Path("out.jsonl").read_text().splitlines())
    assert (whole["score"], "failure" in whole) == (1.0, False)
    assert (truncated["failure"], truncated["verdict"]) == ("judge", "fail")
    assert "the trace is incomplete" in truncated["evaluator_results"][0]["misses"][0]


def test_files_that_cannot_be_imported(write: Write) -> None:
    write("traces.json", json.dumps({"resourceSpans": []}))
    assert "the file contains no spans" in imported(code=2)
    write("traces.json", json.dumps(document(span("x", "", 0, 1, {"http.method": "GET"}))))
    assert "no span belongs to a model, an agent or a tool" in imported(code=1)
    write("traces.json", [GEN_AI, document(span("x", "", 0, 1, {}, trace="b" * 32))])
    assert "--id is for a single answer, but the file has 2 traces" in imported("--id", "x", code=2)
    odd = {
        "resourceSpans": [None, {"scopeSpans": [3, {"spans": [{}, {"traceId": "c", "attributes": 5, "events": [1]}]}]}]
    }
    write("traces.json", json.dumps(odd))
    imported(code=1)


def test_a_trace_without_its_root_is_not_complete(write: Write) -> None:
    *rest, _root = GEN_AI["resourceSpans"][0]["scopeSpans"][0]["spans"]
    write("traces.json", [document(*rest)])
    imported("--from", "otlp")
    (answer,) = answers()
    assert answer["trace_complete"] is False


def test_a_requested_call_without_a_name_is_reported_and_the_trace_not_complete(write: Write) -> None:
    parts = [{"type": "tool_call", "id": "c", "arguments": {"q": 1}}, {"type": "text", "content": "Hi"}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
    }
    write("traces.json", [document(span("x", "", 0, 1, attributes, trace="b" * 32))])
    said = agentv("import", "traces.json", "--out", "answers.jsonl").stderr
    assert "warning: 1 tool call without a readable name in 1 answer, such as " in said
    (answer,) = answers()
    assert answer["trace_complete"] is False
