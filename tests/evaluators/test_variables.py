"""Variables in the settings of evaluators, and `add_evaluators`."""

import json
from typing import Any

import pytest

from tests.kits.model_servers import openai_server
from tests.kits.project import Write, agentv
from tests.kits.runs import results

TARGETS = "targets: [{name: default, provider: mock, response: 'Paris, 3 people, [1,2]'}]"


def a_file(*evaluators: dict[str, Any], **case: Any) -> str:
    asked = {"id": "a", "outcome": "x", "input": "y"} | case
    return f"evaluators:\n{''.join(f'  - {json.dumps(each)}' + chr(10) for each in evaluators)}evalcases:\n  - {json.dumps(asked)}\n"


def run(write: Write, *evaluators: dict[str, Any], **case: Any) -> list[dict[str, Any]]:
    """The results of the evaluators."""
    write("targets.yaml", TARGETS)
    path = write("a.yaml", a_file(*evaluators, **case))
    ran = agentv("eval", path, "--out", "out.jsonl")
    assert ran.returncode == 0, ran.stderr
    (result,) = results("out.jsonl")
    found: list[dict[str, Any]] = result["evaluator_results"]
    return found


def test_settings_of_evaluators_contain_variables(write: Write) -> None:
    variables = {"city": "Paris", "people": 3, "list": [1, 2], "weight": 2.5}
    found = run(
        write,
        {
            "type": "contains",
            "name": "names {{ vars.city }}",
            "value": "{{ vars.city }}",
            "weight": "{{ vars.weight }}",
        },
        {"type": "contains", "value": "{{ vars.people }}"},
        {"type": "contains", "value": r"\{{ vars.city }}"},
        {
            "type": "composite",
            "evaluators": [{"type": "contains", "value": "{{ vars.people }} people, {{ vars.list }}"}],
        },
        vars=variables,
    )
    assert [(each["name"], each["weight"], each["score"]) for each in found] == [
        ("names Paris", 2.5, 1.0),
        ("contains", 1.0, 1.0),
        ("contains", 1.0, 0.0),
        ("composite", 1.0, 1.0),
    ]


def test_an_unknown_variable_in_an_evaluator_of_the_file_is_reported_there(write: Write) -> None:
    write("targets.yaml", TARGETS)
    write("a.yaml", a_file({"type": "contains", "value": "{{ vars.ctiy }}"}, vars={"city": "Paris"}))
    for command, code in (("eval", 2), ("validate", 1)):
        ran = agentv(command, "a.yaml")
        assert ran.returncode == code
        message = "evaluators[0].value: unknown variable {{ vars.ctiy }} in case 'a'"
        assert "a.yaml:2:26: " in ran.stderr + ran.stdout
        assert message in ran.stderr + ran.stdout


def test_the_evaluators_digest_covers_the_variables_that_are_used(write: Write) -> None:
    digests = []
    for variables in ({"city": "Paris"}, {"city": "Paris", "other": 1}, {"city": "Rome"}):
        run(write, {"type": "contains", "value": "{{ vars.city }}"}, vars=variables)
        (result,) = results("out.jsonl")
        digests.append(result["digests"]["evaluators"])
    assert digests[0] == digests[1] != digests[2]


def test_judge_prompts_contain_variables(write: Write) -> None:
    write("prompts/judge-fr.md", "{{ vars.rule }}: {{ candidate_answer }}")
    judge = {"type": "llm_judge", "prompt": "prompts/judge-{{ vars.language }}.md"}
    reply = '{"score": 1, "hits": [], "misses": [], "reasoning": ""}'
    with openai_server(lambda _: reply) as server:
        target = server.target("openai", name="judge", model="m")
        write(
            "targets.yaml",
            f"targets: [{{name: default, provider: mock, response: hi, judge_target: judge}}, {json.dumps(target)}]",
        )
        variables = {"language": "fr", "rule": "Be {{ candidate_answer }} strict"}
        write("a.yaml", a_file(judge, vars=variables))
        ran = agentv("eval", "a.yaml", "--out", "out.jsonl")
        assert ran.returncode == 0, ran.stderr
        prompt = server.asked[0]["messages"][-1]["content"]
        assert prompt.startswith("Be {{ candidate_answer }} strict: <<<")
        write("prompts/judge-fr.md", "{{ vars.roule }}: {{ candidate_answer }}")
        ran = agentv("eval", "a.yaml")
        assert ran.returncode == 2
        assert "evaluators[0]: prompt: unknown variable {{ vars.roule }} in case 'a'" in ran.stderr


@pytest.mark.parametrize("own", [None, [{"type": "contains", "value": "3"}]])
def test_add_evaluators_adds_to_those_of_the_file(write: Write, own: list[dict[str, Any]] | None) -> None:
    case = {"add_evaluators": [{"type": "icontains", "value": "PARIS"}]}
    if own is not None:
        case["evaluators"] = own
    found = run(write, {"type": "equals", "value": "x"}, **case)
    assert [each["type"] for each in found] == ["equals" if own is None else "contains", "icontains"]


def test_an_error_in_added_evaluators_has_its_location(write: Write) -> None:
    write("targets.yaml", TARGETS)
    write("a.yaml", a_file({"type": "equals", "value": "x"}, add_evaluators=[{"type": "contians", "value": "x"}]))
    ran = agentv("eval", "a.yaml")
    assert ran.returncode == 2
    assert "case 'a': add_evaluators[0]: unknown evaluator type 'contians'" in ran.stderr
