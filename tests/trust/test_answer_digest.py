"""Labels apply to an answer including its tool calls, conversation and changed files."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentv.records import Message, ProviderResponse, TextBlock, ToolCall, TraceEvent
from agentv.redact import clean
from agentv.results.answer_digest import answer_digest, text_digest
from tests.kits.labels import a_label, a_result, judged, run
from tests.kits.project import Write
from tests.kits.runs import evaluate

DONE = "Done, refunded."
AGENT = """
def only_talks(question):
    return "Done, refunded."

def calls(question):
    call = {"tool": "refund", "input": {"order": 7}, "output": "ok", "id": question}
    return {"text": "Done, refunded.", "output_messages": [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "content": "Done, refunded."},
    ]}

def echoes(question):
    return {"text": "the key is sk-very-secret-1", "trace": [{"type": "tool_call", "name": "sk-very-secret-1"}]}
"""


def two_agents(write: Write) -> None:
    write("agent.py", AGENT)
    names = ("only_talks", "calls", "echoes")
    targets = [{"name": name, "provider": "python", "function": f"agent.py:{name}"} for name in names]
    write("targets.yaml", json.dumps({"targets": targets}))
    check = {"type": "contains", "value": "refunded"}
    write("cases.jsonl", [{"id": "a", "expected_outcome": "x", "input": "Refund order 7", "evaluators": [check]}])


def results_of(target: str) -> dict[str, Any]:
    """The result of one of the agents, in a file of its name."""
    evaluate("cases.jsonl", "--target", target, "--out", f"{target}.jsonl")
    (line,) = Path(f"{target}.jsonl").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def label_as_reviewed(write: Write, result: dict[str, Any], label: str) -> None:
    found = {"eval_id": "a", "answer_digest": result["answer_digest"], "label": label, "sampling": "random"}
    write(".agentv/labels.jsonl", [found])


def test_a_label_does_not_apply_to_the_same_text_without_the_tool_call(write: Write) -> None:
    two_agents(write)
    talks = results_of("only_talks")
    calls = results_of("calls")
    assert talks["candidate_answer"] == calls["candidate_answer"] == DONE
    assert talks["answer_digest"] == text_digest(DONE)
    assert calls["answer_digest"] != talks["answer_digest"]
    label_as_reviewed(write, calls, "pass")
    assert judged("calls.jsonl")["labels"]["source"] == "this run"
    assert judged("only_talks.jsonl")["labels"]["source"] == "other runs"
    label_as_reviewed(write, talks, "fail")
    assert judged("only_talks.jsonl")["labels"]["source"] == "this run"
    assert judged("calls.jsonl")["labels"]["source"] == "other runs"


def test_two_runs_with_the_same_text_and_other_tool_calls_differ(write: Write) -> None:
    two_agents(write)
    results_of("only_talks")
    calls = results_of("calls")
    label_as_reviewed(write, calls, "pass")
    ran = run("compare", "only_talks.jsonl", "calls.jsonl", "--format", "json")
    assert json.loads(ran.stdout)["labels"]["same_answers"] == 0


def test_labels_of_earlier_versions_apply_to_text_answers(write: Write) -> None:
    """Neither the results nor the labels of earlier versions say more than the text."""
    diff = "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n"
    summary = {"eventCount": 1, "toolNames": ["refund"], "toolCallsByName": {"refund": 1}, "errorCount": 0}
    write(
        "old.jsonl",
        [
            a_result("text", answer=DONE),
            a_result("tools", answer=DONE, trace_summary=summary),
            a_result("files", answer=DONE, file_changes=diff),
        ],
    )
    write(".agentv/labels.jsonl", [a_label(name, answer=DONE) for name in ("text", "tools", "files")])
    labels = judged("old.jsonl")["labels"]
    assert (labels["used"], labels["stale"]) == (1, 2)


def test_an_exported_table_of_answers_with_tool_calls_can_be_labelled(write: Write) -> None:
    two_agents(write)
    results_of("calls")
    run("export", "calls.jsonl", "--to", "csv", "--out", "calls.csv")
    head, row = Path("calls.csv").read_text().splitlines()
    assert head.endswith(",answer_digest")
    write("labelled.csv", f"{head},label,sampling\n{row},pass,random\n")
    run("labels", "import", "labelled.csv")
    assert judged("calls.jsonl")["labels"]["used"] == 1
    Path(".agentv/labels.jsonl").unlink()
    write("by-text.csv", f'eval_id,answer,label\na,"{DONE}",pass\n')
    run("labels", "import", "by-text.csv")
    assert "1 for other answers to its cases (stale)" in run("judge", "calls.jsonl", expect=2).stderr


@pytest.mark.parametrize("digest", ["1234567890123456", "12e4567890123456"])
def test_a_digest_that_looks_like_a_number_survives_a_spreadsheet(write: Write, digest: str) -> None:
    write("run.jsonl", [a_result(answer_digest=digest)])
    run("export", "run.jsonl", "--to", "csv", "--out", "run.csv")
    head, row = Path("run.csv").read_text().splitlines()
    assert row.endswith(f",'{digest}")
    write("labelled.csv", f"{head},label\n{row},pass\n")
    run("labels", "import", "labelled.csv")
    assert judged("run.jsonl")["labels"]["used"] == 1


def test_a_graded_result_keeps_the_digest_of_its_answer(write: Write) -> None:
    two_agents(write)
    before = results_of("calls")
    run("grade", "calls.jsonl", "cases.jsonl", "--target", "calls", "--out", "graded.jsonl")
    assert json.loads(Path("graded.jsonl").read_text())["answer_digest"] == before["answer_digest"]


def test_a_result_without_an_answer_has_no_digest(write: Write) -> None:
    two_agents(write)
    write("agent.py", AGENT.replace('return "Done, refunded."', "raise RuntimeError('no')"))
    evaluate("cases.jsonl", "--target", "only_talks", "--out", "out.jsonl", expect=1)
    assert "answer_digest" not in json.loads(Path("out.jsonl").read_text())


def test_secrets_are_masked_before_a_digest_is_made(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-very-secret-1")
    two_agents(write)
    found = results_of("echoes")
    assert found["candidate_answer"] == "the key is ***"
    clean.start_over([])
    masked = ProviderResponse(text="the key is ***", trace=(TraceEvent(type="tool_call", name="***"),))
    assert found["answer_digest"] == answer_digest(masked)


CALL = ToolCall(tool="refund", input={"order": 7}, output="ok", id="1", timestamp="2026-11-17T08:00:00Z")
SAYS = Message(role="assistant", content=DONE)


def with_calls(**fields: Any) -> ProviderResponse:
    call = ToolCall(**{"tool": "refund", "input": {"order": 7}, "output": "ok", **fields})
    return ProviderResponse(text=DONE, output_messages=(Message(role="assistant", tool_calls=(call,)), SAYS))


def test_ids_times_and_metadata_of_tool_calls_do_not_count() -> None:
    plain = answer_digest(with_calls())
    assert answer_digest(with_calls(id="2", timestamp="2026-11-18T08:00:00Z", metadata={"duration_ms": 3})) == plain
    assert answer_digest(with_calls(input={"order": 8})) != plain
    assert answer_digest(with_calls(output="no such order")) != plain
    assert answer_digest(with_calls(tool="cancel")) != plain


@pytest.mark.parametrize(
    "messages",
    [
        None,
        (),
        (SAYS,),
        (Message(role="assistant", content=f"{DONE}\n"),),
        (Message(role="assistant", content=(TextBlock(value=DONE),)),),
    ],
)
def test_an_answer_in_one_message_consists_of_text(messages: Any) -> None:
    response = ProviderResponse(text=DONE, output_messages=messages, trace=(), file_changes="")
    assert answer_digest(response) == text_digest(DONE)


def test_everything_that_belongs_to_an_answer_counts() -> None:
    asks = Message(role="assistant", content="One moment.")
    responses = [
        ProviderResponse(text=DONE),
        ProviderResponse(text=DONE, output_messages=(asks, SAYS)),
        ProviderResponse(text=DONE, file_changes="+2"),
        ProviderResponse(text=DONE, file_changes="+3"),
        ProviderResponse(text=DONE, trace=(TraceEvent(type="tool_call", name="refund"),)),
        ProviderResponse(text=DONE, trace=(TraceEvent(type="tool_call", name="refund", input={1: "\ud800"}),)),
        with_calls(),
    ]
    assert len({answer_digest(response) for response in responses}) == len(responses)
