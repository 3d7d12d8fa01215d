"""`--max-cost` and `--max-duration`: no case starts that would exceed them."""

import asyncio
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentv as api
from agentv import evaluate as evaluate_here
from agentv.errors import ConfigError
from tests.kits.model_servers import Reply, Server, completion, model_server
from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import ANY, MOCK, evaluate, results

MEAN = 1000
"""About how many tokens an answer has; each costs a ten-thousandth of a dollar, so that an answer costs ten cents."""
PRICING = {"input": 0, "output": 100}


def tokens(question: str) -> int:
    """Between 0.5 and 2 times the mean, depending on the question."""
    return round(MEAN * (0.5 + 1.5 * (zlib.crc32(question.encode()) % 1000) / 999))


def vendor(asked: dict[str, Any]) -> Reply:
    """A model whose answers have a known number of tokens."""
    question = asked["messages"][-1]["content"]
    usage = {"prompt_tokens": 10, "completion_tokens": tokens(question), "total_tokens": 10 + tokens(question)}
    return Reply(body=completion("Paris") | {"usage": usage})


def project(write: Write, server: Server, cases: int, **settings: Any) -> None:
    mine = server.target("openai", name="mine", pricing=PRICING, max_output_tokens=MEAN, **settings)
    write(".agentv/targets.yaml", json.dumps({"targets": [mine]}))
    questions = [[{"role": "user", "content": f"question {number}"}] for number in range(cases)]
    all_cases = [a_case(f"c{i}", input_messages=asked, evaluators=[ANY]) for i, asked in enumerate(questions)]
    write("a.jsonl", all_cases)


def costs(path: str = "out.jsonl") -> list[float]:
    return [result["execution_metrics"]["cost_usd"] for result in results(path)]


@pytest.mark.parametrize("workers", [1, 50])
@pytest.mark.slow
def test_a_run_ends_within_a_case_per_worker_of_its_budget_and_goes_on(write: Write, workers: int) -> None:
    with model_server(vendor, seconds=0.01) as server:
        project(write, server, cases=300)
        budget = 12.0
        args = ("a.jsonl", "--target", "mine", "--workers", str(workers), "--out", "out.jsonl")
        ran = evaluate(*args, "--max-cost", str(budget), expect=1)
        paid = costs()
        assert len(server.asked) == len(paid)
        assert sum(paid) <= budget + workers * max(paid)
        assert sum(paid) >= budget - 2 * workers * max(paid)
        left = 300 - len(paid)
        assert left > 0
        assert f"300 planned = {len(paid)} scored + {left} not run (budget)\n" in ran.stdout
        assert "stopped by --max-cost: $" in ran.stderr
        assert "continue with --resume and a larger budget" in ran.stderr
        (record,) = Path(".agentv/runs").glob("*.json")
        ledger = json.loads(record.read_text())["ledger"]
        assert ledger["not_run_budget"] == left
        assert ledger["planned"] == sum(count for name, count in ledger.items() if name != "planned")

        evaluate(*args, "--max-cost", "100", "--resume")
        assert len(costs()) == len(server.asked) == 300
        assert len({result["eval_id"] for result in results("out.jsonl")}) == 300


def test_an_estimate_that_is_too_high_does_not_end_a_run_early(write: Write) -> None:
    with model_server(lambda _: "Paris") as server:  # 7 tokens, where up to 1,000 are expected
        project(write, server, cases=40)
        evaluate("a.jsonl", "--target", "mine", "--workers", "4", "--max-cost", "0.15", "--out", "out.jsonl")
        assert sum(costs()) == pytest.approx(40 * 7 / 10_000)


def test_the_budget_covers_judges_and_the_cache(write: Write) -> None:
    said = {"judge": '{"score": 1.0, "hits": [], "misses": []}'}
    with model_server(lambda asked: said.get(asked["model"], "Paris")) as server:
        project(write, server, cases=10, judge_target="judge", model="mine")
        targets = json.loads(Path(".agentv/targets.yaml").read_text())["targets"]
        judge = server.target("openai", name="judge", model="judge", pricing={"output": 100_000}, max_output_tokens=7)
        write(".agentv/targets.yaml", json.dumps({"targets": [*targets, judge]}))
        write("a.jsonl", [a_case(f"c{number}", evaluators=[{"type": "llm_judge"}]) for number in range(10)])
        args = ("a.jsonl", "--target", "mine", "--cache", "--out", "out.jsonl")
        evaluate(*args, "--max-cost", "2.2", expect=1)  # a judgement costs 0.7
        assert len(results("out.jsonl")) == 3
        evaluate(*args)
        evaluate(*args, "--max-cost", "2.2")  # which all of
        assert len(results("out.jsonl")) == 10


def test_a_free_target_costs_what_its_judge_costs(write: Write) -> None:
    judgement = '{"score": 1.0, "hits": [], "misses": []}'  # in 7 tokens, where up to 1,000 are allowed
    with model_server(lambda _: judgement) as server:
        judge = server.target("openai", name="judge", pricing={"output": 1000}, max_output_tokens=1000)
        mock = {"name": "default", "provider": "mock", "response": "hello", "judge_target": "judge"}
        write("targets.yaml", json.dumps({"targets": [mock, judge]}))
        write("a.jsonl", [a_case(f"c{number}", evaluators=[{"type": "llm_judge"}]) for number in range(40)])
        evaluate("a.jsonl", "--max-cost", "0.18", "--out", "out.jsonl", expect=1)
        assert len(results("out.jsonl")) == 25  # which cost 0.007 each


def test_no_case_starts_that_would_exceed_max_duration(write: Write) -> None:
    # Two cases cannot fit into the limit, and one fits even if it starts seconds late.
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 4000}\n")
    write("a.jsonl", [a_case(f"c{number}", evaluators=[ANY]) for number in range(3)])
    ran = evaluate("a.jsonl", "--max-duration", "7.9", "--out", "out.jsonl", expect=1)
    assert len(results("out.jsonl")) == 1
    assert "3 planned = 1 scored + 2 not run (budget)\n" in ran.stdout
    assert "stopped by --max-duration: the next case would not finish within 7.9 s" in ran.stderr


@pytest.mark.parametrize("option", ["--max-cost", "--max-duration"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
def test_an_invalid_budget_is_rejected(write: Write, option: str, value: str) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(evaluators=[ANY])])
    ran = evaluate("a.jsonl", option, value, expect=2)
    assert option in ran.stderr
    assert value in ran.stderr
    assert not Path(".agentv").exists()


def test_a_budget_is_checked_and_planned_without_a_run(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(evaluators=[ANY])])
    ran = evaluate("a.jsonl", "--plan", "--format", "json", "--max-cost", "5", "--max-duration", "5")
    assert json.loads(ran.stdout)["cases"] == 1


def test_a_budget_smaller_than_one_case(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server, cases=3)
        ran = evaluate("a.jsonl", "--target", "mine", "--max-cost", "0.001", expect=2)
        assert "--max-cost $0.001 is less than the expected cost of one case" in ran.stderr
        assert "expected cost of one case: $0.03 for target 'mine'" in ran.stderr
        assert not server.asked
        assert not Path(".agentv/results").exists()


def test_an_unknown_price_is_named_before_the_run(write: Write) -> None:
    with model_server(vendor) as server:
        mine = server.target("openai", name="mine", judge_target="judge", pricing=PRICING)
        judge = server.target("openai", name="judge", model="gpt-j")
        write(".agentv/targets.yaml", json.dumps({"targets": [mine, judge]}))
        write("a.jsonl", [a_case(evaluators=[{"type": "llm_judge"}])])
        ran = evaluate("a.jsonl", "--target", "mine", "--max-cost", "5", expect=2)
        assert "--max-cost: the cost of judge 'judge' is unknown: it has no 'pricing'" in ran.stderr
        write("prices.json", json.dumps({"gpt-k": {"input_cost_per_token": 0, "output_cost_per_token": 0}}))
        ran = evaluate("a.jsonl", "--target", "judge", "--max-cost", "5", "--prices", "prices.json", expect=2)
        assert "prices.json has no model 'gpt-j'" in ran.stderr
        assert "the cost of target 'judge' is unknown" in ran.stderr
        assert not server.asked


REPORTS = 'def answer(request):\n    return {"text": "hello", "cost_usd": 0.25}\n'


def test_costs_of_earlier_runs_do_not_replace_a_missing_price(write: Write) -> None:
    with model_server(lambda _: "Paris") as server:
        write("targets.yaml", json.dumps({"targets": [server.target("anthropic", model="m")]}))
        write("prices.json", json.dumps({"m": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}}))
        write("a.jsonl", [a_case(f"c{number}", evaluators=[ANY]) for number in range(8)])
        evaluate("a.jsonl", "--prices", "prices.json")
        ran = evaluate("a.jsonl", "--max-cost", "1", expect=2)
        assert "--max-cost: the cost of target 'default' is unknown: it has no 'pricing'" in flat(ran.stderr)
        assert len(server.asked) == 8


def test_a_target_that_reports_its_cost_is_known_from_earlier_results(write: Write) -> None:
    write("agent.py", REPORTS)
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    write("a.jsonl", [a_case(f"c{number}", evaluators=[ANY]) for number in range(8)])
    ran = evaluate("a.jsonl", "--max-cost", "1", expect=2)
    assert "the cost of target 'default' is unknown: its cost is known only from earlier results" in ran.stderr
    evaluate("a.jsonl", "--limit", "2", "--out", "first.jsonl")
    evaluate("a.jsonl", "--max-cost", "1", "--out", "out.jsonl", expect=1)
    assert costs() == [0.25] * 4


def test_a_budget_is_rejected_for_clusters_and_batch_targets(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(evaluators=[ANY])])
    ran = evaluate("a.jsonl", "--max-cost", "1", "--cluster", "local:2", expect=2)
    assert "--max-cost and --max-duration are not supported with --cluster" in ran.stderr
    batch = {"provider": "cli", "provider_batching": True, "command_template": "cp {PROMPT_FILE} {OUTPUT_FILE}"}
    write("targets.yaml", json.dumps({"targets": [{"name": "default", **batch}]}))
    ran = agentv("eval", "a.jsonl", "--max-duration", "5")
    assert ran.returncode == 2
    assert "target 'default' answers all its cases at once, so a budget cannot stop it" in ran.stderr


def test_a_budget_in_python(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server, cases=30)
        report = asyncio.run(evaluate_here("a.jsonl", target="mine", max_cost=1.0))
        assert report.summary.ledger["not run (budget)"] == 30 - len(report.results)
        assert len(report.results) < 30
        with pytest.raises(ConfigError, match="max_cost is -1"):
            asyncio.run(evaluate_here("a.jsonl", target="mine", max_cost=-1))


@pytest.mark.parametrize("limit", [{"max_cost": 1.0}, {"max_duration": 1.0}])
def test_a_budget_ends_an_endless_iterable(write: Write, limit: dict[str, float]) -> None:
    arrived: list[str] = []

    def endless() -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            arrived.append(f"c{number}")
            yield {"id": f"c{number}", "input": f"question {number}", "expected_outcome": "Paris"}

    with model_server(vendor) as server:
        project(write, server, cases=1)
        options: dict[str, Any] = {"target": "mine", "evaluators": [ANY], "out": "out.jsonl"} | limit
        report = asyncio.run(api.evaluate(cases=endless(), **options))
    assert report.exit_code == 1
    (record,) = Path(".agentv/runs").glob("*.json")
    assert json.loads(record.read_text())["exit_reason"] == "budget"
    if "max_cost" in limit:
        assert 0 < len(report.results) <= len(arrived) < 300


def test_a_plan_of_an_iterable_with_a_budget_counts_all_cases(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server, cases=1)
        cases = [{"id": f"c{n}", "input": "Capital of France?", "expected_outcome": "Paris"} for n in range(50)]
        forecast = api.plan(cases=iter(cases), target="mine", evaluators=[ANY], max_cost=100)
    assert forecast.cases == 50


def test_checks_of_judges_are_kept_in_reserve(write: Write) -> None:
    said = {"judge": '{"score": 1.0, "hits": [], "misses": []}'}
    with model_server(lambda asked: said.get(asked["model"], "Paris")) as server:
        project(write, server, cases=30, judge_target="judge", model="mine")
        targets = json.loads(Path(".agentv/targets.yaml").read_text())["targets"]
        judge = server.target("openai", name="judge", model="judge", pricing={"output": 1000}, max_output_tokens=7)
        write(".agentv/targets.yaml", json.dumps({"targets": [*targets, judge]}))
        expected = [{"role": "assistant", "content": "Paris"}]
        judging = {"evaluators": [{"type": "llm_judge"}], "expected_messages": expected}
        write("a.jsonl", [a_case(f"c{number}", **judging) for number in range(30)])
        ran = evaluate(
            "a.jsonl", "--target", "mine", "--check-judge", "--max-cost", "0.8", "--out", "out.jsonl", expect=1
        )
        assert len(results("out.jsonl")) < 30
        assert "the judges were not checked: the budget is exhausted" in ran.stderr
