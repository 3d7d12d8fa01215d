"""`agentv compare` with human labels: the difference of the pass rates that humans would give."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agentv import compare_results
from agentv.results.answer_digest import text_digest
from agentv.stats.correction import PairedCases, labelled_difference, powered_difference
from tests.kits.comparisons import compared, refused
from tests.kits.labels import a_label, a_result
from tests.kits.project import Write, agentv

KINDS = {(1, 1): 9, (1, 0): 1, (-1, -1): 2, (-1, 0): 2, (0, -1): 1, (0, 0): 25}
"""By how much the labels of a case differ, and the verdicts: how many such cases."""
REST = {1: 30, -1: 20, 0: 110}
"""The same of the verdicts on cases without labels."""
GROUPS = {
    **{PairedCases(1, 1, 1, d, f, 0): times for (d, f), times in KINDS.items()},
    **{PairedCases(1, 1, 0, 0, 0, f): times for f, times in REST.items()},
    PairedCases(1, 0, 0, 0, 0, 0): 50,
}
WORDS = {1: ("fail", "pass"), -1: ("pass", "fail"), 0: ("pass", "pass")}
Records = list[dict[str, Any]]


def two_runs(**label: Any) -> tuple[Records, Records, Records]:
    """The results of two runs that differ as `GROUPS` says, and the labels; of the same answers, there are some too."""
    first: Records = []
    second: Records = []
    labels: Records = []
    kinds = [(said, judged) for (said, judged), times in KINDS.items() for _ in range(times)]
    others = [(None, judged) for judged, times in REST.items() for _ in range(times)]
    for number, (said, judged) in enumerate([*kinds, *others]):
        for side, results in enumerate((first, second)):
            results.append(a_result(f"c{number}", WORDS[judged][side], f"answer {side}"))
            if said is not None:
                more = {"sampling": "random", "reviewer": "ann"} | label
                labels.append(a_label(f"c{number}", WORDS[said][side], f"answer {side}", **more))
    for number in range(50):
        first.append(a_result(f"s{number}", "fail", "the same"))
        second.append(a_result(f"s{number}", "pass", "the same"))
        labels += [a_label(f"s{number}", "pass", "the same", sampling="random")] if number < 20 else []
    return first, second, labels


def write_runs(write: Write, *records: Records) -> None:
    for name, lines in zip(("a.jsonl", "b.jsonl", ".agentv/labels.jsonl"), records, strict=True):
        write(name, lines)


def line_of(text: str) -> str:
    """The one line on labels."""
    (found,) = (line for line in text.splitlines() if line.removeprefix("- ").startswith("labels: "))
    return found


def test_the_difference_by_labels(write: Write) -> None:
    write_runs(write, *two_runs())
    found = compared("a.jsonl", "b.jsonl")
    alone, corrected = labelled_difference(GROUPS), powered_difference(GROUPS)
    for figure, expected in ((found["labels"].pop("difference"), alone), (found["labels"].pop("corrected"), corrected)):
        ends = expected.value, expected.ci_lower, expected.ci_upper
        assert (figure["value"], figure["ci_lower"], figure["ci_upper"]) == pytest.approx(ends)
        assert (figure["method"], figure["note"]) == (expected.method, "")
    assert found["labels"] == {"used": 80, "stale": 0, "cases": 40, "same_answers": 50, "of": 250, "notes": []}


def test_the_line_as_text(write: Write) -> None:
    write_runs(write, *two_runs())
    line = (
        "labels: pass rate Δ +0.120, 95% CI [−0.041, +0.281] by 40 cases labelled in both,"
        " corrected Δ +0.082, 95% CI [−0.051, +0.214] (50 of 250 cases have the same answer)"
    )
    assert line_of(agentv("compare", "a.jsonl", "b.jsonl").stderr) == line
    assert line_of(agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout) == line
    markdown = agentv("compare", "a.jsonl", "b.jsonl", "--format", "markdown").stdout
    assert f"- {line.replace('[', chr(92) + '[').replace(']', chr(92) + ']')}\n" in markdown
    several = agentv("compare", "a.jsonl", "b.jsonl", "a.jsonl", "--format", "table").stdout
    assert [text for text in several.splitlines() if text.startswith("labels: ")] == [
        line,
        "labels: the answers of both runs are identical",
    ]


def test_shards_of_a_run_and_another_file_of_labels(write: Write) -> None:
    first, second, labels = two_runs()
    write_runs(write, first, second, labels)
    whole = compared("a.jsonl", "b.jsonl")["labels"]
    Path(".agentv/labels.jsonl").rename("people.jsonl")
    write("a1.jsonl", first[:100])
    write("a2.jsonl", first[100:])
    assert "labels" not in compared("a1.jsonl", "a2.jsonl", "--vs", "b.jsonl")
    assert compared("a1.jsonl", "a2.jsonl", "--vs", "b.jsonl", "--labels", "people.jsonl")["labels"] == whole
    in_python = compare_results("a.jsonl", "b.jsonl", labels="people.jsonl").labels
    assert in_python and in_python["difference"]["value"] == whole["difference"]["value"]
    assert not compare_results("a.jsonl", "b.jsonl").labels


@pytest.mark.parametrize("gate", ["mean", "ci"])
def test_labels_change_nothing_else(write: Write, gate: str) -> None:
    first, second, labels = two_runs()
    of_a = text_digest("answer 0")
    worse = [{**label, "label": "pass" if label["answer_digest"] == of_a else "fail"} for label in labels]
    write_runs(write, first, second, worse)
    with_labels = agentv("compare", "a.jsonl", "b.jsonl", "--gate", gate)
    Path(".agentv/labels.jsonl").unlink()
    without = agentv("compare", "a.jsonl", "b.jsonl", "--gate", gate)
    assert with_labels.returncode == without.returncode
    found = json.loads(with_labels.stdout)
    assert found.pop("labels")["difference"]["ci_upper"] < -0.5
    assert found == json.loads(without.stdout)
    assert "labels" not in without.stdout + without.stderr
    said = with_labels.stderr.splitlines()
    assert [line for line in said if not line.startswith("labels: ")] == without.stderr.splitlines()


def test_labels_of_only_one_run_give_no_difference(write: Write) -> None:
    first, second, labels = two_runs()
    write_runs(write, first, second, labels[:80:2] + labels[80:])
    found = compared("a.jsonl", "b.jsonl")["labels"]
    why = "40 answers of A have labels, but none of B: label answers of both runs to the same cases"
    for figure in (found["difference"], found["corrected"]):
        assert figure == {"value": None, "ci_lower": None, "ci_upper": None, "method": "", "note": why}
    assert found["cases"] == found["used"] == 0
    assert line_of(agentv("compare", "a.jsonl", "b.jsonl").stderr) == f"labels: {why}"
    write(".agentv/labels.jsonl", labels[1:2])
    why = "1 answer of B has labels, but none of A: label answers of both runs to the same cases"
    assert line_of(agentv("compare", "a.jsonl", "b.jsonl").stderr) == f"labels: {why}"
    write(".agentv/labels.jsonl", labels[0:2:2] + labels[3:4])
    why = "no case has usable labels in both runs (A 1, B 1): label both answers to the same cases"
    assert line_of(agentv("compare", "a.jsonl", "b.jsonl").stderr) == f"labels: {why}"


def test_labels_that_cannot_be_used_are_counted(write: Write) -> None:
    first, second, labels = two_runs()
    labels[0]["sampling"] = "chosen"
    labels += [a_label("c1", "pass", "answer 0", reviewer="bob"), a_label("c9", "pass", "an earlier answer")]
    labels += [{**labels[4], "label": "retracted"}, {**labels[6], "evaluator": "polite", "label": "pass"}]
    write_runs(write, [*first, {**first[4], "target": "another"}], second, labels)
    found = compared("a.jsonl", "b.jsonl")["labels"]
    assert (found["cases"], found["used"], found["stale"], found["of"]) == (36, 72, 1, 249)
    assert found["notes"] == [
        "1 case with labels in both runs is not used: an answer was not sampled at random",
        "1 case with labels in both runs is not used: the labels of an answer are tied between pass and fail",
        "1 case is skipped: several results of a run have the same id and trial",
    ]
    assert f"note: labels: {found['notes'][0]}\n" in agentv("compare", "a.jsonl", "b.jsonl").stderr


def test_earlier_labels_are_not_a_random_sample_if_some_are_stale(write: Write) -> None:
    first, second, labels = two_runs(at="2026-11-16T12:00:00Z")
    write_runs(write, first, second, labels)
    assert compared("a.jsonl", "b.jsonl")["labels"]["cases"] == 40
    stale = a_label("c100", "pass", "an earlier answer", sampling="random", at="2026-11-16T12:00:00Z")
    write(".agentv/labels.jsonl", [*labels, stale])
    found = compared("a.jsonl", "b.jsonl")["labels"]
    assert (found["cases"], found["stale"], found["difference"]["value"]) == (0, 1, None)
    why = "an answer was labelled before its run, and other labels of that time are stale"
    assert found["notes"] == [f"40 cases with labels in both runs are not used: {why}"]


@pytest.mark.parametrize("by", ["trial", "conversation_id", "topic"])
def test_clustered_cases_count_as_one(write: Write, by: str) -> None:
    def twice(records: Records, is_label: bool = False) -> Records:
        found = []
        for record in records:
            for number, name in ((1, record["eval_id"]), (2, f"{record['eval_id']} again")):
                if by == "trial":
                    found.append({**record, "trial": number})
                elif is_label or by == "conversation_id":
                    found.append({**record, "eval_id": name, by: record["eval_id"]})
                else:
                    found.append({**record, "eval_id": name, "metadata": {"topic": record["eval_id"]}})
        return found

    first, second, labels = two_runs()
    write_runs(write, twice(first), twice(second), twice(labels, is_label=True))
    found = compared("a.jsonl", "b.jsonl", *(["--cluster", "topic"] if by == "topic" else []))["labels"]
    assert (found["cases"], found["same_answers"], found["of"]) == (80, 100, 500)
    for name, method in (("difference", labelled_difference), ("corrected", powered_difference)):
        once = method(GROUPS)
        assert found[name]["value"] == pytest.approx(once.value)
        assert found[name]["ci_lower"] == pytest.approx(once.ci_lower)


@pytest.mark.parametrize("labels", [[], [a_label("elsewhere", "pass")]], ids=["none", "of other cases"])
def test_labels_of_neither_run_are_skipped(write: Write, labels: Records) -> None:
    first, second, _ = two_runs()
    write_runs(write, first, second, labels)
    ran = agentv("compare", "a.jsonl", "b.jsonl")
    assert "labels" not in ran.stdout + ran.stderr
    if labels:
        named = agentv("compare", "a.jsonl", "b.jsonl", "--labels", ".agentv/labels.jsonl")
        assert named.returncode == 0
        assert ".agentv/labels.jsonl: no label matches a case of these runs\n" in named.stderr


def test_stale_labels_alone_are_reported(write: Write) -> None:
    first, second, _ = two_runs()
    write_runs(write, first, second, [a_label("c0", "pass", "an earlier answer")])
    assert compared("a.jsonl", "b.jsonl")["labels"]["stale"] == 1
    line = "labels: no labelled answer differs between the runs"
    assert line_of(agentv("compare", "a.jsonl", "b.jsonl").stderr) == line


def test_bad_labels(write: Write) -> None:
    first, second, labels = two_runs()
    write_runs(write, first, second, labels)
    assert refused("a.jsonl", "b.jsonl", "--labels", "none.jsonl") == (
        "error: none.jsonl: no labels: the file does not exist\n"
        "hint: create labels with 'agentv view --review' or 'agentv labels import FILE.csv', or choose another file with"
        " --labels\n"
    )
    what = "1: not a labels file\nhint: each line of a labels file has eval_id, answer_digest and label (pass or fail)"
    assert refused("a.jsonl", "b.jsonl", "--labels", "a.jsonl") == f"error: a.jsonl:{what}\n"
    write("empty.jsonl", "")
    assert "empty.jsonl: the file contains no labels" in refused("a.jsonl", "b.jsonl", "--labels", "empty.jsonl")
    write(".agentv/labels.jsonl", first)
    nobody_asked = agentv("compare", "a.jsonl", "b.jsonl")
    assert nobody_asked.returncode == 0
    assert "warning: .agentv/labels.jsonl:1: not a labels file (" in nobody_asked.stderr
    assert "labels" not in json.loads(nobody_asked.stdout)


def test_a_pipe_is_compared_without_labels(write: Write) -> None:
    first, second, labels = two_runs()
    write_runs(write, first, second, labels)
    os.mkfifo("pipe.jsonl")
    whole = Path("b.jsonl").read_bytes()
    threading.Thread(target=lambda: Path("pipe.jsonl").write_bytes(whole), daemon=True).start()
    ran = agentv("compare", "a.jsonl", "pipe.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert (
        "warning: pipe.jsonl: labels are ignored: the file is not a regular file and can be read only once\n"
        in ran.stderr
    )


def test_cases_that_share_an_id_across_datasets_are_different(write: Write) -> None:
    datasets = ("geo", "math")
    first = [a_result("c", "fail", f"{dataset} before", dataset=dataset) for dataset in datasets]
    second = [a_result("c", "pass", f"{dataset} after", dataset=dataset) for dataset in reversed(datasets)]
    labels = []
    for dataset in datasets:
        labels.append(a_label("c", "fail", f"{dataset} before", dataset=dataset, sampling="random"))
        labels.append(a_label("c", "pass", f"{dataset} after", dataset=dataset, sampling="random"))
    write_runs(write, first, second, labels)
    found = compared("a.jsonl", "b.jsonl")["labels"]
    assert (found["of"], found["cases"], found["used"]) == (2, 2, 4)
    assert found["difference"]["value"] == 1.0
