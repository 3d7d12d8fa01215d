"""`agentv judge`: the agreement of a judge with labels."""

import json
from typing import Any

import pytest

from agentv.stats.pass_rates import wilson
from tests.kits.labels import a_judged_run, a_label, a_result, judged, refused, run
from tests.kits.project import Write, flat
from tests.kits.runs import MOCK, evaluate

CELLS = {("pass", "pass"): 28, ("fail", "pass"): 2, ("pass", "fail"): 2, ("fail", "fail"): 8}
REST = {"pass": 100, "fail": 60}


def values(figure: dict[str, Any]) -> list[float]:
    return [figure["value"], figure["ci_lower"], figure["ci_upper"]]


def test_the_figures_of_a_judge(write: Write) -> None:
    a_judged_run(write, CELLS, REST)
    found = judged("results.jsonl")
    assert values(found["agreement"]) == pytest.approx([0.9, *wilson(36, 40)])
    assert values(found["sensitivity"]) == pytest.approx([28 / 30, *wilson(28, 30)])
    assert values(found["specificity"]) == pytest.approx([0.8, *wilson(8, 10)])
    assert values(found["base_rate"]) == pytest.approx([0.75, *wilson(30, 40)])
    assert values(found["pass_rate"]["labels"]) == pytest.approx([0.75, *wilson(30, 40)])
    assert values(found["pass_rate"]["judge"]) == pytest.approx([0.65, *wilson(130, 200)])
    assert found["kappa"]["value"] == pytest.approx((0.9 - 0.625) / 0.375)
    assert found["kappa"]["ci_lower"] < found["kappa"]["value"] < found["kappa"]["ci_upper"]
    corrected = found["pass_rate"]["corrected"]
    assert corrected["method"].startswith("prediction-powered")
    assert corrected["ci_lower"] < corrected["value"] < corrected["ci_upper"]
    assert corrected["ci_upper"] - corrected["ci_lower"] < wilson(30, 40)[1] - wilson(30, 40)[0]
    assert found["labels"] == {
        "used": 40,
        "answers": 40,
        "random": 40,
        "disputed": 0,
        "unjudged": 0,
        "stale": 0,
        "unmatched": 0,
        "source": "this run",
    }


def test_the_section_as_text(write: Write) -> None:
    a_judged_run(write, CELLS, REST)
    printed = run("judge", "results.jsonl").stdout
    assert printed.startswith(
        "JUDGE\n  40 labels for 40 answers, 40 sampled at random\n  agreement    0.900, 95% interval"
    )
    assert "  pass rate\n    by the judge   0.650, 95% interval 0.582 to 0.713\n" in printed
    assert "corrected by: prediction-powered" in flat(printed)
    assert max(map(len, printed.splitlines())) <= 60


def test_only_randomly_sampled_labels_estimate_the_pass_rate(write: Write) -> None:
    a_judged_run(write, CELLS, REST, sampling="chosen")
    found = judged("results.jsonl")
    assert found["agreement"]["value"] == 0.9
    assert found["labels"]["random"] == 0
    nothing = "no label is for an answer that was sampled at random from this run"
    for figure in (found["pass_rate"]["labels"], found["pass_rate"]["corrected"]):
        assert values(figure) == [None, None, None]
        assert figure["note"] == nothing
    assert found["notes"] == [
        "40 of 40 labelled answers were not sampled at random and are not used for pass rates",
    ]


def test_stale_labels_are_counted_and_not_used(write: Write) -> None:
    write("results.jsonl", [a_result("a"), a_result("b", answer="Rome"), a_result("c", "fail")])
    write(".agentv/labels.jsonl", [a_label("a"), a_label("b", "fail"), a_label("c", "fail"), a_label("z")])
    found = judged("results.jsonl")
    assert {name: found["labels"][name] for name in ("used", "stale", "unmatched")} == {
        "used": 2,
        "stale": 1,
        "unmatched": 1,
    }
    assert found["agreement"]["value"] == 1.0


def test_a_label_is_for_its_trial_and_dataset(write: Write) -> None:
    trials = [a_result("a", trial=1), a_result("a", "fail", trial=2), a_result("a", dataset="other")]
    write("results.jsonl", trials)
    write(".agentv/labels.jsonl", [a_label("a", "fail", trial=2), a_label("a", trial=3)])
    found = judged("results.jsonl")
    assert (found["labels"]["used"], found["labels"]["unmatched"]) == (1, 1)
    assert (found["agreement"]["value"], found["base_rate"]["value"]) == (1.0, 0.0)


def test_unlabelled_trials_of_a_labelled_case_add_no_information(write: Write) -> None:
    """The judge is always right and both trials agree, so verdicts on the second add no information."""
    words = ["pass"] * 30 + ["fail"] * 10
    trials = [a_result(f"c{n}", word, trial=trial) for n, word in enumerate(words) for trial in (1, 2)]
    labels = [a_label(f"c{n}", word, sampling="random") for n, word in enumerate(words)]
    write("results.jsonl", trials)
    write(".agentv/labels.jsonl", labels)
    together = judged("results.jsonl")["pass_rate"]
    write(
        "results.jsonl", [{**trial, "eval_id": f"{trial['eval_id']}{trial['trial']}", "trial": 1} for trial in trials]
    )
    write(".agentv/labels.jsonl", [{**label, "eval_id": f"{label['eval_id']}1"} for label in labels])
    apart = judged("results.jsonl")["pass_rate"]

    def width(figure: dict[str, Any]) -> float:
        return float(figure["ci_upper"] - figure["ci_lower"])

    assert width(together["labels"]) == pytest.approx(width(apart["labels"]))
    assert width(apart["corrected"]) < 0.9 * width(apart["labels"])
    assert width(together["corrected"]) > 0.95 * width(together["labels"])


def test_the_last_label_of_a_reviewer_counts_and_the_majority_of_several(write: Write) -> None:
    write("results.jsonl", [a_result("a"), a_result("b", "fail"), a_result("c"), a_result("d")])
    labels = [
        a_label("a", "fail", reviewer="ann"),
        a_label("a", "pass", reviewer="ann"),
        *(a_label("b", word, reviewer=name) for name, word in (("ann", "fail"), ("bob", "fail"), ("cy", "pass"))),
        *(a_label("c", word, reviewer=name) for name, word in (("ann", "fail"), ("bob", "pass"))),
    ]
    write(".agentv/labels.jsonl", labels)
    found = judged("results.jsonl")
    assert found["agreement"]["value"] == 1.0
    assert (found["labels"]["used"], found["labels"]["answers"], found["labels"]["disputed"]) == (4, 2, 1)


def test_labels_for_one_evaluator(write: Write) -> None:
    part = {"name": "polite", "type": "llm_judge", "score": 0.0, "weight": 1.0, "verdict": "fail"}
    both = a_result("a")
    both["evaluator_results"].append(part)
    write("results.jsonl", [both, a_result("b", "fail")])
    labels = [a_label("a", "fail", evaluator="polite"), a_label("a", "pass"), a_label("b", "fail")]
    write(".agentv/labels.jsonl", labels)
    assert judged("results.jsonl", "--evaluator", "polite")["labels"]["used"] == 1
    assert judged("results.jsonl", "--evaluator", "polite")["agreement"]["value"] == 1.0
    of_case = judged("results.jsonl", "--evaluator", "correct")
    assert of_case["labels"]["used"] == 2
    assert of_case["notes"][0] == "no label is for evaluator 'correct': the labels of the whole case are used"
    assert judged("results.jsonl")["labels"]["used"] == 2


@pytest.mark.parametrize(
    ("bar", "code", "verdict"), [("0.3", 0, "reached"), ("0.75", 3, "undecided"), ("0.95", 1, "missed")]
)
def test_min_kappa_sets_the_exit_code(write: Write, bar: str, code: int, verdict: str) -> None:
    a_judged_run(write, CELLS, REST)
    assert judged("results.jsonl", "--min-kappa", bar, expect=code)["bar"]["verdict"] == verdict
    said = {"reached": "yes", "missed": "no", "undecided": "undecided, more labels are needed"}[verdict]
    assert (
        f"kappa of at least {bar}: {said} (0.733"
        in run("judge", "results.jsonl", "--min-kappa", bar, expect=code).stderr
    )


def test_kappa_is_undefined_if_everyone_passes_everything(write: Write) -> None:
    a_judged_run(write, {("pass", "pass"): 12}, {"pass": 5})
    found = judged("results.jsonl", "--min-kappa", "0.5", expect=3)
    assert found["kappa"]["value"] is None
    assert found["kappa"]["note"].startswith("undefined: both always say 'pass', so agreement by chance is certain")
    assert found["specificity"]["note"] == "no label is 'fail'"
    assert found["pass_rate"]["corrected"]["ci_lower"] < 1
    assert "NaN" not in json.dumps(found)
    assert "no label is 'fail'" in run("judge", "results.jsonl").stdout


def test_one_label_is_enough_for_wide_intervals(write: Write) -> None:
    a_judged_run(write, {("pass", "pass"): 1}, {"pass": 5, "fail": 5})
    found = judged("results.jsonl")
    assert values(found["agreement"]) == pytest.approx([1.0, *wilson(1, 1)])
    corrected = found["pass_rate"]["corrected"]
    assert corrected["ci_upper"] - corrected["ci_lower"] > 0.5


def test_when_every_answer_has_a_label_nothing_is_corrected(write: Write) -> None:
    a_judged_run(write, CELLS, {})
    note = judged("results.jsonl")["pass_rate"]["corrected"]["note"]
    assert note == "every answer has a label: the pass rate is that of the labels"


def test_trials_of_a_case_count_once(write: Write) -> None:
    """Ten agreeing trials of one case contain less information than ten cases."""
    alone = [a_result(f"c{n}", "pass" if n % 2 else "fail") for n in range(40)]
    trials = [a_result(f"c{n % 4}", "pass" if n % 2 else "fail", trial=n // 4 + 1) for n in range(40)]
    widths = []
    for rows in (alone, trials):
        write("results.jsonl", rows)
        labels = [a_label(row["eval_id"], row["verdict"], trial=row.get("trial", 1), sampling="random") for row in rows]
        write(".agentv/labels.jsonl", labels[:30])
        found = judged("results.jsonl")
        widths.append(1 - found["agreement"]["ci_lower"])
        widths.append(found["pass_rate"]["corrected"]["ci_upper"] - found["pass_rate"]["corrected"]["ci_lower"])
    assert widths[2] > 2 * widths[0]
    assert widths[3] > 2 * widths[1]


def other_run(write: Write, name: str, rows: list[dict[str, Any]]) -> None:
    write(f"{name}.jsonl", rows)
    record = {"run_id": name, "status": "done", "started": "2026-11-16T08:00:00Z", "results": f"{name}.jsonl"}
    write(f".agentv/runs/{name}.json", json.dumps(record))


def judged_elsewhere(write: Write, **more: Any) -> None:
    """A run without labels, and an earlier one whose answers have labels."""
    cells = {("pass", "pass"): 36, ("fail", "pass"): 4, ("pass", "fail"): 8, ("fail", "fail"): 32}
    pairs = [pair for pair, count in cells.items() for _ in range(count)]
    other_run(write, "old", [a_result(f"c{n}", verdict, "old", **more) for n, (verdict, _) in enumerate(pairs)])
    write(
        ".agentv/labels.jsonl", [a_label(f"c{n}", word, "old", sampling="random") for n, (_, word) in enumerate(pairs)]
    )
    write("new.jsonl", [a_result(f"c{n}", "pass" if n < 60 else "fail", "new") for n in range(80)])


def test_labels_of_other_runs_give_rogan_gladen_and_are_named_so(write: Write) -> None:
    judged_elsewhere(write)
    found = judged("new.jsonl")
    assert found["labels"]["source"] == "other runs"
    assert (found["labels"]["used"], found["labels"]["stale"], found["labels"]["random"]) == (80, 80, 0)
    corrected = found["pass_rate"]["corrected"]
    assert corrected["method"].startswith("Rogan-Gladen")
    assert corrected["value"] == pytest.approx((0.75 + 0.8 - 1) / 0.7)
    assert (found["sensitivity"]["value"], found["specificity"]["value"]) == (0.9, 0.8)
    assert found["pass_rate"]["labels"]["value"] is None
    printed = flat(run("judge", "new.jsonl").stdout)
    assert "80 labels for 80 answers of other runs, 0 sampled at random" in printed
    assert "Rogan-Gladen, labels of other runs" in printed
    assert "is valid only if the judge errs as often in this run" in printed


def test_labels_of_the_same_run_take_precedence(write: Write) -> None:
    judged_elsewhere(write)
    with open(".agentv/labels.jsonl", "a") as file:
        for number in (1, 70):
            file.write(json.dumps(a_label(f"c{number}", "pass", "new", sampling="random")) + "\n")
    found = judged("new.jsonl")
    assert (found["labels"]["source"], found["labels"]["used"]) == ("this run", 2)
    assert found["pass_rate"]["corrected"]["method"].startswith("prediction-powered")


def test_labels_for_another_judge_are_skipped(write: Write) -> None:
    digests = {"case": "1", "target": "1", "evaluators": "1", "judges": "another", "prompts": "1", "agentv": "1"}
    judged_elsewhere(write, digests=digests)
    assert "none of the 80 labels is for an answer of this run" in refused("judge", "new.jsonl")


def test_a_sample_with_stale_labels_is_no_longer_random(write: Write) -> None:
    """Labels of yesterday hold for the answers that have not changed, which may be the easy ones."""
    yesterday, later = "2026-11-16T08:00:00Z", "2026-11-17T09:00:00Z"
    write("results.jsonl", [a_result("a"), a_result("b", answer="new"), a_result("c"), a_result("d", "fail")])
    old = [a_label("a", at=yesterday, sampling="random"), a_label("b", at=yesterday, sampling="random")]
    write(".agentv/labels.jsonl", [*old, a_label("c", at=later, sampling="random")])
    found = judged("results.jsonl")
    assert (found["labels"]["used"], found["labels"]["random"], found["labels"]["stale"]) == (2, 1, 1)
    assert "1 labelled answers were labelled before this run" in " ".join(found["notes"])
    write(".agentv/labels.jsonl", [old[0], a_label("c", at=later, sampling="random")])
    assert judged("results.jsonl")["labels"]["random"] == 2


def test_answers_without_a_verdict_are_excluded(write: Write) -> None:
    broken = a_result("b", "fail", failure="judge")
    write("results.jsonl", [a_result("a"), broken, a_result("c", "fail", "", error="refused", failure="target")])
    write(".agentv/labels.jsonl", [a_label("a"), a_label("b"), a_label("c", answer="")])
    found = judged("results.jsonl")
    assert (found["labels"]["used"], found["labels"]["unjudged"], found["labels"]["stale"]) == (1, 1, 1)
    assert found["pass_rate"]["judge"]["value"] == 1.0
    assert found["notes"][-1] == "2 of 3 results have no verdict of the judge and are excluded from all pass rates"


def test_results_of_a_run_in_yaml(write: Write) -> None:
    write("targets.yaml", MOCK)
    case = {"expected_outcome": "x", "input": "y", "evaluators": [{"type": "contains", "value": "hello"}]}
    write("geo.jsonl", [{"id": "a"} | case, {"id": "b"} | case])
    evaluate("geo.jsonl", "--out", "out.yaml")
    write(".agentv/labels.jsonl", [a_label("a", answer="hello from default")])
    assert judged("out.yaml")["labels"]["used"] == 1


def test_no_labels_file(write: Write) -> None:
    write("results.jsonl", [a_result()])
    said = refused("judge", "results.jsonl")
    assert "error: .agentv/labels.jsonl: no labels: the file does not exist\n" in said
    assert "agentv labels import FILE.csv" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [a_result()],
            "x.jsonl:1: not a labels file\nhint: each line of a labels file has eval_id, answer_digest",
        ),
        ("", "x.jsonl: the file contains no labels\n"),
        ("nonsense\n", "x.jsonl:1:1: Invalid JSON: Expecting value\n"),
        (
            [a_label(label="maybe")],
            "x.jsonl:1:85: label: unknown label 'maybe'\nhint: one of fail, pass, retracted\n",
        ),
        ([a_label(), a_label(trial=0)], "x.jsonl:2:36: trial: must be at least 1, got 0\n"),
        ([a_label(sampling="all")], "x.jsonl:1:102: sampling: unknown sampling 'all'\nhint: one of chosen, random\n"),
        ([a_label(answer_digest="abc")], "x.jsonl:1: answer_digest: 'abc' is not a digest\n"),
        ('{"eval_id": "a", "label"\n' + json.dumps(a_label()) + "\n", "x.jsonl:1:26: Invalid JSON"),
    ],
)
def test_an_invalid_labels_file(write: Write, content: Any, message: str) -> None:
    write("results.jsonl", [a_result()])
    write("x.jsonl", content)
    assert message in refused("judge", "results.jsonl", "--labels", "x.jsonl")


def test_labels_of_no_answer_of_this_run(write: Write) -> None:
    write("results.jsonl", [a_result("a"), a_result("b")])
    write("stale.jsonl", [a_label("a", answer="Rome"), a_label("b", answer="Oslo")])
    said = refused("judge", "results.jsonl", "--labels", "stale.jsonl")
    assert "none of the 2 labels is for an answer of this run: 2 for other answers to its cases (stale)\n" in said
    assert "hint: label answers of this run" in said


def test_a_single_label_that_is_stale_or_of_an_unknown_case(write: Write) -> None:
    write("results.jsonl", [a_result("a")])
    write("x.jsonl", [a_label("a", answer="Rome")])
    said = refused("judge", "results.jsonl", "--labels", "x.jsonl")
    assert "the only label is not for an answer of this run: 1 for other answers to its cases (stale)\n" in said
    write("x.jsonl", [a_label("z")])
    said = refused("judge", "results.jsonl", "--labels", "x.jsonl")
    assert "the only label is not for a case of this run: there is no case 'z'\n" in said


def test_unusable_labelled_answers(write: Write) -> None:
    write("results.jsonl", [a_result("a"), a_result("b", "fail", failure="judge")])
    write("x.jsonl", [a_label("a", reviewer="ann"), a_label("a", "fail", reviewer="bob"), a_label("b")])
    said = refused("judge", "results.jsonl", "--labels", "x.jsonl")
    assert "of 2 labelled answers can be used" in said
    assert "hint: 1 have no verdict of the judge, 1 have tied labels" in said


def test_ids_that_match_no_case(write: Write) -> None:
    write("results.jsonl", [a_result("a")])
    write("x.jsonl", [a_label("berlin"), a_label("rome")])
    said = refused("judge", "results.jsonl", "--labels", "x.jsonl")
    assert "none of the 2 labels is for a case of this run: there is no case 'berlin'" in said
    assert "the id, dataset and trial must match those of the results" in said


def test_labels_that_are_all_for_an_evaluator(write: Write) -> None:
    write("results.jsonl", [a_result("a")])
    write("x.jsonl", [a_label("a", evaluator="correct")])
    said = refused("judge", "results.jsonl", "--labels", "x.jsonl")
    assert "the labels of this run are for the evaluator 'correct'\nhint: --evaluator correct" in said


def test_an_unknown_evaluator(write: Write) -> None:
    a_judged_run(write, CELLS, REST)
    said = refused("judge", "results.jsonl", "--evaluator", "polite")
    assert "results.jsonl: no evaluator is named 'polite'\nhint: evaluators of this run: 'correct'" in said


@pytest.mark.parametrize("bar", ["2", "-1.5", "nan", "high"])
def test_an_invalid_min_kappa(write: Write, bar: str) -> None:
    a_judged_run(write, CELLS, REST)
    assert "invalid value for '--min-kappa'" in refused("judge", "results.jsonl", f"--min-kappa={bar}")


def test_results_without_answers(write: Write) -> None:
    write("results.jsonl", [a_result(answer=None)])
    write(".agentv/labels.jsonl", [a_label()])
    for command in (("judge",), ("labels", "status")):
        assert "results.jsonl: no result has an answer\nhint: labels refer to answers" in refused(
            *command, "results.jsonl"
        )


def test_invalid_results(write: Write) -> None:
    write(".agentv/labels.jsonl", [a_label()])
    assert "nowhere.jsonl: no such file" in refused("judge", "nowhere.jsonl")
    write("empty.jsonl", "")
    assert "empty.jsonl: the file contains no results" in refused("judge", "empty.jsonl")
    write("bad.jsonl", "{}\n" + json.dumps(a_result()) + "\n")
    assert "bad.jsonl:1:1: missing eval_id" in refused("judge", "bad.jsonl")


def test_a_truncated_last_line_is_a_warning(write: Write) -> None:
    write("results.jsonl", "".join(json.dumps(a_result(name)) + "\n" for name in "ab") + '{"timestamp":"2026')
    write(".agentv/labels.jsonl", json.dumps(a_label("a")) + "\n" + '{"eval_id": "b", "lab')
    ran = run("judge", "results.jsonl")
    assert "warning: .agentv/labels.jsonl:2: the last line is truncated" in ran.stderr
    assert "warning: results.jsonl:3: the last line is truncated" in ran.stderr
    assert "1 label for 1 answer" in ran.stdout


def test_the_shards_of_a_run_are_judged_as_one(write: Write) -> None:
    """Several files are merged as they are read, with the checks of `agentv merge`."""
    write("targets.yaml", MOCK)
    cases = "".join(f"  - {{id: c{number}, outcome: x, input: q{number}}}\n" for number in range(8))
    write("evals/a.yaml", f"evaluators: [{{type: contains, value: hello}}]\nevalcases:\n{cases}")
    for shard in ("1", "2", "3"):
        run("eval", "evals", "--shard", f"{shard}/3", "--out", f"{shard}.jsonl", "--quiet")
    run("merge", "1.jsonl", "2.jsonl", "3.jsonl", "--out", "whole.jsonl")
    rows = "".join(
        f"c{number},hello from default,{'fail' if number % 3 else 'pass'},ann,random\n" for number in range(6)
    )
    write("labels.csv", f"eval_id,answer,label,reviewer,sampling\n{rows}")
    run("labels", "import", "labels.csv")
    for command in (("judge",), ("labels", "status")):
        whole = run(*command, "whole.jsonl")
        assert "6 labels for 6 answers" in whole.stdout
        assert run(*command, "3.jsonl", "1.jsonl", "2.jsonl").stdout == whole.stdout
        assert "of this run is missing" in refused(*command, "1.jsonl", "2.jsonl")
    assert judged("1.jsonl", "2.jsonl", "3.jsonl")["results"] == "1.jsonl and 2 more"
