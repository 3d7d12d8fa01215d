"""The cost of tokens: a target's own `pricing`, or a price list in LiteLLM's format."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentv.errors import ConfigError
from agentv.files.conversion import convert
from agentv.providers import settings_type
from agentv.providers.pricing import Pricing
from agentv.records import TokenUsage
from agentv.targets.prices import PriceList
from tests.kits.model_servers import RESPONSES, VENDORS, Says, Server, model_server
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import evaluate, results

GPT = {"input_cost_per_token": 2e-06, "output_cost_per_token": 8e-06, "litellm_provider": "openai", "mode": "chat"}
JUDGE = {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06}
ANSWER, JUDGEMENT = (11 * 2 + 7 * 8) / 1e6, 18 / 1e6
"""What an answer and a judgement of the server cost: it is given 11 tokens, and gives 7."""


def price(tmp_path: Path, provider: str, prices: dict[str, Any], **settings: Any) -> Pricing | None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(prices))
    made = convert({"name": "t", "provider": provider, **settings}, settings_type(provider))
    assert not isinstance(made, list)
    return PriceList(path).pricing(made)


def test_a_batch_costs_half_unless_the_list_has_its_price() -> None:
    usage = TokenUsage(input=1000, output=100, cached=200)
    plain = Pricing(input=2, output=10, cached=1)
    assert plain.cost(usage) == pytest.approx((800 * 2 + 200 * 1 + 100 * 10) / 1e6)
    assert plain.cost(usage, batch=True) == pytest.approx(plain.cost(usage) / 2)
    listed = Pricing(input=2, output=10, cached=1, batch_input=0.5, batch_output=4)
    assert listed.cost(usage, batch=True) == pytest.approx((800 * 0.5 + 200 * 0.5 + 100 * 4) / 1e6)


def test_reasoning_and_long_inputs_have_their_own_prices() -> None:
    pricing = convert(
        {"input": 1, "output": 2, "reasoning": 5, "long": [{"above": 200_000, "input": 3, "output": 4}]}, Pricing
    )
    assert isinstance(pricing, Pricing)
    assert pricing.cost(TokenUsage(input=200_000, output=10, reasoning=4)) == pytest.approx(
        (200_000 + 6 * 2 + 4 * 5) / 1e6
    )
    assert pricing.cost(TokenUsage(input=200_001, output=10)) == pytest.approx((200_001 * 3 + 10 * 4) / 1e6)
    assert pricing.cost(TokenUsage(input=200_001), batch=True) == pytest.approx(200_001 * 1.5 / 1e6)


def test_all_prices_of_an_entry_are_read(tmp_path: Path) -> None:
    entry = {
        **GPT,
        "cache_read_input_token_cost": 5e-07,
        "cache_creation_input_token_cost": 2.5e-06,
        "output_cost_per_reasoning_token": 9e-06,
        "input_cost_per_token_batches": 1e-06,
        "output_cost_per_token_batches": 3e-06,
        "input_cost_per_token_above_200k_tokens": 4e-06,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1e-05,
        "search_context_cost_per_query": {"search_context_size_low": 0.03},
    }
    found = price(tmp_path, "openai", {"gpt-x": entry}, model="gpt-x")
    expected = {"input": 2, "output": 8, "cached": 0.5, "cache_write": 2.5, "reasoning": 9}
    batch = {"batch_input": 1, "batch_output": 3}
    assert found == convert({**expected, **batch, "long": [{"above": 200_000, "input": 4}]}, Pricing)


@pytest.mark.parametrize(
    ("provider", "name", "settings"),
    [
        ("openai", "m", {"model": "m"}),
        ("openai", "openai/m", {"model": "m"}),
        ("azure", "azure/m", {"deployment": "m", "endpoint": "https://x"}),
        ("anthropic", "anthropic/m", {"model": "m"}),
        ("gemini", "gemini/m", {"model": "m"}),
        ("codex", "openai/m", {"model": "m"}),
    ],
)
def test_a_model_is_found_by_its_name_and_by_its_vendor(
    tmp_path: Path, provider: str, name: str, settings: dict[str, Any]
) -> None:
    found = price(tmp_path, provider, {name: GPT, "vertex_ai/m": JUDGE}, **settings)
    assert found is not None
    assert found.input == 2


def test_the_name_as_written_comes_first(tmp_path: Path) -> None:
    found = price(tmp_path, "gemini", {"gemini/m": GPT, "m": JUDGE}, model="m")
    assert found is not None
    assert found.input == 1
    assert price(tmp_path, "gemini", {"vertex_ai/m": JUDGE}, model="m") is None


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({"m": {**GPT, "input_cost_per_token": -1e-06}}, "'m': input_cost_per_token is -1e-06, which is negative"),
        ({"m": {**GPT, "output_cost_per_token": "2"}}, "'m': output_cost_per_token is '2', not a number"),
        ({"m": {"input_cost_per_token": 1}}, "the entry of 'm' has no output_cost_per_token"),
        ({"m": [1]}, "the entry of 'm' must be an object"),
    ],
)
def test_prices_that_cannot_be_used(tmp_path: Path, prices: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        price(tmp_path, "openai", prices, model="m")
    assert caught.value.message == message


@pytest.fixture
def server() -> Iterator[Server]:
    said = {"judge-1": '{"score": 1.0, "hits": ["right"], "misses": []}'}
    with model_server(lambda asked: said.get(asked["model"], "Paris")) as running:
        yield running


def project(write: Write, server: Server, cases: int = 2, **settings: Any) -> None:
    mine = server.target("openai", model="gpt-x", name="mine", judge_target="judge", **settings)
    judge = server.target("openai", model="judge-1", name="judge")
    write(".agentv/targets.yaml", json.dumps({"targets": [mine, judge]}))
    write("a.jsonl", [a_case(f"c{number}", evaluators=[{"type": "llm_judge"}]) for number in range(cases)])
    write("prices.json", json.dumps({"gpt-x": GPT, "judge-1": JUDGE}))


def test_money_is_in_the_results_the_summary_and_the_record(write: Write, server: Server) -> None:
    project(write, server)
    ran = evaluate("a.jsonl", "--target", "mine", "--prices", "prices.json", "--out", "out.jsonl")
    first, _ = results("out.jsonl")
    assert first["execution_metrics"]["cost_usd"] == pytest.approx(ANSWER)
    judged = first["judge_metrics"]["judge"]
    assert judged["cost_usd"] == pytest.approx(JUDGEMENT)
    assert (judged["calls"], judged["token_usage"]) == (1, {"input": 11, "output": 7})
    assert "cost $0.00016\n" in ran.stdout
    assert "$0.00019 spent (target mine $0.00016, judge judge\n    $3.6e-05)\n" in ran.stdout
    assert "$0.00019 spent (target mine $0.00016, judge judge $3.6e-05)" in ran.stderr
    (record,) = Path(".agentv/runs").glob("*.json")
    summary = json.loads(record.read_text())["summary"]
    assert summary["cost_usd"] == pytest.approx(2 * ANSWER)
    assert summary["judge_cost_usd"] == pytest.approx(2 * JUDGEMENT)
    assert summary["spent_usd"] == pytest.approx(2 * ANSWER + 2 * JUDGEMENT)
    assert agentv("report", "out.jsonl", "--out", "page.html").returncode == 0
    assert "for judges" in Path("page.html").read_text()
    shown = agentv("show", "out.jsonl", "--eval-id", "c0").stdout
    assert "judge judge (1 call, $1.8e-05)" in shown


def test_the_flag_takes_precedence_over_the_price_list_of_the_config(write: Write, server: Server) -> None:
    project(write, server, cases=1)
    write(".agentv/config.yaml", "prices: ../mine.json\n")
    write("mine.json", json.dumps({"openai/gpt-x": JUDGE, "judge-1": JUDGE}))
    evaluate("a.jsonl", "--target", "mine", "--out", "config.jsonl")
    evaluate("a.jsonl", "--target", "mine", "--prices", "prices.json", "--out", "flag.jsonl")
    costs = [results(path)[0]["execution_metrics"]["cost_usd"] for path in ("config.jsonl", "flag.jsonl")]
    assert costs == pytest.approx([JUDGEMENT, ANSWER])
    digests = [results(path)[0]["digests"] for path in ("config.jsonl", "flag.jsonl")]
    assert digests[0] == digests[1]  # a price decides nothing of an answer


@pytest.mark.parametrize("vendor", [*VENDORS, *RESPONSES])
@pytest.mark.parametrize("said", [Says(text="", stop="length"), Says(refusal="I will not")])
def test_invalid_answers_are_paid_for(write: Write, vendor: str, said: Says) -> None:
    """As those of a model that has used up its tokens while it thought."""
    with model_server(lambda _: said) as server:
        target = server.target(vendor, pricing={"output": 1_000_000})
        write("targets.yaml", json.dumps({"targets": [target]}))
        write("a.jsonl", [a_case(f"c{number}") for number in range(9)])
        ran = evaluate("a.jsonl", "--max-cost", "2500", "--out", "out.jsonl", expect=1)
    found = results("out.jsonl")
    assert all(result["error"] for result in found)
    assert {result["execution_metrics"]["cost_usd"] for result in found} == {7.0}
    assert "$63.00 spent" in ran.stderr


def test_invalid_judgements_are_paid_for(write: Write) -> None:
    with model_server(lambda asked: Says(text="" if asked["model"] == "judge-1" else "Paris")) as server:
        project(write, server, cases=1)
        evaluate("a.jsonl", "--target", "mine", "--prices", "prices.json", "--out", "out.jsonl", expect=1)
    (result,) = results("out.jsonl")
    assert (result["failure"], result["verdict"]) == ("judge", "fail")
    judged = result["judge_metrics"]["judge"]
    assert judged["cost_usd"] == pytest.approx(judged["calls"] * JUDGEMENT)


def test_the_cache_costs_nothing(write: Write, server: Server) -> None:
    project(write, server, pricing={"input": 1_000_000})
    args = ("a.jsonl", "--target", "mine", "--prices", "prices.json", "--cache", "--out", "out.jsonl")
    evaluate(*args)
    ran = evaluate(*args)
    first, _ = results("out.jsonl")
    assert first["execution_metrics"]["cached"] is True
    assert first["execution_metrics"]["cost_usd"] == 11  # its own price wins over the list's
    assert "judge_metrics" not in first
    (_, record) = sorted(Path(".agentv/runs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    assert json.loads(record.read_text())["summary"]["spent_usd"] == 0
    assert "cost $22.00\n  $0.00 spent\n" in ran.stdout


def test_a_model_that_is_not_in_the_list_is_unknown_and_not_free(write: Write, server: Server) -> None:
    project(write, server)
    write("prices.json", json.dumps({"openai/gpt-x2": GPT, "judge-1": JUDGE, "other": GPT}))
    ran = evaluate("a.jsonl", "--target", "mine", "--prices", "prices.json", "--out", "out.jsonl")
    warning = "target 'mine': unknown token prices: prices.json has no model 'gpt-x'"
    assert ran.stderr.count(warning) == 1
    assert "it has 'openai/gpt-x2'" in ran.stderr
    assert all("cost_usd" not in result["execution_metrics"] for result in results("out.jsonl"))
    assert "$3.6e-05 spent (judge judge $3.6e-05, target mine unknown)\n" in ran.stdout
    assert "\n  cost" not in ran.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "prices.json: the price list is not valid JSON"),
        ("[1]", "prices.json: the price list must be a JSON object"),
        (None, "prices.json: the price list cannot be read: No such file or directory"),
        (
            '{"gpt-x": {"input_cost_per_token": -1, "output_cost_per_token": 1}}',
            "prices.json: target 'mine': 'gpt-x': input_cost_per_token is -1, which is negative",
        ),
    ],
)
def test_an_invalid_price_list_stops_the_run_before_it_starts(
    write: Write, server: Server, content: str | None, message: str
) -> None:
    project(write, server)
    if content is None:
        Path("prices.json").unlink()
    else:
        write("prices.json", content)
    ran = evaluate("a.jsonl", "--target", "mine", "--prices", "prices.json", expect=2)
    assert message in ran.stderr
    assert not server.asked


def test_a_key_that_the_config_does_not_have_is_an_error(write: Write, server: Server) -> None:
    project(write, server)
    write(".agentv/config.yaml", "price: prices.json\n")
    ran = evaluate("a.jsonl", "--target", "mine", expect=2)
    assert "did you mean 'prices'?" in ran.stderr


def test_compare_reports_which_run_is_cheaper(write: Write, server: Server) -> None:
    project(write, server)
    evaluate("a.jsonl", "--target", "mine", "--prices", "prices.json", "--out", "a.out.jsonl")
    write("prices.json", json.dumps({"gpt-x": JUDGE, "judge-1": JUDGE}))
    evaluate("a.jsonl", "--target", "mine", "--prices", "prices.json", "--out", "b.out.jsonl")
    lines = Path("b.out.jsonl").read_text().splitlines()
    second = json.loads(lines[1])
    del second["execution_metrics"]["cost_usd"]
    Path("b.out.jsonl").write_text("\n".join([lines[0], json.dumps(second)]) + "\n")
    cheaper = agentv("compare", "a.out.jsonl", "b.out.jsonl").stderr
    known = "(cost reported for 2 of 2 answers in A and 1 of 2 answers in B)"
    assert f"an answer in B is 77% cheaper than in A {known}\n" in cheaper
    assert "an answer in B is 333% more expensive than in A" in agentv("compare", "b.out.jsonl", "a.out.jsonl").stderr
