"""`agentv labels`: labels from a table, and their status."""

import csv
import json
from pathlib import Path

import pytest

from agentv.results.answer_digest import text_digest
from agentv.trust.labels.file import read_labels
from tests.kits.labels import a_label, a_result, judged, refused, run
from tests.kits.project import Write, flat


def test_labels_of_a_spreadsheet(write: Write) -> None:
    text = "\ufeffEval_ID;Dataset;Trial;Answer;LABEL;Score;Reviewer;Sampling;Colour\r\n"
    text += 'a;geo;2;"Paris; ""la""\nville";Pass;0,5;ann;Random;red\r\n\r\nb;;;Rome;FAIL;;;;\r\nc;;;Oslo;;;;;\r\n'
    write("x.csv", text)
    ran = run("labels", "import", "x.csv")
    assert ran.stdout == "2 labels added to .agentv/labels.jsonl\n1 row without a label skipped\n"
    rows = [json.loads(line) for line in Path(".agentv/labels.jsonl").read_text().splitlines()]
    first = {"eval_id": "a", "dataset": "geo", "trial": 2, "label": "pass", "score": 0.5, "reviewer": "ann"}
    assert rows[0] == first | {"answer_digest": text_digest('Paris; "la"\nville'), "sampling": "random"}
    second = {"eval_id": "b", "dataset": "", "trial": 1, "label": "fail", "answer_digest": text_digest("Rome")}
    assert rows[1] == second


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_any_delimiter(write: Write, delimiter: str) -> None:
    write(
        "x.csv", delimiter.join(["eval_id", "answer_digest", "label"]) + "\n" + delimiter.join(["a", "0" * 16, "pass"])
    )
    assert run("labels", "import", "x.csv", "--labels", "y.jsonl").stdout == (
        "1 label added to y.jsonl\nno label has sampling 'random': 'agentv judge' cannot estimate a pass rate from these labels\n"
    )
    assert [label.eval_id for label in read_labels(Path("y.jsonl"))] == ["a"]


def test_an_export_of_agentv_with_a_column_of_labels(write: Write) -> None:
    """Its scores are those of the evaluators, and answers that look like formulas begin with an apostrophe."""
    answers = {"a": "- Paris", "-b": " =1+1", "c": "\ttab", "d": "'quoted'", "e": "two\r\nlines"}
    write("results.jsonl", [a_result(name, "fail", answer) for name, answer in answers.items()])
    run("export", "results.jsonl", "--to", "csv", "--out", "x.csv")
    with open("x.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert dict(zip(head, rows[0], strict=True))["candidate_answer"] == "'- Paris"
    with open("x.csv", "w", newline="") as file:
        csv.writer(file).writerows([[*head, "label"], *([*row, "pass"] for row in rows)])
    assert "scores not imported" in run("labels", "import", "x.csv").stdout
    labels = list(read_labels(Path(".agentv/labels.jsonl")))
    assert {label.score for label in labels} == {None}
    assert judged("results.jsonl")["labels"]["used"] == len(answers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id,verdict\na,pass\n",
            ":1: no column 'label', no column 'answer_digest' or 'answer' or 'candidate_answer'\nhint: available columns: 'id', 'verdict'",
        ),
        ("label,answer\npass,x\n", ":1: no column 'eval_id' or 'id'\nhint: available columns: 'label', 'answer'"),
        ("eval_id,answer,label\na,x,maybe\n", ":2:1: label: unknown label 'maybe'\nhint: one of fail, pass"),
        ("eval_id,answer,label\na,x,pass\n,y,fail\n", ":3:1: eval_id: must not be empty"),
        ("eval_id,answer,label,trial\na,x,pass,two\n", ":2:1: trial: expected an integer, got a string"),
        ("eval_id,answer,label,score\na,x,pass,7\n", ":2:1: score: must be at most 1, got 7.0"),
        ("eval_id,answer_digest,label\na,xyz,pass\n", ":2: answer_digest: 'xyz' is not a digest"),
        ("eval_id,label,label,answer\na,pass,fail,x\n", ":1: duplicate columns: 'label'"),
        ("eval_id,label,LABEL,answer\na,pass,fail,x\n", ":1: duplicate columns: 'label'"),
        ("eval_id,answer,label\na,x,\n", ": no row has a label"),
        ("eval_id,answer,label\n", ": no row has a label"),
        ("", ": the file has no rows"),
        ('{"eval_id": "a"}\n', ": this is JSON, not a table\nhint: pass a CSV file"),
        (
            'eval_id,answer,label\na,"x,pass\n',
            ":2: the row that starts here cannot be read: unclosed quote",
        ),
        (b"eval_id,answer,label\na,\xff,pass\n", ": not UTF-8 text\nhint: save the file as UTF-8"),
    ],
)
def test_a_table_that_has_no_labels(write: Write, text: str | bytes, message: str) -> None:
    write("x.csv", text)
    assert f"error: x.csv{message}" in refused("labels", "import", "x.csv")
    assert not Path(".agentv").exists()


def test_a_missing_table(write: Write) -> None:
    assert "error: x.csv: no such file" in refused("labels", "import", "x.csv")


def test_all_rows_or_none(write: Write) -> None:
    write("x.csv", "eval_id,answer,label\na,x,pass\nb,y,good\nc,z,bad\n")
    said = refused("labels", "import", "x.csv")
    assert "x.csv:3:1: label: unknown label 'good'" in said and "x.csv:4:1: label: unknown label 'bad'" in said
    assert not Path(".agentv/labels.jsonl").exists()


def test_the_status_of_labels(write: Write) -> None:
    write("results.jsonl", [a_result("a"), a_result("b"), a_result("c"), a_result("d", answer="new")])
    labels = [
        *(a_label(name, "pass", reviewer="ann", sampling="random") for name in "abcd"),
        a_label("a", "fail", reviewer="ann", sampling="random"),
        a_label("a", "fail", reviewer="bob"),
        a_label("b", "pass", reviewer="bob"),
        a_label("c", "fail", reviewer="bob"),
        a_label("z", "pass"),
    ]
    write(".agentv/labels.jsonl", labels)
    status = json.loads(run("labels", "status", "results.jsonl", "--format", "json").stdout)
    counts = {name: status[name] for name in ("lines", "superseded", "used", "answers", "random", "stale", "unmatched")}
    assert counts == {
        "lines": 9,
        "superseded": 1,
        "used": 6,
        "answers": 3,
        "random": 3,
        "stale": 1,
        "unmatched": 1,
    }
    assert status["reviewers"] == [
        {"reviewer": "ann", "labels": 3, "passes": 2, "stale": 1, "unmatched": 0},
        {"reviewer": "bob", "labels": 3, "passes": 1, "stale": 0, "unmatched": 0},
        {"reviewer": None, "labels": 0, "passes": 0, "stale": 0, "unmatched": 1},
    ]
    (pair,) = status["pairs"]
    assert (pair["reviewers"], pair["answers"]) == (["ann", "bob"], 3)
    assert pair["agreement"]["value"] == pytest.approx(2 / 3)
    assert pair["kappa"]["value"] == pytest.approx(0.4)
    assert status["alpha"]["value"] == pytest.approx(1 - 5 * 2 / (6 * 6 - 3 * 3 - 3 * 3))


def test_the_status_on_screen(write: Write) -> None:
    write("results.jsonl", [a_result("a"), a_result("b")])
    labels = [
        a_label(name, word, reviewer=who) for who in ("ann", "bob") for name, word in (("a", "pass"), ("b", "fail"))
    ]
    write(".agentv/labels.jsonl", labels)
    printed = run("labels", "status", "results.jsonl").stdout
    assert printed.startswith("LABELS\n  4 labels for 2 answers in 2, 0 sampled at random\n")
    assert "  ann       2       1     1     0      0\n" in printed
    assert "  ann and bob, 2 answers\n    agreement  1.000, 95% interval 0.342 to 1.000\n" in printed
    assert "alpha, all reviewers: 1.000, no interval: all ratings agree" in flat(printed)
    assert max(map(len, printed.splitlines())) <= 60


def test_retracted_labels_are_counted_and_not_used(write: Write) -> None:
    write("results.jsonl", [a_result("a"), a_result("b")])
    lines = [
        a_label("a", "fail", reviewer="ann"),
        a_label("a", "retracted", reviewer="ann"),
        a_label("b", reviewer="ann"),
    ]
    write("x.jsonl", lines)
    status = json.loads(run("labels", "status", "results.jsonl", "--labels", "x.jsonl", "--format", "json").stdout)
    assert (status["lines"], status["superseded"], status["used"]) == (2, 1, 1)
    assert "replaced or retracted" in run("labels", "status", "results.jsonl", "--labels", "x.jsonl").stdout
    assert judged("results.jsonl", "--labels", "x.jsonl")["labels"]["used"] == 1


def test_the_status_of_labels_of_other_cases(write: Write) -> None:
    write("results.jsonl", [a_result("a")])
    write("x.jsonl", [a_label("z")])
    status = json.loads(run("labels", "status", "results.jsonl", "--labels", "x.jsonl", "--format", "json").stdout)
    assert (status["used"], status["unmatched"]) == (0, 1)
    assert status["alpha"]["note"] == "undefined: no item was rated twice"


def test_the_status_without_labels(write: Write) -> None:
    write("results.jsonl", [a_result("a")])
    assert "no labels: the file does not exist" in refused("labels", "status", "results.jsonl")
    write("x.jsonl", [a_label()])
    assert "nowhere.jsonl: no such file" in refused("labels", "status", "nowhere.jsonl", "--labels", "x.jsonl")
