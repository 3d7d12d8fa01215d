"""`agentv eval --plan`: the estimate of a run, and whether the run matches it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.batch_servers import batch_server
from tests.kits.model_servers import Reply, Server, completion, model_server
from tests.kits.project import PRINT_PEAK_KB, Write, a_case, flat
from tests.kits.runs import ANY, HELLO, MOCK, evaluate, results

KEYS = ("cases", "trials", "calls", "tokens", "cost_usd", "duration_seconds", "detectable_effect", "cases_for")
RANGES = ("calls", "tokens", "cost_usd", "duration_seconds")
JUDGEMENT = json.dumps({"reasoning": "It names the capital. " * 10, "score": 1.0, "hits": ["right"], "misses": []})
CHECKED = json.dumps({"checks": [{"id": "rubric-1", "satisfied": True}], "overall_reasoning": ""})
ANSWER = "The capital of that country is, as far as I know, the city that you mean. " * 8


def vendor(asked: dict[str, Any]) -> Reply:
    """A model that counts a token for every four characters."""
    said = JUDGEMENT if asked["model"] == "judge" else ANSWER
    if "rubric-1" in str(asked["messages"]):
        said = CHECKED
    sent = sum(len(str(message["content"])) for message in asked["messages"]) // 4
    usage = {"prompt_tokens": sent, "completion_tokens": len(said) // 4, "total_tokens": sent + len(said) // 4}
    return Reply(body=completion(said) | {"usage": usage})


def project(write: Write, server: Server, cases: int = 12, judging: Any = None, **settings: Any) -> None:
    mine = server.target("openai", model="mine", name="mine", judge_target="judge", **settings)
    judge = server.target("openai", model="judge", name="judge")
    other = server.target("openai", model="judge", name="other", max_retries=0)
    write(".agentv/targets.yaml", json.dumps({"targets": [mine, judge, other]}))
    price = {"input_cost_per_token": 2e-06, "output_cost_per_token": 8e-06}
    write("prices.json", json.dumps({"mine": price, "judge": price}))
    asked = [[{"role": "user", "content": f"What is the capital? {'Please. ' * number}"}] for number in range(cases)]
    evaluators = [judging or {"type": "llm_judge"}]
    write("a.jsonl", [a_case(f"c{i}", input_messages=each, evaluators=evaluators) for i, each in enumerate(asked)])


ARGS = ("a.jsonl", "--target", "mine", "--prices", "prices.json")


def plan(*args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(evaluate(*args, "--plan", "--format", "json").stdout)
    return found


def newest_run() -> dict[str, Any]:
    """The record of the newest run."""
    newest = max(Path(".agentv/runs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    record: dict[str, Any] = json.loads(newest.read_text())
    return record


def even_out(milliseconds: float) -> None:
    """Let each call of the newest run have taken so long, however busy the machine was then: it may not be again."""
    path = Path(newest_run()["results"])
    lines = results(path)
    for line in lines:
        for metrics in (line["execution_metrics"], *line["judge_metrics"].values()):
            assert metrics["duration_ms"] > 0
            metrics["duration_ms"] = milliseconds
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def spent() -> dict[str, float]:
    """The usage of the newest run, from its record and its results."""
    record = newest_run()
    lines = results(record["results"])
    used = [line["execution_metrics"]["token_usage"] for line in lines]
    used += [judge["token_usage"] for line in lines for judge in line["judge_metrics"].values()]
    return {
        "calls": len(used),
        "tokens": sum(usage["input"] + usage["output"] for usage in used),
        "cost_usd": record["summary"]["spent_usd"],
        "duration_seconds": record["summary"]["duration_seconds"],
    }


def test_the_run_is_within_the_estimate_which_history_narrows(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server)
        guessed = plan(*ARGS)
        assert not server.asked
        assert not Path(".agentv/runs").exists()
        assert not Path(".agentv/results").exists()
        assert all(key in guessed for key in KEYS)
        assert {guessed[name]["basis"] for name in RANGES} == {"estimate"}
        assert (guessed["cases"], guessed["trials"]) == (12, 1)

        evaluate(*ARGS, "--workers", "3")
        took = spent()
        for name in RANGES:
            assert guessed[name]["low"] <= took[name] <= guessed[name]["high"], name
        assert guessed["calls"]["low"] == took["calls"] == 24

        even_out(milliseconds=10)
        known = plan(*ARGS, "--workers", "3")
        assert {known[name]["basis"] for name in RANGES} == {"history"}
        assert known["results"] == 12
        evaluate(*ARGS, "--workers", "3")
        took = spent()
        for name in RANGES:
            assert known[name]["low"] <= took[name] <= known[name]["high"], name
        assert known["cost_usd"]["expected"] == pytest.approx(took["cost_usd"], rel=0.1)
        assert known["tokens"]["high"] - known["tokens"]["low"] < guessed["tokens"]["high"] - guessed["tokens"]["low"]

        with_a_change = json.loads(Path(".agentv/targets.yaml").read_text())
        with_a_change["targets"][0]["temperature"] = 0.5
        write(".agentv/targets.yaml", json.dumps(with_a_change))
        assert plan(*ARGS)["cost_usd"]["basis"] == "estimate"  # it is another target


def test_the_estimate_as_text(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server)
        evaluate(*ARGS)
        shown = evaluate(*ARGS, "--plan").stdout
        assert shown.startswith("PLAN\n  12 cases, 1 worker\n")
        assert "\n  based on 12 earlier results of the same targets and cases\n" in shown
        assert "\n  target mine  12 (12 to 48)" in shown
        assert "\n  judge judge  12 (12 to 144)" in shown
        assert "minimum detectable effect: 0." in shown
        assert "to detect 0.05: " in shown
        write(".agentv/targets.yaml", Path(".agentv/targets.yaml").read_text().replace('"mine"', '"yours"'))
        unpriced = flat(evaluate("a.jsonl", "--target", "yours", "--plan").stdout)
        assert "cost unknown" in unpriced
        assert "the cost of target 'yours' is unknown: it has no 'pricing'" in unpriced


def test_an_unknown_price_is_null_and_named(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server)
        found = plan("a.jsonl", "--target", "mine")
        assert found["cost_usd"] is None
        assert [words.split(":")[0] for words in found["unknown"]] == [
            "the cost of target 'mine' is unknown",
            "the cost of judge 'judge' is unknown",
        ]
        assert found["tokens"]["expected"] > 0


def test_all_calls_are_counted(write: Write) -> None:
    with model_server(vendor) as server:
        panel = {"type": "llm_judge", "judge_target": ["judge", "other"], "judge_repeats": 2}
        project(write, server, judging=panel, max_retries=1)
        found = plan(*ARGS, "--trials", "3", "--limit", "5")
        assert (found["cases"], found["trials"], found["jobs"]) == (5, 3, 15)
        (target,), judges = found["targets"], {part["name"]: part for part in found["judges"]}
        assert (target["calls"]["low"], target["calls"]["expected"], target["calls"]["high"]) == (15, 15, 30)
        ends = {name: (part["calls"]["low"], part["calls"]["high"]) for name, part in judges.items()}
        assert ends == {"judge": (30, 30 * 3 * 4), "other": (30, 30 * 3)}  # three tries, and three retries of each
        assert found["calls"]["low"] == 15 + 30 + 30
        assert plan(*ARGS, "--trials", "3", "--limit", "5", "--max-retries", "0")["calls"]["high"] == 15 + 2 * 90
        checked = plan(*ARGS, "--check-judge")
        assert checked["checks"]["calls"]["expected"] > 0
        assert checked["cost_usd"]["expected"] > plan(*ARGS)["cost_usd"]["expected"]
        parts = [plan(*ARGS, "--shard", f"{part}/2")["cases"] for part in (1, 2)]
        assert sum(parts) == 12


def test_only_remaining_cases_are_counted(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server)
        evaluate(*ARGS, "--limit", "4", "--out", "out.jsonl", "--cache")
        before = Path("out.jsonl").read_bytes()
        left = plan(*ARGS, "--resume", "--out", "out.jsonl")
        assert (left["cases"], left["calls"]["low"]) == (8, 16)
        assert Path("out.jsonl").read_bytes() == before
        cached = plan(*ARGS, "--cache")
        assert cached["targets"][0]["cached"] == 4
        assert cached["targets"][0]["calls"]["low"] == 8
        assert cached["judges"][0]["calls"]["low"] == 0
        evaluate(*ARGS, "--resume", "--out", "out.jsonl")
        done = plan(*ARGS, "--resume", "--out", "out.jsonl")
        assert (done["cases"], done["calls"]["high"], done["cost_usd"]["high"]) == (0, 0, 0)


@pytest.mark.slow
def test_with_a_cache_all_judge_calls_are_counted_and_their_range_starts_at_zero(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server, judging={"type": "llm_judge", "judge_target": ["judge", "other"], "judge_repeats": 2})
        evaluate(*ARGS, "--limit", "4", "--trials", "2", "--cache")
        for path in Path(".agentv/runs").glob("*.json"):
            path.unlink()  # without history
        cached = plan(*ARGS, "--trials", "2", "--cache")
        assert [(part["answers"], part.get("cached", 0)) for part in cached["judges"]] == [(24, 0), (24, 0)]
        assert [(part["calls"]["low"], part["calls"]["expected"]) for part in cached["judges"]] == [(0, 48), (0, 48)]
        assert cached["targets"][0]["calls"]["expected"] == 16
        evaluate(*ARGS, "--trials", "2", "--cache")
        done = plan(*ARGS, "--trials", "2", "--cache")
        assert done["targets"][0]["calls"]["high"] == 0
        assert [done[name]["low"] for name in ("calls", "tokens", "cost_usd")] == [0, 0, 0]
        checked = plan(*ARGS, "--trials", "2", "--cache", "--check-judge")
        assert checked["checks"]["cost_usd"]["expected"] > 0
        printed = evaluate(*ARGS, "--trials", "2", "--cache", "--plan").stdout
        assert "\n  judge judge  48 (0 to " in printed


def test_a_target_that_reports_its_cost_is_known_from_earlier_results(write: Write) -> None:
    write("agent.py", 'def answer(request):\n    return {"text": "hello", "cost_usd": 0.25}\n')
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    write("a.jsonl", [a_case(f"c{number}", evaluators=[ANY]) for number in range(8)])
    before = plan("a.jsonl")
    assert before["cost_usd"] is None
    assert "its cost is known only from earlier results" in before["unknown"][0]
    evaluate("a.jsonl", "--limit", "6")
    after = plan("a.jsonl")
    assert after["cost_usd"]["expected"] == pytest.approx(2.0)
    assert after["cost_usd"]["basis"] == "history"


def test_batches_cost_half_and_may_take_a_day(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server, judging=ANY)
        live = plan(*ARGS)
        project(write, server, judging=ANY, batch_api=True)
        batch = plan(*ARGS)
        assert batch["cost_usd"]["expected"] == pytest.approx(live["cost_usd"]["expected"] / 2)
        assert batch["duration_seconds"]["high"] >= 86_400 > live["duration_seconds"]["high"]


def test_checks_of_a_batched_judge_have_the_full_price(write: Write) -> None:
    score = json.dumps({"score": 1.0, "reasoning": "so it is"})
    with batch_server() as server:
        price = {"input": 2, "output": 8}
        judge = server.target("openai", name="judge", batch_api=True, batch_poll_seconds=0.05, pricing=price)
        write("targets.yaml", json.dumps({"targets": [server.target("openai", pricing=price), judge]}))
        judging = {"type": "llm_judge", "judge_target": "judge", "prompt": f"{{{{ candidate_answer }}}} {score}"}
        write("a.jsonl", [a_case(f"c{number}", evaluators=[judging]) for number in range(6)])
        guessed = plan("a.jsonl", "--check-judge")
        (judged,), checked = guessed["judges"], guessed["checks"]
        assert checked["cost_usd"]["expected"] / checked["calls"]["expected"] == pytest.approx(
            2 * judged["cost_usd"]["expected"] / judged["calls"]["expected"]
        )
        evaluate("a.jsonl")
        known = plan("a.jsonl", "--check-judge")
        evaluate("a.jsonl", "--check-judge", "--out", "out.jsonl")
        took = newest_run()["summary"]["spent_usd"]
        assert known["cost_usd"]["basis"] == "history"
        assert known["cost_usd"]["expected"] == pytest.approx(took, rel=0.1)


def test_time_is_no_shorter_than_limits_allow(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server, judging=ANY, requests_per_minute=1)
        assert plan(*ARGS, "--workers", "12")["duration_seconds"]["expected"] == 12 * 60
        project(write, server, judging=ANY)
        alone, together = (plan(*ARGS, "--workers", number)["duration_seconds"]["expected"] for number in ("1", "12"))
        assert alone > 5 * together


def test_a_mock_and_a_dry_run_cost_nothing(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(f"c{number}", evaluators=[ANY]) for number in range(100)])
    found = plan("a.jsonl")
    assert (found["cost_usd"]["high"], found["calls"]["expected"]) == (0, 100)
    assert found["detectable_effect"] == pytest.approx(0.187, abs=0.001)  # 2.80 · sqrt((1/9 + 2/6) / 100)
    assert found["cases_for"] == {"0.05": 1396, "0.02": 8721}
    assert plan("a.jsonl", "--dry-run")["cost_usd"]["high"] == 0


def test_a_plan_of_fewer_cases_than_a_comparison_needs_has_no_detectable_effect(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    write("few.jsonl", [a_case(f"c{number}", evaluators=[HELLO]) for number in range(9)])
    evaluate("few.jsonl")
    shown = evaluate("few.jsonl", "--plan").stdout
    assert "minimum detectable effect: none, at least 10 cases needed\n" in shown
    assert "power" not in shown
    assert "to detect 0.05: 56 cases\n" in shown
    assert plan("few.jsonl")["detectable_effect"] is None


def test_a_run_that_could_not_start_has_no_plan(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(evaluators=[ANY])])
    assert "unknown target 'nobody'" in evaluate("a.jsonl", "--plan", "--target", "nobody", expect=2).stderr
    assert "--format needs --plan" in evaluate("a.jsonl", "--format", "json", expect=2).stderr
    Path("targets.yaml").unlink()
    with model_server(vendor) as server:
        project(write, server)
        ran = evaluate(*ARGS, "--plan", "--max-cost", "0.0001", expect=2)
        assert "is less than the expected cost of one case" in ran.stderr


@pytest.mark.slow
def test_a_plan_of_many_cases_takes_no_more_memory(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: openai, model: m, api_key: k, pricing: {output: 1}}]")
    write(".agentv/runs/x.json", json.dumps({"run_id": "x", "status": "done"}))  # so that history is looked for
    peaks = []
    for count in (1_000, 41_000):
        write("a.jsonl", [a_case(f"c{number}", evaluators=[ANY]) for number in range(count)])
        code = "import sys; from agentv.__main__ import main\nsys.argv[1:] = ['eval', 'a.jsonl', '--plan']\n"
        code += f"try:\n    main()\nfinally:\n    {PRINT_PEAK_KB}"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert f"{count:,} cases" in ran.stdout
        peaks.append(int(ran.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 8_000


def test_a_batch_is_one_call(write: Write) -> None:
    batch = {"provider": "cli", "provider_batching": True, "command_template": "cp {BATCH_FILE} {OUTPUT_FILE}"}
    write("targets.yaml", json.dumps({"targets": [{"name": "default", **batch}]}))
    for name in ("a", "b"):
        write(f"{name}.jsonl", [a_case(f"{name}{number}", evaluators=[ANY]) for number in range(50)])
    for _ in range(2):
        found = plan("a.jsonl", "b.jsonl", "--trials", "3")
        assert found["calls"]["expected"] == found["calls"]["high"] == 6
        assert found["targets"][0]["answers"] == 300
        assert found["duration_seconds"]["expected"] < 6 * 90 + 10
        evaluate("a.jsonl", expect=1)  # the records have no text; the second plan has earlier results


def test_examples_of_a_judge_are_part_of_its_checks(write: Write) -> None:
    with model_server(vendor) as server:
        project(write, server, judging=ANY)
        without = _checks_with(write, {})
        with_examples = _checks_with(write, {"examples": {"pass": ["yes"], "fail": ["no", "never"]}})
    assert with_examples == without + 3 * 6  # three examples in each of the six cases


def _checks_with(write: Write, settings: dict[str, Any]) -> int:
    """The number of calls of `--check-judge` in six cases whose judge has these settings."""
    judge = {"type": "llm_judge", **settings}
    write("judged.jsonl", [a_case(f"c{number}", evaluators=[judge]) for number in range(6)])
    calls: int = plan("judged.jsonl", "--target", "mine", "--check-judge")["checks"]["calls"]["expected"]
    return calls
