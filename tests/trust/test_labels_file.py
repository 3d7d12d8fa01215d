"""The labels file: its labels are never lost, regardless of other writers."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.errors import OutputError, ResultsError
from agentv.log import collect_warnings
from agentv.redact import Redactor
from agentv.results.answer_digest import text_digest
from agentv.trust.labels.file import Label, append_labels, read_labels
from agentv.trust.labels.match import LabelBook, match_labels
from agentv.trust.labels.table import read_label_table
from tests.kits.labels import a_label, a_result
from tests.kits.project import PRINT_PEAK_KB, Write


def made(eval_id: str = "a", label: str = "pass", **more: Any) -> Label:
    return msgspec.convert(a_label(eval_id, label, **more), Label)


def test_a_digest_is_the_first_16_hex_digits_of_the_sha_256() -> None:
    assert text_digest("héllo\n") == hashlib.sha256("héllo\n".encode()).hexdigest()[:16]


def test_labels_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "labels.jsonl"
    first, second = made(note="a\nb"), made("b", "fail", score=0.25, evaluator="e", reviewer="ann", sampling="chosen")
    assert append_labels(path, [first]) == 1
    assert append_labels(path, [second, first]) == 2
    assert list(read_labels(path)) == [first, second, first]
    assert json.loads(path.read_text().splitlines()[0]) == a_label(note="a\nb")


def test_secrets_do_not_get_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    append_labels(path, [made(note="the key is sesame-open-1")], Redactor(["sesame-open-1"]))
    assert "sesame" not in path.read_text()
    assert next(read_labels(path)).note == "the key is ***"


def test_a_truncated_last_line_is_removed_before_appending(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    append_labels(path, [made("a")])
    with path.open("a") as file:
        file.write('{"eval_id": "b", "lab')
    with collect_warnings() as warnings:
        assert [label.eval_id for label in read_labels(path)] == ["a"]
        append_labels(path, [made("c")])
    assert [label.eval_id for label in read_labels(path)] == ["a", "c"]
    assert [problem.message for problem in warnings] == [
        "the last line is truncated (Invalid JSON: Unterminated string) and is skipped",
        "the last line was truncated and is removed",
    ]


def test_a_last_line_without_a_line_feed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("\ufeff" + json.dumps(a_label("a")))
    append_labels(path, [made("b")])
    assert [label.eval_id for label in read_labels(path)] == ["a", "b"]


APPEND = """
import sys
from pathlib import Path
from agentv.trust.labels.file import Label, append_labels
for number in range(100):
    append_labels(Path("labels.jsonl"), [Label(eval_id=f"{sys.argv[1]}{number}", answer_digest="0" * 16, label="pass")])
"""


def test_concurrent_writers_lose_nothing(write: Write) -> None:
    children = [subprocess.Popen([sys.executable, "-c", APPEND, name]) for name in ("ann", "bob")]
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    found = [label.eval_id for label in read_labels(Path("labels.jsonl"))]
    assert sorted(found) == sorted(f"{name}{number}" for name in ("ann", "bob") for number in range(100))


def test_a_full_disk_leaves_no_partial_label(write: Write) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from agentv.errors import OutputError
from agentv.trust.labels.file import Label, append_labels
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
label = Label(eval_id="a", answer_digest="0" * 16, label="pass", note="x" * 500)
append_labels(Path("labels.jsonl"), [label])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    append_labels(Path("labels.jsonl"), [label, label])
except OutputError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == "labels.jsonl: labels cannot be written: File too large\n"
    assert len(list(read_labels(Path("labels.jsonl")))) == 1


def test_a_retracted_label_does_not_count() -> None:
    ann, bob = {"reviewer": "ann"}, {"reviewer": "bob"}
    labels = [made(**ann), made(**bob), made(label="retracted", **ann), made("b", "retracted", **ann)]
    book = LabelBook(labels)
    assert (book.labels, book.lines) == ((labels[1],), 2)
    again = LabelBook([*labels, made(label="fail", **ann)])
    assert [(label.reviewer, label.label) for label in again.labels] == [("bob", "pass"), ("ann", "fail")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.touch(mode=0o444)
    with pytest.raises(OutputError, match="labels cannot be written: Permission denied"):
        append_labels(path, [made()])


def test_a_folder_is_not_a_labels_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="labels cannot be written: Is a directory"):
        append_labels(tmp_path, [made()])


def test_all_problems_are_reported_together(write: Write) -> None:
    path = write("x.jsonl", [a_label(), a_label(label="good"), a_label(score=2), {"label": "pass"}])
    with pytest.raises(ResultsError) as error:
        list(read_labels(path))
    assert [(problem.line, problem.message) for problem in error.value.problems] == [
        (2, "label: unknown label 'good'"),
        (3, "score: must be at most 1, got 2"),
        (4, "missing eval_id"),
        (4, "missing answer_digest"),
    ]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(CELLS, CELLS.filter(str.strip))
def test_any_answer_in_a_table_is_the_answer_that_was_labelled(folder: Path, answer: str, id_: str) -> None:
    """Whatever it holds: quotes, line breaks, delimiters."""
    path = folder / "x.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["eval_id", "answer", "label"], [id_, answer, "pass"]])
    (label,) = read_label_table(path).labels
    assert label.eval_id == id_.strip() or id_.strip().startswith("'")
    assert label.answer_digest == text_digest(answer) or answer.startswith("'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table")


def test_a_label_without_a_dataset_applies_to_any(write: Write) -> None:
    path = write("results.jsonl", [a_result("a"), a_result("b", dataset="other")])
    found = match_labels(path, LabelBook([made("a", dataset=""), made("b", dataset=""), made("b")]))
    assert [len(answer.labels) for answer in found.answers] == [1, 1]
    assert [label.dataset for label in found.unmatched] == ["geo"]


def test_each_reviewer_has_one_vote(write: Write) -> None:
    """Though they named the dataset only once; the last label counts."""
    path = write("results.jsonl", [a_result("a")])
    labels = [made("a"), made("a", dataset=""), made("a", "fail"), made("a", reviewer="bob")]
    (answer,) = match_labels(path, LabelBook(labels)).answers
    assert [(label.reviewer, label.label) for label in answer.labels] == [(None, "fail"), ("bob", "pass")]


def test_two_targets_may_give_the_same_answer(write: Write) -> None:
    path = write(
        "results.jsonl", [a_result("a", target="x"), a_result("a", "fail", target="y"), a_result("a", answer="Rome")]
    )
    found = match_labels(path, LabelBook([made("a")]))
    assert [answer.passed for answer in found.answers] == [True, False]
    assert list(found.stale) == []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_results(write: Write) -> None:
    """Forty megabytes of answers, of which two have labels."""
    row = json.dumps(a_result("case-0", answer="x" * 2000))
    (few, many) = (
        write(f"{n}.jsonl", "".join(row.replace("case-0", f"case-{k}") + "\n" for k in range(n))) for n in (200, 20000)
    )
    write("labels.jsonl", [a_label("case-1", answer="x" * 2000), a_label("case-150", answer="x" * 2000)])
    peaks = []
    for path in (few, many):
        code = f"""
from pathlib import Path
from agentv.trust.labels.file import read_labels
from agentv.trust.labels.judge import judge_figures
from agentv.trust.labels.match import LabelBook
assert judge_figures(Path({str(path)!r}), LabelBook(read_labels(Path("labels.jsonl"))), None).labels.used == 2
{PRINT_PEAK_KB}
"""
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
        peaks.append(int(ran.stdout))
    assert peaks[1] - peaks[0] < 6000
