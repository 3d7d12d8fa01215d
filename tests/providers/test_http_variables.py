"""Variables of the case and state of its hooks in the settings of `http` targets."""

import json
from typing import Any

import pytest

from agentv.records import ProviderRequest
from tests.kits.model_servers import ask, failing, model_server
from tests.kits.project import Write, agentv
from tests.kits.runs import results

SETTINGS: dict[str, Any] = {
    "headers": {"X-City": "{{ vars.user.city }}"},
    "body": {
        "n": "{{ vars.n }}",
        "text": "{{ vars.n }} of {{vars.list}}, \\{{ vars.n }}",
        "order": "{{ state.order }}",
    },
}


def test_values_are_inserted_with_their_types(write: Write) -> None:
    request = ProviderRequest(
        eval_id="a",
        question="q",
        vars={"n": 2, "list": ["a", "{{ question }}"], "user": {"city": "São Paulo"}},
        state={"order": {"id": 7}},
    )
    with model_server(lambda _: "Paris") as server:
        ask(
            server.target("http", **SETTINGS, url=f"{server.url}/of/{{{{ vars.user.city }}}}/{{{{ vars.list }}}}"),
            request,
        )
        (sent,) = server.requests
    assert sent.path == "/of/S%C3%A3o%20Paulo/%5B%22a%22%2C%22%7B%7B%20question%20%7D%7D%22%5D"
    assert sent.headers["x-city"].encode("latin-1").decode() == "São Paulo"
    assert json.loads(sent.content) == {
        "n": 2,
        "text": '2 of ["a","{{ question }}"], {{ vars.n }}',
        "order": {"id": 7},
    }


def test_a_missing_state_is_an_error_for_the_case() -> None:
    with model_server(lambda _: "Paris") as server:
        target = server.target("http", url=f"{server.url}/{{{{ state.order }}}}")
        error = failing(target, ProviderRequest(eval_id="a", question="q", state={"orders": 1}))
    assert error.message == "the request cannot be sent: unknown variable {{ state.order }}"
    assert error.hint == "did you mean 'orders'?"


@pytest.mark.parametrize("command", ["eval", "validate"])
def test_a_variable_that_a_case_lacks_is_an_error_in_the_targets_file(write: Write, command: str) -> None:
    write("targets.yaml", "targets:\n- name: default\n  provider: http\n  url: http://localhost:1/{{ vars.ctiy }}\n")
    check = {"type": "contains", "value": "x"}
    cases = [{"id": id_, "outcome": "x", "input": "y", "evaluators": [check], "vars": {"city": 1}} for id_ in "ab"]
    write("a.jsonl", cases)
    ran = agentv(command, "a.jsonl")
    assert ran.returncode == {"eval": 2, "validate": 1}[command]
    message = "target 'default': url: unknown variable {{ vars.ctiy }} in case 'a'"
    assert (ran.stderr + ran.stdout).count(message) == 1
    assert "targets.yaml" in ran.stderr + ran.stdout
    assert "did you mean 'city'?" in ran.stderr + ran.stdout


NESTED = """
targets:
- name: default
  provider: http
  url: http://localhost:1/{{ vars.user.name }}
  headers: {X-Team: "{{ vars.user.team }}"}
  body: {list: [{age: "{{ vars.user.ages.0 }}"}]}
"""


@pytest.mark.parametrize("command", ["eval", "validate"])
def test_every_case_must_have_the_nested_variables_of_its_target(write: Write, command: str) -> None:
    write("targets.yaml", NESTED)
    users: list[dict[str, Any]] = [
        {"name": "n", "team": "t", "ages": [1]},
        {"name": "n", "team": "t", "ages": []},
        {"name": "n", "ages": [1]},
        {"team": "t"},
    ]
    cases = [{"id": "ask", "outcome": "x", "input": "y", "rows": [{"user": user} for user in users]}]
    write("a.jsonl", cases)
    write("a.yaml", "evaluators: [{type: contains, value: x}]")
    ran = agentv(command, "a.jsonl")
    assert ran.returncode == {"eval": 2, "validate": 1}[command]
    shown = (ran.stderr + ran.stdout).replace("error: ", "")
    assert "targets.yaml:5:3: target 'default': url: unknown variable {{ vars.user.name }} in case 'ask[4]'" in shown
    assert "headers: unknown variable {{ vars.user.team }} in case 'ask[3]'" in shown
    assert "body: unknown variable {{ vars.user.ages.0 }} in case 'ask[2]' and 1 other case" in shown


def test_more_than_a_thousand_sets_of_variables_are_checked(write: Write) -> None:
    write("targets.yaml", "targets:\n- name: default\n  provider: http\n  url: http://localhost:1/{{ vars.x }}\n")
    write("a.yaml", "evaluators: [{type: contains, value: x}]")
    cases = []
    for number in range(1100):
        variables = {"x": 1, f"v{number}": 1}
        if number == 1050:
            del variables["x"]
        cases.append({"id": f"c{number}", "outcome": "x", "input": "y", "vars": variables})
    write("a.jsonl", cases)
    ran = agentv("eval", "a.jsonl")
    assert ran.returncode == 2
    assert "unknown variable {{ vars.x }} in case 'c1050'" in ran.stderr


def test_only_the_variables_that_a_target_uses_are_part_of_its_request(write: Write) -> None:
    def run(variables: dict[str, Any], *args: str) -> None:
        case = {"id": "a", "outcome": "x", "input": "y", "vars": variables}
        write("a.jsonl", [case | {"evaluators": [{"type": "contains", "value": "Paris"}]}])
        ran = agentv("eval", "a.jsonl", "--out", "out.jsonl", *args)
        assert ran.returncode == 0, ran.stderr

    with model_server(lambda _: "Paris") as server:
        target = {"name": "default", "provider": "http", "url": f"{server.url}/{{{{ vars.city }}}}"}
        write("targets.yaml", json.dumps({"targets": [target]}))
        run({"city": "Rome", "note": 1}, "--cache")
        run({"city": "Rome", "note": 2}, "--cache")
        assert len(server.requests) == 1
        run({"city": "Rome", "note": 3}, "--resume")
        assert len(server.requests) == 1
        run({"city": "Paris", "note": 3}, "--resume", "--cache")
        assert [each.path for each in server.requests] == ["/Rome", "/Paris"]
    (result,) = results("out.jsonl")
    assert result["vars"] == {"city": "Paris", "note": 3}
