"""`agentv.evaluate` and `agentv.stream`: the features of the command line, from Python."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import textwrap
import threading
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import agentv
import agentv.cli.eval as eval_command
from agentv import AgentvError, EvalReport, EvalResult, evaluate, stream
from agentv.errors import ConfigError
from tests.kits.processes import start_process
from tests.kits.project import Write, a_case

EVALUATORS = "evaluators: [{type: contains, value: good}]\n"


async def echo(question: str) -> str:
    return question


def asked(text: str) -> dict[str, Any]:
    return {"input_messages": [{"role": "user", "content": text}]}


@pytest.fixture
def project(write: Write) -> Write:
    write("evals/some.jsonl", [a_case("one", **asked("good")), a_case("two", **asked("<b>bad</b>"))])
    write("evals/some.yaml", EVALUATORS)
    return write


def run(**options: Any) -> EvalReport:
    return asyncio.run(evaluate("evals", **({"target": echo} | options)))


def test_options_of_the_command_line_are_keywords(project: Write) -> None:
    assert [result.eval_id for result in run(ids=["o*"]).results] == ["one"]
    assert [result.eval_id for result in run(limit=1).results] == ["one"]
    report = run(out="out.jsonl", include_inputs=False, by="dataset")
    assert report.summary.groups is not None
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [line["eval_id"] for line in lines] == ["one", "two"]
    assert all("question" not in line for line in lines)
    first = run(out="out.jsonl", resume=True)  # all is done
    assert [result.eval_id for result in first.results] == ["one", "two"]
    again = run(out="out.jsonl", resume=True, rerun_failed=True)
    assert [result.run_id == first.results[0].run_id for result in again.results] == [True, False]
    assert [result.eval_id for result in run(failed_in="out.jsonl").results] == ["two"]
    assert {result.dry_run for result in run(target=None, dry_run=True).results} == {True}


def test_every_option_of_a_run_is_a_keyword() -> None:
    """Options of `command` that `evaluate` names differently or lacks, apart from those about the terminal."""
    renamed = {"agent_timeout": "timeout_seconds", "no_inputs": "include_inputs", "failed": "rerun_failed"}
    renamed |= {"no_batch_fallback": "batch_fallback"}
    of_the_terminal = {"paths", "view", "quiet", "verbose", "forecast", "form"}
    flags = {str(param.name) for param in eval_command.command.params} - of_the_terminal
    assert {renamed.get(flag, flag) for flag in flags} <= signature(evaluate).parameters.keys()


def test_results_are_also_written_as_junit_and_html(project: Write) -> None:
    run(out="out.jsonl", junit="junit.xml", report="page.html")
    assert '<testcase classname="some" name="two"' in Path("junit.xml").read_text()
    assert "<title>out.jsonl: results</title>" in Path("page.html").read_text()


def test_a_plan_makes_no_calls(project: Write) -> None:
    called: list[str] = []
    forecast = agentv.plan("evals", target=called.append, trials=3)
    assert (forecast.cases, forecast.trials, forecast.calls.expected, called) == (2, 3, 6, [])


def test_conflicting_arguments_are_rejected(project: Write) -> None:
    with pytest.raises(AgentvError, match="trials is 0"):
        run(trials=0)
    with pytest.raises(AgentvError, match="resume=True needs out"):
        run(resume=True)
    with pytest.raises(AgentvError, match="junit needs out"):
        run(junit="junit.xml")
    with pytest.raises(TypeError, match="unexpected keyword argument 'worker'"):
        run(worker=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials is 0"),
        ({"trials": 1.5}, "trials is 1.5"),
        ({"limit": -1}, "limit is -1"),
        ({"workers": "3"}, "workers is '3'"),
        ({"workers": 2.5}, "workers is 2.5"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"max_retries": -1}, "max_retries is -1"),
        ({"max_errors": 0}, "max_errors is 0"),
        ({"max_duration": "x"}, "max_duration is 'x'"),
        ({"max_cost": float("nan")}, "max_cost is nan"),
        ({"batch_deadline": 0}, "batch_deadline is 0"),
        ({"collect_traces": True, "collect_grace": -1}, "collect_grace is -1"),
        ({"target": 42}, "target is 42"),
    ],
)
def test_invalid_option_values_are_rejected(write: Write, options: Any, message: str) -> None:
    write("e.yaml", "evaluators: [{type: contains, value: hi}]\nevalcases: [{id: a, expected_outcome: x, input: hi}]\n")
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}\n?"):
        asyncio.run(evaluate("e.yaml", **{"target": str.lower} | options))


def test_a_single_id_is_accepted_and_missing_paths_are_an_error(write: Write) -> None:
    write(
        "e.yaml", "evaluators: [{type: contains, value: hi}]\nevalcases: [{id: abc, expected_outcome: x, input: hi}]\n"
    )
    report = asyncio.run(evaluate("e.yaml", target=str.lower, ids="abc"))
    assert [result.eval_id for result in report.results] == ["abc"]
    with pytest.raises(ConfigError, match="no eval files given"):
        asyncio.run(evaluate([], target=str.lower))


def test_records_are_plain_dictionaries(project: Write) -> None:
    records = run().to_records()
    assert [(record["eval_id"], record["score"]) for record in records] == [("one", 1.0), ("two", 0.0)]
    assert json.loads(json.dumps(records)) == records
    assert records[0]["evaluator_results"][0]["name"] == "contains"


def test_a_notebook_shows_figures_and_failures_and_escapes_markup(project: Write) -> None:
    shown = run()._repr_html_()
    assert "mean 0.500" in shown
    assert "50% passed, 2 cases" in shown
    assert "<td>two</td><td>contains: does not contain &#x27;good&#x27;</td><td>&lt;b&gt;bad&lt;/b&gt;</td>" in shown
    assert "<b>bad" not in shown


def test_results_arrive_one_by_one_and_leaving_the_loop_ends_the_run(project: Write) -> None:
    project("evals/some.jsonl", [a_case(str(number), **asked("good")) for number in range(20)])
    started: list[str] = []

    async def slow(question: str, eval_id: str) -> str:
        started.append(eval_id)
        await asyncio.sleep(0.01)
        return question

    async def first(count: int) -> list[EvalResult]:
        found = []
        results = stream("evals", target=slow, out="out.jsonl")
        async for result in results:
            found.append(result)
            if len(found) == count:
                await results.aclose()
                break
        return found

    assert [result.eval_id for result in asyncio.run(first(3))] == ["0", "1", "2"]
    assert len(started) < 20
    assert Path("out.jsonl").read_text().count("\n") < 20
    assert len(asyncio.run(first(99))) == 20


def test_an_error_of_the_run_is_raised_by_the_stream(project: Write) -> None:
    async def all_of(paths: str) -> list[EvalResult]:
        return [result async for result in stream(paths, target=echo)]

    with pytest.raises(AgentvError, match="nowhere"):
        asyncio.run(all_of("nowhere.yaml"))


def test_an_interrupt_of_a_script_ends_it_and_keeps_its_results(project: Write) -> None:
    script = """
        import time
        import agentv

        def slow(question):
            if question == "2":
                print("waiting", flush=True)
                time.sleep(60)
            return question

        cases = [{"id": str(n), "input": str(n), "expected_outcome": "x"} for n in range(9)]
        agentv.evaluate_sync(cases=cases, target=slow, evaluators=[{"type": "contains", "value": "1"}], out="out.jsonl")
        """
    project("script.py", textwrap.dedent(script))
    command = [sys.executable, "script.py"]
    process = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGINT  # as of any script that does not handle the interrupt
    assert errors.endswith("KeyboardInterrupt\n")
    assert "ExceptionGroup" not in errors
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [line["eval_id"] for line in lines][:2] == ["0", "1"]


def test_it_works_from_threads_and_in_a_running_loop(project: Write) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(run().results))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2, 2, 2, 2]

    async def cell() -> list[EvalReport]:  # of a notebook, where a loop runs already
        return list(await asyncio.gather(evaluate("evals", target=echo), evaluate("evals", target=echo)))

    assert [len(report.results) for report in asyncio.run(cell())] == [2, 2]


USERS_CODE = """
import asyncio
from agentv import EvalReport, EvalResult, compare_results, evaluate, stream

async def agent(question: str) -> str:
    return question

async def main() -> None:
    report: EvalReport = await evaluate("evals", target=agent, workers=4, trials=2, ids=["a*"], out="out.jsonl")
    mean: float | None = report.summary.mean
    rows: list[dict[str, object]] = report.to_records()
    async for result in stream(["evals"], target="mine", resume=True, out="out.jsonl"):
        first: EvalResult = result
        print(first.score)
    print(mean, rows, compare_results("a.jsonl", "b.jsonl").statistics.verdict)
    await evaluate("evals", wrokers=3)  # WRONG
    await evaluate("evals", workers="3")  # WRONG

asyncio.run(main())
"""


CHECKERS = {
    "mypy": ("mypy", "--strict", "--no-incremental", "--cache-dir", "cache", "user.py"),
    "pyright": ("pyright", "--pythonpath", sys.executable, "user.py"),
}


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.slow
def test_users_code_is_checked_by(checker: str, write: Write) -> None:
    """Type checkers find no error in valid code and one error in each line of invalid code."""
    write("user.py", USERS_CODE)
    root = str(Path(agentv.__file__).parent.parent)
    write("pyrightconfig.json", json.dumps({"typeCheckingMode": "strict", "extraPaths": [root]}))
    ran = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]],
        capture_output=True,
        text=True,
        check=False,
        env={
            "MYPYPATH": root,
            "PATH": "/usr/bin:/bin",
            "HOME": str(Path.cwd()),
            "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # else it asks the network whether it is the newest
        },
    )
    wrong = [number for number, line in enumerate(USERS_CODE.splitlines(), 1) if "WRONG" in line]
    assert [int(found) for found in re.findall(r"user\.py:(\d+):.* error", ran.stdout)] == wrong, ran.stdout
