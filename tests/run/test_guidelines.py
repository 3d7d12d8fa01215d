"""Targets that do not take guidelines separately receive them at the start of the prompt."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import agentv as package
from agentv.records import ProviderRequest
from tests.kits.model_servers import model_server
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import ANY, evaluate, results, run_one, target

RULE = "Refunds need a receipt."
QUESTION = "<Attached: rules/policy.instructions.md>\nMay I return it?"
PROMPT = f"[[ ## Guidelines ## ]]\n\n{RULE}\n\n[[ ## Request ## ]]\n\n{QUESTION}"


@pytest.fixture
def case(write: Write) -> Write:
    """A project whose only case attaches a guideline file."""
    attached = {"type": "file", "value": "rules/policy.instructions.md"}
    asked = {"type": "text", "value": "May I return it?"}
    message = {"role": "user", "content": [attached, asked]}
    write("rules/policy.instructions.md", RULE)
    write("a.jsonl", [a_case("a", input_messages=[message], evaluators=[ANY])])
    return write


@pytest.mark.parametrize("command", ["cat {PROMPT_FILE}", "printf %s {PROMPT}"])
def test_a_command_without_guidelines_gets_them_in_its_prompt(case: Write, command: str) -> None:
    case("targets.yaml", target(command))
    result = run_one("a.jsonl", "--dump-prompts", "prompts")
    assert result["candidate_answer"] == PROMPT
    assert result["question"] == PROMPT
    dumped = json.loads(Path("prompts/a.json").read_text())
    assert dumped["question"] == PROMPT
    assert dumped["guidelines"] == RULE


def test_a_command_with_guidelines_gets_the_question_alone(case: Write) -> None:
    case("targets.yaml", target("printf '%s|%s' {GUIDELINES} {PROMPT}"))
    result = run_one("a.jsonl")
    assert result["candidate_answer"] == f"{RULE}|{QUESTION}"
    assert result["question"] == QUESTION


def test_a_batch_file_has_guidelines_of_its_own(case: Write) -> None:
    case(
        "targets.yaml", target('cp {BATCH_FILE} sent.jsonl; printf \'{"id": "a", "text": ""}\'', provider_batching=True)
    )
    assert run_one("a.jsonl")["question"] == QUESTION
    (sent,) = results("sent.jsonl")
    assert (sent["question"], sent["guidelines"]) == (QUESTION, RULE)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("question", PROMPT),
        ("anything", PROMPT),
        ("question, eval_id", PROMPT),
        ("question, guidelines", QUESTION),
        ("question, chat_prompt", QUESTION),
        ("question, request", QUESTION),
        ("question, messages", QUESTION),
    ],
)
def test_a_function_without_guidelines_gets_them_in_the_question(case: Write, parameters: str, expected: str) -> None:
    first = parameters.partition(",")[0]
    case("agent.py", f"def answer({parameters}):\n    return {first}\n")
    case("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    result = run_one("a.jsonl")
    assert result["candidate_answer"] == expected
    assert result["question"] == expected


def test_a_function_gets_guidelines_in_its_messages(case: Write) -> None:
    case("agent.py", "def answer(messages):\n    return messages[0]['role'] + ': ' + messages[0]['content']\n")
    case("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    answer = run_one("a.jsonl")["candidate_answer"]
    assert answer.startswith("system: ")
    assert RULE in answer


def test_a_callable_without_guidelines_gets_them_in_the_question(case: Write) -> None:
    def answer(question: str) -> str:
        return question

    def answer_request(request: ProviderRequest) -> str:
        return request.question

    (result,) = asyncio.run(package.evaluate("a.jsonl", target=answer)).results
    assert (result.candidate_answer, result.question) == (PROMPT, PROMPT)
    (result,) = asyncio.run(package.evaluate("a.jsonl", target=answer_request)).results
    assert (result.candidate_answer, result.question) == (QUESTION, QUESTION)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"command_template": "cat {PROMPT_FILE}", "provider": "cli"}, PROMPT),
        ({"command_template": "cat {PROMPT_FILE}; echo {GUIDELINES}", "provider": "cli"}, QUESTION),
        ({"url": "http://localhost/", "provider": "http"}, QUESTION),
        ({"url": "http://localhost/", "provider": "http", "body": {"q": "{{ question }}"}}, PROMPT),
        ({"url": "http://localhost/", "provider": "http", "body": {"q": ["{{ messages }}"]}}, QUESTION),
        ({"url": "http://localhost/?q={{ question }}", "provider": "http", "method": "GET"}, PROMPT),
        ({"url": "http://localhost/?q={{guidelines}}", "provider": "http", "method": "GET"}, QUESTION),
        ({"url": "http://localhost/", "provider": "http", "body": {}, "headers": {"x": "{{ guidelines }}"}}, QUESTION),
        ({"function": "agent.py:answer", "provider": "python"}, PROMPT),
        ({"function": "gone.py:answer", "provider": "python"}, QUESTION),
        ({"response": "hello", "provider": "mock"}, QUESTION),
    ],
)
def test_a_dry_run_dumps_what_the_target_would_receive(case: Write, settings: dict[str, Any], expected: str) -> None:
    case("agent.py", "def answer(question):\n    return question\n")
    case("targets.yaml", json.dumps({"targets": [{"name": "default", **settings}]}))
    evaluate("a.jsonl", "--dry-run", "--dump-prompts", "prompts")
    assert json.loads(Path("prompts/a.json").read_text())["question"] == expected


def test_judges_see_the_question_alone(case: Write) -> None:
    case("judge.py", "def judge(question, candidate_answer):\n    return {'score': 1.0, 'reasoning': question}\n")
    (stored,) = results("a.jsonl")
    stored["evaluators"] = [{"type": "python", "function": "judge.py:judge"}]
    case("a.jsonl", [stored])
    case("targets.yaml", target("cat {PROMPT_FILE}"))
    assert run_one("a.jsonl")["evaluator_results"][0]["reasoning"] == QUESTION


def test_prepended_guidelines_do_not_change_the_question_for_grading(case: Write) -> None:
    case("targets.yaml", target("cat {PROMPT_FILE}"))
    evaluate("a.jsonl", "--out", "out.jsonl")
    graded = agentv("grade", "out.jsonl", "a.jsonl", "--out", "graded.jsonl")
    assert graded.returncode == 0, graded.stderr
    assert "does not ask any more" not in graded.stderr
    assert results("graded.jsonl")[0]["question"] == PROMPT


def test_a_cached_answer_to_the_question_alone_is_not_used_with_guidelines(case: Write) -> None:
    case("targets.yaml", target("cat {PROMPT_FILE}"))
    evaluate("a.jsonl", "--cache", "--out", "out.jsonl")
    case("rules/policy.instructions.md", "Refunds need no receipt.")
    result = run_one("a.jsonl", "--cache")
    assert "Refunds need no receipt." in result["candidate_answer"]


def test_a_server_without_guidelines_gets_them_in_the_question(case: Write) -> None:
    with model_server(lambda _: "fine") as server:
        settings = {"name": "default", "provider": "http", "url": server.url, "body": {"q": "{{ question }}"}}
        case("targets.yaml", json.dumps({"targets": [settings]}))
        assert run_one("a.jsonl")["question"] == PROMPT
    (asked,) = server.requests
    assert json.loads(asked.content) == {"q": PROMPT}
