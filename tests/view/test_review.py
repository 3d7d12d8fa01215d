"""Labelling through the command and plain sockets: permissions, sampling and invalid input."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentv.errors import AgentvError
from agentv.results.answer_digest import text_digest
from agentv.results.formats import YAML
from agentv.trust.review import MAX_NOTE, check_labels
from agentv.view.files import file_id
from agentv.view.review import KEPT_REVIEWS, read_answers
from agentv.view.serve import serving
from tests.kits.pages import a_result, an_error, save_results
from tests.kits.project import PRINT_PEAK_KB, agentv
from tests.kits.reviews import answered, labels_in
from tests.kits.viewer import Address, Reply, request, viewer

LABELS = Path(".agentv/labels.jsonl")


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def at() -> Iterator[Address]:
    save_results(Path("r.jsonl"), answered(6))
    with serving([Path("r.jsonl")]) as address:
        yield Address(address)


def begin(at: Address, **asked: Any) -> dict[str, Any]:
    reply = request(at, "/api/review", "POST", json.dumps(asked).encode())
    assert reply.status == 200, reply.text
    found: dict[str, Any] = json.loads(reply.body)
    return found


def label(at: Address, review: str, place: int, said: Any = None, **headers: str | None) -> Reply:
    body = json.dumps({"label": "pass"} if said is None else said).encode()
    return request(at, f"/api/review/{review}/{place}", "POST", body, **headers)


def refused(*args: str) -> str:
    ran = agentv("view", "--review", "--no-browser", *args)
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_a_label_needs_the_token_and_a_page_of_ours(at: Address) -> None:
    review = begin(at, reviewer="ann")["id"]
    assert label(at, review, 0, X_Agentv_Token=None).status == 403
    assert label(at, review, 0, Origin="https://evil.example").text == "requests from other sites are not allowed\n"
    assert label(at, review, 0, Origin="null").status == 403
    assert label(at, review, 0, Sec_Fetch_Site="cross-site").status == 403
    assert label(at, review, 0, Host="evil.example").status == 403
    body = json.dumps({"label": "pass"}).encode()
    assert request(at, f"/api/review/{review}/0?token={at.token}", "POST", body, X_Agentv_Token=None).status == 403
    for headers in ({"X_Agentv_Token": None}, {"Origin": "https://evil.example"}):
        assert request(at, "/api/review", "POST", b"{}", **headers).status == 403
    assert not LABELS.exists()
    assert label(at, review, 0).status == 200
    assert len(labels_in(LABELS)) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"label": "maybe"},
        {},
        [],
        {"label": "pass", "note": "x" * (MAX_NOTE + 1)},
        {"label": "pass", "note": 1},
        "pass",
    ],
)
def test_invalid_labels_are_not_written(at: Address, said: Any) -> None:
    reply = label(at, begin(at)["id"], 0, said)
    assert reply.status == 400 and "the request cannot be read" in reply.text
    assert not LABELS.exists()


def test_a_request_cannot_name_a_file_or_an_answer_that_is_not_in_its_review(at: Address) -> None:
    review = begin(at, labels="/tmp/elsewhere.jsonl", run=file_id(Path("r.jsonl").resolve()))["id"]
    assert label(at, review, 0, {"label": "pass", "labels": "x.jsonl", "eval_id": "other"}).status == 200
    (written,) = labels_in(LABELS)
    assert written["eval_id"].startswith("c") and sorted(path.name for path in Path().iterdir()) == [
        ".agentv",
        "r.jsonl",
    ]
    assert label(at, review, 6).text == "no such answer in this review\n"
    assert label(at, "0" * 16, 0).text == "this review has ended: reload the page\n"
    assert label(at, review, 1, {"label": "retracted"}).text == "there is no label to retract\n"
    assert request(at, f"/api/review/{review}/../0", "POST", b"{}").status == 404
    assert request(at, "/api/review", "POST", b'{"run": "' + b"0" * 16 + b'"}').status == 404
    assert request(at, "/api/review", "POST", b'{"reviewer": "' + b"x" * 101 + b'"}').status == 400
    assert request(at, "/api/review", "POST", b'{"share": 1.5}').status == 400
    assert request(at, f"/api/review/{review}/0", "POST", b"x" * (5 << 20)).status == 403
    assert len(labels_in(LABELS)) == 1


def test_viewers_and_reviewers_at_once_lose_nothing() -> None:
    """Two processes, and in each of them four reviewers who do not wait for each other."""
    save_results(Path("r.jsonl"), answered(12))

    def review_all(at: Address, name: str) -> None:
        review = begin(at, reviewer=name)
        assert all(label(at, review["id"], place).status == 200 for place in range(review["count"]))

    names = [f"reviewer {number}" for number in range(8)]
    with viewer("--review", "r.jsonl") as (_, one), viewer("--review", "r.jsonl") as (_, two):
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(review_all, [one, two] * 4, names))
        assert begin(one, reviewer=names[1])["labelled"] == 12
    written = [(each["reviewer"], each["eval_id"]) for each in labels_in(LABELS)]
    assert sorted(written) == sorted((name, f"c{number}") for name in names for number in range(12))


def test_abandoned_reviews_are_discarded(at: Address) -> None:
    first = begin(at)["id"]
    for _ in range(KEPT_REVIEWS):
        begin(at)
    assert label(at, first, 0).status == 409


def test_the_command_opens_the_review_of_the_newest_run() -> None:
    save_results(Path(".agentv/results/eval_1.jsonl"), answered(3))
    save_results(Path(".agentv/results/eval_2.jsonl"), answered(5))
    os.utime(".agentv/results/eval_1.jsonl", (1, 1))
    with viewer("--review", "--reviewer", "ann", "--share", "0.2") as (process, at):
        assert process.stdout and process.stdout.readline() == "Labels: .agentv/labels.jsonl\n"
        assert at.whole.startswith(f"{at.origin}/review#token=")
        assert json.loads(request(at, "/api/review").body) == {
            "labels": ".agentv/labels.jsonl",
            "reviewer": "ann",
            "only": "all",
            "share": 0.2,
        }
        assert begin(at)["count"] == 5
    with viewer("--review", ".agentv/results", "--failed", "--labels", "mine.jsonl") as (process, at):
        defaults = json.loads(request(at, "/api/review").body)
        assert (defaults["labels"], defaults["only"], defaults["share"]) == ("mine.jsonl", "failed", None)
        assert defaults["reviewer"] == subprocess.check_output(["id", "-un"], text=True).strip()
        assert begin(at, only="failed")["sampling"] == "chosen"
        assert begin(at)["count"] == 5  # answers that two runs share are one


def test_results_without_answers() -> None:
    save_results(Path("errors.jsonl"), [an_error("one"), a_result("two", candidate_answer=None)])
    said = "error: errors.jsonl: no result has an answer\nhint: labels refer to answers, which 'agentv eval' writes as 'candidate_answer'\n"
    assert refused("errors.jsonl") == said
    save_results(Path("some.jsonl"), answered(2))
    with viewer("--review", "errors.jsonl", "some.jsonl") as (_, at):
        assert begin(at)["count"] == 2
    Path("bad.jsonl").write_text(Path("some.jsonl").read_text() + '{"eval_id": 3}\n' + Path("some.jsonl").read_text())
    assert refused("bad.jsonl").startswith("error: bad.jsonl:3:2: eval_id: expected a string, got an integer\n")


def test_an_invalid_labels_file_is_an_error(at: Address) -> None:
    Path("labels.jsonl").write_text('{"id": "a", "question": "b"}\n')
    assert refused("r.jsonl", "--labels", "labels.jsonl") == (
        "error: labels.jsonl:1: not a labels file\n"
        "hint: each line of a labels file has eval_id, answer_digest and label (pass or fail)\n"
    )
    Path("folder").mkdir()
    assert "error: folder: " in refused("r.jsonl", "--labels", "folder")
    said = refused("r.jsonl", "--labels", "r.jsonl/labels.jsonl")
    assert "r.jsonl/labels.jsonl: " in said and "folder" in said
    LABELS.parent.mkdir()
    LABELS.write_text("[]\n")
    reply = request(at, "/api/review", "POST", b"{}")  # it has become none while the viewer runs
    assert reply.status == 409 and ".agentv/labels.jsonl:1:1: " in reply.text
    LABELS.write_text("")
    assert begin(at)["count"] == 6


@contextmanager
def without_rights() -> Iterator[Path]:
    """A folder that the process may not write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_missing_write_permission_is_reported_before_labelling() -> None:
    with without_rights() as folder, pytest.raises(AgentvError) as caught:
        check_labels(folder / "deep" / "labels.jsonl")
    assert caught.value.message == "labels cannot be written: Permission denied"
    assert caught.value.hint == "check the permissions, or choose another --labels"


def test_bad_options() -> None:
    save_results(Path("r.jsonl"), answered(2))
    assert "2.0 is not in the range 0<=x<=1" in refused("r.jsonl", "--share", "2")
    assert "no such file or folder" in refused("nowhere.jsonl")


def shown(at: Address, review: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(request(at, f"/api/review/{review['id']}/{n}").body) for n in range(review["count"])]


def test_secrets_are_masked_and_the_digest_is_that_of_the_answer() -> None:
    answer = "The key is sk-planted-0123456789."
    save_results(Path("r.jsonl"), [a_result("one", candidate_answer=answer)])
    with viewer("--review", "r.jsonl", env={**os.environ, "PLANTED_API_KEY": "sk-planted-0123456789"}) as (_, at):
        review = begin(at)
        (case,) = shown(at, review)
        assert case["answer"].startswith("The key is ") and "planted" not in case["answer"]
        assert label(at, review["id"], 0).status == 200
    assert [each["answer_digest"] for each in labels_in(LABELS)] == [text_digest(answer)]


def test_yaml_results() -> None:
    results = [a_result("one", candidate_answer="Zürich\nBern"), a_result("two", question="2?", reference_answer="R")]
    Path("r.yaml").write_bytes(b"".join(YAML.encode(msgspec.json.encode(each)) for each in results))
    with serving([Path("r.yaml")]) as address:
        at = Address(address)
        review = begin(at)
        cases = sorted(shown(at, review), key=lambda case: case["answer"])
        for place in (0, 1):
            assert label(at, review["id"], place).status == 200
    fields = ("question", "answer", "expected_outcome", "reference_answer")
    assert [tuple(case[name] for name in fields) for case in cases] == [
        ("2?", "The answer to two.", "Names the city and a source.", "R"),
        ("What is one?", "Zürich\nBern", "Names the city and a source.", None),
    ]
    digests = {each["eval_id"]: each["answer_digest"] for each in labels_in(LABELS)}
    assert digests == {"one": text_digest("Zürich\nBern"), "two": text_digest("The answer to two.")}


def test_labels_that_name_no_dataset_count_and_those_for_an_evaluator_do_not(at: Address) -> None:
    lines = [
        {"eval_id": "c0", "dataset": "", "reviewer": "ann", "sampling": "random"},
        {"eval_id": "c1", "dataset": "other", "reviewer": "ann", "sampling": "random"},
        {"eval_id": "c2", "dataset": "capitals", "reviewer": "ann", "sampling": "random", "evaluator": "correct"},
        {"eval_id": "c3", "dataset": "capitals", "reviewer": "bob", "sampling": "random"},
        {"eval_id": "c4", "dataset": "capitals", "reviewer": "bob", "sampling": "chosen"},
    ]
    LABELS.parent.mkdir()
    about = [each | {"answer_digest": text_digest(f"The answer to {each['eval_id']}.")} for each in lines]
    LABELS.write_text("".join(json.dumps(each | {"label": "pass"}) + "\n" for each in about))
    state = begin(at, reviewer="ann")
    assert (state["count"], state["labelled"]) == (5, 1)
    state = begin(at, reviewer="ann", share=1.0)
    assert (state["count"], state["shared"]) == (5, 1)
    assert shown(at, state)[0]["answer"] == "The answer to c3."
    state = begin(at, reviewer="ann", share=0.0)
    assert (state["count"], state["shared"]) == (4, 0)  # what bob has drawn at random does not come
    assert begin(at, reviewer="ann", share=0.2)["shared"] == 1  # a part of one is one


def test_two_targets_that_answer_the_same_are_labelled_once() -> None:
    results = [a_result("one", target=target, candidate_answer="Paris.") for target in ("a", "b")]
    save_results(Path("r.jsonl"), [*results, a_result("one", target="c", candidate_answer="Rome.")])
    with serving([Path("r.jsonl")]) as address:
        at = Address(address)
        assert sorted(case["answer"] for case in shown(at, begin(at))) == ["Paris.", "Rome."]


MANY = """
import sys
from pathlib import Path
from agentv.trust.review import Review, ReviewOptions
from agentv.view.review import read_answers
review = Review([read_answers(Path(sys.argv[1]), Path("r"))], ReviewOptions(), Path("none.jsonl"), 1)
assert review.state.count == int(sys.argv[2]), review.state
assert review.show(review.state.count - 1).case.answer
"""


@pytest.mark.slow
def test_memory_is_flat() -> None:
    """Twenty times as many answers take a few numbers each, and not their texts."""
    peaks = []
    for count in (1000, 20_000):
        line = msgspec.json.encode(a_result("NAME", candidate_answer="x" * 2000)).decode()
        with open(f"{count}.jsonl", "w") as file:
            file.writelines(line.replace("NAME", f"c{number}") + "\n" for number in range(count))
        command = [sys.executable, "-c", MANY + PRINT_PEAK_KB, f"{count}.jsonl", str(count)]
        peaks.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert peaks[1] - peaks[0] < 12_000  # the file has 50 MB


def test_an_answer_is_read_at_its_offset() -> None:
    save_results(Path("r.jsonl"), [*answered(3), an_error("broken"), *answered(1, dataset="é")])
    answers = read_answers(Path("r.jsonl"), Path("r.jsonl"))
    assert (len(answers), answers.results, list(answers.numbers)) == (4, 5, [0, 1, 2, 4])
    assert [answers.read(number).key.eval_id for number in range(4)] == ["c0", "c1", "c2", "c0"]
    assert answers.read(3).key.dataset == "é"


def test_values_that_are_neither_messages_nor_calls_are_not_shown(tmp_path: Path) -> None:
    odd: list[Any] = [
        None,
        1,
        "text",
        [],
        {"type": "tool_call"},
        {"type": "tool_result", "id": 3, "output": {"a": [1]}},
    ]
    messages: list[Any] = [None, 1, "text", {}, {"role": 5, "content": [{"value": "v"}, "w", 1], "tool_calls": [{}, 1]}]
    save_results(Path("r.jsonl"), [a_result("one", trace=odd), a_result("two", output_messages=messages, trace={})])
    with serving([Path("r.jsonl")]) as address:
        at = Address(address)
        one, two = sorted(shown(at, begin(at)), key=lambda case: case["answer"])
    unknown = {"tool": "unknown", "input": None, "output": None}
    assert one["tool_calls"] == [unknown, {**unknown, "output": '{\n  "a": [\n    1\n  ]\n}'}]
    assert two["conversation"] == [
        {"role": "unknown", "text": "", "calls": []},
        {"role": "5", "text": "v\nw\n1", "calls": [unknown]},
    ]
    assert (two["tool_calls"], two["tool_counts"], two["file_changes"]) == ([], {}, None)
