"""Which variables are secret, and how a run reports that masking has changed its results."""

import json
import os
import textwrap
from typing import Any

import pytest

from agentv.redact import is_secret_name
from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import results

SAYS = {"type": "contains", "value": "Lufthansa"}


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "apikey",
        "apiKey",
        "X-Api-Key",
        "KEYS",
        "aws_secret_x",
        "DbPassword",
        "PGPASSWD",
        "GOOGLE_CREDENTIALS",
        "MAX_TOKENS",
        "githubToken",
        "APIKeyValue",
        "API_KEY2",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "KEYCLOAK_REALM",
        "keycloakUrl",
        "TOKENIZER_PATH",
        "KEYBOARD",
        "SECRETARY",
        "PASSWORDLESS_LOGIN",
        "HOME",
        "KEYFILE",
    ],
)
def test_names_that_only_contain_a_secret_word_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)


def run(write: Write, **variables: str) -> tuple[dict[str, Any], str]:
    """Return the result of a run with these variables, and its summary."""
    write("targets.yaml", "targets: [{name: default, provider: mock, response: Fly with Lufthansa.}]")
    write("a.jsonl", [a_case("a", evaluators=[SAYS])])
    ran = agentv("eval", "a.jsonl", "--out", "out.jsonl", env={**os.environ, **variables})
    assert ran.returncode == 0, ran.stderr
    return results("out.jsonl")[0], ran.stdout


def test_a_name_that_only_contains_key_masks_nothing(write: Write) -> None:
    result, summary = run(write, KEYCLOAK_REALM="Lufthansa")
    assert result["candidate_answer"] == "Fly with Lufthansa."
    assert "masked" not in result
    assert "masked" not in summary


def test_a_masked_answer_names_its_variable(write: Write) -> None:
    result, summary = run(write, AIRLINE_KEY="Lufthansa")
    assert result["candidate_answer"] == "Fly with ***."
    assert result["masked"] == ["AIRLINE_KEY"]
    assert "1 result has masked text: it contains the value of AIRLINE_KEY" in flat(summary)


def test_masked_metadata_and_texts_of_cases_name_their_variables(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: fine}]")
    write(".env", "ONE_TOKEN=value-one\nTWO_TOKEN=value-two\nTHREE_TOKEN=value-three\n")
    first = a_case("a", metadata={"realm": "value-one"}, evaluators=[{"type": "contains", "value": ""}])
    second = first | {"id": "b", "metadata": {}, "expected_outcome": "Says value-two."}
    third = first | {"id": "c", "metadata": {}}
    write("a.jsonl", [first, second, third])
    ran = agentv("eval", "a.jsonl", "--out", "out.jsonl")
    assert [result.get("masked") for result in results("out.jsonl")] == [["ONE_TOKEN"], ["TWO_TOKEN"], None]
    assert "2 results have masked text: they contain the values of ONE_TOKEN, TWO_TOKEN" in flat(ran.stdout)
    again = agentv("eval", "a.jsonl", "--out", "out.jsonl", "--resume")
    assert "2 results have masked text" in flat(again.stdout)


def test_masked_metadata_and_messages_of_an_answer_name_their_variables(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    agent = """
        import os

        def answer(eval_id):
            secret = os.environ["AGENT_TOKEN"]
            if eval_id == "a":
                return {"text": "A", "metadata": {"header": secret}}
            return {"text": "A", "output_messages": [{"role": "assistant", "content": f"with {secret}"}]}
        """
    write("agent.py", textwrap.dedent(agent))
    write("a.jsonl", [a_case("a", evaluators=[SAYS]), a_case("b", evaluators=[SAYS])])
    ran = agentv("eval", "a.jsonl", "--out", "out.jsonl", env={**os.environ, "AGENT_TOKEN": "hunter2hunter2"})
    assert ran.returncode == 0, ran.stderr
    assert [result["masked"] for result in results("out.jsonl")] == [["AGENT_TOKEN"], ["AGENT_TOKEN"]]
    assert "2 results have masked text: they contain the value of AGENT_TOKEN" in flat(ran.stdout)


def test_secrets_without_a_variable_are_named_by_their_setting(write: Write) -> None:
    settings = {
        "url": "https://me:hunter2hunter2@host/",
        "headers": {"X": "Bearer ${{ HDR }}", "Y": "Token abcdefghij"},
    }
    other = {"name": "other", "provider": "http", **settings}
    texts = "hunter2hunter2 from-header abcdefghij"
    default = {"name": "default", "provider": "mock", "response": texts}
    write("targets.yaml", json.dumps({"targets": [default, other]}))
    write("a.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": ""}])])
    agentv("eval", "a.jsonl", "--out", "out.jsonl", env={**os.environ, "HDR": "from-header"})
    (result,) = results("out.jsonl")
    assert result["candidate_answer"] == "*** *** ***"
    assert result["masked"] == ["HDR", "other.headers", "other.url"]


def test_grading_a_masked_answer_is_a_judge_failure(write: Write) -> None:
    run(write, AIRLINE_KEY="Lufthansa")
    graded = agentv("grade", "out.jsonl", "a.jsonl", "--out", "graded.jsonl")
    assert graded.returncode == 1
    (result,) = results("graded.jsonl")
    assert (result["failure"], result["verdict"]) == ("judge", "fail")
    assert result["masked"] == ["AIRLINE_KEY"]
    (reason,) = result["evaluator_results"][0]["misses"]
    assert reason == "the stored answer is masked because it contained the value of AIRLINE_KEY (see --allow-masked)"


def test_allow_masked_grades_the_masked_answer(write: Write) -> None:
    run(write, AIRLINE_KEY="Lufthansa")
    graded = agentv("grade", "out.jsonl", "a.jsonl", "--out", "graded.jsonl", "--allow-masked")
    assert graded.returncode == 0, graded.stderr
    (result,) = results("graded.jsonl")
    assert "failure" not in result
    assert result["score"] == 0
    assert result["masked"] == ["AIRLINE_KEY"]


def test_an_answer_is_graded_if_only_another_text_is_masked(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: fine}]")
    asked = [{"role": "user", "content": "Is Lufthansa fine?"}]
    write("a.jsonl", [a_case("a", input_messages=asked, evaluators=[{"type": "contains", "value": "fine"}])])
    agentv("eval", "a.jsonl", "--out", "out.jsonl", env={**os.environ, "AIRLINE_KEY": "Lufthansa"})
    graded = agentv("grade", "out.jsonl", "a.jsonl", "--out", "graded.jsonl")
    assert graded.returncode == 0, graded.stderr
    assert "does not ask any more" not in graded.stderr
    assert results("graded.jsonl")[0]["masked"] == ["AIRLINE_KEY"]
