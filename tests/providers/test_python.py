"""Functions as targets: on the command line, and from Python."""

import asyncio
import datetime
import functools
from pathlib import Path
from typing import Any

import numpy
import pytest

from agentv import AgentvError, ProviderRequest, ProviderResponse, evaluate
from agentv.errors import ConfigError, ProviderError
from agentv.providers.python import PythonFunction
from agentv.records import TokenUsage
from tests.kits.project import Write, a_case
from tests.kits.runs import HELLO
from tests.kits.runs import evaluate as run
from tests.kits.runs import results as results_in

REQUEST = ProviderRequest(eval_id="id", question="the question", guidelines="the guidelines")


def answer(function: Any) -> ProviderResponse:
    return asyncio.run(PythonFunction(function).invoke(REQUEST))


def test_a_function_receives_what_its_parameters_name() -> None:
    assert answer(lambda question: question).text == "the question"
    assert answer(lambda prompt: prompt).text == "the question"
    assert answer(lambda eval_id, guidelines: f"{eval_id}: {guidelines}").text == "id: the guidelines"
    assert answer(lambda request, extra=1: request.question).text == "the question"
    assert answer(lambda: "nothing").text == "nothing"
    assert answer(lambda prompt="none": prompt).text == "the question"
    assert answer(lambda q, /: q).text == "the question"
    assert answer(str.upper).text == "THE QUESTION"
    assert answer(functools.partial(lambda question, other: question + other, other="!")).text == "the question!"


def test_async_functions_and_callable_objects() -> None:
    class Agent:
        async def __call__(self, question: str) -> str:
            await asyncio.sleep(0)
            return question.upper()

        async def method(self, question: str) -> str:
            return question.title()

    assert answer(Agent()).text == "THE QUESTION"
    assert answer(Agent().method).text == "The Question"


def test_valid_return_values() -> None:
    assert answer(lambda q: ProviderResponse(text="x", cost_usd=1.5)).cost_usd == 1.5
    full = answer(
        lambda q: {
            "text": 42,
            "tokenUsage": {"input": 3},
            "cost_usd": 0.5,
            "trace": [{"type": "tool_call", "name": "t"}, {"type": "nonsense"}, 5],
            "output_messages": [{"role": "assistant", "toolCalls": [{"tool": "t"}]}],
            "anything": "else",
        }
    )
    assert full.text == "42"
    assert full.token_usage is not None
    assert full.token_usage.input == 3
    assert full.trace is not None
    assert [event.name for event in full.trace] == ["t"]
    assert full.output_messages is not None
    assert full.output_messages[0].tool_calls is not None
    assert answer(lambda q: {"output_messages": [{"role": "assistant", "content": "last words"}]}).text == "last words"


@pytest.mark.parametrize("value", [None, 5, ["a"], b"bytes", {"answer": 1}, {"output_messages": 5}])
def test_invalid_return_values(value: object) -> None:
    with pytest.raises(ProviderError):
        answer(lambda q: value)


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(3), StopIteration(), KeyboardInterrupt(), KeyError("k")])
def test_any_exception_is_an_error_for_the_case(error: BaseException) -> None:
    def fail(question: str) -> str:
        raise error

    with pytest.raises(ProviderError, match=type(error).__name__) as caught:
        answer(fail)
    assert caught.value.may_pass


ODD = """
import asyncio, sys
from agentv import ProviderResponse

class Odd:
    def __str__(self):
        raise ValueError("no text")

async def answer(eval_id):
    match eval_id:
        case "cancel": raise asyncio.CancelledError()
        case "cancel-task": asyncio.current_task().cancel(); await asyncio.sleep(1)
        case "exit": sys.exit(0)
        case "interrupt": raise KeyboardInterrupt
        case "generator": raise GeneratorExit
        case "surrogate": return "hello \\udcff"
        case "surrogate-error": raise ValueError("\\udcff")
        case "no-text": return ProviderResponse(text=None)
        case "bad-trace": return ProviderResponse(text="hello", trace=[{"type": "tool_call"}])
        case "deep":
            deep = []
            for _ in range(5000): deep = [deep]
            return {"text": "hello", "trace": [{"type": "tool_call", "input": deep}]}
        case "odd": return {"text": "hello", "trace": [{"type": "tool_call", "input": Odd()}]}
    return "hello"
"""


@pytest.mark.parametrize("flags", [[], ["--include-trace", "--dump-traces"]])
def test_a_failing_case_never_affects_others(write: Write, flags: list[str]) -> None:
    write("agent.py", ODD)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    bad = ["cancel", "cancel-task", "exit", "interrupt", "generator", "surrogate-error", "no-text", "bad-trace"]
    path = write(
        "a.jsonl", [a_case(name, evaluators=[HELLO]) for name in (*bad, "surrogate", "deep", "odd", "good", "last")]
    )
    ran = run(path, "--out", "o.jsonl", *flags, expect=1)
    found = {result["eval_id"]: result for result in results_in("o.jsonl")}
    assert len(found) == 13
    assert [found[name]["score"] for name in ("good", "last")] == [1.0, 1.0]
    assert all("error" in found[name] for name in bad)
    assert found["no-text"]["error"] == "the function returned a ProviderResponse whose text is NoneType"
    assert found["surrogate"]["candidate_answer"] == "hello ?"
    assert "13 planned" in ran.stdout
    assert "not run" not in ran.stdout


def test_a_secret_of_several_lines_is_masked_in_a_group_of_exceptions(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNING_KEY", "first line of the key\nsecond line of the key")
    write(
        "agent.py",
        "import os\n"
        "def answer():\n"
        "    key = os.environ['SIGNING_KEY']\n"
        "    error = ValueError(key)\n"
        "    error.add_note(key)\n"
        "    raise ExceptionGroup(key, [error])\n",
    )
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    ran = run(write("a.jsonl", [a_case(evaluators=[HELLO])]), "--out", "o.jsonl", expect=1)
    (result,) = results_in("o.jsonl")
    assert "ValueError: ***" in result["error_details"]
    assert "line of the key" not in Path("o.jsonl").read_text() + ran.stdout + ran.stderr


class Timestamp(datetime.datetime):
    """A date as pandas represents it."""


def test_figures_and_metadata_may_be_objects_of_numpy_and_pandas() -> None:
    usage = {"input": numpy.int64(3), "output": numpy.int32(4)}
    metadata = {"at": Timestamp(2026, 1, 2), "scores": numpy.array([1, 2])}
    response = answer(
        lambda: {"text": "", "cost_usd": numpy.float64(0.5), "token_usage": usage, "metadata": metadata},
    )
    assert response.cost_usd == 0.5
    assert response.token_usage == TokenUsage(input=3, output=4)
    assert response.metadata == {"at": "2026-01-02T00:00:00", "scores": [1, 2]}
    assert response.dropped is None


def test_a_module_that_exits_is_an_error(write: Write) -> None:
    write("agent.py", "import sys\nsys.exit(0)\n")
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    ran = run(write("a.jsonl", [a_case(evaluators=[HELLO])]), expect=2)
    assert "function: agent.py cannot be loaded: agent.py:2 in <module>: SystemExit: 0" in ran.stderr


def test_an_exception_without_a_message_is_named() -> None:
    def fail(question: str) -> str:
        raise ValueError

    with pytest.raises(ProviderError, match=r"in fail: ValueError$"):
        answer(fail)


def test_a_syntax_error_has_one_location(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]\n")
    write("cases.jsonl", [a_case("a", evaluators=[HELLO])])
    write("agent.py", "def answer(question):\n    return (\n")
    reason = "agent.py cannot be loaded: agent.py:2: SyntaxError: '(' was never closed\n"
    assert reason in run("cases.jsonl", expect=2).stderr
    write("agent.py", "def answer(question):\n    import broken_helper\n")
    write("broken_helper.py", "x = (\n")
    run("cases.jsonl", "--out", "helper.jsonl", expect=1)
    (result,) = results_in("helper.jsonl")
    assert result["error"] == "broken_helper.py:1: SyntaxError: '(' was never closed"
    # Text that is parsed, such as the reply of a model, is not in a file.
    write("agent.py", "import ast\ndef answer(question):\n    ast.literal_eval('(')\n")
    run("cases.jsonl", "--out", "text.jsonl", expect=1)
    (result,) = results_in("text.jsonl")
    assert result["error"].startswith("agent.py:3 in answer: SyntaxError: '(' was never closed")


def test_one_module_name_in_two_folders_is_two_modules(write: Write) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent:answer'}\n")
    for folder in ("a", "b"):
        write(f"{folder}/agent.py", f"def answer(question):\n    return 'hello from {folder}'\n")
        write(f"{folder}/{folder}.jsonl", [a_case(evaluators=[HELLO])])
    run("a", "b", "--out", "o.jsonl")
    assert {(r["dataset"], r["candidate_answer"]) for r in results_in("o.jsonl")} == {
        ("a", "hello from a"),
        ("b", "hello from b"),
    }


def test_a_target_may_leave_the_folder(write: Write) -> None:
    write("agent.py", "import os\ndef answer(question):\n    os.chdir('/')\n    return 'hello'\n")
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    write("evals/agent.py", "import os\ndef answer(question):\n    os.chdir('/')\n    return 'hello'\n")
    for name in ("a", "b"):
        write(f"evals/{name}.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(2)])
    run("evals", "--dump-prompts=prompts")
    assert len(list(Path("prompts").iterdir())) == 4


def test_parameters_that_cannot_be_supplied() -> None:
    with pytest.raises(ConfigError, match="the function's parameter 'b' cannot be supplied"):
        PythonFunction(lambda question, b: question)


def test_evaluate_from_python(write: Write) -> None:
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(5)])

    async def agent(question: str) -> str:
        await asyncio.sleep(0.001)
        return f"hello, {question}"

    report = asyncio.run(evaluate(path, target=agent, workers=3))
    assert sorted(result.eval_id for result in report.results) == ["0", "1", "2", "3", "4"]
    assert report.summary.mean == 1.0
    assert report.results[0].candidate_answer == "hello, Query"


def test_evaluate_raises_config_errors(write: Write) -> None:
    with pytest.raises(AgentvError, match="Line 1: Invalid JSON"):
        asyncio.run(evaluate(write("a.jsonl", "nope\n"), target=lambda q: q))


FLAKY = """
calls = {}

def answer(question, eval_id):
    calls[eval_id] = calls.get(eval_id, 0) + 1
    if calls[eval_id] <= int(eval_id):
        raise ConnectionError("try again")
    return f"hello after {calls[eval_id]}"

def hang(question):
    import os, time
    with open(os.environ["TESTS_REACHED"], "a") as reached: reached.write("\\n")
    time.sleep(60)
"""


def test_retries_are_counted(write: Write) -> None:
    write("agent.py", FLAKY)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(4)])
    ran = run(path, "--max-retries", "2", "--dump-traces", "--out", "o.jsonl", expect=1)
    found = {result["eval_id"]: result for result in results_in("o.jsonl")}
    assert {id_: result["attempt"] for id_, result in found.items()} == {"0": 1, "1": 2, "2": 3, "3": 3}
    assert found["2"]["candidate_answer"] == "hello after 3"
    assert found["3"]["error"] == "agent.py:7 in answer: ConnectionError: try again"
    assert "2: attempt 2 failed, retrying: agent.py:7 in answer: ConnectionError: try again" in ran.stderr
    assert sorted(path.name for path in Path(".agentv/traces").glob("2_*")) == [
        f"2_attempt-{n}.json" for n in (1, 2, 3)
    ]


def test_a_timeout_ends_only_its_case(write: Write, reached: str) -> None:
    write("agent.py", FLAKY)
    write(
        "targets.yaml",
        "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n"
        "  - {name: hang, provider: python, function: 'agent.py:hang'}\n",
    )
    path = write(
        "a.jsonl", [a_case("9", execution={"target": "hang"}, evaluators=[HELLO]), a_case("0", evaluators=[HELLO])]
    )
    ran = run(path, "--agent-timeout", "0.3", "--max-retries", "1", "--out", "o.jsonl", expect=1)
    slow, quick = results_in("o.jsonl")
    assert (slow["error"], slow["attempt"], slow["failure"]) == ("timed out after 0.3 s", 2, "timeout")
    assert quick["score"] == 1.0
    assert "2 planned = 1 scored + 1 timeout" in ran.stdout


def test_one_run_may_use_several_targets_and_their_own_limits(write: Write) -> None:
    write(
        "agent.py",
        "import asyncio\nnow = most = 0\nasync def answer(q):\n    global now, most\n    now += 1\n    most = max(now, most)\n    await asyncio.sleep(0.02)\n    now -= 1\n    return f'hello {most}'\n",
    )
    write(
        "targets.yaml",
        "targets:\n  - {name: default, provider: python, function: 'agent.py:answer', workers: 3}\n  - {name: other, provider: mock, response: hello}\n",
    )
    entries = [a_case(str(n), evaluators=[HELLO]) for n in range(9)] + [
        a_case("m", execution={"target": "other"}, evaluators=[HELLO])
    ]
    run(write("a.jsonl", entries), "--out", "o.jsonl")
    found = results_in("o.jsonl")
    assert {result["target"] for result in found} == {"default", "other"}
    assert max(int(result["candidate_answer"].split()[1]) for result in found if result["target"] == "default") == 3
    run(write("a.jsonl", entries), "--workers", "2", "--out", "o.jsonl")
    assert max(int(r["candidate_answer"].split()[1]) for r in results_in("o.jsonl") if r["target"] == "default") == 2
