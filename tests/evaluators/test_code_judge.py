"""Custom judges: programs, functions and composites."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from agentv import evaluate as run
from tests.kits.model_servers import openai_server
from tests.kits.processes import living, wait_until
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import evaluate, evaluate_judged, results

PYTHON = sys.executable
JUDGE_TARGET = """
import json
def judge(question, request):
    return json.dumps({"score": 0.25, "reasoning": "said: " + request.chat_prompt[-1].content[-20:]})
def plain(question):
    return f"you asked {question}"
"""
TARGETS = """targets:
  - {name: default, provider: mock, response: '{"capital": "Paris"}', judge_target: judge}
  - {name: judge, provider: python, function: 'targets.py:judge'}
  - {name: plain, provider: python, function: 'targets.py:plain'}
"""


def judged(write: Write, evaluator: dict[str, Any], *args: str, **fields: Any) -> dict[str, Any]:
    """The result of an evaluator."""
    write("targets.yaml", TARGETS)
    write("targets.py", JUDGE_TARGET)
    write("cases.jsonl", [a_case("a", evaluators=[evaluator], **fields)])
    (result,) = evaluate_judged("cases.jsonl", *args)
    found: dict[str, Any] = result["evaluator_results"][0]
    return found


def refused(write: Write, evaluator: dict[str, Any]) -> str:
    """Why an evaluator cannot be used."""
    write("targets.yaml", TARGETS)
    write("targets.py", JUDGE_TARGET)
    write("cases.jsonl", [a_case("a", evaluators=[evaluator])])
    error = evaluate("cases.jsonl", expect=2).stderr
    assert re.match(r"error: cases\.jsonl:1:\d+: case 'a': evaluators\[0\]", error)
    return error


ECHO = "import json, os, sys\nprint(json.dumps({'score': 1, 'details': {'got': json.load(sys.stdin), 'cwd': os.getcwd()}}))\n"


def test_the_payload_of_a_code_judge(write: Write) -> None:
    write("judges/echo.py", ECHO)
    evaluator = {
        "type": "code_judge",
        "script": [PYTHON, "echo.py"],
        "cwd": "judges",
        "strict": True,
        "config": {"x": 1},
    }
    fields: dict[str, Any] = {"expected_output": "Paris", "input": "Which?", "input_messages": None}
    details = judged(write, evaluator, **fields)["details"]
    assert details["cwd"] == str(Path("judges").resolve())
    got = details["got"]
    assert got.pop("execution_metrics")["duration_ms"] >= 0
    assert got == {
        "question": "Which?",
        "expected_outcome": "Goal",
        "expected_messages": [{"role": "assistant", "content": "Paris"}],
        "reference_answer": "Paris",
        "candidate_answer": '{"capital": "Paris"}',
        "output_messages": None,
        "guideline_files": [],
        "input_files": [],
        "input_messages": [{"role": "user", "content": "Which?"}],
        "trace": None,
        "metadata": None,
        "response_metadata": None,
        "trace_summary": None,
        "workspace_path": None,
        "file_changes": None,
        "state": {},
        "config": {"x": 1, "strict": True},
    }


def test_a_shell_line_and_five_lines_of_python(write: Write) -> None:
    write(
        "judge.py",
        "from agentv.judge import main\n"
        "def score(candidate_answer, expected_outcome):\n"
        "    return {'score': 0.5, 'hits': [candidate_answer], 'misses': [expected_outcome], 'reasoning': 'half'}\n"
        "main(score)\n",
    )
    found = judged(write, {"type": "code_judge", "name": "mine", "script": f"cat | {PYTHON} judge.py"})
    assert (found["name"], found["score"], found["verdict"]) == ("mine", 0.5, "fail")
    assert (found["hits"], found["misses"], found["reasoning"]) == (['{"capital": "Paris"}'], ["Goal"], "half")


@pytest.mark.parametrize(
    ("code", "miss"),
    [
        ("print('well')", "the script wrote no JSON object: well"),
        ("print([1])", "the script wrote no JSON object: [1]"),
        ("print('{}')", "no 'score' in {}"),
        ('print(\'{"score": "high"}\')', "the score is 'high', which is not a number"),
        ("print('{\"score\": NaN}')", "the script wrote no JSON object: "),
        ("import sys; sys.exit('oh no')", "the command failed with exit code 1: oh no"),
        ("import os; os.kill(os.getpid(), 11)", "the command was killed by SIGSEGV"),
        ("print('x' * 20_000_000)", "the command answered with more than"),
        ("", "the script wrote no JSON object"),
    ],
)
def test_a_script_without_a_score_is_explained(write: Write, code: str, miss: str) -> None:
    write("judge.py", code)
    found = judged(write, {"type": "code_judge", "script": [PYTHON, "judge.py"]})
    assert (found["score"], found["failed"]) == (0.0, True)
    assert miss in found["misses"][0]


def test_a_script_that_times_out_is_killed_with_its_children(write: Write, nap: str) -> None:
    found = judged(write, {"type": "code_judge", "script": f"{nap} & {nap}", "timeout_seconds": 0.3})
    assert "the script timed out after 0.3 s" in found["misses"][0]
    wait_until(lambda: living(nap) == [])


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"script": [PYTHON, "none.py"]}, "script: no such file: none.py"),
        ({"script": ["no_such_command_xyz"]}, "script: no such command: no_such_command_xyz"),
        ({"script": ["true"], "config": "text", "more": 1}, "config: expected an object"),
        ({"script": "./none.sh --x"}, "script: no such file: ./none.sh"),
        ({"script": "judge.py"}, "script: no such command: judge.py"),
        ({"script": ["true"], "cwd": "nowhere"}, "cwd: no such folder: "),
        ({}, "evaluators[0]: missing script"),
        (
            {"script": ["true"], "target": {"max_calls": -1}},
            "evaluators[0].target.max_calls: must be at least 0, got -1",
        ),
    ],
)
def test_a_missing_script_is_an_error_before_the_run(write: Write, settings: dict[str, Any], error: str) -> None:
    assert error in refused(write, {"type": "code_judge", **settings})


PROXY = """
import json, os, sys, urllib.request, urllib.error
from agentv.judge import ask, main

def call(path, body=None, token=os.environ["AGENTV_TARGET_PROXY_TOKEN"]):
    url = os.environ["AGENTV_TARGET_PROXY_URL"] + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request) as answer:
            return [answer.status, json.load(answer)]
    except urllib.error.HTTPError as error:
        return [error.code, json.load(error)]

def score(question):
    return {"score": 1, "details": {
        "url": os.environ["AGENTV_TARGET_PROXY_URL"],
        "no_token": call("/info", token="x"),
        "info": call("/info"),
        "unknown": call("/invoke", {"question": "q", "target": "nobody"}),
        "bad": call("/invoke", {}),
        "lost": call("/elsewhere"),
        "asked": call("/invoke", {"question": "q", "system_prompt": "s", "target": "plain"}),
        "helper": ask("again"),
        "too_many": call("/invoke", {"question": "q"}),
        "after": call("/info"),
    }}

main(score)
"""


def test_a_script_may_call_the_judge_target_through_a_proxy(write: Write) -> None:
    write("judge.py", PROXY)
    evaluator = {"type": "code_judge", "script": [PYTHON, "judge.py"], "target": {"max_calls": 2}}
    details = judged(write, evaluator)["details"]
    assert details["url"].startswith("http://127.0.0.1:")
    assert details["no_token"][0] == 401
    info = {"targetName": "judge", "maxCalls": 2, "callCount": 0, "availableTargets": ["default", "judge", "plain"]}
    assert details["info"] == [200, info]
    assert details["unknown"] == [400, {"error": "unknown target 'nobody': available targets: default, judge, plain"}]
    assert details["bad"][0] == 400
    assert details["lost"][0] == 404
    text = "you asked s\n\nq"
    assert details["asked"] == [200, {"outputMessages": [{"role": "assistant", "content": text}], "rawText": text}]
    assert json.loads(details["helper"])["reasoning"] == "said: again"
    assert details["too_many"] == [429, {"error": "the limit of 2 calls is reached"}]
    assert details["after"][1]["callCount"] == 2


def test_without_a_target_there_is_no_proxy(write: Write) -> None:
    write("judge.py", "from agentv.judge import ask, main\nmain(lambda question: float(bool(ask('x'))))\n")
    found = judged(write, {"type": "code_judge", "script": [PYTHON, "judge.py"]})
    assert "to let this judge call a target, set 'target: {max_calls: …}'" in found["misses"][0]


MINE = """
import asyncio
from agentv.records import Score
def number(candidate_answer): return 0.75
def flag(answer): return "Paris" in answer
def mapping(question, config): return {"score": config["score"], "hits": [question]}
async def score(reference_answer, candidate_answer):
    await asyncio.sleep(0)
    return Score(score=1.0, hits=(reference_answer,))
def text(answer): return "good"
def crash(answer): raise ValueError("no luck")
def nan(answer): return float("nan")
def big(answer): return 5
def odd(one, two): return 1
"""


@pytest.mark.parametrize(
    ("name", "score", "hits"),
    [("number", 0.75, []), ("flag", 1.0, []), ("mapping", 0.5, ["Query"]), ("score", 1.0, ["Paris"])],
)
def test_a_python_function_scores_in_process(write: Write, name: str, score: float, hits: list[str]) -> None:
    write("mine.py", MINE)
    evaluator = {"type": "python", "function": f"mine.py:{name}", "config": {"score": 0.5}}
    found = judged(write, evaluator, expected_output="Paris")
    assert (found["score"], found.get("hits", [])) == (score, hits)


@pytest.mark.parametrize(
    ("name", "miss"),
    [
        ("text", "the function returned str: return a number, a bool, a mapping, a Score or None"),
        ("big", "the score is 5, which is not between 0 and 1"),
        ("crash", "the evaluator failed: mine.py:11 in crash: ValueError: no luck"),
        ("nan", "the score is nan, which is not between 0 and 1"),
    ],
)
def test_a_python_function_without_a_score(write: Write, name: str, miss: str) -> None:
    write("mine.py", MINE)
    found = judged(write, {"type": "python", "function": f"mine.py:{name}"})
    assert (found["score"], found["failed"]) == (0.0, True)
    assert miss in found["misses"][0]


def test_a_python_function_that_cannot_be_used(write: Write) -> None:
    write("mine.py", MINE)
    assert "mine.py has no function 'nope'" in refused(write, {"type": "python", "function": "mine.py:nope"})
    assert "the function's parameters 'one', 'two' cannot be supplied" in refused(
        write, {"type": "python", "function": "mine.py:odd"}
    )


INNER = [
    {"name": "paris", "type": "contains", "value": "Paris"},
    {"name": "rome", "type": "contains", "value": "Rome", "weight": 3},
]


def test_a_composite_weighs_its_evaluators(write: Write) -> None:
    found = judged(write, {"type": "composite", "evaluators": INNER})
    assert found["score"] == 0.25
    assert found["hits"] == ["[paris] contains 'Paris'"]
    assert [result["name"] for result in found["details"]["results"]] == ["paris", "rome"]
    aggregator = {"type": "weighted_average", "weights": {"paris": 1, "rome": 1}}
    assert judged(write, {"type": "composite", "evaluators": INNER, "aggregator": aggregator})["score"] == 0.5


def test_composites_can_be_nested(write: Write) -> None:
    inner = {"name": "inner", "type": "composite", "evaluators": INNER}
    found = judged(write, {"type": "composite", "evaluators": [inner, {"type": "is_json"}]})
    assert found["score"] == 0.625


def test_a_script_aggregates_the_scores(write: Write) -> None:
    code = (
        "import json, sys\nresults = json.load(sys.stdin)['results']\n"
        "print(json.dumps({'score': min(r['score'] for r in results.values()), 'details': results}))\n"
    )
    write("gate.py", code)
    aggregator = {"type": "code_judge", "path": "gate.py"}
    found = judged(write, {"type": "composite", "evaluators": INNER, "aggregator": aggregator})
    assert found["score"] == 0.0
    own = found["details"]["own"]
    assert own["rome"] == {
        "score": 0.0,
        "verdict": "fail",
        "hits": [],
        "misses": ["does not contain 'Rome'"],
        "reasoning": "",
    }


@pytest.mark.parametrize("variable", ["results", "EVALUATOR_RESULTS_JSON"])
def test_a_language_model_aggregates_the_scores(write: Write, variable: str) -> None:
    aggregator = {"type": "llm_judge", "prompt": f"Weigh {{{{ {variable} }}}}"}
    found = judged(write, {"type": "composite", "evaluators": INNER, "aggregator": aggregator})
    assert found["score"] == 0.25
    assert '"rome": {\n    "score": 0.0' in found["evaluator_provider_request"]["user_prompt"]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"evaluators": []}, "evaluators[0].evaluators: must not be empty"),
        ({"evaluators": [INNER[0], INNER[0]]}, "duplicate evaluator name 'paris'"),
        (
            {"evaluators": INNER, "aggregator": {"type": "weighted_average", "weights": {"x": 1}}},
            "no evaluator is named 'x'",
        ),
        ({"evaluators": INNER, "aggregator": {"type": "median"}}, "aggregator"),
        (
            {"evaluators": INNER, "aggregator": {"type": "code_judge", "path": "none.py"}},
            "aggregator.path: no such file: none.py",
        ),
    ],
)
def test_a_composite_that_cannot_be_used(write: Write, settings: dict[str, Any], error: str) -> None:
    assert error in refused(write, {"type": "composite", **settings})


def test_errors_inside_a_composite_have_their_location(write: Write) -> None:
    write("targets.yaml", TARGETS)
    write("cases.jsonl", [a_case("a", evaluators=[{"type": "composite", "evaluators": [INNER[0], {"type": "nope"}]}])])
    error = evaluate("cases.jsonl", expect=2).stderr
    assert "case 'a': evaluators[0].evaluators[1]: unknown evaluator type 'nope'" in error


def test_evaluators_come_from_the_file_unless_the_case_has_its_own(write: Write) -> None:
    write("targets.yaml", TARGETS)
    write("cases.yaml", "evaluators: [{type: contains, value: Paris}]\nevaluator: is_json\n")
    own = [{"type": "equals", "value": "x"}]
    cases = [
        a_case("file"),
        a_case("case", evaluators=own),
        a_case("deep", execution={"evaluators": own}),
        a_case("none", evaluators=[]),
    ]
    write("cases.jsonl", cases)
    evaluate("cases.jsonl", "--out", "out.jsonl")
    kinds = {r["eval_id"]: [e["type"] for e in r["evaluator_results"]] for r in results("out.jsonl")}
    assert kinds == {"file": ["contains"], "case": ["equals"], "deep": ["equals"], "none": ["is_json"]}


def test_a_function_as_target_may_be_judged_by_a_target(write: Write) -> None:
    with openai_server(lambda body: '{"score": 0.75}') as server:
        judge = {"name": "judge", "provider": "openai", "model": "m", "base_url": server.url}
        write("targets.yaml", json.dumps({"targets": [judge]}))
        write("cases.jsonl", [a_case("a", evaluators=[{"type": "llm_judge", "judge_target": "judge"}])])
        report = asyncio.run(run("cases.jsonl", target=lambda question: "Paris"))
    assert report.results[0].score == 0.75


def test_all_errors_in_the_evaluators_of_a_case_are_reported_together(write: Write) -> None:
    wrong = [
        {"type": "tool_trajectory", "mode": "sideways"},
        {"type": "contains", "value": 5, "weight": -1},
        {"type": "x"},
    ]
    write("targets.yaml", TARGETS)
    write("cases.jsonl", [a_case("a", evaluators=wrong)])
    error = evaluate("cases.jsonl", expect=2).stderr
    assert "evaluators[0].mode: unknown mode 'sideways'\nhint: one of any_order, exact, in_order" in error
    assert "evaluators[1].weight: must be at least 0, got -1" in error
    assert "evaluators[2]: unknown evaluator type 'x'" in error


@pytest.mark.parametrize(
    "script",
    [
        "cd sub && PYTHON judge.py",
        "X=a/b PYTHON sub/judge.py",
        "$PWD/sub/judge.sh",
        "echo '{\"score\": 1}' # don't",
        "cat > /dev/null <<END\nit's\nEND\necho '{\"score\": 1}'",
        [PYTHON, "sub/judge.py", "--emit=out.js"],
    ],
)
def test_valid_scripts(write: Write, script: str | list[str]) -> None:
    write("sub/judge.py", "print('{\"score\": 1}')")
    write("sub/judge.sh", "#!/bin/sh\necho '{\"score\": 1}'\n").chmod(0o755)
    script = script.replace("PYTHON", PYTHON) if isinstance(script, str) else script
    assert judged(write, {"type": "code_judge", "script": script})["score"] == 1.0
    assert agentv("validate", "cases.jsonl").stdout.endswith("1 file, 1 case: 0 errors, 0 warnings\n")


ODD = """
from agentv.records import Score
def lists(answer): return Score(score=1.0, hits=["a", 1], misses=["b"], verdict="pass")
def great(answer): return Score(score=1.0, verdict="great")
def half(answer): return {"score": 1, "reasoning": "cut \\ud83d", "hits": ["\\ud83d"]}
def circle(answer):
    details = []
    details.append(details)
    return {"score": 1, "details": details}
class Mute(Exception):
    def __str__(self): raise Mute()
def mute(answer): raise Mute()
def forever(answer):
    import time
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lists", {"score": 1.0, "hits": ["a", "1"], "misses": ["b"], "verdict": "pass"}),
        (
            "great",
            {
                "score": 0.0,
                "verdict": "fail",
                "failed": True,
                "misses": ["the evaluator failed: the verdict is 'great', which is not 'pass', 'borderline' or 'fail'"],
            },
        ),
        ("half", {"score": 1.0, "hits": ["?"], "reasoning": "cut ?"}),
        ("circle", {"score": 1.0}),
        (
            "mute",
            {"score": 0.0, "misses": ["the evaluator failed: odd.py:12 in mute: Mute: its message cannot be shown"]},
        ),
        ("forever", {"score": 0.0, "misses": ["the evaluator failed: the function timed out after 0.3 s"]}),
    ],
)
def test_any_return_value_of_a_function_can_be_written(write: Write, name: str, expected: dict[str, Any]) -> None:
    write("odd.py", ODD)
    limit = {"timeout_seconds": 0.3} if name == "forever" else {}
    found = judged(write, {"type": "python", "function": f"odd.py:{name}", **limit})
    assert {key: found[key] for key in expected} == expected


@pytest.mark.slow  # the script has to reach its time limit while calls are in flight
def test_judge_calls_end_with_their_script(write: Write) -> None:
    slow = "import json, pathlib, time\ndef judge(question):\n    open('calls', 'a').write('x')\n    time.sleep(1.2)\n    return '{}'\n"
    script = (
        "import threading\nfrom agentv.judge import ask\n"
        "for _ in range(10): threading.Thread(target=ask, args=('q',)).start()\n"
    )
    write("judge.py", script)
    write("targets.yaml", TARGETS)
    write("targets.py", slow)
    write("calls", "")  # on a very slow machine the script is ended before its first call
    evaluator = {
        "type": "code_judge",
        "script": [PYTHON, "judge.py"],
        "timeout_seconds": 4,
        "target": {"max_calls": 50},
    }
    write("cases.jsonl", [a_case("a", evaluators=[evaluator])])
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert "the script timed out after 4 s" in results("out.jsonl")[0]["misses"][0]
    assert len(Path("calls").read_text()) < 8
    assert "Traceback" not in ran.stderr


def test_evaluator_results_are_fenced_for_the_aggregating_model(write: Write) -> None:
    inner = [{"type": "equals", "value": "x"}]
    found = judged(write, {"type": "composite", "evaluators": inner, "aggregator": {"type": "llm_judge"}})
    assert found["evaluator_provider_request"]["user_prompt"].count("<<<") == 2


def test_a_mean_equal_to_the_threshold_passes(write: Write) -> None:
    write("mine.py", "def score(config): return config['score']")
    evaluators = [
        {"type": "python", "function": "mine.py:score", "name": str(n), "config": {"score": n}} for n in (0.7, 0.8, 0.9)
    ]
    write("targets.yaml", TARGETS)
    write("cases.jsonl", [a_case("a", evaluators=evaluators)])
    evaluate("cases.jsonl", "--out", "out.jsonl")
    (result,) = results("out.jsonl")
    assert (result["score"], result["verdict"]) == (0.8, "pass")
