"""The conclusions of `agentv compare`: verdicts, gates, clusters, bounds, changes, groups, and several files."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from agentv import compare_results
from tests.kits.comparisons import compared, line, refused, save
from tests.kits.project import PRINT_PEAK_KB, Write, agentv

Rows = list[dict[str, Any]]


def noisy(count: int, shift: float = 0.0, seed: int = 1, spread: float = 0.05) -> dict[str, float]:
    """Scores around 0.5 that another seed moves a little, and `shift` moves as a whole."""
    pick, base = random.Random(seed), random.Random(0)
    return {
        f"case-{number}": round(0.3 + 0.3 * base.random() + shift + pick.uniform(-spread, spread), 3)
        for number in range(count)
    }


def rows(write: Write, name: str, entries: Rows) -> Path:
    return write(name, "".join(line(**entry) for entry in entries))


def test_the_figures_are_those_of_a_paired_t_test(write: Write) -> None:
    before, after = noisy(50, seed=1), noisy(50, 0.02, seed=2)
    save(write, "a.jsonl", before)
    save(write, "b.jsonl", after)
    found = compared("a.jsonl", "b.jsonl")["statistics"]
    theirs = stats.ttest_rel(list(after.values()), list(before.values()))
    delta = found["delta"]
    assert [delta["ci_lower"], delta["ci_upper"]] == pytest.approx(list(theirs.confidence_interval(0.95)))
    assert (delta["method"], delta["df"]) == ("paired t", 49)
    assert found["mean1"] == pytest.approx(sum(before.values()) / 50)
    assert found["mean2"] == pytest.approx(sum(after.values()) / 50)
    assert delta["mean"] == pytest.approx(found["mean2"] - found["mean1"])
    assert found["mde"] == pytest.approx(2.8016 * delta["se"], rel=1e-4)
    assert delta["bootstrap"] == pytest.approx([delta["ci_lower"], delta["ci_upper"]], abs=0.005)
    tests = {test["name"]: test for test in found["tests"]}
    assert tests["sign-flip permutation"]["p_value"] == pytest.approx(theirs.pvalue, abs=0.01)
    assert tests["sign-flip permutation"]["seed"] == 20240411


def test_the_same_comparison_gives_the_same_figures_every_time(write: Write) -> None:
    save(write, "a.jsonl", noisy(60, seed=1))
    save(write, "b.jsonl", noisy(60, seed=2))
    first, again = (agentv("compare", "a.jsonl", "b.jsonl").stdout for _ in range(2))
    assert first == again


def test_a_test_that_enumerates_gives_count_over_2_to_the_n(write: Write) -> None:
    save(write, "a.jsonl", {f"c{number}": 0.5 for number in range(10)})
    save(write, "b.jsonl", {f"c{number}": 0.6 + number / 100 for number in range(10)})
    test = compared("a.jsonl", "b.jsonl")["statistics"]["tests"][0]
    assert (test["p_value"], test["method"]) == (2 / 1024, "exact")


@pytest.mark.parametrize(
    ("shift", "verdict", "codes"),
    [
        (0.1, "better", [0, 0, 0]),
        (-0.1, "worse", [1, 1, 1]),
        (-0.012, "worse", [1, 1, 0]),
        (0.0, "not worse", [None, 3, 0]),
    ],
)
def test_verdicts_and_gates(write: Write, shift: float, verdict: str, codes: list[int | None]) -> None:
    save(write, "a.jsonl", noisy(200, seed=1, spread=0.02))
    save(write, "b.jsonl", noisy(200, shift, seed=2, spread=0.02))
    assert compare_results("a.jsonl", "b.jsonl").statistics.verdict == verdict
    for gate, code in zip(("mean", "ci", "noninferior"), codes, strict=True):
        if code is not None:
            assert agentv("compare", "a.jsonl", "b.jsonl", "--gate", gate).returncode == code, gate


def test_a_noisy_comparison_is_undecided(write: Write) -> None:
    save(write, "a.jsonl", noisy(20, seed=1, spread=0.3))
    save(write, "b.jsonl", noisy(20, seed=2, spread=0.3))
    for gate in ("ci", "noninferior"):
        found = compared("a.jsonl", "b.jsonl", "--gate", gate, code=3)
        assert found["statistics"]["verdict"] == "cannot tell"
    assert compared("a.jsonl", "b.jsonl", "--gate", "noninferior", "--margin", "0.9")["statistics"]["margin"] == 0.9


def test_few_pairs_are_undecided(write: Write) -> None:
    save(write, "a.jsonl", noisy(9))
    save(write, "b.jsonl", noisy(9, 0.3))
    found = compared("a.jsonl", "b.jsonl", "--gate", "ci", code=3)["statistics"]
    assert found["verdict"] == "cannot tell"
    assert found["mde"] is None
    assert "too few cases to decide: 9 pairs, at least 10 needed" in found["notes"]
    assert "note: too few cases to decide: 9 pairs" in agentv("compare", "a.jsonl", "b.jsonl").stderr


def test_a_single_pair_has_no_interval(write: Write) -> None:
    save(write, "a.jsonl", {"a": 0.5})
    save(write, "b.jsonl", {"a": 0.7})
    found = compared("a.jsonl", "b.jsonl")["statistics"]
    assert [found["delta"][name] for name in ("mean", "se", "ci_lower", "ci_upper")] == [0.2, None, None, None]
    assert (found["mde"], found["verdict"]) == (None, "cannot tell")
    assert "95% CI none" in agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout


def test_no_variance_at_all(write: Write) -> None:
    save(write, "a.jsonl", {f"c{number}": 0.5 for number in range(20)})
    save(write, "b.jsonl", {f"c{number}": 0.6 for number in range(20)})
    found = compared("a.jsonl", "b.jsonl")["statistics"]
    assert [found["delta"][name] for name in ("se", "ci_lower", "ci_upper")] == [0, None, None]
    assert (found["mde"], found["verdict"]) == (None, "better")
    assert "all differences are equal" in found["notes"][0]
    assert compared("a.jsonl", "a.jsonl", "--gate", "ci")["statistics"]["verdict"] == "not worse"


def test_pass_and_fail_by_mcnemar(write: Write) -> None:
    """The written verdict counts; where there is none, the score does."""
    before = [(f"c{n}", 1.0 if n < 30 else 0.0) for n in range(40)]
    after = [(f"c{n}", 0.0 if n < 2 else 1.0) for n in range(40)]
    save(write, "a.jsonl", before)
    save(write, "b.jsonl", after)
    found = compared("a.jsonl", "b.jsonl")["statistics"]
    assert {name: found["passes"][name] for name in ("passed1", "passed2", "gained", "lost")} == {
        "passed1": 30,
        "passed2": 38,
        "gained": 10,
        "lost": 2,
    }
    assert found["tests"][1]["p_value"] == pytest.approx(stats.binomtest(2, 12).pvalue)
    save(write, "b.jsonl", after, verdict="fail")
    assert compared("a.jsonl", "b.jsonl")["statistics"]["passes"]["passed2"] == 0


def test_fewer_than_six_flips_are_never_significant(write: Write) -> None:
    save(write, "a.jsonl", [(f"c{n}", 0.0 if n < 5 else 1.0) for n in range(30)])
    save(write, "b.jsonl", [(f"c{n}", 1.0) for n in range(30)])
    notes = compared("a.jsonl", "b.jsonl")["statistics"]["notes"]
    assert "5 verdicts changed: fewer than 6 changes cannot be significant at the 5% level" in notes


def test_conversations_are_clusters(write: Write) -> None:
    pick = random.Random(3)
    moves = [pick.uniform(-0.2, 0.2) for _ in range(12)]
    before: Rows = []
    after: Rows = []
    for number in range(60):
        entry = {"eval_id": f"c{number}", "conversation_id": f"talk-{number % 12}", "metadata": {"repo": number % 3}}
        before.append({**entry, "score": 0.5})
        after.append({**entry, "score": round(0.5 + moves[number % 12], 3)})
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", after)
    delta = compared("a.jsonl", "b.jsonl", "--threshold", "0", code=int(sum(moves) < 0))["statistics"]["delta"]
    theirs = stats.ttest_1samp([round(0.5 + move, 3) - 0.5 for move in moves], 0).confidence_interval(0.95)
    assert [delta["ci_lower"], delta["ci_upper"]] == pytest.approx(list(theirs))
    assert (delta["method"], delta["df"], delta["clusters"]) == ("paired t, clustered", 11, 12)
    assert delta["design_effect"] > 4
    for key, clusters in (("repo", 3), ("conversation_id", 12)):
        found = compare_results("a.jsonl", "b.jsonl", cluster=key).statistics.delta
        assert found is not None
        assert found.clusters == clusters
    table = agentv("compare", "a.jsonl", "b.jsonl", "--format", "table", "--cluster", "repo").stdout
    assert "3 clusters, deff" in table


def test_a_cluster_key_that_no_result_has_is_an_error(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1.0})
    assert "no result in a.jsonl has 'rpeo'" in refused("a.jsonl", "a.jsonl", "--cluster", "rpeo")


def test_one_cluster_alone_has_no_interval(write: Write) -> None:
    save(write, "a.jsonl", noisy(20), conversation_id="talk")
    save(write, "b.jsonl", noisy(20, 0.1), conversation_id="talk")
    found = compared("a.jsonl", "b.jsonl", "--gate", "ci", code=3)["statistics"]
    assert found["delta"]["ci_lower"] is None
    assert "no confidence interval: all cases are in one cluster" in found["notes"]


def test_bounds_for_unscored_pairs(write: Write) -> None:
    """As in the example of how a comparison is printed: every pair without a score widens the bounds by one."""
    before = [{"eval_id": f"c{n}", "score": 0.5} for n in range(20)]
    after = [{"eval_id": f"c{n}", "score": 0.6 + n % 3 / 100} for n in range(20)]
    after[0] |= {"score": 0.0, "error": "the target broke"}
    after[1] |= {"score": 0.0, "error": "timed out", "failure": "timeout"}
    before[2] |= {"score": 0.0, "failure": "judge"}
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", after)
    found = compared("a.jsonl", "b.jsonl")
    assert found["statistics"]["pairs"] == 17
    deltas = [0.1 + n % 3 / 100 for n in range(3, 20)]
    bounds = found["statistics"]["bounds"]
    assert bounds["unscored"] == 3
    assert bounds["lower"] == pytest.approx((sum(deltas) - 0.5 - 0.5 + 0.62 - 1) / 20)
    assert bounds["upper"] == pytest.approx((sum(deltas) + 0.5 + 0.5 + 0.62) / 20)
    assert found["statistics"]["delta"]["mean"] == pytest.approx(sum(deltas) / 17)
    assert (found["files"][1]["errors"], found["files"][0]["judge_failures"]) == (2, 1)
    table = agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout
    assert "scored in both 17 | errors B 2 | judge-failed A 1" in table
    assert "if the 3 unscored pairs were scored, Δ could be " in table


def test_a_target_that_breaks_does_not_pass_a_gate(write: Write) -> None:
    """Its answers may be better where there are any."""
    rows(write, "a.jsonl", [{"eval_id": f"c{n}", "score": 0.8} for n in range(60)])
    broken = {"score": 0.0, "error": "it broke"}
    fine = {"score": 0.9}
    rows(write, "b.jsonl", [{"eval_id": f"c{n}", **(broken if n % 3 == 0 else fine)} for n in range(60)])
    assert agentv("compare", "a.jsonl", "b.jsonl").returncode == 1
    assert agentv("compare", "a.jsonl", "b.jsonl", "--gate", "ci").returncode == 3


def test_no_pair_with_a_score(write: Write) -> None:
    save(write, "a.jsonl", {"a": 0.0}, error="it broke")
    found = compared("a.jsonl", "a.jsonl", "--gate", "ci", code=3)["statistics"]
    assert (found["pairs"], found["delta"], found["verdict"]) == (0, None, "cannot tell")
    for form in ("table", "markdown"):
        assert "no case has a score" in agentv("compare", "a.jsonl", "a.jsonl", "--format", form).stdout


def project(write: Write, *, value: str = "good", question: str = "Is it good?", prompt: str = "Grade it.") -> None:
    write(
        "agent.py", "def answer(question):\n    return question\ndef judge(question):\n    return '{\"score\": 0.9}'\n"
    )
    write(
        ".agentv/targets.yaml",
        "targets:\n"
        "  - {name: default, provider: python, function: agent.py:answer, judge_target: judge}\n"
        "  - {name: judge, provider: python, function: agent.py:judge}\n",
    )
    write("prompt.md", prompt + " {{ candidate_answer }}")
    evaluators = f"[{{type: contains, value: {value}}}, {{type: llm_judge, prompt: prompt.md}}]"
    cases = "".join(f"  - {{id: c{n}, outcome: x, input: {question if n < 3 else 'All good'!r}}}\n" for n in range(12))
    write("evals.yaml", f"execution:\n  evaluators: {evaluators}\nevalcases:\n{cases}")


def test_changes_other_than_the_answers_are_reported(write: Write) -> None:
    project(write)
    assert agentv("eval", "evals.yaml", "--out", "a.jsonl").returncode == 0
    project(write, question="Is it really good?")
    assert agentv("eval", "evals.yaml", "--out", "cases.jsonl").returncode == 0
    project(write, prompt="Grade it strictly.")
    assert agentv("eval", "evals.yaml", "--out", "prompt.jsonl").returncode == 0
    project(write)
    targets = Path(".agentv/targets.yaml").read_text().replace("judge}", "judge, workers: 2}")
    Path(".agentv/targets.yaml").write_text(targets)
    assert agentv("eval", "evals.yaml", "--out", "judge.jsonl").returncode == 0
    project(write, value="All")
    assert agentv("eval", "evals.yaml", "--out", "evaluators.jsonl").returncode == 0

    said = {
        name: agentv("compare", "a.jsonl", f"{name}.jsonl").stderr
        for name in ("cases", "prompt", "judge", "evaluators")
    }
    assert "other changes: the content of 3 cases\n" in said["cases"]
    assert "other changes: the judge's prompt or script (12 pairs)\n" in said["prompt"]
    assert "other changes: the judge (12 pairs)\n" in said["judge"]
    assert "other changes: the evaluators (12 pairs)\n" in said["evaluators"]
    found = compared("a.jsonl", "cases.jsonl")
    assert found["changed"]["cases"] == 3
    assert found["unchanged"]["pairs"] == 9
    assert compared("a.jsonl", "prompt.jsonl")["unchanged"]["pairs"] == 0
    assert (
        "only the 9 pairs in which nothing else changed"
        in agentv("compare", "a.jsonl", "cases.jsonl", "--format", "table").stdout
    )


def test_unchanged_or_unknown_digests_are_not_reported(write: Write) -> None:
    project(write)
    assert agentv("eval", "evals.yaml", "--out", "a.jsonl").returncode == 0
    assert agentv("eval", "evals.yaml", "--out", "b.jsonl").returncode == 0
    assert "changed" not in agentv("compare", "a.jsonl", "b.jsonl").stderr
    assert compared("a.jsonl", "b.jsonl")["unchanged"] is None
    save(write, "plain.jsonl", {f"c{n}": 0.5 for n in range(12)})
    ran = agentv("compare", "a.jsonl", "plain.jsonl")
    assert "changed besides" not in ran.stderr
    assert json.loads(ran.stdout)["changed"]["unknown"] == 12


def parted(name: str, scores: tuple[float, float], **more: Any) -> dict[str, Any]:
    parts = [{"name": part, "type": "contains", "score": score} for part, score in zip("xy", scores, strict=True)]
    return {"eval_id": name, "score": sum(scores) / 2, "evaluator_results": parts, **more}


def test_by_evaluator_with_holm(write: Write) -> None:
    pick = random.Random(5)
    before = [parted(f"c{n}", (0.2, 0.5)) for n in range(30)]
    after = [parted(f"c{n}", (0.4 + pick.random() / 10, 0.5 + pick.uniform(-0.1, 0.1))) for n in range(30)]
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", [*after[:-1], {**after[-1], "evaluator_results": []}])
    parts = compared("a.jsonl", "b.jsonl", "--by", "evaluator")["by"]["evaluator"]
    assert [(part["name"], part["statistics"]["pairs"]) for part in parts] == [("x", 29), ("y", 29)]
    assert parts[0]["statistics"]["verdict"] == "better"
    raw = [part["statistics"]["tests"][0]["p_value"] for part in parts]
    assert parts[0]["p_adjusted"] == pytest.approx(2 * raw[0])
    assert parts[1]["p_adjusted"] == pytest.approx(max(raw[1], 2 * raw[0]))
    table = agentv("compare", "a.jsonl", "b.jsonl", "--by", "evaluator", "--format", "table").stdout
    assert "Holm over 2 evaluators: x significant" in table


def test_by_dataset_and_by_target(write: Write) -> None:
    for name, model in (("a.jsonl", "old"), ("b.jsonl", "new")):
        rows(
            write,
            name,
            [
                {"eval_id": f"{data}-{n}", "score": n / 20, "dataset": data, "target": model if data == "d" else "same"}
                for data in ("d", "e")
                for n in range(15)
            ],
        )
    parts = compared("a.jsonl", "b.jsonl", "--by", "dataset")["by"]["dataset"]
    assert [(part["name"], part["statistics"]["pairs"]) for part in parts] == [("d", 15), ("e", 15)]
    parts = compared("a.jsonl", "b.jsonl", "--by", "target")["by"]["target"]
    assert [part["name"] for part in parts] == ["old -> new", "same"]


def test_an_id_with_several_targets_is_noted(write: Write) -> None:
    rows(write, "a.jsonl", [{"eval_id": "c", "score": 1, "target": target} for target in ("d", "e")])
    ran = agentv("compare", "a.jsonl", "a.jsonl")
    assert "note: a.jsonl: 1 result has the same id as a result of another target; the mean score is used" in ran.stderr


def test_more_than_two_files_make_a_matrix(write: Write) -> None:
    for name, shift in (("base", 0.0), ("up", 0.1), ("down", -0.1)):
        save(write, f"{name}.jsonl", noisy(40, shift, seed=len(name)))
    found = compared("base.jsonl", "up.jsonl", "down.jsonl", code=1)["comparisons"]
    assert [(each["files"][1]["path"], each["statistics"]["verdict"]) for each in found] == [
        ("up.jsonl", "better"),
        ("down.jsonl", "worse"),
    ]
    assert {each["files"][0]["path"] for each in found} == {"base.jsonl"}
    assert found[0]["summary"]["matched"] == 40
    for form in ("table", "markdown"):
        ran = agentv("compare", "base.jsonl", "up.jsonl", "down.jsonl", "--format", form)
        lines = [text.replace("|", " ").split() for text in ran.stdout.splitlines()]
        assert [words[0] for words in lines if words and words[-1] in ("better", "worse")] == ["up.jsonl", "down.jsonl"]


def test_the_table_for_statistics(write: Write) -> None:
    before = [
        {"eval_id": k, "score": v, "target": "old", "timestamp": "2026-11-01T10:00:00Z"} for k, v in noisy(30).items()
    ]
    after = [
        {"eval_id": k, "score": v, "target": "new", "timestamp": "2026-11-02T10:00:00Z", "attempt": 1 + (v > 0.55)}
        for k, v in noisy(30, seed=2).items()
    ]
    rows(write, "a.jsonl", [*before, {"eval_id": "gone", "score": 1}])
    rows(write, "b.jsonl", after)
    ran = agentv("compare", "a.jsonl", "b.jsonl", "--format", "table")
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert lines[0] == "A = a.jsonl (old, 2026-11-01)   B = b.jsonl (new, 2026-11-02)"
    assert lines[1].startswith("cases 31 | in both 30 | only A 1, only B 0 | scored in both 30 | retried B ")
    assert [text.split()[0] for text in lines[2:]] == [
        *["mean", "sign-flip", "pass", "wins", "minimum", "warning:", "verdict:", "largest", "largest"]
    ]
    assert "(threshold 0.10: for display only, not a test)" in ran.stdout


def test_markdown_has_the_worst_regressions_first(write: Write) -> None:
    scores = noisy(30)
    save(write, "a.jsonl", scores)
    save(write, "b.jsonl", scores | {"case-3": 0.0, "case-4": 0.1, "case-5": 0.9})
    ran = agentv("compare", "a.jsonl", "b.jsonl", "--format", "markdown")
    lines = ran.stdout.splitlines()
    assert lines[0] == "### agentv: cannot tell"
    assert lines[2:4] == ["| worst regressions | A | B | Δ |", "| --- | --- | --- | --- |"]
    assert [text.split("`")[1] for text in lines[4:6]] == ["case-3", "case-4"]
    assert lines[-3:] == ["```", "", "</details>"]


def test_markdown_has_what_a_pull_request_needs(write: Write) -> None:
    digests = {"case": "c", "evaluators": "e", "agentv": "1"}
    odd = "o_ne*<b>"
    save(write, "a.jsonl", {odd: 1.0, "two": 1.0, "three": 0.0}, target="d_x", digests=digests | {"target": "1"})
    save(write, "b.jsonl", {odd: 0.0, "two": 0.5, "three": 1.0}, target="d_x", digests=digests | {"target": "2"})
    lines = agentv("compare", "a.jsonl", "b.jsonl", "--format", "markdown").stdout.splitlines()
    assert lines[0] == "### agentv: cannot tell"
    assert "|  | A `a.jsonl` | B `b.jsonl` | change |" in lines
    assert "| passed | 2 | 1 | +1 / −2 |" in lines
    assert f"- **2 broke (pass → fail)**: `{odd}`, `two`" in lines
    assert "- **1 fixed (fail → pass)**: `three`" in lines
    assert "- target 'd\\_x' has changed between the runs" in lines
    folded = lines.index("<details><summary>All figures</summary>")
    assert lines[folded + 1 : folded + 3] == ["", "```"]
    assert any(line.startswith("verdict: CANNOT TELL") for line in lines[folded:])


def test_all_the_trials_of_a_case_are_used(write: Write) -> None:
    write(
        "agent.py",
        "import itertools\nturns = itertools.count()\ndef answer(question):\n    return 'yes' if next(turns) % 3 else 'no'\n",
    )
    write(".agentv/targets.yaml", "targets:\n  - {name: default, provider: python, function: agent.py:answer}\n")
    cases = "".join(f"  - {{id: c{n}, outcome: x, input: q}}\n" for n in range(12))
    write("evals.yaml", f"execution:\n  evaluators: [{{type: contains, value: 'yes'}}]\nevalcases:\n{cases}")
    assert agentv("eval", "evals.yaml", "--trials", "3", "--out", "three.jsonl").returncode == 0
    assert agentv("eval", "evals.yaml", "--out", "one.jsonl").returncode == 0
    found = compared("three.jsonl", "one.jsonl")
    assert {pair["score1"] for pair in found["matched"]} == {2 / 3}
    assert found["summary"]["repeats"] == {"file1": 24, "file2": 0}
    assert (found["summary"]["matched"], found["statistics"]["pairs"]) == (12, 12)


def test_an_evaluator_is_not_better_for_cases_that_broke(write: Write) -> None:
    """A case that ended in an error has no scores of evaluators at all."""
    part = {"name": "e", "type": "contains"}
    before = [{"eval_id": f"c{n}", "score": 0.5, "evaluator_results": [{**part, "score": 0.5}]} for n in range(40)]
    after = [
        {"eval_id": f"c{n}", "score": 0.62, "evaluator_results": [{**part, "score": 0.62}]}
        if n < 15
        else {"eval_id": f"c{n}", "score": 0, "error": "it broke"}
        for n in range(40)
    ]
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", after)
    found = compared("a.jsonl", "b.jsonl", "--by", "evaluator", code=1)
    (of_part,) = found["by"]["evaluator"]
    assert of_part["statistics"]["bounds"] == found["statistics"]["bounds"]
    assert of_part["statistics"]["bounds"]["unscored"] == 25
    assert of_part["statistics"]["verdict"] == "cannot tell"


def test_a_failed_trial_does_not_exclude_the_others(write: Write) -> None:
    trials = range(1, 6)
    rows(write, "a.jsonl", [{"eval_id": f"c{n}", "score": 0.5, "trial": k} for n in range(20) for k in trials])
    broken = {"score": 0.0, "error": "it broke"}
    rows(
        write,
        "b.jsonl",
        [{"eval_id": f"c{n}", "trial": k, **(broken if k == 1 else {"score": 0.6})} for n in range(20) for k in trials],
    )
    found = compared("a.jsonl", "b.jsonl", code=1)
    assert found["matched"][0]["score2"] == 0.48
    assert (found["statistics"]["pairs"], found["statistics"]["mean2"]) == (20, 0.6)
    assert found["statistics"]["delta"]["mean"] == 0.1
    bounds = found["statistics"]["bounds"]
    assert [bounds["lower"], bounds["upper"], bounds["unscored"]] == pytest.approx([-0.02, 0.18, 20])


def test_partly_scored_pairs_do_not_narrow_the_interval(write: Write) -> None:
    """They are draws like any other, and their bounds come on top."""
    before, after = noisy(20), noisy(20, seed=2)
    rows(write, "a.jsonl", [{"eval_id": k, "score": v, "trial": n} for k, v in before.items() for n in (1, 2)])
    broken = {"score": 0.0, "error": "it broke"}
    rows(
        write,
        "b.jsonl",
        [{"eval_id": k, "trial": n, **(broken if n == 2 else {"score": v})} for k, v in after.items() for n in (1, 2)],
    )
    found = compared("a.jsonl", "b.jsonl", code=1)["statistics"]
    delta, bounds = found["delta"], found["bounds"]
    half = delta["ci_upper"] - delta["mean"]
    assert found["interval"] == pytest.approx([bounds["lower"] - half, bounds["upper"] + half])


def test_with_repeats_a_case_passes_if_all_of_them_pass(write: Write) -> None:
    for name, verdict in (("a.jsonl", "pass"), ("b.jsonl", "fail")):
        entries = [{"eval_id": f"c{n}", "score": 0.9, "verdict": verdict} for n in range(20)]
        rows(write, name, [*entries, *entries])
    passes = compared("a.jsonl", "b.jsonl")["statistics"]["passes"]
    assert (passes["passed1"], passes["passed2"], passes["lost"]) == (20, 0, 20)


def test_cases_that_all_changed_can_be_compared_after_a_failed_trial(write: Write) -> None:
    def results(question: str, **last: Any) -> list[dict[str, Any]]:
        digests = {"case": question, "target": "t", "evaluators": "e"}
        trials = [{"score": 0.5}, {"score": 0.5} | last]
        return [{"eval_id": "a", "trial": n, "digests": digests} | trial for n, trial in enumerate(trials, 1)]

    rows(write, "a.jsonl", results("old"))
    rows(write, "b.jsonl", results("new", score=0, error="target failed"))

    found = compared("a.jsonl", "b.jsonl", code=1)

    assert found["statistics"]["pairs"] == 1
    assert found["unchanged"]["pairs"] == 0


def test_changes_in_later_trials_are_detected(write: Write) -> None:
    digests = {"case": "c", "target": "t", "evaluators": "e", "agentv": "1"}
    first = [{"eval_id": f"c{n}", "score": 0.9, "digests": digests} for n in range(12)]
    later = [{**entry, "digests": {**digests, "evaluators": "other"}} for entry in first[:4]]
    rows(write, "a.jsonl", [*first, *first])
    rows(write, "b.jsonl", [*first, *later])
    found = compared("a.jsonl", "b.jsonl")
    assert found["changed"]["mixed"] == 4
    assert found["unchanged"]["pairs"] == 8
    assert "several versions of a case in one file (4 pairs)" in agentv("compare", "a.jsonl", "b.jsonl").stderr


@pytest.mark.parametrize("names", [("a.jsonl", "b.jsonl"), ("b.jsonl", "a.jsonl")])
def test_either_file_may_define_the_clusters(write: Write, names: tuple[str, str]) -> None:
    save(write, "a.jsonl", noisy(20))
    scores = noisy(20, 0.1, seed=2)
    rows(
        write,
        "b.jsonl",
        [{"eval_id": k, "score": v, "conversation_id": f"t{n % 4}"} for n, (k, v) in enumerate(scores.items())],
    )
    delta = compare_results(*names).statistics.delta
    assert delta is not None
    assert delta.clusters == 4


def test_clusters_give_the_same_figures_in_every_process(write: Write) -> None:
    for name, seed in (("a.jsonl", 1), ("b.jsonl", 2)):
        entries = enumerate(noisy(60, seed=seed).items())
        rows(write, name, [{"eval_id": k, "score": v, "conversation_id": f"talk {n % 30}"} for n, (k, v) in entries])
    printed = {agentv("compare", "a.jsonl", "b.jsonl", "--quiet").stdout for _ in range(3)}
    assert len(printed) == 1


@pytest.mark.parametrize("by", ["dataset", "target"])
def test_the_same_ids_in_several_datasets_or_targets_are_kept_apart(write: Write, by: str) -> None:
    for name, (x, y) in (("a.jsonl", (0.5, 0.5)), ("b.jsonl", (0.9, 0.1))):
        rows(
            write,
            name,
            [
                {"eval_id": f"c{n}", "score": score, by: group}
                for n in range(12)
                for group, score in (("x", x), ("y", y))
            ],
        )
    found = compared("a.jsonl", "b.jsonl", "--by", by)
    assert [(part["name"], part["statistics"]["delta"]["mean"]) for part in found["by"][by]] == [
        ("x", 0.4),
        ("y", -0.4),
    ]
    is_merged = (
        "12 results have the same id as a result of another target" in agentv("compare", "a.jsonl", "b.jsonl").stderr
    )
    assert is_merged == (by == "target")


def test_a_table_of_several_runs_lists_missing_cases(write: Write) -> None:
    for name in ("a", "b", "c"):
        rows(
            write, f"{name}.jsonl", [parted(f"c{n}", (0.2, 0.5)) for n in range(12)] + [parted(f"only-{name}", (1, 1))]
        )
    rows(write, "c.jsonl", [{"eval_id": f"c{n}", "score": 0.5, "error": "x" if n == 3 else None} for n in range(12)])
    files = ("a.jsonl", "b.jsonl", "c.jsonl")
    for form in ("table", "markdown"):
        printed = agentv("compare", *files, "--format", form, "--by", "evaluator").stdout
        assert "b.jsonl: cases 14 | in both 12 | only A 1, only B 1" in printed
        assert "scored in both 11 | errors B 1" in printed
        assert "Δ" in printed.partition("b.jsonl: cases")[2]


def test_special_characters_in_evaluator_names_are_escaped(write: Write) -> None:
    part = {"name": "b|\n# heading", "type": "contains", "score": 0.5}
    rows(write, "a.jsonl", [{"eval_id": "c", "score": 0.5, "evaluator_results": [part]}])
    printed = agentv("compare", "a.jsonl", "a.jsonl", "--by", "evaluator", "--format", "markdown").stdout
    assert "| b\\|\\n# heading |" in printed
    assert "\n# heading" not in printed


def test_identical_runs_pass_with_no_margin_at_all(write: Write) -> None:
    save(write, "a.jsonl", noisy(12))
    save(write, "b.jsonl", noisy(12))
    found = compared("a.jsonl", "b.jsonl", "--gate", "noninferior", "--margin", "0")
    assert found["statistics"]["verdict"] == "not worse"


PEAK = f"""
import sys
from agentv.__main__ import main
sys.argv = ["agentv", "compare", *sys.argv[1:], "--quiet", "--out", "out.json"]
try:
    main()
except SystemExit:
    {PRINT_PEAK_KB}
"""


@pytest.mark.slow
def test_memory_grows_by_less_than_40_mb_from_20_000_to_200_000_pairs(write: Write) -> None:
    peaks = []
    for count in (20_000, 200_000):
        for name in ("a.jsonl", "b.jsonl"):
            digests = f'"digests":{{"case":"{0:012}","target":"t","agentv":"1"'
            lines = (
                f'{{"eval_id":"case-{n:08}","score":0.{n % 10},{digests},"evaluators":"{n:012}"}}}}\n'
                for n in range(count)
            )
            write(name, "".join(lines))
        ran = subprocess.run(
            [sys.executable, "-c", PEAK, "a.jsonl", "b.jsonl"], capture_output=True, text=True, check=True
        )
        peaks.append(int(ran.stdout) / 1024)
    assert json.loads(Path("out.json").read_text())["summary"]["matched"] == 200_000
    assert peaks[1] - peaks[0] < 40
