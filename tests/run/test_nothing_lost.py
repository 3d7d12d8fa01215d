"""Data that a target returns in addition to text reaches results and evaluators, or is reported once per run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import ANY, MOCK, evaluate, results, run_one, target

OCR = {"tool": "ocr"}
DELETE = {"type": "function", "function": {"name": "delete_invoice", "arguments": "{}"}}
NAMELESS = {"type": "function", "function": {"arguments": "{}"}}
NEVER = {"type": "tool_trajectory", "mode": "any_order", "minimums": {"delete_invoice": 1}, "negate": True}
ONCE = {"type": "tool_trajectory", "mode": "any_order", "minimums": {"ocr": 1}, "name": "once"}
PYTHON = "targets: [{name: default, provider: python, function: agent.py:answer}]\n"
SEEN = """
def seen(output_messages, trace, metadata, response_metadata):
    return {"score": 1, "details": [output_messages, trace, metadata, response_metadata]}
"""
SEEN_BY = {"type": "python", "function": "judge.py:seen"}


def answers(calls: list[Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Done.", "tool_calls": calls}
    return {"text": "Done.", "output_messages": [message]}


def batch_target(write: Write, *records: dict[str, Any]) -> None:
    write("records.jsonl", list(records))
    write("targets.yaml", target("cp records.jsonl {OUTPUT_FILE}", provider_batching=True))


def python_target(write: Write, answer: Any) -> None:
    write("agent.py", f"def answer(question):\n    return {answer!r}\n")
    write("targets.yaml", PYTHON)


class TestToolCalls:
    def test_a_call_in_the_shape_of_openai_counts(self, write: Write) -> None:
        write("a.jsonl", [a_case("a", evaluators=[NEVER])])
        batch_target(write, {"id": "a", **answers([OCR, DELETE])})
        in_batch = run_one("a.jsonl")
        python_target(write, answers([OCR, DELETE]))
        in_process = run_one("a.jsonl")
        for result in (in_batch, in_process):
            assert (result["score"], result["verdict"]) == (0.0, "fail")
            assert result["trace_summary"]["toolCallsByName"] == {"delete_invoice": 1, "ocr": 1}

    def test_an_event_with_the_type_tool_use_counts(self, write: Write) -> None:
        write("a.jsonl", [a_case("a", evaluators=[NEVER])])
        event = {"type": "tool_use", "name": "delete_invoice"}
        batch_target(write, {"id": "a", "text": "Done.", "trace": [event]})
        assert run_one("a.jsonl")["score"] == 0.0

    @pytest.mark.parametrize("evaluator", [NEVER, ONCE])
    def test_a_call_without_a_readable_name_is_not_judged(self, write: Write, evaluator: Any) -> None:
        write("a.jsonl", [a_case(id_, evaluators=[evaluator]) for id_ in "ab"])
        nameless = answers([OCR, NAMELESS])
        batch_target(write, {"id": "a", **nameless}, {"id": "b", **nameless})
        ran = evaluate("a.jsonl", "--out", "out.jsonl", expect=1)
        for result in results("out.jsonl"):
            assert result["failure"] == "judge"
            assert result["trace_complete"] is False
            (scored,) = result["evaluator_results"]
            assert scored["failed"] is True
            (miss,) = scored["misses"]
            assert "1 tool call has no readable name, for example " in miss
        warning = (
            "warning: 2 tool calls without a readable name in 2 answers, such as "
            '{"type":"function","function":{"arguments":"{}"}} in \'a\''
        )
        assert ran.stderr.count(warning) == 1

    def test_other_parts_that_cannot_be_read_are_reported_once(self, write: Write) -> None:
        write("a.jsonl", [a_case(id_, evaluators=[ANY]) for id_ in "ab"])
        odd = {"text": "Done.", "output_messages": [{"role": "bot", "content": "hi"}], "cost_usd": -1}
        batch_target(write, {"id": "a", **odd}, {"id": "b", **odd})
        ran = evaluate("a.jsonl", "--out", "out.jsonl")
        example = '{"role":"bot","content":"hi"} in \'a\''
        assert ran.stderr.count(f"2 messages with an unknown role or shape in 2 answers, such as {example}") == 1
        assert ran.stderr.count("2 invalid figures in 2 answers, such as {\"cost_usd\":-1} in 'a'") == 1
        for result in results("out.jsonl"):
            assert result["note"] == 'rejected figures (1), such as {"cost_usd":-1}'
            assert "execution_metrics" not in result or "cost_usd" not in result["execution_metrics"]


METADATA = {"documents": ["a.pdf"], "confidence": 0.5}


class TestMetadata:
    def kept(self, write: Write, *args: str) -> Any:
        """Return the metadata that an evaluator got, which is also in the result."""
        write("judge.py", SEEN)
        write("a.jsonl", [a_case("a", evaluators=[SEEN_BY], metadata={"level": 3})])
        result = run_one("a.jsonl", *args)
        (scored,) = result["evaluator_results"]
        _, _, of_case, of_response = scored["details"]
        assert of_case == {"level": 3}
        assert of_response == result["response_metadata"]
        return of_response

    def test_of_a_function(self, write: Write) -> None:
        python_target(write, {"text": "A", "metadata": METADATA})
        assert self.kept(write) == METADATA

    def test_of_objects_that_are_not_json(self, write: Write) -> None:
        code = (
            "from pathlib import Path\ndef answer(question):\n    return {'text': 'A', 'metadata': {'p': Path('x')}}\n"
        )
        write("agent.py", code)
        write("targets.yaml", PYTHON)
        assert self.kept(write) == {"p": "x"}

    def test_of_a_command(self, write: Write) -> None:
        write("answer.json", json.dumps({"text": "A", "metadata": METADATA}))
        write("targets.yaml", target("cp answer.json {OUTPUT_FILE}"))
        assert self.kept(write) == METADATA

    def test_of_a_batch(self, write: Write) -> None:
        batch_target(write, {"id": "a", "text": "A", "metadata": METADATA})
        assert self.kept(write) == METADATA

    def test_of_a_mock(self, write: Write) -> None:
        entry = {"name": "default", "provider": "mock", "metadata": METADATA}
        write("targets.yaml", json.dumps({"targets": [entry]}))
        assert self.kept(write) == METADATA

    def test_of_replayed_results_and_records(self, write: Write) -> None:
        self.test_of_a_mock(write)
        Path("out.jsonl").rename("old.jsonl")
        write("targets.yaml", "targets: [{name: default, provider: replay, file: old.jsonl}]\n")
        assert self.kept(write) == METADATA
        write("old.jsonl", [{"id": "a", "text": "A", "metadata": METADATA}])
        assert self.kept(write) == METADATA

    def test_metadata_that_is_not_a_mapping_is_reported(self, write: Write) -> None:
        write("a.jsonl", [a_case("a", evaluators=[ANY])])
        python_target(write, {"text": "A", "metadata": 7})
        ran = evaluate("a.jsonl", "--out", "out.jsonl")
        assert "1 'metadata' that is not a mapping in 1 answer, such as 7 in 'a'" in ran.stderr


def test_unknown_keys_of_a_function_are_named_once_with_metadata(write: Write) -> None:
    write("a.jsonl", [a_case(id_, evaluators=[ANY]) for id_ in "ab"])
    python_target(write, {"text": "A", "documents": [], "confidence": 1})
    ran = evaluate("a.jsonl", "--out", "out.jsonl")
    warning = "warning: 4 unknown keys in 2 answers, such as 'documents', 'confidence' in 'a'"
    assert ran.stderr.count(warning) == 1
    assert "return such data under 'metadata'" in ran.stderr
    batch_target(write, {"id": "a", "text": "A", "documents": []}, {"id": "b", "text": "B"})
    assert "unknown key" not in evaluate("a.jsonl", "--out", "out.jsonl").stderr


class TestStoredMessages:
    LONG = "x" * 5000

    def project(self, write: Write, output: str) -> None:
        write("judge.py", SEEN)
        write("a.jsonl", [a_case("a", evaluators=[SEEN_BY], metadata={"level": 3})])
        call = {"tool": "search", "input": {"q": 1}, "output": output}
        python_target(write, answers([call]) | {"metadata": METADATA})

    @pytest.mark.parametrize("args", [(), ("--include-trace",)])
    def test_grade_passes_stored_data_to_functions(self, write: Write, args: tuple[str, ...]) -> None:
        self.project(write, "found")
        result = run_one("a.jsonl", *args)
        details = result["evaluator_results"][0]["details"]
        assert details[0] == result["output_messages"]
        assert details[1] == [{"type": "tool_call", "name": "search", "input": {"q": 1}, "output": "found"}]
        assert details[2:] == [{"level": 3}, METADATA]
        assert agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl").returncode == 0
        (graded,) = results("new.jsonl")
        assert graded["evaluator_results"][0]["details"] == details
        for name in ("output_messages", "response_metadata"):
            assert graded[name] == result[name]

    @pytest.mark.parametrize("command", ["grade", "replay"])
    def test_evaluators_get_the_metadata_of_the_stored_result(self, write: Write, command: str) -> None:
        self.project(write, "found")
        run_one("a.jsonl")
        write("a.jsonl", [a_case("a", evaluators=[SEEN_BY], metadata={"level": 4})])
        result = self.scored_again(write, command)
        assert result["evaluator_results"][0]["details"][2] == {"level": 3}
        assert result["metadata"] == {"level": 3}

    def test_grade_warns_if_the_metadata_of_cases_has_changed(self, write: Write) -> None:
        self.project(write, "found")
        run_one("a.jsonl")
        warning = "1 answer was graded with the stored metadata, which differs from that of the case"
        assert warning not in agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl").stderr
        write("a.jsonl", [a_case("a", evaluators=[SEEN_BY], metadata={"level": 4})])
        assert warning in agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl").stderr

    @pytest.mark.parametrize("command", ["grade", "replay"])
    def test_evaluators_get_the_metadata_of_the_case_if_the_result_has_none(self, write: Write, command: str) -> None:
        self.project(write, "found")
        result = run_one("a.jsonl")
        del result["metadata"]
        write("out.jsonl", [result])
        result = self.scored_again(write, command)
        assert result["evaluator_results"][0]["details"][2] == {"level": 3}

    @pytest.mark.parametrize("command", ["grade", "replay"])
    def test_masked_metadata_is_replaced_by_that_of_the_case(
        self, write: Write, command: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DEMO_TOKEN", "planted-metadata-token")
        write("judge.py", "def seen(metadata):\n    return 1.0 if metadata['door'].startswith('planted') else 0.0\n")
        write("a.jsonl", [a_case("a", evaluators=[SEEN_BY], metadata={"door": "planted-metadata-token"})])
        write("targets.yaml", MOCK)
        assert run_one("a.jsonl")["metadata"] == {"door": "***"}
        assert self.scored_again(write, command)["score"] == 1.0

    def scored_again(self, write: Write, command: str) -> dict[str, Any]:
        """Return the result of the stored answer, scored by `agentv grade` or by a run with a replay target."""
        if command == "grade":
            ran = agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl")
        else:
            write("targets.yaml", "targets: [{name: default, provider: replay, file: out.jsonl}]\n")
            ran = agentv("eval", "a.jsonl", "--out", "new.jsonl")
        assert ran.returncode == 0, ran.stderr
        (result,) = results("new.jsonl")
        return result

    def test_tool_trajectory_grades_stored_messages(self, write: Write) -> None:
        self.project(write, "found")
        run_one("a.jsonl")
        search = {"type": "tool_trajectory", "mode": "exact", "expected": [{"tool": "search", "args": {"q": 1}}]}
        write("a.jsonl", [a_case("a", evaluators=[search])])
        ran = agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl")
        assert ran.returncode == 0, ran.stderr
        assert "stored without the trace" not in ran.stderr
        assert results("new.jsonl")[0]["score"] == 1.0

    def test_long_parts_are_shortened_and_then_not_judged(self, write: Write) -> None:
        self.project(write, self.LONG)
        result = run_one("a.jsonl")
        (message,) = result["output_messages"]
        (call,) = message["tool_calls"]
        assert call["output"] == "x" * 4000 + "… [agentv: 1,000 characters omitted]"
        for provider in ("grade", "replay"):
            if provider == "grade":
                ran = agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl")
            else:
                write("targets.yaml", "targets: [{name: default, provider: replay, file: out.jsonl}]\n")
                ran = agentv("eval", "a.jsonl", "--out", "new.jsonl")
            assert ran.returncode == 1
            (again,) = results("new.jsonl")
            assert again["failure"] == "judge"
            (miss,) = again["evaluator_results"][0]["misses"]
            assert "the stored messages are truncated; run with --include-trace to keep them complete" in miss

    def test_a_prompt_with_shortened_messages_is_not_judged(self, write: Write) -> None:
        self.project(write, self.LONG)
        run_one("a.jsonl")
        judge = {"type": "llm_judge", "prompt": "Rate {{ output_messages }}", "judge_target": "judge"}
        write("a.jsonl", [a_case("a", evaluators=[judge])])
        score = json.dumps({"score": 1, "hits": [], "misses": [], "reasoning": ""})
        entry = {"name": "judge", "provider": "mock", "response": score}
        write("targets.yaml", json.dumps({"targets": [entry]}))
        assert agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl").returncode == 1
        (miss,) = results("new.jsonl")[0]["evaluator_results"][0]["misses"]
        assert "the stored messages are truncated" in miss

    def test_include_trace_truncates_nothing(self, write: Write) -> None:
        self.project(write, self.LONG)
        result = run_one("a.jsonl", "--include-trace")
        assert result["output_messages"][0]["tool_calls"][0]["output"] == self.LONG
        assert agentv("grade", "out.jsonl", "a.jsonl", "--out", "new.jsonl").returncode == 0

    def test_no_messages(self, write: Write) -> None:
        self.project(write, "found")
        result = run_one("a.jsonl", "--no-messages")
        assert "output_messages" not in result
        assert result["response_metadata"] == METADATA

    def test_an_unpaired_surrogate_in_an_output_does_not_lose_the_answer(self, write: Write) -> None:
        write("a.jsonl", [a_case("a", evaluators=[ANY])])
        python_target(write, answers([{"tool": "read", "output": "\ud83d"}]))
        result = run_one("a.jsonl")
        assert result["output_messages"][0]["tool_calls"][0]["output"] == "?"


def test_a_mock_without_metadata_has_none(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case("a", evaluators=[ANY])])
    result = run_one("a.jsonl")
    assert not {"response_metadata", "output_messages", "dropped"} & result.keys()
