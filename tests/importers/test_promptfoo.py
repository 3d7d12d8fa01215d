"""A promptfoo config becomes an eval file: prompts times tests. Unsupported parts are reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.imported import imported, refused, run_import, validates
from tests.kits.project import Write, agentv

FIRST = """description: My eval
prompts:
  - "Write a tweet about {{topic}}"
  - "Write a concise, funny tweet about {{ topic }}"
providers: [openai:gpt-5]
tests:
  - vars: {topic: bananas}
  - vars:
      topic: avocado toast
    assert:
      - type: icontains
        value: avocado
      - type: javascript
        value: 1 / (output.length + 1)
  - description: funny
    vars: {topic: new york}
    assert: [{type: llm-rubric, value: 'is funny about {{topic}}'}]
"""


def warnings(said: list[str]) -> list[str]:
    return [line.removeprefix("warning: promptfooconfig.yaml:") for line in said if line.startswith("warning: ")]


def config(write: Write, tests: str, prompts: str = "['{{q}}']", rest: str = "") -> None:
    write("promptfooconfig.yaml", f"prompts: {prompts}\n{rest}tests:\n{tests}\n")


def test_each_test_with_each_prompt_is_a_case(write: Write) -> None:
    write("promptfooconfig.yaml", FIRST)
    said = run_import("promptfooconfig.yaml")
    assert said[0] == "detected format: promptfoo"
    assert warnings(said) == [
        "5: providers are not imported (define them in .agentv/targets.yaml)",
        "7: the test has no imported assertion: 'llm_judge' will judge its answers",
        "13: the assertion 'javascript' has no counterpart: it runs code in promptfoo",
    ]
    assert said[-3:] == [
        "3 tests read, 6 cases written, 0 skipped",
        "written: promptfooconfig-cases.yaml",
        "next: agentv validate promptfooconfig-cases.yaml",
    ]
    assert Path("promptfooconfig-cases.yaml").read_text().startswith("description: My eval\nevalcases:\n- id: test-1-")
    validates("promptfooconfig-cases.yaml")
    cases = imported("promptfooconfig.yaml")
    assert [case["id"] for case in cases] == [f"test-{test}-prompt-{prompt}" for test in (1, 2, 3) for prompt in (1, 2)]
    assert cases[3]["input"] == "Write a concise, funny tweet about avocado toast"
    assert cases[3]["evaluators"] == [{"type": "icontains", "value": "avocado"}]
    assert cases[4] == {
        "id": "test-3-prompt-1",
        "expected_outcome": "is funny about new york",
        "input": "Write a tweet about new york",
        "evaluators": [{"type": "rubric", "rubrics": ["is funny about new york"]}],
        "description": "funny",
        "metadata": {"vars": {"topic": "new york"}},
    }


COUNTERPARTS: list[tuple[str, dict[str, Any]]] = [
        ("{type: contains, value: a}", {"type": "contains", "value": "a"}),
        ("{type: not-contains, value: '{{q}}!'}", {"type": "contains", "value": "why!", "negate": True}),
        ("{type: equals, value: 42, weight: 2, metric: m}", {"type": "equals", "name": "m", "weight": 2, "value": "42"}),
        ("{type: starts-with, value: a}", {"type": "starts_with", "value": "a"}),
        ("{type: not-regex, value: '^a'}", {"type": "regex", "value": "^a", "negate": True}),
        ("{type: contains-any, value: 'a, b'}", {"type": "contains", "value": ["a", "b"], "require": "any"}),
        ("{type: icontains-all, value: [a, b]}", {"type": "icontains", "value": ["a", "b"], "require": "all"}),
        ("{type: not-contains-all, value: [a]}", {"type": "contains", "value": ["a"], "require": "any", "negate": True}),
        ("{type: not-icontains-any, value: [a]}", {"type": "icontains", "value": ["a"], "require": "all", "negate": True}),
        ("{type: is-json}", {"type": "is_json"}),
        ("{type: not-is-json}", {"type": "is_json", "negate": True}),
        ("{type: is-json, value: {type: object}}", {"type": "json_schema", "schema": {"type": "object"}}),
        ("{type: is-json, value: 'type: array'}", {"type": "json_schema", "schema": {"type": "array"}}),
        ("{type: is-json, value: file://schema.json}", {"type": "json_schema", "schema": {"type": "array"}}),
        ("{type: latency, threshold: 500}", {"type": "latency", "threshold": 500}),
        ("{type: cost, threshold: 0.1}", {"type": "cost", "budget": 0.1}),
        ("{type: g-eval, value: [a, b]}", {"type": "rubric", "rubrics": ["a", "b"]}),
        ("{type: llm-rubric, value: file://rubric.txt}", {"type": "rubric", "rubrics": ["be kind"]}),
        ("{type: not-latency, threshold: 5}", {"type": "latency", "threshold": 5, "negate": True}),
        ("{type: not-llm-rubric, value: x}", {"type": "rubric", "rubrics": ["x"], "negate": True}),
        ("{$ref: '#/assertionTemplates/kind'}", {"type": "contains", "value": "kind why"}),
    ]  # fmt: skip


def test_assertions_that_have_a_counterpart(write: Write) -> None:
    write("schema.json", '{"type": "array"}')
    write("rubric.txt", "be kind\n")
    templates = "assertionTemplates: {kind: {type: contains, value: 'kind {{q}}'}}\n"
    tests = "\n".join(f"  - {{vars: {{q: why}}, assert: [{assertion}]}}" for assertion, _ in COUNTERPARTS)
    config(write, tests, rest=templates)
    assert warnings(run_import("promptfooconfig.yaml")) == []
    validates("promptfooconfig-cases.yaml")
    cases = imported("promptfooconfig.yaml")
    assert [case["evaluators"] for case in cases] == [[evaluator] for _, evaluator in COUNTERPARTS]


NO_COUNTERPARTS = [
        ("{type: similar, value: x}", "'similar' has no counterpart: agentv has no such evaluator"),
        ("{type: python, value: 'len(output)'}", "'python' has no counterpart: it runs code in promptfoo"),
        ("{type: contains, value: x, transform: y}", "'contains' has no counterpart: it has 'transform'"),
        ("{type: contains, value: file://x.js}", "'contains' has no counterpart: its value is a program: file://x.js"),
        ("{type: contains, value: file://gone.txt}", "'contains' has no counterpart: its value cannot be read: gone.txt: no such file"),
        ("{type: equals, value: {a: 1}}", "'equals' has no counterpart: its value is not a string"),
        ("{type: contains-any, value: 5}", "'contains-any' has no counterpart: its value is not a list"),
        ("{type: regex, value: '(?<n>x'}", "'regex' has no counterpart: invalid pattern '(?<n>x': "),
        ("{type: latency}", "'latency' has no counterpart: threshold: expected a number, got null"),
        ("{type: is-json, value: {type: thing}}", "'is-json' has no counterpart: schema.type: unknown type 'thing'"),
    ]  # fmt: skip


def test_assertions_without_a_counterpart_are_listed_with_their_location(write: Write) -> None:
    others = "\n".join(f"      - {assertion}" for assertion, _ in NO_COUNTERPARTS)
    config(write, f"  - vars: {{q: a}}\n    assert:\n      - {{type: contains, value: a}}\n{others}")
    said = warnings(run_import("promptfooconfig.yaml"))
    for line, (warning, (_, reason)) in enumerate(zip(said, NO_COUNTERPARTS, strict=True), 6):
        assert warning.startswith(f"{line}: the assertion {reason}")
    (case,) = imported("promptfooconfig.yaml")
    assert case["evaluators"] == [{"type": "contains", "value": "a"}]


def test_templates_are_filled_in(write: Write) -> None:
    prompt = "'{{user.name}} {{ list[1] }} {{ name | upper }} {{ user | dump }} {{ nested }} {{number}} {{flag}}'"
    tests = "  - vars: {user: {name: Ann}, name: bob, nested: 'n {{name}}', number: 1.5, flag: true, list: [[x, y]]}"
    config(write, tests, prompts=f"[{prompt}]")
    (case,) = imported("promptfooconfig.yaml")
    assert case["input"] == 'Ann y BOB {"name": "Ann"} n bob 1.5 true'


def test_templates_that_cannot_be_filled_in_are_kept_and_listed(write: Write) -> None:
    config(
        write,
        "  - vars: {q: a}",
        prompts="['{{q}} {{gone}} {{ q | wordcount }} {% if q %}x{% endif %} {{ env.HOME }}']",
    )
    (case,) = imported("promptfooconfig.yaml")
    assert case["input"] == "a {{gone}} {{ q | wordcount }} {% if q %}x{% endif %} {{ env.HOME }}"
    said = [
        line
        for line in warnings(run_import("promptfooconfig.yaml", "--dry-run"))
        if "template" in line or "variable" in line
    ]
    assert said == [
        "1: the variable 'gone' has no value: '{{gone}}' is kept unchanged",
        "1: the template '{{ q | wordcount }}' has no counterpart and is kept unchanged",
        "1: the template tag '{% if q %}' has no counterpart and is kept unchanged",
        "1: the template tag '{% endif %}' has no counterpart and is kept unchanged",
        "1: the variable 'env.HOME' has no value: '{{ env.HOME }}' is kept unchanged",
    ]


def test_lists_of_values_are_combined(write: Write) -> None:
    config(write, "  - vars: {q: [a, b], r: [1, 2]}", prompts="['{{q}}{{r}}']")
    cases = imported("promptfooconfig.yaml")
    assert [(case["id"], case["input"]) for case in cases] == [
        ("test-1-1", "a1"),
        ("test-1-2", "a2"),
        ("test-1-3", "b1"),
        ("test-1-4", "b2"),
    ]
    config(write, "  - {vars: {q: [a, b]}, options: {disableVarExpansion: true}}")
    assert imported("promptfooconfig.yaml")[0]["input"] == '["a","b"]'


def test_tests_inherit_from_the_default_test(write: Write) -> None:
    default = """defaultTest:
  vars: {q: default, r: also}
  assert: [{type: contains, value: '{{r}}'}]
  metadata: {team: a}
  threshold: 0.5
"""
    tests = """  - {vars: {q: mine}, assert: [{type: contains, value: x}], metadata: {n: 1}}
  - {options: {disableDefaultAsserts: true, prefix: '>> ', transform: output.x}, vars: {r: other}}"""
    config(write, tests, prompts="['{{q}} {{r}}']", rest=default)
    one, two = imported("promptfooconfig.yaml")
    assert (one["input"], two["input"]) == ("mine also", ">> default other")
    assert one["evaluators"] == [{"type": "contains", "value": "also"}, {"type": "contains", "value": "x"}]
    assert "evaluators" not in two
    assert one["metadata"] == {"team": "a", "n": 1, "vars": {"q": "mine", "r": "also"}}
    said = warnings(run_import("promptfooconfig.yaml", "--dry-run"))
    assert "6: 'threshold' of a test has no counterpart" in said
    assert "9: the option 'transform' of a test has no counterpart" in said


def test_prompts_in_files_and_as_conversations(write: Write) -> None:
    write("two.txt", "first {{q}}\n---\nsecond {{q}}\n")
    write("chat.json", '[{"role": "system", "content": "Be {{q}}"}, {"role": "user", "content": "{{quoted}}"}]')
    write("chat.yaml", "- role: user\n  content: '{{q}}'\n")
    tests = """  - vars: {q: kind, quoted: 'say "hi"'}"""
    prompts = "[file://two.txt, file://chat.json, file://chat.yaml, file://make.py, file://gone.txt, {label: l, raw: 'raw {{q}}'}]"
    config(write, tests, prompts=prompts)
    cases = imported("promptfooconfig.yaml")
    assert [case["input"] for case in cases] == [
        "first kind",
        "second kind",
        [{"role": "system", "content": "Be kind"}, {"role": "user", "content": 'say "hi"'}],
        [{"role": "user", "content": "kind"}],
        "raw kind",
    ]
    said = warnings(run_import("promptfooconfig.yaml", "--dry-run"))
    assert said[0] == "1: the prompt 'make.py' is generated by a program and is not imported"
    assert said[1] == "1: this prompt is not imported: gone.txt: no such file"


def test_a_test_that_is_for_one_prompt_only(write: Write) -> None:
    config(
        write,
        "  - {vars: {q: a}, prompts: [two]}",
        prompts="[{label: one, raw: '1 {{q}}'}, {label: two, raw: '2 {{q}}'}]",
    )
    assert [case["input"] for case in imported("promptfooconfig.yaml")] == ["2 a"]


def test_tests_in_other_files_and_in_scenarios(write: Write) -> None:
    write("t/one.yaml", "- {vars: {q: from yaml}}\n")
    write("t/two.jsonl", [{"vars": {"q": "from jsonl"}}])
    write(
        "t/three.csv",
        'q,__expected,__expected2,__description,__metadata:n\n"a, b",contains: a,is-json,d,1\nplain,plain,,,\n',
    )
    rest = """scenarios:
  - config: [{vars: {r: '1'}}, {vars: {r: '2'}}]
    tests: [{vars: {q: s}, assert: [{type: contains, value: '{{r}}'}]}]
"""
    tests = "  - file://t/one.yaml\n  - file://t/two.jsonl\n  - file://t/three.csv\n  - file://t/gone.yaml\n  - https://x/sheet"
    config(write, tests, rest=rest)
    cases = imported("promptfooconfig.yaml")
    assert [case["input"] for case in cases] == ["from yaml", "from jsonl", "a, b", "plain", "s", "s"]
    assert cases[2]["evaluators"] == [{"type": "contains", "value": "a"}, {"type": "is_json"}]
    assert (cases[2]["description"], cases[2]["metadata"]["n"]) == ("d", "1")
    assert cases[3]["evaluators"] == [{"type": "equals", "value": "plain"}]
    assert [case["evaluators"][0]["value"] for case in cases[4:]] == ["1", "2"]
    said = warnings(run_import("promptfooconfig.yaml", "--dry-run"))
    assert "9: the tests in 'file://t/gone.yaml' do not exist and are not imported" in said
    assert "10: the tests in 'https://x/sheet' do not exist and are not imported" in said
    validates("promptfooconfig-cases.yaml")


def test_a_set_of_assertions_and_settings_that_are_lost(write: Write) -> None:
    tests = """  - vars: {q: a}
    assert:
      - type: assert-set
        threshold: 0.5
        assert: [{type: contains, value: x}, {type: llm-rubric, value: y, provider: 'openai:gpt-5'}]"""
    config(write, tests)
    (case,) = imported("promptfooconfig.yaml")
    assert [each["type"] for each in case["evaluators"]] == ["contains", "rubric"]
    assert warnings(run_import("promptfooconfig.yaml", "--dry-run")) == [
        "5: the threshold of an assert-set has no counterpart: each of its assertions counts",
        "7: 'provider' of the assertion 'llm-rubric' has no counterpart",
    ]


def test_a_config_in_json_without_tests(write: Write) -> None:
    write("config.json", json.dumps({"providers": ["echo"], "prompts": ["say hi"], "nunjucksFilters": {}}))
    said = run_import("config.json")
    assert said[0] == "detected format: promptfoo"
    assert "warning: config.json:1: 'nunjucksFilters' has no counterpart" in said
    assert [case["input"] for case in imported("config.json")] == ["say hi"]


def test_negated_checks_on_several_values_mean_what_promptfoo_means(write: Write) -> None:
    checks = [
        ("not-contains-all, value: [a, z]", 1.0),  # not all of them are there
        ("not-contains-all, value: [a, b]", 0.0),
        ("not-contains-any, value: [y, z]", 1.0),  # none of them is there
        ("not-contains-any, value: [a, z]", 0.0),
    ]
    listed = ", ".join(f"{{type: {check}}}" for check, _ in checks)
    config(write, f"  - {{vars: {{q: x}}, assert: [{listed}]}}")
    run_import("promptfooconfig.yaml", "--out", "p.yaml")
    write("targets.yaml", "targets: [{name: default, provider: mock, response: a b}]")
    assert agentv("eval", "p.yaml", "--out", "o.jsonl").returncode == 0
    scores = [each["score"] for each in json.loads(Path("o.jsonl").read_text())["evaluator_results"]]
    assert scores == [score for _, score in checks]


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("- a\n", 2, "a.yaml: not a promptfoo config: expected an object at the top level"),
        ("evalcases: []\ndataset: x\n", 2, "a.yaml: neither 'prompts' nor 'tests': not a promptfoo config (fields: 'evalcases', 'dataset')"),
        ("prompts: [a\n", 2, "a.yaml:2:1: Invalid YAML: did not find expected ',' or ']'"),
        ("prompts: [file://x.py]\ntests: [{vars: {}}]\n", 1, "a.yaml: nothing could be imported"),
        ("prompts: [a]\nprompts: [b]\n", 2, "a.yaml:2:1: duplicate key 'prompts', first on line 1"),
    ],
    ids=range(5),
)  # fmt: skip
def test_configs_that_cannot_be_imported(write: Write, content: str, code: int, message: str) -> None:
    write("a.yaml", content)
    assert f"error: {message}" in refused("a.yaml", "--from", "promptfoo", expect=code)
