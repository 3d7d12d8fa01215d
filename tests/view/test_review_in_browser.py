"""Labelling in a real Chromium: blind, by keyboard, and without losing labels."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentv.results.answer_digest import text_digest
from agentv.view.files import file_id
from tests.kits.browser import Browser
from tests.kits.page_rules import ACCESSIBLE, PAYLOADS, hostile_result
from tests.kits.pages import HEBREW, TABLE, a_result, an_error, save_results
from tests.kits.reviews import Review, answered, labels_in, reviews

NO_SEARCH = "missing: [role=search]"
"""A rule of pages with a table: here is nothing to search."""


@pytest.fixture
def review(browser: Browser, tmp_path: Path) -> Iterator[Review]:
    with reviews(browser, tmp_path) as opened:
        yield opened


def test_keys_label_skip_and_undo(review: Review) -> None:
    found = review(answered(4))
    assert (found.title, found.progress) == ("Case 1", "0 of 4")
    first = found.answer
    found.press("1")
    assert (found.title, found.progress, found.words) == ("Case 2", "1 of 4", ["pass"])
    second = found.answer
    found.press("s")
    assert (found.title, found.progress, found.words) == ("Case 3", "1 of 4, 1 skipped", ["pass"])
    found.press("2")
    assert (found.title, found.progress, found.words) == ("Case 4", "2 of 4, 1 skipped", ["pass", "fail"])
    found.press("u", "u")
    assert (found.title, found.answer, found.progress) == ("Case 2", second, "1 of 4")
    found.press("u")
    assert (found.title, found.answer, found.progress) == ("Case 1", first, "0 of 4")
    assert found.words == ["pass", "fail", "retracted", "retracted"]
    found.press("u")  # nothing is left to take back
    assert (found.title, len(found.words)) == ("Case 1", 4)
    found.press("2", "1", "1", "s")
    assert (found.title, found.progress) == ("No more answers", "3 of 4, 1 skipped")
    found.click(".again")
    found.press("2")
    assert (found.title, found.progress) == ("Done: you labelled every answer", "4 of 4")
    assert found.words[4:] == ["fail", "pass", "pass", "fail"]
    assert found.page.problems() == []


def test_undo_of_skips_that_were_shown_again(review: Review) -> None:
    found = review(answered(2))
    found.press("s", "s")
    found.click(".again")
    found.press("1")
    assert (found.title, found.progress) == ("Case 2", "1 of 2")
    found.press("u", "u")
    assert (found.title, found.progress) == ("Case 2", "0 of 2")
    found.press("2", "1")
    assert (found.title, found.progress) == ("Done: you labelled every answer", "2 of 2")
    assert found.words == ["pass", "retracted", "fail", "pass"]


@pytest.mark.smoke
def test_a_double_click_labels_one_answer(review: Review) -> None:
    found = review(answered(3))
    found.click(".review-buttons .pass")
    found.page.js("document.querySelector('.review-buttons .pass').dispatchEvent(new MouseEvent('click', {detail: 2}))")
    found.wait()
    assert (found.title, found.words) == ("Case 2", ["pass"])


def test_a_label_records_the_answer_the_reviewer_and_the_sampling(review: Review) -> None:
    found = review([a_result("one", candidate_answer="Paris.", trial=2)])
    found.page.click("#note")
    found.page.type("names\nthe city")
    found.press("1")
    assert found.words == []  # the key was typed into the note
    found.click(".review-buttons .pass")
    (label,) = labels_in(found.labels)
    at = label.pop("at")
    assert at.endswith("Z") and at.startswith("20")
    assert label == {
        "eval_id": "one",
        "dataset": "capitals",
        "trial": 2,
        "answer_digest": text_digest("Paris."),
        "label": "pass",
        "reviewer": "ann",
        "note": "names\nthe city1",
        "sampling": "random",
    }


def test_keys_are_ignored_while_typing(review: Review) -> None:
    found = review(answered(3))
    found.press("n")
    assert found.page.js("document.activeElement.id") == "note"
    found.press("1", "2", "s", "u")
    assert (found.page.js("document.activeElement.value"), found.title, found.words) == ("12su", "Case 1", [])
    found.press("Escape", "2")
    assert [(label["label"], label["note"]) for label in labels_in(found.labels)] == [("fail", "12su")]
    assert found.page.js("document.getElementById('note').value") == ""
    found.press("u")
    assert found.page.js("document.getElementById('note').value") == "12su"
    found.page.click(".review-settings summary")
    found.page.click(".review-settings [name=reviewer]")
    found.press("1")
    assert (len(found.words), "1" in found.page.js("document.activeElement.value")) == (2, True)


def test_held_keys_and_browser_shortcuts_are_ignored(review: Review) -> None:
    found = review(answered(3))
    send = {"type": "keyDown", "key": "1", "windowsVirtualKeyCode": 49}
    found.page.send("Input.dispatchKeyEvent", **send, autoRepeat=True, text="1")
    found.page.send("Input.dispatchKeyEvent", **send, modifiers=2)
    found.wait()
    assert (found.title, found.words) == ("Case 1", [])


def test_keys_can_be_switched_off(review: Review) -> None:
    found = review(answered(2))
    found.page.js("document.querySelector('.review-settings').open = true")
    found.page.click(".review-settings [name=keys]")
    found.click(".review-settings [type=submit]")
    found.press("1")
    assert found.words == []
    found.click(".review-buttons .fail")
    assert found.words == ["fail"]


SECRET: dict[str, Any] = {
    "target": "planted-target",
    "score": 0.8137,
    "verdict": "borderline",
    "reasoning": "planted-reasoning",
    "hits": ["planted-hit"],
    "misses": ["planted-miss"],
    "note": "planted-note",
    "conversation_id": "planted-conversation",
    "run_id": "planted-run",
    "file": "evals/planted-file.yaml",
    "metadata": {"planted-key": "planted-value"},
    "dataset": "planted-dataset",
    "trace": [
        {"type": "tool_call", "name": "refund", "id": "planted-call", "metadata": {"model": "planted-model"}},
        {"type": "model_step", "name": "planted-model", "text": "planted-thought"},
    ],
    "digests": {"case": "planted-digest", "target": "planted-t", "evaluators": "planted-e", "agentv": "0"},
    "execution_metrics": {"duration_ms": 4711.25, "cost_usd": 0.4711},
    "evaluator_results": [
        {"name": "planted-judge", "type": "llm_judge", "score": 0.8137, "weight": 1.0, "verdict": "borderline"}
    ],
}


def test_the_page_never_receives_targets_or_scores(review: Review) -> None:
    results = [
        a_result(f"planted-id-{number}", **(SECRET | {"candidate_answer": f"A{number}", "question": "Why?"}))
        for number in range(3)
    ]
    found = review(results)
    seen = {found.answer}
    found.press("1")
    seen.add(found.answer)
    found.press("u", "s", "2")
    received = found.page.bodies()
    data = [body for address, body in received if "/api/review" in address]
    assert len(data) >= 7 and any(answer in body for answer in seen for body in data)
    for word in ("planted", "0.8137", "4711", "results.jsonl"):
        assert [address for address, body in received if word in address + body] == []
    for word in ("score", "verdict", "borderline", "judge"):  # the scripts of all pages know these words
        assert [body for body in data if word in body] == []


@pytest.mark.smoke
def test_a_label_is_on_disk_before_the_next_case_is_requested(review: Review) -> None:
    found = review(answered(6))
    found.page.send("Fetch.enable", patterns=[{"urlPattern": "no-such-address"}])
    found.page.go_to(found.page.js("location.href"))  # a page that is open already is not stopped at once
    found.wait()
    found.page.send("Fetch.enable", patterns=[{"urlPattern": "*/api/review/*"}])
    for number in range(1, 4):
        found.page.press("1")
        asked = found.page.paused_request()
        assert (asked["request"]["method"], len(found.words)) == ("POST", number - 1)
        found.page.send("Fetch.continueRequest", requestId=asked["requestId"])
        following = found.page.paused_request()
        assert (following["request"]["method"], len(found.words)) == ("GET", number)
        found.page.send("Fetch.continueRequest", requestId=following["requestId"])
        found.wait()


def test_an_unsaved_label_is_reported_and_the_case_stays_open(review: Review, tmp_path: Path) -> None:
    found = review(answered(3))
    answer = found.answer
    found.labels.mkdir()  # nobody can append to a folder, not even root
    found.press("1")
    assert "The label was not saved: " in found.page.text(".review-notice")
    assert "labels cannot be written: Is a directory" in found.page.text(".review-notice")
    assert (found.title, found.answer, found.progress) == ("Case 1", answer, "0 of 3")
    found.labels.rmdir()
    found.press("2")
    assert (found.title, found.words, found.page.text(".review-notice")) == ("Case 2", ["fail"], "")
    found.labels.rename(tmp_path / "kept.jsonl")
    found.labels.mkdir()
    found.press("u")
    assert "The label was not retracted: " in found.page.text(".review-notice")
    assert (found.title, found.progress) == ("Case 2", "1 of 3")


def test_a_review_continues_and_shows_changed_answers_again(review: Review) -> None:
    found = review(answered(5))
    found.press("1", "1", "s", "2")
    again = review(answered(5))
    assert again.progress == "3 of 5"
    again.press("1")
    results = answered(5)
    labelled = {label["eval_id"] for label in labels_in(found.labels)}
    changed = next(each for each in results if each["eval_id"] in labelled)
    changed["candidate_answer"] = "another answer"
    anew = review(results)
    assert anew.progress == "3 of 5"
    seen = [anew.answer]
    anew.press("1")
    seen.append(anew.answer)
    anew.press("1")
    assert "another answer" in seen and anew.title == "Done: you labelled every answer"


def test_each_review_has_its_own_order(review: Review) -> None:
    orders = []
    for _ in range(4):
        found, seen = review(answered(12)), []
        for _ in range(12):
            seen.append(found.answer)
            found.press("s")
        assert sorted(seen) == sorted(each["candidate_answer"] for each in answered(12))
        orders.append(tuple(seen))
    assert len(set(orders)) > 1


def test_two_reviewers_at_once_lose_nothing(review: Review) -> None:
    """Two browsers and two servers write to one file."""
    ann, bob = review(answered(8)), review(answered(8), reviewer="bob")
    for _ in range(8):
        ann.page.press("1")
        bob.page.press("2")
        ann.wait()
        bob.wait()
    labels = labels_in(ann.labels)
    assert len(labels) == 16
    for name, word in (("ann", "pass"), ("bob", "fail")):
        own = [label for label in labels if label["reviewer"] == name]
        assert {label["eval_id"] for label in own} == {f"c{number}" for number in range(8)}
        assert {label["label"] for label in own} == {word}


def test_a_second_reviewer_starts_with_a_share_of_the_first_ones_answers(review: Review) -> None:
    found = review(answered(10))
    found.press("1", "1", "2", "2", "1")
    firsts = {label["eval_id"] for label in labels_in(found.labels)}
    found.set(reviewer="bob <b>", share="0.5")
    assert found.page.text(".review-settings summary") == "bob <b> · random sample"
    assert (found.progress, found.title) == ("0 of 8", "Case 1")  # 3 of 5, and 5 that nobody has labelled
    found.press(*"22222222")
    bobs = [label["eval_id"] for label in labels_in(found.labels) if label["reviewer"] == "bob <b>"]
    assert set(bobs[:3]) <= firsts and not set(bobs[3:]) & firsts
    found.page.go_to(f"{found.at.origin}/review")  # the name stays with this page
    found.wait()
    assert found.title == "You have labelled all of these answers"


def test_chosen_answers_are_not_a_random_sample(review: Review) -> None:
    results = [a_result("good", 1.0), a_result("bad", 0.1), a_result("worse", 0.0), an_error("broken")]
    found = review(results, only="failed")
    assert found.progress == "0 of 2"
    found.press("1", "1")
    assert [(label["eval_id"] == "good", label["sampling"]) for label in labels_in(found.labels)] == [
        (False, "chosen")
    ] * 2
    found.set(only="all")  # what was chosen may be drawn as well, or the rest would be no random sample
    assert found.progress == "0 of 3"
    found.press("2", "2", "2")
    assert {label["sampling"] for label in labels_in(found.labels)[2:]} == {"random"}
    found.press("u", "u", "u")
    kept = {label["eval_id"]: label for label in labels_in(found.labels)}
    assert {name: label["label"] for name, label in kept.items()} == {
        "good": "retracted",
        "bad": "pass",
        "worse": "pass",
    }
    assert kept["bad"]["sampling"] == "chosen"


def test_the_page_of_a_run_leads_to_its_review_and_a_filter_chooses(review: Review, tmp_path: Path) -> None:
    found = review([a_result("good", 1.0), a_result("bad", 0.1), a_result("worse", 0.0)])
    run = file_id(Path(os.path.realpath(tmp_path / "results.jsonl")))
    page = found.page
    page.go_to(f"{found.at.origin}/run/{run}")
    page.wait("document.querySelector('.rows .row')")
    page.wait("document.querySelector('.review-link').textContent === 'Review answers'")
    page.click(".review-link")
    page.wait("location.pathname.startsWith('/review/')")
    found.wait()
    assert found.progress == "0 of 3"
    page.go_to(f"{found.at.origin}/run/{run}#q=verdict:fail")
    page.wait("document.querySelector('.review-link').textContent === 'Review these 2 cases'")
    page.click(".review-link")
    page.wait("location.pathname.startsWith('/review/')")
    found.wait()
    assert (found.progress, page.text(".review-settings summary")) == ("0 of 2", "ann · selected answers")
    found.press("1", "1")
    assert sorted(label["eval_id"] for label in labels_in(found.labels)) == ["bad", "worse"]
    assert {label["sampling"] for label in labels_in(found.labels)} == {"chosen"}


DIFF = """diff --git a/orders.csv b/orders.csv
--- a/orders.csv
+++ b/orders.csv
@@ -1,2 +1,2 @@
 order,state
-7,paid
+7,refunded
"""
TALK: list[dict[str, Any]] = [
    {"role": "assistant", "content": "One moment.", "tool_calls": [{"tool": "find_order", "input": {"order": 7}}]},
    {"role": "assistant", "tool_calls": [{"tool": "refund", "input": {"order": 7}, "output": "ok"}]},
    {"role": "assistant", "content": "Done, refunded."},
]
STEPS: list[dict[str, Any]] = [
    {"type": "tool_call", "id": "1", "name": "refund", "input": {"order": 7}},
    {"type": "tool_result", "id": "1", "output": "ok"},
]
ACTED: dict[str, Any] = {"candidate_answer": "Done, refunded.", "question": "Refund order 7."}


def test_a_conversation_is_shown_with_its_tool_calls_and_the_changed_files(review: Review) -> None:
    found = review([a_result("one", **ACTED, output_messages=TALK, trace=STEPS, file_changes=DIFF)])
    page = found.page
    assert page.texts(".wide > h3") == ["Conversation", "Changed files"]
    assert page.texts(".speaker") == ["assistant"] * 3
    assert page.texts(".call-name") == ["find_order", "refund"]
    assert '"order": 7' in page.text(".wide .call")
    assert page.texts(".wide ins") == ["+7,refunded"]
    assert page.problems() == []


def test_tool_calls_of_a_trace_are_shown(review: Review) -> None:
    found = review([a_result("one", **ACTED, trace=STEPS)])
    assert found.page.texts(".wide > h3") == ["Tool calls"]
    assert found.page.texts(".call-name") == ["refund"]
    assert found.page.texts(".call-part") == ["input", "output"]
    assert found.page.texts(".call pre")[1] == "ok"


def test_tool_calls_that_were_not_stored_are_counted(review: Review) -> None:
    found = review([a_result("one", **ACTED, trace_summary={"toolCallsByName": {"refund": 2}})])
    assert found.page.texts(".tool-count") == ["refund × 2"]
    assert "run with --include-trace to record them" in found.page.text(".wide")


def test_the_same_text_with_other_tool_calls_is_another_answer(review: Review) -> None:
    results = [a_result("one", **ACTED, target=name) for name in ("a", "b", "c")]
    for number, result in enumerate(results):
        result["answer_digest"] = f"{min(number, 1):016}"  # b and c have called the same tool
    found = review(results)
    assert found.progress == "0 of 2"
    found.press("1", "2")
    assert {label["answer_digest"] for label in labels_in(found.labels)} == {f"{0:016}", f"{1:016}"}


def test_texts_are_never_parsed_as_markup(review: Review) -> None:
    results = []
    for at, payload in enumerate(PAYLOADS):
        result = hostile_result(payload) | {"error": None, "eval_id": f"c{at}"}
        call = {"tool": payload, "input": {payload: payload}, "output": payload}
        message = {"role": payload, "content": payload, "tool_calls": [call]}
        results += [result, result | {"eval_id": f"m{at}", "output_messages": [message]}]
        results.append(result | {"eval_id": f"t{at}", "trace": None})
    found = review(results, reviewer=PAYLOADS[1])
    for number in range(len(results)):
        assert found.title == f"Case {number + 1}"
        assert found.answer.strip() in {payload.strip() for payload in PAYLOADS}
        found.press("1")
    assert found.page.js("window.hacked") is None
    assert found.page.js("document.querySelectorAll('main a, main img, main iframe, main script').length") == 0
    assert {label["reviewer"] for label in labels_in(found.labels)} == {PAYLOADS[1]}
    asked = {url for url in found.page.requests() if url != "about:blank"}
    assert all(url.startswith(f"{found.at.origin}/") for url in asked)
    assert found.page.problems() == []


HARD = [
    a_result("table", candidate_answer=TABLE, reference_answer="x" * 3000),
    a_result("hebrew", candidate_answer=HEBREW, question=None, expected_outcome=None),
    a_result("empty", candidate_answer="", question="word " * 2000),
    a_result("large", candidate_answer="word " * 40_000),
    a_result("talk", **ACTED, output_messages=TALK, file_changes=f"{DIFF}+{'x' * 3000}\n"),
    a_result("steps", **ACTED, trace=STEPS, expected_outcome=None),
    a_result("counts", **ACTED, trace_summary={"toolCallsByName": {"refund" * 50: 2}}),
]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_accessible(review: Review, width: int, dark: bool) -> None:
    found = review(HARD, width=width)
    page = found.page
    page.set_theme(dark=dark)
    for _ in range(len(HARD)):
        assert [problem for problem in page.js(ACCESSIBLE) if problem != NO_SEARCH] == []
        assert page.js("document.documentElement.scrollWidth") <= width
        small = "[...document.querySelectorAll('.review-buttons button, #note, summary, nav a')].filter((each) => each.getBoundingClientRect().height < 44).length"
        assert page.js(small) == 0
        box = page.js(
            "(({top, bottom}) => [top, bottom])(document.querySelector('.review-buttons').getBoundingClientRect())"
        )
        assert 0 < box[0] < box[1] <= 800  # in sight, however long the answer is
        found.press("s")
    assert page.js("document.activeElement.id") == "review-title"
    page.js("document.querySelector('.review-settings').open = true")
    assert [problem for problem in page.js(ACCESSIBLE) if problem != NO_SEARCH] == []
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js(
        "[...document.querySelectorAll('.review-settings input:not([type=checkbox]), select')].every((each) => each.getBoundingClientRect().height >= 44)"
    )
    assert page.js("document.querySelector('.review-progress').getAttribute('role')") == "status"
    assert page.problems() == []


def test_a_results_file_that_is_replaced_during_the_review(review: Review, tmp_path: Path) -> None:
    found = review(answered(3))
    save_results(tmp_path / "new.jsonl", [each | {"candidate_answer": "new"} for each in answered(3)])
    (tmp_path / "new.jsonl").replace(tmp_path / "results.jsonl")
    found.press("1")
    assert "the results file has changed: reload the page" in found.page.text(".review-notice")
    assert found.words == []
    found.set()
    assert (found.answer, found.progress) == ("new", "0 of 3")
