"""Running every case several times: execution, resuming and figures."""

import asyncio
import itertools
import json
import math
import random
import signal
import statistics
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv import AgentvError, ProviderRequest
from agentv import evaluate as evaluate_here
from agentv.records import CaseKey, EvalResult
from agentv.report.summary import summary_lines
from agentv.results.summary import Summary
from agentv.results.tally import ScoreTally
from agentv.stats.pass_rates import bootstrap_interval, pass_all, pass_at, wilson
from tests.kits.batches import COUNTED, project, runs
from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import HELLO, SLOW, evaluate, results, start, target, wait_for_results
from tests.kits.terminal import in_terminal

AGENT = """
import asyncio
from pathlib import Path

PLAN = %r

async def answer(request):
    with Path("calls").open("a") as file:
        print(request.eval_id, request.trial, file=file)
    what = PLAN.get(request.eval_id, "+++++")[request.trial - 1]
    if what == "!":
        raise ValueError("not today")
    if what == "?":
        await asyncio.Event().wait()
    return "hello" if what == "+" else "no"
"""
TARGET = "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n"


def flaky(write: Write, **plan: str) -> Path:
    """A project whose agent passes (+), fails (-), breaks (!) or hangs (?) as planned, trial by trial."""
    write("agent.py", AGENT % plan)
    write("targets.yaml", TARGET)
    return write("a.jsonl", [a_case(name, evaluators=[HELLO]) for name in plan])


def calls() -> list[str]:
    """The calls of the agent since the last time."""
    path = Path("calls")
    asked = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return asked


def done(path: str = "o.jsonl") -> list[tuple[str, Any, float]]:
    return [(result["eval_id"], result.get("trial"), result["score"]) for result in results(path)]


# Formulas


@pytest.mark.parametrize(
    ("passes", "n", "low", "high"), [(19, 20, 0.764, 0.991), (10, 10, 0.722, 1.0), (0, 10, 0.0, 0.278), (0, 0, 0, 1)]
)
def test_wilson_intervals_of_worked_examples(passes: int, n: int, low: float, high: float) -> None:
    assert wilson(passes, n) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize(("bound", "needed"), [(0.90, 35), (0.95, 73), (0.99, 381)])
def test_the_number_of_consecutive_passes_for_a_lower_bound(bound: float, needed: int) -> None:
    assert next(n for n in itertools.count(1) if wilson(n, n)[0] >= bound) == needed


def test_pass_at_and_pass_all_by_hand() -> None:
    assert [pass_at(k, 2, 5) for k in (1, 2, 3, 4, 5)] == pytest.approx([0.4, 0.7, 0.9, 1.0, 1.0])
    assert [pass_all(k, 2, 5) for k in (1, 2, 3)] == pytest.approx([0.4, 0.1, 0.0])
    assert pass_all(2, 2, 3) == pytest.approx(1 / 3)  # and not (2/3)^2
    assert (pass_at(3, 0, 3), pass_at(3, 3, 3), pass_all(3, 3, 3)) == (0.0, 1.0, 1.0)


def test_pass_at_and_pass_all_are_those_of_all_subsets() -> None:
    for trials in range(1, 8):
        for passes in range(trials + 1):
            outcomes = [True] * passes + [False] * (trials - passes)
            for k in range(1, trials + 1):
                subsets = list(itertools.combinations(outcomes, k))
                assert pass_at(k, passes, trials) == pytest.approx(sum(map(any, subsets)) / len(subsets))
                assert pass_all(k, passes, trials) == pytest.approx(sum(map(all, subsets)) / len(subsets))


@pytest.mark.parametrize("k", [0, -1, 4])
def test_k_above_the_number_of_trials_has_no_estimate(k: int) -> None:
    assert math.isnan(pass_at(k, 3, 3))
    assert math.isnan(pass_all(k, 3, 3))


def test_the_bootstrap_agrees_with_full_enumeration() -> None:
    counts, values = (2, 1, 0, 3), (0.0, 1 / 3, 2 / 3, 1.0)
    cases = [value for count, value in zip(counts, values, strict=True) for _ in range(count)]
    means = [sum(drawn) / 6 for drawn in itertools.product(cases, repeat=6)]
    low, high = bootstrap_interval(counts, values)
    for outside, inside in (
        (sum(mean < low - 1e-9 for mean in means), sum(mean < low + 1e-9 for mean in means)),
        (sum(mean > high + 1e-9 for mean in means), sum(mean > high - 1e-9 for mean in means)),
    ):
        assert outside / len(means) < 0.03
        assert inside / len(means) > 0.02


def test_the_bootstrap_of_very_many_cases_is_the_normal_interval() -> None:
    counts, values = (100_000, 200_000, 300_000, 400_000), (0.0, 1 / 3, 2 / 3, 1.0)
    spread = math.sqrt(sum(n * (value - 2 / 3) ** 2 for n, value in zip(counts, values, strict=True)) / 1e6)
    low, high = bootstrap_interval(counts, values)
    assert (low, high) == pytest.approx((2 / 3 - 1.96 * spread / 1e3, 2 / 3 + 1.96 * spread / 1e3), abs=3e-5)


def test_the_bootstrap_gives_the_same_every_time() -> None:
    first = bootstrap_interval((3, 4, 5), (0.0, 0.5, 1.0))
    bootstrap_interval((1, 1, 1), (0.0, 0.5, 1.0))
    assert bootstrap_interval((3, 4, 5), (0.0, 0.5, 1.0)) == first
    assert 0 < first[0] < 7 / 12 < first[1] < 1


# What is run


def test_each_case_runs_k_times_in_a_row(write: Write) -> None:
    path = flaky(write, a="+-+", b="+++")
    ran = evaluate(path, "--trials", "3", "--out", "o.jsonl")
    assert calls() == ["a 1", "a 2", "a 3", "b 1", "b 2", "b 3"]
    assert done() == [("a", 1, 1.0), ("a", 2, 0.0), ("a", 3, 1.0), ("b", 1, 1.0), ("b", 2, 1.0), ("b", 3, 1.0)]
    names = list(results("o.jsonl")[0])
    at = names.index("attempt")
    assert names[at : at + 3] == ["attempt", "trial", "score"]
    assert "6/6 done" in ran.stderr


def test_a_single_trial_is_not_numbered(write: Write) -> None:
    path = flaky(write, a="+")
    evaluate(path, "--out", "one.jsonl")
    evaluate(path, "--trials", "1", "--out", "o.jsonl")
    assert done() == done("one.jsonl") == [("a", None, 1.0)]


@pytest.mark.parametrize("count", ["0", "-1", "abc", "1.5", ""])
def test_an_invalid_number_of_trials(write: Write, count: str) -> None:
    path = flaky(write, a="+")
    ran = evaluate(path, "--trials", count, expect=2)
    assert "invalid value for '--trials'" in ran.stderr
    assert calls() == []


def test_one_process_for_each_trial_of_a_batch(write: Write) -> None:
    alone = "mkdir busy || touch together; "
    project(write, command=f"{alone}{COUNTED}; cp {{BATCH_FILE}} asked; rmdir busy")
    ran = evaluate("cases.jsonl", "--trials", "3", "--out", "o.jsonl")
    assert runs() == 3
    assert not Path("together").exists()
    assert [request["id"] for request in results("asked")] == [f"c{n}" for n in range(5)]
    assert [(id_, trial) for id_, trial, _ in done()] == [(f"c{n}", trial) for trial in (1, 2, 3) for n in range(5)]
    assert "target default, trial 2 answers its cases in one batch" in ran.stderr
    assert "pass@3 1.000" in ran.stdout
    assert not Path(".agentv/batches").exists()


def test_trials_of_a_batch_run_concurrently_up_to_the_number_of_workers(write: Write) -> None:
    meet = "touch here-$$; while [ $(ls here-* | wc -l) -lt 3 ]; do sleep 0.02; done; "
    project(write, command=meet + COUNTED)
    evaluate("cases.jsonl", "--trials", "3", "--workers", "3", "--out", "o.jsonl", "--agent-timeout", "60")
    assert len(done()) == 15


def test_a_failed_trial_of_a_batch_does_not_affect_others(write: Write) -> None:
    project(write, command=f"{COUNTED}; [ $(wc -l < count) != 2 ]")
    ran = evaluate("cases.jsonl", "--trials", "3", "--out", "o.jsonl", expect=1)
    assert Counter(result["trial"] for result in results("o.jsonl") if "error" in result) == {2: 5}
    assert "15 runs planned (5 cases, 3 trials each) = 10 scored + 5 target errors" in flat(ran.stdout)
    ran = evaluate("cases.jsonl", "--trials", "3", "--out", "o.jsonl", "--resume")
    assert "10 already done, 5 to re-run after an error" in ran.stderr
    assert runs() == 4
    assert len(done()) == 15


def test_dumps_of_trials(write: Write) -> None:
    path = flaky(write, a="+-")
    evaluate(path, "--trials", "2", "--dump-traces", "--dump-prompts=prompts")
    traces = sorted(Path(".agentv/traces").iterdir())
    assert [trace.name for trace in traces] == ["a_trial-1_attempt-1.json", "a_trial-2_attempt-1.json"]
    assert [json.loads(trace.read_text())["trial"] for trace in traces] == [1, 2]
    assert [prompt.name for prompt in Path("prompts").iterdir()] == ["a.json"]


def test_retries_and_the_live_view_name_the_trial(write: Write) -> None:
    path = flaky(write, a="+!+")
    ran = evaluate(path, "--trials", "3", "--max-retries", "1", expect=1)
    assert "a, trial 2: attempt 1 failed, retrying: agent.py:12 in answer: ValueError: not today" in ran.stderr
    write("agent.py", SEEN)

    def go_on(shown: str) -> None:
        if "a, trial 2" in shown:
            Path("seen").touch()

    assert "a, trial 2" in in_terminal(path, "--trials", "2", seen=go_on)


SEEN = """
import asyncio
from pathlib import Path

async def answer(request):
    while request.trial == 2 and not Path("seen").exists():
        await asyncio.sleep(0.02)
    return "hello"
"""


# What is resumed


@pytest.mark.parametrize("form", ["jsonl", "yaml"])
@pytest.mark.slow
def test_a_run_with_trials_that_is_killed_ends_with_each_exactly_once(write: Write, form: str) -> None:
    write("targets.yaml", SLOW)
    path = write("a.jsonl", [a_case(f"case-{n}", evaluators=[HELLO]) for n in range(40)])
    out, each = Path(f"out.{form}"), {"jsonl": 1, "yaml": 20}[form]
    for count in (20, 60):
        run = start(str(path), "--trials", "3", "--workers", "4", "--out", str(out), "--resume", "--quiet")
        wait_for_results(out, count * each)
        run.send_signal(signal.SIGKILL)
        run.communicate()
    ran = evaluate(path, "--trials", "3", "--workers", "4", "--out", out, "--resume")
    lines = out.read_text().splitlines()
    if form == "jsonl":
        found = [(result["eval_id"], result["trial"]) for result in results(out)]
    else:
        ids = [line.split()[1] for line in lines if line.startswith("eval_id: ")]
        trials = [int(line.split()[1]) for line in lines if line.startswith("trial: ")]
        found = list(zip(ids, trials, strict=True))
    assert Counter(found) == Counter((f"case-{n}", trial) for n in range(40) for trial in (1, 2, 3))
    assert "120 runs planned (40 cases, 3 trials each)" in ran.stdout
    assert "pass^3 1.000" in ran.stdout
    assert "left out" not in ran.stdout


def test_only_missing_or_failed_trials_run(write: Write) -> None:
    path = flaky(write, a="+!+", b="+++")
    evaluate(path, "--trials", "3", "--out", "o.jsonl", expect=1)
    lines = Path("o.jsonl").read_text().splitlines(keepends=True)
    write("o.jsonl", "".join(line for line in lines if '"eval_id":"b"' not in line or '"trial":3' not in line))
    calls()
    flaky(write, a="+++", b="+++")
    ran = evaluate(path, "--trials", "3", "--out", "o.jsonl", "--resume", "--keep-stale")
    assert calls() == ["a 2", "b 3"]
    assert "4 already done, 1 to re-run after an error, 4 kept although the target has changed" in ran.stderr
    assert sorted(done()) == [(name, trial, 1.0) for name in "ab" for trial in (1, 2, 3)]
    assert "= 2 scored + 4 already done" in flat(ran.stdout)
    assert "4 already done" in ran.stdout


def test_a_plain_run_is_the_first_of_its_trials(write: Write) -> None:
    path = flaky(write, a="+-+", b="-++")
    evaluate(path, "--out", "o.jsonl")
    before = Path("o.jsonl").read_text()
    calls()
    ran = evaluate(path, "--trials", "3", "--out", "o.jsonl", "--resume")
    assert calls() == ["a 2", "a 3", "b 2", "b 3"]
    assert Path("o.jsonl").read_text().startswith(before)
    assert [trial for _, trial, _ in done()] == [None, None, 2, 3, 2, 3]
    assert "pass@1 0.667" in ran.stdout
    assert "left out" not in ran.stdout
    again = evaluate(path, "--trials", "3", "--out", "o.jsonl", "--resume")
    assert calls() == []
    assert "6 already done" in again.stdout


def test_fewer_trials_keep_the_other_results(write: Write) -> None:
    path = flaky(write, a="+!-")
    evaluate(path, "--trials", "3", "--out", "o.jsonl", expect=1)
    before = Path("o.jsonl").read_text()
    calls()
    ran = evaluate(path, "--trials", "1", "--out", "o.jsonl", "--resume")
    assert calls() == []
    assert Path("o.jsonl").read_text() == before
    assert "  1 planned = 1 already done" in ran.stdout
    assert "pass 1/1" in ran.stdout


def test_a_resumed_batch_contains_only_missing_trials(write: Write) -> None:
    project(write)
    evaluate("cases.jsonl", "--out", "o.jsonl")
    lines = Path("o.jsonl").read_text().splitlines(keepends=True)
    write("o.jsonl", "".join(lines[:3]))
    write("targets.yaml", target(COUNTED + "; cat {BATCH_FILE} >> asked", provider_batching=True))
    evaluate("cases.jsonl", "--out", "o.jsonl", "--resume", "--keep-stale", "--trials", "2")
    assert [request["id"] for request in results("asked")] == ["c3", "c4", "c0", "c1", "c2", "c3", "c4"]
    assert sorted((id_, trial or 1) for id_, trial, _ in done()) == [(f"c{n}", t) for n in range(5) for t in (1, 2)]


def test_results_of_a_case_with_a_masked_id_are_grouped(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "a-secret-name")
    path = flaky(write, **{"a-secret-name": "+-"})
    evaluate(path, "--out", "o.jsonl")
    ran = evaluate(path, "--trials", "2", "--out", "o.jsonl", "--resume")
    assert "pass@2 1.000" in ran.stdout
    assert "left out" not in ran.stdout
    assert "a-secret-name" not in ran.stdout + Path("o.jsonl").read_text()


def test_an_invalid_trial_number_is_an_invalid_result(write: Write) -> None:
    path = flaky(write, a="+")
    write("o.jsonl", '{"timestamp":"","eval_id":"a","score":1.0,"trial":0}\n')
    assert "line 1 is not a result of agentv" in evaluate(path, "--out", "o.jsonl", "--resume", expect=2).stderr


# What it comes to


def test_the_figures_of_a_worked_example(write: Write) -> None:
    """Passes of 3: 3, 2, 1, 0. pass^2: 1, 1/3, 0, 0. Variances within: 0, 1/3, 1/3, 0; of the means: 5/27."""
    path = flaky(write, a="+++", b="+-+", c="--+", d="---")
    lines = evaluate(path, "--trials", "3", "--out", "o.jsonl", "--quiet").stdout.splitlines()
    assert lines[1] == "  12 runs planned (4 cases, 3 trials each) = 12 scored"
    assert lines[2] == "  mean 0.500 (95% interval 0.000 to 1.000)"
    assert lines[3:5] == ["  median 0.500, min 0.000, max 1.000", "  standard deviation 0.430"]
    values = [line.split(" (")[0].strip() for line in lines[5:10]]
    assert values == ["pass@1 0.500", "pass@2 0.667", "pass^2 0.333", "pass@3 0.750", "pass^3 0.250"]
    noise = "variance 0.1296 between cases, 0.1667 within (0.0556 over 3 trials)"
    assert flat("\n".join(lines[10:13])) == f"noise: {noise}; add cases to reduce it; more trials would help little"
    assert [line for line in lines if "█" in line] == [
        "  [0,0.2)   ████████████████████████████████████████ 1",
        "  [0.2,0.4) ████████████████████████████████████████ 1",
        "  [0.6,0.8) ████████████████████████████████████████ 1",
        "  [0.8,1.0] ████████████████████████████████████████ 1",
    ]
    ranking = ["  1.000  a", "  0.667  b", "  0.333  c", "  0.000  d"]
    assert lines[lines.index("TOP AND BOTTOM (all 4 cases)") + 1 :][:4] == ranking


def test_trials_do_not_count_as_cases(write: Write) -> None:
    """The same answers five times over make nothing more certain."""
    path = flaky(write, a="+++++", b="+++++", c="-----", d="+++++")
    once, often = (evaluate(path, "--trials", str(trials), "--quiet").stdout.splitlines()[2:5] for trials in (1, 5))
    assert once == often
    assert "(95% interval 0.000 to 1.000)" in once[0]
    assert "standard deviation 0.500" in once[2]


def test_the_pass_rate_of_a_plain_run(write: Write) -> None:
    path = flaky(write, **{f"case-{n}": "-" if n == 7 else "+" for n in range(20)})
    assert "\n  pass 19/20 (95% interval 0.764 to 0.991)\n" in evaluate(path).stdout


def test_a_borderline_score_does_not_pass(write: Write) -> None:
    path = flaky(write, a="++")
    checks = [{**HELLO, "weight": 7}, {"type": "contains", "value": "never", "weight": 3}]
    write("a.jsonl", [a_case("a", evaluators=checks)])
    ran = evaluate(path, "--trials", "2")
    assert "mean 0.700" in ran.stdout
    assert "pass@2 0.000" in ran.stdout


def test_errors_count_as_failed_trials_and_fail_under_uses_the_mean(write: Write) -> None:
    path = flaky(write, a="+!", b="++")
    ran = evaluate(path, "--trials", "2", expect=1)
    assert ran.stdout.startswith("ERRORS (1)\n  a: agent.py:12 in answer: ValueError: not today\n")
    assert "4 runs planned (2 cases, 2 trials each) = 3 scored + 1 target error mean" in flat(ran.stdout)
    assert "1 result without a score counts as 0 (the mean could be up to 1.000)" in flat(ran.stdout)
    assert "pass@2 1.000 (no interval: all cases are alike) pass^2 0.500" in flat(ran.stdout)
    path = flaky(write, a="+-", b="++")
    evaluate(path, "--trials", "2", "--fail-under", "0.75")
    ran = evaluate(path, "--trials", "2", "--fail-under", "0.76", expect=1)
    assert "error: --fail-under 0.76: the mean is 0.750; lowest: a 0.500\n" in ran.stderr


def test_cases_with_missing_trials_are_excluded_and_reported(write: Write) -> None:
    path = flaky(write, a="+-+", b="-?", c="+++")
    run = start(str(path), "--trials", "3", "--out", "o.jsonl", "--quiet")
    wait_for_results(Path("o.jsonl"), 4)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert "9 runs planned (3 cases, 3 trials each) = 4 scored" in out
    assert "5 not run" in out
    assert "mean 0.333" in out
    assert "excluded from pass@k and pass^k: 2 cases with fewer than 3 trials" in flat(out)
    assert "pass@2 1.000 (no interval: all cases are alike) pass^2 0.333 (no interval: all cases are alike)" in flat(
        out
    )
    assert "noise" not in out
    assert "\nTOP AND BOTTOM (all 2 cases)\n  0.667  a\n  0.000  b\n" in out


@pytest.mark.parametrize(
    ("trials", "shown"), [(2, [1, 2]), (5, [1, 2, 3, 4, 5]), (6, [1, 2, 5, 6]), (10, [1, 2, 5, 10]), (30, [1, 2, 5, 10, 20, 30])]
)  # fmt: skip
def test_pass_at_k_is_shown_for_selected_k(trials: int, shown: list[int]) -> None:
    summary = a_summary([[1.0] * trials], trials)
    lines = [line.split()[0] for line in summary_lines(summary) if line.startswith("  pass@")]
    assert lines == [f"pass@{k}" for k in shown]


def test_a_huge_number_of_trials_uses_little_memory() -> None:
    lines = list(summary_lines(a_summary([[1.0, 0.0]], 10**9)))
    assert "excluded from pass@k and pass^k: 1 case with fewer than 1000000000 trials" in flat("\n".join(lines))


def a_result(eval_id: str, trial: int, score: float) -> EvalResult:
    return EvalResult(
        timestamp="t", eval_id=eval_id, dataset="d", target="t", attempt=1, trial=trial, score=score,
        verdict="pass" if score >= 0.8 else "fail", candidate_answer="",
    )  # fmt: skip


def a_summary(scores: list[list[float]], trials: int, order: random.Random | None = None) -> Summary:
    """The summary of cases with these scores, whose results come in one after another or in any order."""
    found = [
        a_result(f"case-{n:03}", trial, score) for n, case in enumerate(scores) for trial, score in enumerate(case, 1)
    ]
    if order:
        order.shuffle(found)
    summary = Summary(len(scores), trials=trials)
    for result in found:
        summary.add(result)
    return summary


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=30), st.randoms())
def test_figures_agree_with_the_standard_library(scores: list[list[float]], order: random.Random) -> None:
    summary = a_summary(scores, 3, order)
    means = [statistics.fmean(case) for case in scores]
    assert summary.mean == pytest.approx(statistics.fmean(means))
    assert summary.deviation == pytest.approx(statistics.stdev(means), abs=1e-6)
    assert summary.median == pytest.approx(statistics.median(means))
    assert summary.noise is not None
    within = statistics.fmean(map(statistics.variance, scores))
    between = max(0.0, statistics.variance(means) - within / 3)
    assert summary.noise == pytest.approx((between, within), abs=1e-9)
    assert sum(summary.passes.values()) == summary.complete == len(scores)
    assert summary.passes == Counter(sum(score >= 0.8 for score in case) for case in scores)


@given(
    st.lists(st.lists(st.sampled_from([0, 0.1, 0.3, 0.6, 0.7, 1]), min_size=5, max_size=5), min_size=1), st.randoms()
)
def test_the_order_of_results_does_not_matter(scores: list[list[float]], order: random.Random) -> None:
    mixed, sorted_ = a_summary(scores, 5, order), a_summary(scores, 5)
    for name in ("mean", "deviation", "median", "histogram", "top", "bottom", "passes"):
        assert getattr(mixed, name) == getattr(sorted_, name)


@pytest.mark.slow
def test_finished_cases_are_stored_as_a_single_number() -> None:
    def held(runs_of_cases: list[tuple[int, int]]) -> int:
        """Bytes for each of 20,000 cases."""
        tracemalloc.start()
        tally = ScoreTally(3)
        for number, trials in runs_of_cases:
            for _ in range(trials):
                tally.add(CaseKey("dataset", f"case-{number}"), 0.5, 0.0, passed=False)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(tally.means) == 20_000
        return size // 20_000

    assert held([(number, 3) for number in range(20_000)]) < 16
    assert held([(number, 1) for number in range(20_000)]) < 250
    assert held([(number, trials) for trials in (1, 2) for number in range(20_000)]) < 16 + 250


# From Python


def test_trials_from_python(write: Write) -> None:
    path = write("a.jsonl", [a_case(name, evaluators=[HELLO]) for name in ("a", "b")])

    async def agent(request: ProviderRequest) -> str:
        return "hello" if request.trial != 2 or request.eval_id == "b" else "no"

    report = asyncio.run(evaluate_here(path, target=agent, trials=3, workers=2))
    assert sorted((result.eval_id, result.trial, result.score) for result in report.results) == [
        ("a", 1, 1.0), ("a", 2, 0.0), ("a", 3, 1.0), ("b", 1, 1.0), ("b", 2, 1.0), ("b", 3, 1.0)
    ]  # fmt: skip
    summary = report.summary
    assert [summary.pass_at(k) for k in (1, 2, 3)] == pytest.approx([5 / 6, 1, 1])
    assert [summary.pass_all(k) for k in (1, 2, 3)] == pytest.approx([5 / 6, 2 / 3, 1 / 2])
    assert math.isnan(summary.pass_at(4))
    assert math.isnan(summary.pass_all_interval(4)[0])
    assert math.isnan(Summary(3, trials=2).pass_at(1))
    once = asyncio.run(evaluate_here(path, target=lambda: "hello")).summary
    assert (once.pass_at(1), once.pass_all(1)) == (1.0, 1.0)
    assert once.pass_at_interval(1) == wilson(2, 2)
    with pytest.raises(AgentvError, match="trials is 0"):
        asyncio.run(evaluate_here(path, target=agent, trials=0))


def test_judge_requests_contain_the_trial(write: Write) -> None:
    write(
        "judge.py",
        'def grade(request):\n    return \'{"score": \' + str(request.trial / 4) + \', "reasoning": "r"}\'\n',
    )
    write(
        "targets.yaml",
        "targets:\n  - {name: default, provider: mock, response: hi, judge_target: judge}\n"
        "  - {name: judge, provider: python, function: 'judge.py:grade'}\n",
    )
    evaluate(write("a.jsonl", [a_case("a", evaluators=[{"type": "llm_judge"}])]), "--trials", "3", "--out", "o.jsonl")
    assert done() == [("a", 1, 0.25), ("a", 2, 0.5), ("a", 3, 0.75)]


def test_files_with_the_same_dataset_and_ids_are_rejected_with_trials(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    for folder in ("a", "b"):
        write(f"{folder}/same.jsonl", [a_case("one")])
        write(f"{folder}/same.yaml", "evaluators: [{type: contains, value: hello}]\n")
    ran = agentv("eval", "a", "b", "--trials", "2", "--out", "out.jsonl")
    assert ran.returncode == 2
    assert "--trials: two eval files have the same dataset name and the same ids" in ran.stderr
    assert not Path("out.jsonl").exists()
    assert agentv("eval", "a", "b", "--out", "out.jsonl").returncode == 0


def test_a_resumed_run_counts_earlier_judge_failures(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    write("judge.py", "def judge(answer):\n    raise ValueError('no idea')\n")
    write("evals.jsonl", [a_case("one"), a_case("two")])
    write("evals.yaml", "evaluators: [{type: python, function: 'judge.py:judge'}]\n")
    first = agentv("eval", "evals.jsonl", "--out", "out.jsonl").stdout
    again = agentv("eval", "evals.jsonl", "--out", "out.jsonl", "--resume").stdout
    for printed in (first, again):
        assert (
            "in 2 results not judged, evaluators that could not judge count as 0 (the mean could be up to 1.000)"
            in flat(printed)
        )


def test_the_mean_of_scored_results_is_reported(write: Write) -> None:
    write("agent.py", "def answer(question):\n    return 1 / ('bad' not in question) and 'hello'\n")
    write("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    write("evals.jsonl", [a_case("one"), a_case("two", input_messages=[{"role": "user", "content": "bad"}])])
    write("evals.yaml", "evaluators: [{type: contains, value: hello}]\n")
    printed = agentv("eval", "evals.jsonl", "--out", "out.jsonl").stdout
    assert "1 result without a score counts as 0 (the mean could be up to 1.000)" in flat(printed)
    assert "the mean of the scored results is 1.000" in printed
