"""A report in a real Chromium, used by mouse and keyboard."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentv.report.page.write import PageOptions, write_report
from tests.kits.browser import Browser, Page
from tests.kits.page_rules import ACCESSIBLE, PAYLOADS, hostile_result
from tests.kits.pages import HEBREW, a_result, a_run, a_trace, an_error, hard_ones, save_results

Results = list[dict[str, Any]]
Open = Callable[..., Page]


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens the report of some results in a browser. In the end nothing was fetched, and the console is empty."""
    with browser.page() as page:

        def open_report(first: Results, second: Results | None = None, fragment: str = "", **options: Any) -> Page:
            runs = [first, *([second] if second is not None else [])]
            paths = [save_results(tmp_path / f"{name}.jsonl", run) for name, run in zip("ab", runs, strict=False)]
            write_report(paths, tmp_path / "report.html", PageOptions(**options))
            page.open(tmp_path / "report.html", fragment)
            return page

        yield open_report
        assert page.problems() == []
        assert {url.partition("#")[0] for url in page.requests()} <= {(tmp_path / "report.html").as_uri()}


def few() -> Results:
    """Cases of all kinds, with two datasets, two targets and a second evaluator."""
    extra = {"name": "style", "type": "contains", "score": 0.5, "weight": 1.0, "verdict": "fail"}
    slow = {"duration_ms": 5000, "cost_usd": 0.5}
    return [
        a_result("good", 1.0, question="What flows through Paris?", candidate_answer="The Seine."),
        a_result("middling", 0.7, dataset="rivers", candidate_answer="Perhaps the Elbe", metadata={"level": 3}),
        a_result("bad", 0.1, target="other", execution_metrics=slow, tags=["smoke"], vars={"city": "Bonn"}),
        an_error("broken", "HTTP 500: sorry"),
        a_result("judged", 0.9, evaluator_results=[extra], note="the agent did not exit after its answer"),
    ]


def test_the_health_of_the_judges_is_in_the_page(show: Open, tmp_path: Path) -> None:
    failed = {"evaluator": "grader", "canary": "an injection", "verdict": "pass", "score": 1.0}
    canaries = {"planted": 5, "right": 3, "unjudged": 0, "accuracy": {"value": 0.6}}
    health = {
        "verdict": "untrusted",
        "reasons": ["canaries: 2 of 5 planted answers were misjudged"],
        "canaries": {**canaries, "failed": [{**failed, "eval_id": "good"}, {**failed, "eval_id": "<b>bad</b>"}]},
        "cost": {"calls": 7, "cost_usd": 0.25},
    }
    results = few()
    record = {"run_id": "20261116-030000-ab12", "status": "done", "judge_health": health}
    for result in results:
        result["run_id"] = record["run_id"]
    folder = tmp_path / ".agentv" / "runs"
    folder.mkdir(parents=True)
    (folder / f"{record['run_id']}.json").write_text(json.dumps(record))
    page = show(results)
    assert "the judge is untrusted" in page.text(".troubles")
    shown = " ".join(page.text(".judge").split())
    assert shown == (
        "Judge: untrusted why canaries: 2 of 5 planted answers were misjudged canaries 3 of 5 judged correctly"
        " failed canaries an injection for good (1.00), <b>bad</b> (1.00): judged pass by grader"
        " cost of checks 7 judge calls, $0.2500"
    )


@pytest.mark.smoke
def test_a_run_at_a_glance(show: Open) -> None:
    page = show(few())
    assert page.text("h1") == "40% passed (95%: 12 to 77%), mean 0.54."
    assert "1 target error" in page.text(".troubles")
    assert page.ids == ["broken", "bad", "middling", "judged", "good"]
    assert page.texts(".rows .c-worst") == [
        "! error",
        "✗ fail",
        "~ borderline",
        "✓ pass",
        "✓ pass",
    ]
    assert [text[0] for text in page.texts(".bar-count")] == ["2", "0", "0", "1", "2"]
    page.wait("document.querySelector('.rows .c-answer').innerText === 'HTTP 500: sorry'")
    assert page.texts(".evaluators tbody th") == ["style", "correct"]
    assert "1× HTTP 500: sorry" in page.text(".errors")
    assert page.text(".status") == "5 cases"


def test_a_machine_failure_is_an_error_without_a_score(show: Open) -> None:
    page = show([a_result("good"), an_error("no room", "the machine has reached a limit", failure="machine")])
    assert page.text("h1") == "Passed, score 1.00."
    assert page.text(".troubles") == "! 1 machine failure."
    assert page.ids == ["no room", "good"]
    assert page.texts(".rows .c-worst") == ["! error", "✓ pass"]
    assert page.texts(".rows .score-number") == ["–", "1.00"]
    assert page.texts(".score-fill.error") == [""]
    assert "1 scored + 1 machine failure" in page.text(".about")


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("verdict:fail", ["broken", "bad"]),
        ("verdict:error", ["broken"]),
        ("verdict:pass", ["judged", "good"]),
        ("-verdict:pass", ["broken", "bad", "middling"]),
        ("score<0.5", ["broken", "bad"]),
        ("score>=0.7 score<=0.9", ["middling", "judged"]),
        ("score=0.7", ["middling"]),
        ("target:other", ["bad"]),
        ("target:Other", []),
        ("dataset:riv*", ["middling"]),
        ("evaluator:style", ["judged"]),
        ("evaluator:nobody", []),
        ("error:yes", ["broken"]),
        ("error:no verdict:fail", ["bad"]),
        ("duration>1000", ["bad"]),
        ("cost<0.1", ["middling", "judged", "good"]),
        ("note:yes", ["judged"]),
        ("id:*o*", ["broken", "good"]),
        ("tag:smoke", ["bad"]),
        ("-tag:smoke", ["broken", "middling", "judged", "good"]),
        ("metadata.level>=3 -vars.city:B*", ["middling"]),
        ("evaluator.style:fail", ["judged"]),
        ("seine", ["good"]),
        ("SEINE", ["good"]),
        ("paris", ["good"]),
        ("bad", ["bad"]),
        ('"perhaps the elbe"', ["middling"]),
        ('"elbe perhaps"', []),
        ("perhaps elbe", ["middling"]),
        ("the -elbe dataset:capitals", ["bad", "judged", "good"]),
        ("sorry", ["broken"]),
        ("score< verdict:fail", ["broken", "bad"]),
        ("judged", ["judged"]),
    ],
)
def test_filters(show: Open, query: str, ids: list[str]) -> None:
    page = show(few())
    page.filter(query)
    assert page.ids == ids
    assert page.js("decodeURIComponent(location.hash)") == f"#q={query}"
    assert page.text(".status").startswith(f"{len(ids)} of 5 cases")


@pytest.mark.smoke
def test_the_filter_shows_its_interpretation(show: Open) -> None:
    page = show(few(), fragment="#q=verdict:fail%20score%3C%20verdict:bda%20seine")
    assert page.texts(".chip") == [
        "verdict is fail × , remove",
        "score< (a value is missing after 'score<') × , remove",
        "verdict:bda ('bda' is not one of pass, borderline, fail, error) × , remove",
        "“seine” in id, question or answer × , remove",
    ]
    page.click(".chip:last-child")
    assert page.js("document.getElementById('filter').value") == "verdict:fail score< verdict:bda"
    page.wait("document.querySelectorAll('.rows .row').length === 2")
    page.press("Escape")
    page.press("Escape")
    page.wait("document.querySelectorAll('.rows .row').length === 5")


def test_sorting_by_a_column_is_stored_in_the_url(show: Open) -> None:
    page = show(few())
    page.click(".head .c-id button")
    assert page.ids == ["bad", "broken", "good", "judged", "middling"]
    page.click(".head .c-id button")
    assert page.ids == ["middling", "judged", "good", "broken", "bad"]
    assert page.js("location.hash") == "#sort=-id"
    assert page.js("document.querySelector('.head .c-id').getAttribute('aria-sort')") == "descending"
    page.click(".head .c-duration button")
    assert page.ids[0] == "bad"
    assert page.ids[-1] == "broken"  # of which nobody knows


@pytest.mark.smoke
def test_a_case_opens_by_mouse_and_shows_why(show: Open) -> None:
    page = show(few())
    page.click(".rows .row:nth-child(5) .c-answer")
    page.wait("document.querySelector('.case h1')?.innerText === 'good'")
    words = page.text(".case")
    for said in (
        "What flows through Paris?",
        "The Seine.",
        "Names the city and a source.",
        "names the city",
        "813 ms",
        "$0.0021",
        "320 in, 45 out",
        "evals/capitals.yaml, line 12",
        "agentv 0.1.0",
    ):
        assert said in words
    assert page.js("location.hash") == "#case=good"
    assert page.js("document.activeElement.id") == "case-title"
    assert page.js("document.querySelector('.row.open .id').innerText") == "good"
    page.go_back()
    page.wait("document.querySelector('.case').hidden")
    page.go_forward()
    page.wait("!document.querySelector('.case').hidden")


@pytest.mark.smoke
def test_keys(show: Open) -> None:
    page = show(few())

    def is_open(name: str) -> None:
        page.wait(f"document.querySelector('.case h1')?.innerText === {json.dumps(name)}")

    for key, name in (
        ("j", "broken"),
        ("j", "bad"),
        ("k", "broken"),
        ("k", "broken"),
        ("n", "bad"),
        ("n", "middling"),
        ("n", "middling"),
        ("j", "judged"),
        ("j", "good"),
        ("j", "good"),
        ("p", "middling"),
        ("p", "bad"),
    ):
        page.press(key)
        is_open(name)
    page.press("Escape")
    page.wait("document.querySelector('.case').hidden")
    assert page.js("document.activeElement.innerText") == "bad"
    page.press("Enter")
    is_open("bad")
    page.press("?")
    assert page.js("document.querySelector('dialog').open")
    page.press("Escape")
    page.wait("!document.querySelector('dialog').open")
    page.press("/")
    assert page.js("document.activeElement.id") == "filter"
    page.type("verdict:pass")
    page.wait("document.querySelectorAll('.rows .row').length === 2")
    page.press("Escape")
    page.press("j")
    is_open("judged")
    page.press("k")
    is_open("judged")


def test_a_case_names_its_failed_required_checks(show: Open) -> None:
    part = {"type": "contains", "score": 0.0, "weight": 1.0, "verdict": "fail"}
    parts = [{**part, "name": "cites", "required": True}, {**part, "name": "brief", "required": 0.6}]
    parts.append({"name": "tables", "type": "python", "score": None, "weight": 1.0, "applicable": False})
    result = a_result("gated", 0.9, verdict="fail", failed_required=["cites", "brief"], evaluator_results=parts)
    page = show([result], fragment="#case=gated")
    page.wait("document.querySelector('.judgements')")
    assert page.text(".judgements p") == "Failed required checks: cites, brief"
    notes = page.texts(".judgement h3 .quiet")
    assert "contains, required" in notes
    assert "contains, at least 0.6 required" in notes
    assert "does not apply" in notes


def test_a_case_says_why_it_was_not_judged(show: Open) -> None:
    skips = {"name": "tables", "type": "python", "score": None, "weight": 1.0, "applicable": False}
    reason = "not judged: no evaluator applies to this case"
    unjudged = a_result("unjudged", 0.0, failure="judge", misses=[reason], evaluator_results=[skips])
    page = show([unjudged], fragment="#case=unjudged")
    page.wait("document.querySelector('.judgements')")
    assert page.texts(".case .notice") == ["! Not judged, so this score says nothing about the answer."]
    assert page.texts(".judgements .miss") == [f"✗ missed: {reason}"]


def test_a_comparison_says_what_decides_the_verdicts_beside_the_evaluators(show: Open) -> None:
    close = {"name": "close", "type": "python", "score": 0.7, "weight": 1.0, "verdict": "borderline"}
    needed = {**close, "required": True}
    before = a_result("gated", 0.9, verdict="fail", failed_required=["close"], misses=[], evaluator_results=[needed])
    miss = "close is 'borderline' (0.70): 'pass: all' needs 'pass'"
    after = a_result("gated", 0.9, verdict="fail", misses=[miss], evaluator_results=[close])
    page = show([before], [after], fragment="#case=gated")
    page.wait("document.querySelector('.judgements')")
    assert page.texts(".judgements .sides.pair:first-of-type > div") == [
        "A Failed required checks: close",
        f"B ✗ missed: {miss}",
    ]


def test_a_case_names_the_variables_that_are_masked(show: Open) -> None:
    page = show([a_result("hidden", 0.9, masked=["DB_TOKEN", "GH_KEY"])], fragment="#case=hidden")
    page.wait("document.querySelector('.judgements')")
    assert page.texts(".case .notice") == ["Masked in this result: DB_TOKEN, GH_KEY"]


@pytest.mark.smoke
def test_permalinks(show: Open) -> None:
    odd = "a b&c=d#e/%20ü?"
    results = [a_result(odd), a_result("twin", dataset="one"), a_result("twin", 0.2, dataset="two")]
    results += [a_result("tried", 0.5, trial=trial, candidate_answer=f"answer {trial}") for trial in (1, 2, 3)]
    page = show(results, fragment="#case=twin&dataset=two")
    page.wait("document.querySelector('.case-line')?.innerText.includes('two')")
    page.js("location.hash = '#case=twin&dataset=one'")
    page.wait("document.querySelector('.case-line')?.innerText.includes('one')")
    page.js("location.hash = '#case=tried&trial=3'")
    page.wait("document.querySelector('.case').innerText.includes('answer 3')")
    page.click(".trials button:nth-child(2)")
    page.wait("document.querySelector('.case').innerText.includes('answer 2')")
    assert page.js("location.hash") == "#case=tried&trial=2"
    page.js("location.hash = '#'")
    page.wait("document.querySelector('.case').hidden")
    links = page.js(
        "[...document.querySelectorAll('.rows .id')].map((link) => [link.innerText, link.getAttribute('href')])"
    )
    assert dict(map(tuple, links[1:]))["tried"] == "#case=tried"
    assert sorted(href for name, href in links if name == "twin") == [
        "#case=twin&dataset=one",
        "#case=twin&dataset=two",
    ]
    page.click(f'.rows .id[title="{odd}"]')
    page.wait(f"document.querySelector('.case h1')?.innerText === {json.dumps(odd)}")
    page.js("location.hash = '#case=nobody'")
    page.wait("document.querySelector('.status').innerText === 'no such case: nobody'")


def test_trials_share_a_row(show: Open) -> None:
    page = show(
        [
            *(a_result("tried", score, trial=trial) for trial, score in ((1, 1.0), (2, 0.0), (3, 1.0))),
            a_result("once", 0.5),
        ]
    )
    assert page.ids == ["once", "tried"]
    assert page.js("document.querySelectorAll('.rows .row:nth-child(2) .dot').length") == 3
    page.click(".rows .row:nth-child(2) .id")
    page.wait("document.querySelectorAll('.trials button').length === 3")
    assert page.texts(".trials button") == ["✓ pass trial 1, 1.00", "✗ fail trial 2, 0.00", "✓ pass trial 3, 1.00"]


@pytest.mark.smoke
def test_two_runs_begin_with_the_verdict_and_what_flipped(show: Open) -> None:
    before = [a_result(f"c{n}", 0.2, candidate_answer="I do not know that") for n in range(20)]
    after = [a_result(f"c{n}", 0.9, candidate_answer="I do know that well") for n in range(20)]
    before += [a_result("lost", 1.0), a_result("same", 0.9), a_result("only-before", 0.5)]
    after += [
        a_result("lost", 0.1, digests={"case": "new", "target": "b", "evaluators": "e" * 12, "agentv": "9"}),
        a_result("same", 0.9),
        a_result("only-after", 0.5),
    ]
    page = show(before, after)
    assert page.text("h1").startswith("Better: +0.")
    assert page.text("h1").endswith("20 cases fixed, 1 broken.")
    assert "Other changes: the content of 1 case" in page.text(".notes")
    assert "only in A" in page.text(".notes") and "only in B" in page.text(".notes")
    assert page.text(".flip.broken").startswith("▼ 1 broken pass → fail\nlost\n1.00 → 0.10")
    assert page.text(".flip.fixed").startswith("▲ 20 fixed fail → pass")
    assert page.ids[:2] == ["lost", "c0"]
    page.filter("flip:no")
    assert sorted(page.ids) == ["only-after", "only-before", "same"]
    page.filter("delta>0.5")
    assert page.text(".status") == "20 of 24 cases"
    page.filter("")
    page.press("Escape")
    page.press("n")
    page.wait("document.querySelector('.case h1')?.innerText === 'lost'")
    page.press("n")
    page.press("p")
    page.press("j")
    page.wait("document.querySelector('.case h1')?.innerText === 'c0'")
    assert page.texts(".diff del") == ["only in A: not"]
    assert page.texts(".diff ins") == ["only in B: well"]
    assert "0.20" in page.text(".both-scores") and "0.90" in page.text(".both-scores")
    page.click(".answers .switch button:nth-child(2)")
    assert page.texts(".answers .sides > div") == ["A I do not know that", "B I do know that well"]
    page.js("location.hash = '#case=only-before'")
    page.wait("document.querySelector('.case').innerText.includes('Only run A has this case.')")


def test_trials_of_two_runs_are_paired_by_their_number(show: Open) -> None:
    """Trials are defined in the order in which they end."""

    def tried(side: str, trials: tuple[int, ...]) -> list[dict[str, Any]]:
        return [a_result("tried", 0.5, trial=trial, candidate_answer=f"{side}{trial}") for trial in trials]

    page = show([*tried("before", (2, 1)), a_result("x")], [*tried("after", (1, 2, 3)), a_result("x")])
    for trial in (1, 2):
        page.js(f"location.hash = '#case=tried&trial={trial}'")
        page.wait(f"document.querySelector('.diff ins')?.innerText.includes('after{trial}')")
        assert page.texts(".diff del") == [f"only in A: before{trial}"]
    page.js("location.hash = '#case=tried&trial=3'")
    page.wait("document.querySelector('.case').innerText.includes('Only run B has trial 3 of this case.')")


def test_errored_cases_are_a_group_of_their_own_in_a_comparison(show: Open) -> None:
    before = [a_result("fine", 1.0), a_result("errors now", 1.0), a_result("lost", 1.0)]
    after = [a_result("fine", 1.0), a_result("errors now", 0.0, error="HTTP 500"), a_result("lost", 0.0)]
    page = show(before, after)
    assert page.text("h1").endswith("1 case broken, 1 errored.")
    assert page.text(".flip.broken").startswith("▼ 1 broken pass → fail\nlost\n1.00 → 0.00")
    assert page.text(".flip.errored").startswith("! 1 errored error or not judged in A or B\nerrors now\n1.00 → 0.00")
    page.filter("flip:errored")
    assert page.ids == ["errors now"]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_stays_text(show: Open, payload: str) -> None:
    evil = hostile_result(payload)
    page = show([evil, a_result("x")], [evil | {"candidate_answer": payload + " changed"}, a_result("x")])
    page.click(".rows .row:nth-child(1) .id")
    page.wait("document.querySelector('.case h1')")
    page.js("for (const each of document.querySelectorAll('details')) each.open = true")
    page.filter(payload.split(maxsplit=1)[0])
    page.js("for (const each of document.querySelectorAll('.case button')) each.click()")
    time.sleep(0.1)
    assert page.js("window.hacked") is None
    assert (
        page.js(
            "document.querySelectorAll('img, iframe, object, embed, link, base, form, svg[onload], a:not([href^=\"#\"])').length"
        )
        == 0
    )


@pytest.mark.smoke
def test_the_policy_blocks_parsing_of_markup(show: Open) -> None:
    page = show(few())
    got = page.js(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set' } catch (error) { return error.name } })()"
    )
    assert got == "TypeError"
    assert page.js("document.querySelector('meta[http-equiv]').content").startswith(
        "default-src 'none'; script-src 'sha256-"
    )
    page._browser.events.clear()  # the browser tells of the attempt in the console, as it should


def test_texts_of_all_kinds(show: Open) -> None:
    page = show(hard_ones())

    def case(name: str) -> str:
        page.js(f"location.hash = '#case={name}'")
        page.wait(f"document.querySelector('.case h1')?.innerText === '{name}'")
        return page.text(".case")

    assert "Paragraph 300." not in case("very-long-answer")
    page.click(".sides > div:nth-child(2) .more")
    assert "Paragraph 399." in page.text(".case")
    assert HEBREW in case("right-to-left")
    assert page.js("getComputedStyle(document.querySelector('.case .prose')).unicodeBidi") == "plaintext"
    assert "    if i % 2:\n        print(i)" in case("code")
    assert page.texts(".case .turn") == ["System", "User", "Assistant", "User"]
    assert "| Oslo   | 709037 |" in case("table")
    assert '"city": "Oslo",\n' in case("json")
    assert "the answer was cut off at the token limit" in case("cut-off")
    case("no-answer")
    page.click(".case details summary")
    page.wait("document.querySelector('.case').innerText.includes('ValueError: no')")


def test_a_trace_is_a_timeline_whose_steps_open(show: Open) -> None:
    page = show([a_result("steps", trace=a_trace(300))], fragment="#case=steps")
    page.wait("document.querySelectorAll('.steps li').length === 250")
    page.click(".trace > .more")
    assert page.js("document.querySelectorAll('.steps li').length") == 300
    assert "300 steps" in page.text(".trace h2")
    assert "! error" in page.text(".steps li:nth-child(3)")
    page.click(".steps li:nth-child(2) summary")
    page.wait("document.querySelector('.steps li:nth-child(2)').innerText.includes('\"path\": \"src/file_1.py\"')")
    summary = {"eventCount": 3, "toolNames": ["Read"], "toolCallsByName": {"Read": 3}, "errorCount": 0}
    page = show([a_result("steps", trace_summary=summary)], fragment="#case=steps&")
    page.wait("document.querySelector('.trace')?.innerText.includes('run with --include-trace')")
    page = show([a_result("steps", trace_summary=summary, trace=a_trace(3))], fragment="#case=steps", traces=False)
    page.wait("document.querySelector('.trace')?.innerText.includes('written without traces (--no-traces)')")


def test_old_results_and_those_of_other_tools(show: Open) -> None:
    page = show([{"eval_id": "a", "score": 0.25}, {"eval_id": "b", "score": 1}])
    assert page.ids == ["a", "b"]
    page.press("j")
    page.wait("document.querySelector('.case').innerText.includes('The question is not in these results.')")
    assert "No answer." in page.text(".case")


def test_a_run_of_errors_and_a_run_without_any(show: Open) -> None:
    page = show([an_error(f"e{n}", f"error {n % 2}") for n in range(6)])
    assert page.texts(".errors li") == ["3× error 0", "3× error 1"]
    page.click(".errors button")
    page.wait("document.querySelectorAll('.rows .row').length === 3")
    page = show([a_result(f"c{n}", execution_metrics={"duration_ms": n * 100}) for n in range(1, 9)])
    assert page.text(".all-passed") == "✓ Every case passed.\n\nSlowest: c8 800 ms, c7 700 ms, c6 600 ms"
    page = show([a_result("a")], failed_only=True)
    assert "✓ Every case passed." in page.text("body")
    assert "This report contains no cases." in page.text("main")


def test_plots_filter(show: Open) -> None:
    page = show(a_run(60))
    page.click(".histogram .bar:nth-child(4)")
    assert page.js("document.getElementById('filter').value") == "score>=0.6 score<0.8"
    page.click(".evaluators tbody tr:first-child button")
    assert page.js("document.getElementById('filter').value") == "evaluator:cites-a-source"
    page.js("scrollTo(0, 0)")
    left, top, width, height = page.js(
        "(() => { const {left, top, width, height} = document.querySelector('.scatter-field').getBoundingClientRect(); return [left, top, width, height] })()"
    )
    page.mouse("mousePressed", left + 2, top + height / 2)
    page.mouse("mouseMoved", left + width / 2, top + height - 10)
    page.mouse("mouseReleased", left + width - 2, top + height - 2)
    query = page.js("document.getElementById('filter').value")
    assert query.startswith("duration>=") and "score>=0.00 score<=0.5" in query
    assert page.text(".status").endswith("of 60 cases")


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_is_wider_than_the_screen(show: Open, width: int) -> None:
    named = a_result("long-name")
    named["evaluator_results"][0]["name"] = "does-not-claim-to-know-what-nobody-knows"
    results = [*hard_ones(), named, *a_run(30)]
    page = show(results, [each | {"score": 0.9, "verdict": "pass"} for each in results])
    page.resize(width, 800)
    for fragment in ("#", "#case=very-long-answer", "#case=table", "#case=two-hundred-steps", "#q=verdict:fail"):
        page.js(f"location.hash = '{fragment}'")
        time.sleep(0.15)
        assert page.js("document.documentElement.scrollWidth") <= width, fragment
        assert page.js("document.querySelector('.case').scrollWidth") <= width, fragment


def test_a_narrow_screen_shows_a_case_over_the_table(show: Open) -> None:
    page = show(a_run(40))
    page.resize(400, 800)
    page.js("document.querySelector('.bar-top').scrollIntoView()")
    page.click(".rows .row:nth-child(3) .c-answer")
    page.wait("document.querySelector('.case h1')")
    assert page.js("document.querySelector('.case').getBoundingClientRect().width") == 400
    assert page.js("document.querySelector('main').inert")
    page.click(".case-tools button")
    page.wait("document.querySelector('.case').hidden")
    assert not page.js("document.querySelector('main').inert")
    assert page.js("scrollY") > 100  # the table has kept its place


@pytest.mark.parametrize("dark", [False, True])
def test_names_landmarks_and_contrast(show: Open, dark: bool) -> None:
    results = hard_ones() + few()
    changed = [each | {"score": 0.5, "verdict": "fail", "candidate_answer": "another"} for each in results]
    for second in (None, changed):
        page = show(results, second)
        page.set_theme(dark=dark)
        page.press("?")
        assert page.js(ACCESSIBLE) == []
        page.press("Escape")
        for fragment in (
            "#q=verdict:fail%20score%3C",
            "#case=code",
            "#case=no-answer",
            "#case=two-hundred-steps",
            "#case=judged",
        ):
            page.js(f"location.hash = '{fragment}'")
            time.sleep(0.15)
            assert page.js(ACCESSIBLE) == [], fragment
    assert page.js("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)"
    )


def test_everything_can_be_reached_with_the_tab_key(show: Open) -> None:
    page = show(few())
    reached = set()
    for _ in range(40):
        page.press("Tab")
        reached.add(page.js("document.activeElement.id || document.activeElement.innerText?.trim().split('\\n')[0]"))
        assert page.js(
            "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        )
    assert {"filter", "?", "broken", "good", "style", "duration", "cost", "score"} <= reached


def test_rows_are_virtual_and_may_exceed_the_maximum_page_height(show: Open) -> None:
    page = show([{"eval_id": f"case-{n}", "score": 1} for n in range(250_000)])
    assert page.text(".status") == "250,000 cases"
    assert page.js("document.querySelectorAll('.rows .row').length") < 100
    assert page.js("document.documentElement.scrollHeight") < 9_000_000
    page.js("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait("[...document.querySelectorAll('.rows .id')].at(-1)?.innerText === 'case-249999'")
    page.js("location.hash = '#case=case-123456'")
    page.wait("document.querySelector('.case h1')?.innerText === 'case-123456'")
    page.wait("[...document.querySelectorAll('.rows .id')].some((link) => link.innerText === 'case-123456')")
    page.filter("case-24999")
    assert page.text(".status") == "11 of 250,000 cases"
    assert page.heap_mb() < 100


def test_a_search_shows_progress_and_finds_one_answer_among_many(show: Open) -> None:
    results = a_run(4000)
    results[3210]["candidate_answer"] += ' a "needle" in\nthe häystack'
    page = show(results)
    page.js(
        "new MutationObserver(() => { window.said = (window.said ?? '') + document.querySelector('.status').innerText }).observe(document.querySelector('.status'), {childList: true, characterData: true, subtree: true})"
    )
    page.filter("needle häystack")
    assert page.ids == [results[3210]["eval_id"]]
    assert "searching, " in page.js("window.said")


def test_printing_gives_the_summary_and_what_did_not_pass(show: Open) -> None:
    page = show(few())
    page.js("dispatchEvent(new Event('beforeprint'))")
    page.send("Emulation.setEmulatedMedia", media="print")
    words = page.text("body")
    assert "40% passed" in words
    assert "Cases that did not pass" in words and "broken" in words and "middling" in words
    assert "judged" not in page.text(".printed")
    page.send("Emulation.setEmulatedMedia", media="screen")


def test_a_case_can_be_copied_as_markdown(show: Open) -> None:
    page = show(few(), fragment="#case=bad")
    page.wait("document.querySelector('.case h1')")
    page.js("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.press("c")
    page.wait("document.querySelector('.copied').innerText === 'copied'")
    assert page.js("window.copied").startswith("### bad: fail 0.10\n\n**Question**\n\n```\nWhat is bad?\n```\n")
    assert "- ✗ does not give a source" in page.js("window.copied")


def test_a_copied_case_says_why_it_fails(show: Open) -> None:
    broken = {"name": "broken", "type": "python", "score": 0.0, "weight": 1.0, "verdict": "fail", "failed": True}
    reason = "not judged: no reason of an evaluator"
    fields = {"failed_required": ["cites"], "misses": [reason], "evaluator_results": [broken]}
    page = show([a_result("gated", 0.9, verdict="fail", **fields)], fragment="#case=gated")
    page.wait("document.querySelector('.judgements')")
    page.js("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.press("c")
    page.wait("window.copied")
    copied = page.js("window.copied")
    assert f"**Failed required checks**: cites\n\n- ✗ {reason}\n\n**broken**: could not judge\n" in copied


def test_the_row_in_focus_can_be_copied_as_markdown(show: Open) -> None:
    page = show(few())
    page.js("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.js("[...document.querySelectorAll('.row a')].find((link) => link.innerText.startsWith('bad')).focus()")
    page.press("c")
    page.wait("document.querySelector('#status').innerText === 'copied bad'")
    assert page.js("window.copied").startswith("### bad: fail 0.10\n")


PATCH = """diff --git a/src/sql.sql b/src/sql.sql
--- a/src/sql.sql
+++ b/src/sql.sql
@@ -1,3 +1,2 @@
 select 1
--- a comment
-select 2
+select <b>3</b>
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ (7 bytes)
"""


def test_changed_files_come_before_the_steps_with_changed_lines_marked(show: Open) -> None:
    page = show([a_result("one", 0.0, file_changes=PATCH, trace=a_trace(3))], fragment="#case=one")
    page.wait("document.querySelector('.patch')")
    assert page.texts(".patch del") == ["--- a comment", "-select 2"]
    assert page.texts(".patch ins") == ["+select <b>3</b>"]
    assert page.texts(".patch-file") == ["diff --git a/src/sql.sql b/src/sql.sql", "diff --git a/logo.png b/logo.png"]
    headings = page.texts(".case-body h2")
    assert headings.index("Changed files") < next(at for at, text in enumerate(headings) if text.startswith("Steps"))


def test_two_runs_show_what_both_changed(show: Open) -> None:
    other = PATCH.replace("select <b>3</b>", "select 4")
    after = [a_result("one", 0.0, file_changes=other, trace=a_trace(3))]
    page = show([a_result("one", 1.0, file_changes=PATCH)], after, fragment="#case=one")
    page.wait("document.querySelectorAll('.patch').length === 2")
    assert page.texts(".patch ins") == ["+select <b>3</b>", "+select 4"]
    assert page.texts(".changes h3") == ["A", "B"]
    assert any(text.startswith("Steps of B") for text in page.texts(".case-body h2"))


def test_a_case_shows_its_kept_workspace_and_a_long_note(show: Open) -> None:
    note = f"the agent was denied permission: Bash {'x' * 300}"
    page = show([a_result("one", 0.0, note=note, workspace_path=".agentv/workspaces/r/one")])
    page.resize(400, 900)
    page.js("location.hash = 'case=one'")
    page.wait("document.querySelector('.metrics')")
    assert "workspace .agentv/workspaces/r/one" in page.texts(".metrics dl div")
    assert page.js("document.querySelector('.case').scrollWidth <= document.querySelector('.case').clientWidth")


def test_the_ledger_counts_in_words_as_the_summary_does(show: Open) -> None:
    page = show([*few(), an_error("late", "timed out", failure="timeout")])
    assert "ledger 6 planned = 4 scored + 1 target error + 1 timeout" in page.texts(".about div")


def test_the_metrics_and_the_skipped_cases_of_a_run(show: Open, tmp_path: Path) -> None:
    run_id = "20261116-030000-ab12"
    metrics = {
        "escalations": {"value": 2 / 3, "ci_lower": 0.25, "ci_upper": 1.0},
        "latency.p99": {"value": 12345.6, "ci_lower": None, "ci_upper": None},
    }
    ledger = {"planned": 6, "scored": 4, "target_errors": 1, "invalid": 1, "skipped": 2}
    folder = tmp_path / ".agentv" / "runs"
    folder.mkdir(parents=True)
    record = {"run_id": run_id, "status": "done", "ledger": ledger, "metrics": metrics}
    (folder / f"{run_id}.json").write_text(json.dumps(record))
    page = show([each | {"run_id": run_id} for each in few()])
    assert page.texts(".run-metrics tr") == [
        "value 95% interval",
        "escalations 0.667 0.250 to 1.000",
        "latency.p99 12,346",
    ]
    assert page.text(".facts").startswith("5 cases, 2 skipped, ")
    assert "1 invalid case" in page.text(".troubles")
    assert "ledger 6 planned = 4 scored + 1 target error + 1 invalid; 2 skipped" in page.texts(".about div")


def test_the_metrics_of_a_comparison_are_those_of_compare(
    show: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.py").write_text("def mean(results): return sum(r['score'] for r in results) / len(results)\n")
    (tmp_path / "e.yaml").write_text(
        "metrics: [{name: mean, function: 'metrics.py:mean'}]\nevalcases: [{id: a, input: x, expected_outcome: x}]\n"
    )
    before = [a_result(name, 0.0, file="e.yaml") for name in "abc"]
    after = [a_result(name, 1.0, file="e.yaml") for name in "abc"]
    page = show(before, after)
    assert page.texts(".run-metrics tr") == [
        "A B change 95% interval of the change",
        "mean 0.000 1.000 +1.000 +1.000 to +1.000",
    ]


def test_a_case_lists_its_tags_and_variables(show: Open) -> None:
    page = show(few(), fragment="#case=bad")
    page.wait("document.querySelector('.metrics')")
    rows = page.texts(".metrics dl div")
    assert "tags smoke" in rows
    assert "variables city: Bonn" in rows


def test_the_help_fits_a_narrow_screen(show: Open) -> None:
    page = show(few())
    page.resize(420, 900)
    page.press("?")
    page.wait("document.querySelector('dialog').open")
    overlap = """[...document.querySelectorAll('.keys div')].some((row) =>
      row.querySelector('kbd').getBoundingClientRect().right > row.querySelector('dd').getBoundingClientRect().left)"""
    assert page.js(overlap) is False
