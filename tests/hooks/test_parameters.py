"""The parameters that functions of targets and evaluators can name."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.project import Write
from tests.kits.runs import ANY, HELLO, evaluate, results, run_one

CASE = {
    "id": "a",
    "input": "Hi",
    "outcome": "Answers.",
    "vars": {"order": "A1"},
    "metadata": {"level": 2},
}


def project(write: Write, source: str, *evaluators: dict[str, Any], **settings: Any) -> None:
    write("mine.py", f"import json\n{source}")
    target = {"name": "default", "provider": "python", "function": "mine.py:answer", **settings}
    write("targets.yaml", json.dumps({"targets": [target]}))
    write("cases.jsonl", [{**CASE, "evaluators": evaluators or [HELLO]}])


def test_a_target_receives_what_its_parameters_name(write: Write) -> None:
    project(
        write,
        "def answer(question, config, vars, metadata, trial, attempt, messages, session, state, workspace_path):\n"
        "    got = [config, vars, metadata, trial, attempt, messages, len(session), state, workspace_path]\n"
        "    return 'hello ' + json.dumps(got)\n",
        config={"k": 3, "deep": {"someKey": [1]}},
    )
    answer = run_one("cases.jsonl")["candidate_answer"]
    assert json.loads(answer.removeprefix("hello ")) == [
        {"k": 3, "deep": {"someKey": [1]}},
        {"order": "A1"},
        {"level": 2},
        1,
        1,
        [{"role": "user", "content": "Hi"}],
        32,
        {},
        None,
    ]


def test_a_session_is_an_id_of_an_attempt(write: Write) -> None:
    source = (
        "def answer(session, attempt):\n    open('sessions', 'a').write(session + '\\n')\n"
        "    if attempt == 1: raise OSError('busy')\n    return 'hello'\n"
    )
    project(write, source)
    evaluate("cases.jsonl", "--max-retries", "1", "--trials", "2", "--out", "out.jsonl")
    assert len(set(Path("sessions").read_text().split())) == 4


def test_a_function_cannot_change_the_data_of_the_case(write: Write) -> None:
    source = (
        "def answer(vars, metadata, config):\n    vars['order'] += '!'\n    metadata['level'] += 1\n"
        "    config['k'].append(1)\n    return f'hello {vars} {metadata} {config}'\n"
    )
    project(write, source, config={"k": []})
    evaluate("cases.jsonl", "--trials", "2", "--out", "out.jsonl")
    answers = {result["candidate_answer"] for result in results("out.jsonl")}
    assert answers == {"hello {'order': 'A1!'} {'level': 3} {'k': [1]}"}


def test_config_is_part_of_the_version_except_for_secrets(write: Write) -> None:
    def version(**config: Any) -> str:
        project(write, "def answer(question, config):\n    return 'hello'\n", config=config)
        return str(run_one("cases.jsonl")["digests"]["target"])

    first = version(k=1, api_key="one-one-one")
    assert version(k=1, api_key="two-two-two") == first
    assert version(k=2, api_key="one-one-one") != first


@pytest.mark.parametrize("config", ["k", ["k"], 3])
def test_config_is_a_mapping(write: Write, config: Any) -> None:
    project(write, "def answer(question):\n    return 'hello'\n", config=config)
    assert "config: expected an object, got " in evaluate("cases.jsonl", expect=2).stderr


def test_an_evaluator_receives_what_its_parameters_name(write: Write) -> None:
    names = "eval_id, vars, metadata, trial, trace, output_messages, messages, state, workspace_path, response_metadata"
    project(
        write,
        "def answer(question):\n    return {'text': 'hello', 'metadata': {'documents': 1}}\n"
        f"def check({names}):\n    open('got', 'a').write(json.dumps([{names}]) + '\\n')\n    return True\n",
        {"type": "python", "function": "mine.py:check"},
        ANY,
    )
    evaluate("cases.jsonl", "--trials", "2", "--out", "out.jsonl")
    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "hello"}]
    rest = [None, None, conversation, {}, None, {"documents": 1}]
    assert [json.loads(line) for line in Path("got").read_text().splitlines()] == [
        ["a", {"order": "A1"}, {"level": 2}, 1, *rest],
        ["a", {"order": "A1"}, {"level": 2}, 2, *rest],
    ]
