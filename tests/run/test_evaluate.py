"""`agentv.evaluate` keeps the guarantees of the command line, and a plan runs anywhere."""

import asyncio
import json
import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import agentv
from agentv import AgentvError, EvalResult, evaluate
from agentv.evaluators.build import EvaluatorBuilder
from agentv.run.judges import RunJudges
from agentv.run.local import LocalExecutor
from agentv.run.options import EvalOptions, RunOptions
from agentv.run.planning.evaluation import plan_evaluation
from agentv.run.planning.plan import Plan
from agentv.run.progress import Progress
from agentv.run.run import Results, Run
from agentv.run.targets import OpenTargets
from tests.kits.model_servers import Reply, model_server
from tests.kits.project import Write, a_case
from tests.kits.project import agentv as command_line
from tests.kits.runs import HELLO, MOCK, results

KEY = "canary-7f3a9b21c4"


def test_an_echoed_key_is_masked_from_python_and_the_command_line(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is known from `.env` alone, which both doors read."""
    monkeypatch.delenv("SOME_VALUE", raising=False)
    answer = Reply(400, {"error": {"message": f"bad key {KEY}"}})
    with model_server(lambda _asked: answer) as server:
        write(".env", f"SOME_VALUE={KEY}\n")
        target = {"name": "default", "provider": "openai", "model": "m", "max_retries": 0}
        target |= {"api_key": "${{ SOME_VALUE }}", "base_url": f"{server.url}/v1"}
        write("targets.yaml", json.dumps({"targets": [target]}))
        path = write("a.jsonl", [a_case(evaluators=[HELLO])])
        ran = command_line("eval", path, "--out", "o.jsonl")
        (written,) = results("o.jsonl")
        (returned,) = asyncio.run(evaluate(path)).results
    assert "bad key ***" in written["error"]
    assert returned.error == written["error"]
    assert KEY not in ran.stdout + ran.stderr + Path("o.jsonl").read_text() + repr(returned)


def test_python_reads_dotenv_folders_and_globs(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GREETING", raising=False)
    write(".env", "GREETING=hello from dotenv\n")
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: '${{ GREETING }}'}\n")
    write("evals/a.jsonl", [a_case("a", evaluators=[HELLO])])
    write("evals/deep/b.jsonl", [a_case("b", evaluators=[HELLO])])
    given: list[Any] = ["evals", "evals/**/*.jsonl", ["evals/a.jsonl", Path("evals/deep")]]
    for paths in given:
        report = asyncio.run(evaluate(paths))
        assert {result.eval_id: result.candidate_answer for result in report.results} == {
            "a": "hello from dotenv",
            "b": "hello from dotenv",
        }
    os.environ.pop("GREETING", None)


def test_one_error_has_all_problems(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case("a", evaluators=[{"type": "latencey"}]), a_case("b", evaluators=[{"type": "contains"}])])
    with pytest.raises(AgentvError) as caught:
        asyncio.run(evaluate("a.jsonl"))
    assert "2 problems:" in str(caught.value)
    assert "unknown evaluator type 'latencey'" in str(caught.value)
    assert "has no 'value', and the case has no reference answer" in str(caught.value)


def test_dir_lists_the_public_names() -> None:
    assert set(agentv.__all__) <= set(dir(agentv))


class _Collected:
    def __init__(self) -> None:
        self.results: list[EvalResult] = []

    def write(self, result: EvalResult) -> None:
        self.results.append(result)


async def _run(plan: Plan) -> list[EvalResult]:
    sink, progress = _Collected(), Progress()
    async with OpenTargets(plan, RunOptions(workers=2)) as targets:
        evaluators = EvaluatorBuilder(RunJudges(plan, targets, progress))
        run = Run(plan=plan, targets=targets, evaluators=evaluators, progress=progress, results=Results(sink))
        await LocalExecutor(targets).run_jobs(run)
    return sink.results


def _run_elsewhere(pickled: bytes, answers: Any) -> None:
    found = asyncio.run(_run(pickle.loads(pickled)))
    answers.put({result.eval_id: (result.candidate_answer, result.score) for result in found})


def test_a_plan_can_be_pickled_and_run_in_another_process(write: Write) -> None:
    write("targets.yaml", MOCK + "  - {name: other, provider: mock, response: 'no'}\n")
    other = {"execution": {"target": "other"}}
    path = write("a.jsonl", [a_case("a", evaluators=[HELLO]), a_case("b", evaluators=[HELLO], **other)])
    plan = plan_evaluation(EvalOptions(paths=(str(path),)))
    pickled = pickle.dumps(plan)
    assert pickle.loads(pickled) == plan
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    process = spawn.Process(target=_run_elsewhere, args=(pickled, answers))
    process.start()
    assert answers.get(timeout=120) == {"a": ("hello from default", 1.0), "b": ("no", 0.0)}
    process.join()


def test_a_plan_does_not_show_its_secrets(write: Write) -> None:
    key = {"provider": "openai", "api_key": KEY, "model": "m"}
    write("targets.yaml", json.dumps({"targets": [{"name": "default", **key}]}))
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    plan = plan_evaluation(EvalOptions(paths=(str(path),)))
    assert plan.files[0].settings["default"].api_key == KEY  # type: ignore[attr-defined]
    assert KEY not in repr(plan) + str(plan)


COUNTING = """
import asyncio
at_work = {}

def counting(name, meet):
    have_met = asyncio.Event()
    async def answer(question):
        at_work[name] = at_work.get(name, 0) + 1
        if at_work[name] == meet:
            have_met.set()
        await asyncio.wait_for(have_met.wait(), 60)
        await asyncio.sleep(0.02)
        try:
            return f"hello {at_work[name]}"
        finally:
            at_work[name] -= 1
    return answer

one, two = counting("one", 1), counting("two", 2)
"""


def test_targets_with_the_same_name_in_two_files_have_separate_limits(write: Write) -> None:
    for folder, function, workers in (("a", "one", 1), ("b", "two", 4)):
        write(f"{folder}/agent.py", COUNTING)
        target = {"name": "default", "provider": "python", "function": f"agent.py:{function}", "workers": workers}
        write(f"{folder}/targets.yaml", json.dumps({"targets": [target]}))
        write(f"{folder}/x.jsonl", [a_case(f"{folder}{n}", evaluators=[HELLO]) for n in range(8)])
    report = asyncio.run(evaluate(["a", "b"]))
    most = {"a": 0, "b": 0}
    for result in report.results:
        folder = result.eval_id[0]
        most[folder] = max(most[folder], int(result.candidate_answer.split()[1]))
    assert most["a"] == 1
    assert most["b"] > 1
