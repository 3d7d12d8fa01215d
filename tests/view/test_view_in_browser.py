"""The viewer in a real Chromium while files grow, change and disappear."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agentv.report.page.bundle import ENTRY, STYLES, module_names, script, style, without_comments
from agentv.report.page.write import write_report
from agentv.view.files import file_id
from agentv.view.pages import ICON, SCRIPTS, STYLE, VIEW_STYLES, asset_answer, source
from agentv.view.serve import opened_browser, serving
from tests.kits.browser import Browser, Page
from tests.kits.page_rules import ACCESSIBLE, PAYLOADS, hostile_result
from tests.kits.pages import a_result, a_run, hard_ones, save_results
from tests.kits.processes import wait_until
from tests.kits.viewer import Address

Results = list[dict[str, Any]]


class Shown:
    """A viewer, and a page of it."""

    def __init__(self, browser: Browser, page: Page, folder: Path, serve: Callable[[Path], str]):
        self.browser, self.page, self.folder = browser, page, folder
        self._serve = serve
        self.at = Address("")
        self.expected: list[str] = []

    def write(self, name: str, results: Results) -> Path:
        return save_results(self.folder / f"{name}.jsonl", results)

    def open(self, path: str = "/", fragment: str = "") -> Page:
        """Open a page of the viewer, which is started if it is not."""
        if not self.at.whole:
            self.at = Address(self._serve(self.folder))
            self.page.go_to(self.at.whole)
        self.page.go_to(f"{self.at.origin}{path}{fragment}")
        return self.page

    def run(self, *names: str) -> str:
        """The path of the page of these runs."""
        ids = [file_id(Path(os.path.realpath(self.folder / f"{name}.jsonl"))) for name in names]
        return "/run/" + ids[0] if len(ids) == 1 else f"/compare/{ids[0]}/{ids[1]}"


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Shown]:
    """In the end the console is empty, and everything was asked of the viewer itself."""
    with ExitStack() as stack:
        page = stack.enter_context(browser.page())
        found = Shown(browser, page, tmp_path / "results", lambda folder: stack.enter_context(serving([folder])))
        yield found
        assert [problem for problem in page.problems() if not problem.startswith(tuple(found.expected))] == []
        asked = {url for url in page.requests() if url != "about:blank"}
        assert asked and all(url.startswith(f"{found.at.origin}/") for url in asked)


def dated(results: Results, day: int) -> Results:
    return [each | {"timestamp": f"2026-11-{day:02}T10:00:00Z", "run_id": ""} for each in results]


def append(path: Path, results: Results) -> None:
    """Append results from another process, as a run does."""
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    text = "".join(json.dumps(each) + "\n" for each in results)
    subprocess.run([sys.executable, "-c", code, str(path)], input=text, text=True, check=True)


@pytest.mark.smoke
def test_the_list_of_runs(shown: Shown) -> None:
    for day in (1, 2, 3):
        shown.write(f"eval_{day}", dated(a_run(20, seed=day, better=day / 20), day))
    page = shown.open()
    page.wait("document.querySelectorAll('.runs tbody tr').length === 3")
    page.wait("document.querySelectorAll('.r-mean .mean-bar').length === 3")
    assert page.texts(".runs .r-run a") == ["eval_3.jsonl", "eval_2.jsonl", "eval_1.jsonl"]
    assert page.texts(".r-when")[1:] == [f"2026-11-0{day} 10:00 UTC" for day in (3, 2, 1)]
    assert page.text("h1").startswith("3 runs, latest mean 0.")
    label = page.js("document.querySelector('.trend svg').getAttribute('aria-label')")
    assert label.startswith("mean score of 3 runs: from 0.") and "2026-11-01" in label
    assert page.js("document.querySelectorAll('.trend a').length") == 3
    page.filter("eval_2")
    page.wait("document.querySelectorAll('.runs tbody tr').length === 1")
    assert page.text(".status") == "1 of 3 runs"
    assert page.js("location.hash") == "#q=eval_2"


def test_the_figures_are_those_of_a_report(shown: Shown, tmp_path: Path) -> None:
    results = a_run(40, trials=3) + hard_ones() + [a_result("lone", 0.65, evaluator_results=[], dataset="other")]
    path = shown.write("eval_1", results)
    seen = (
        "[...document.querySelectorAll('h1, .facts, .troubles, .histogram, .evaluators')].map((each) => each.innerText)"
    )
    write_report([path], tmp_path / "report.html")
    with shown.browser.page() as other:
        other.open(tmp_path / "report.html")
        report, order = other.js(seen), other.ids
    shown.browser.events.clear()
    page = shown.open(shown.run("eval_1"))
    page.wait("document.querySelectorAll('.rows .row').length > 10")
    assert page.js(seen) == report
    assert page.ids == order


def test_new_runs_appear_in_the_list(shown: Shown) -> None:
    shown.write("eval_1", dated(a_run(5), 1))
    page = shown.open()
    page.wait("document.querySelectorAll('.r-mean .mean-bar').length === 1")
    page.js("document.querySelector('.runs tbody tr').isClickedOn = true")
    shown.write("eval_2", dated(a_run(5), 2))
    page.wait("document.querySelectorAll('.r-mean .mean-bar').length === 2")
    assert page.texts(".runs .r-run a") == ["eval_2.jsonl", "eval_1.jsonl"]
    assert page.js("document.querySelector('.runs tbody tr:nth-child(2)').isClickedOn")


@pytest.mark.smoke
def test_from_the_list_to_a_run_to_a_case_and_back(shown: Shown) -> None:
    shown.write("eval_1", [a_result("good"), a_result("bad", 0.1, candidate_answer="Lyon, I think")])
    page = shown.open()
    page.wait("document.querySelector('.r-mean .mean-bar')")  # the list is drawn again when it knows the mean
    page.click(".runs .r-run a")
    page.wait("document.querySelectorAll('.rows .row').length === 2")
    page.wait("document.querySelector('.rows').innerText.includes('Lyon')")
    assert page.text("h1") == "50% passed (95%: 9 to 91%), mean 0.55."
    assert page.ids == ["bad", "good"]
    page.press("n")
    page.wait("document.querySelector('.case h1')?.innerText === 'bad'")
    assert page.js("location.hash") == "#case=bad"
    assert "Lyon, I think" in page.text(".case")
    page.go_back()
    page.wait("document.querySelector('.case').hidden")
    page.go_back()
    page.wait("location.pathname === '/' && document.querySelector('.runs a')")
    page.go_forward()
    page.wait("location.pathname.startsWith('/run/') && document.querySelectorAll('.rows .row').length === 2")
    page.click(".crumbs a")
    page.wait("location.pathname === '/' && document.querySelector('.runs a')")


def test_the_address_without_its_token_is_a_permalink(shown: Shown) -> None:
    shown.write("eval_1", a_run(30))
    page = shown.open(shown.run("eval_1"), "#case=peru-004&q=verdict%3Afail")
    page.wait("document.querySelector('.case h1')?.innerText === 'peru-004'")
    assert "token" not in page.js("location.href")
    assert page.js("document.getElementById('filter').value") == "verdict:fail"
    assert len(page.texts(".chip")) == 1


def test_the_token_is_kept_by_the_tab_and_not_in_a_cookie(shown: Shown) -> None:
    shown.write("eval_1", a_run(3))
    page = shown.open()
    page.wait("document.querySelector('.runs a')")
    assert page.js("document.cookie") == ""
    assert page.js("Object.values(sessionStorage)") == [shown.at.token]
    assert page.js("localStorage.length") == 0
    page.js("location.reload()")
    page.wait("document.querySelector('.runs a')")


def test_a_new_tab_gets_the_token_from_another_one(shown: Shown) -> None:
    shown.write("eval_1", a_run(3))
    page = shown.open()
    page.wait("document.querySelector('.runs a')")

    def tabs() -> set[str]:
        targets = shown.browser.send("Target.getTargets")["targetInfos"]
        return {each["targetId"] for each in targets if each["type"] == "page"}

    # a new tab is known by its id: the address that the browser gives for it changes while it loads
    before = tabs()
    page.send("Runtime.evaluate", expression="window.open('/review', '_blank', 'noopener')", userGesture=True)
    wait_until(lambda: len(tabs() - before) == 1)
    (target,) = tabs() - before
    session = shown.browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    Page(shown.browser, session).wait("document.querySelector('.review-progress')?.innerText === '0 of 3'")


def test_a_page_without_the_token_is_an_empty_shell(shown: Shown) -> None:
    shown.write("eval_1", a_run(3))
    shown.at = Address(shown._serve(shown.folder))
    for path in ("/", shown.run("eval_1"), "/review"):
        page = shown.open(path)
        page.wait("document.body.innerText.includes('open the complete address printed by')")
        page.js("dispatchEvent(new Event('resize'))")
        page.js("dispatchEvent(new HashChangeEvent('hashchange'))")
        text = page.js("document.body.innerText")
        assert "open the complete address printed by" in text
        assert "no runs yet" not in text
        assert "eval_1" not in page.js("document.documentElement.outerHTML")
    assert not [url for url in page.requests() if "/api/" in url]


def test_an_address_with_a_token_opened_in_a_tab_without_one(shown: Shown) -> None:
    shown.write("eval_1", a_run(3))
    shown.at = Address(shown._serve(shown.folder))
    page = shown.open()
    page.wait("document.body.innerText.includes('open the complete address printed by')")
    page.js(f"location.hash = 'q=eval&token={shown.at.token}'")
    page.wait("document.querySelector('.runs a')")
    assert page.js("location.hash") == "#q=eval"


def test_two_runs_are_chosen_and_compared(shown: Shown) -> None:
    before = [a_result("same"), a_result("fixed", 0.1), a_result("broken", 1.0)]
    shown.write("eval_1", dated(before, 1))
    shown.write("eval_2", dated([a_result("same"), a_result("fixed", 1.0), a_result("broken", 0.2)], 2))
    shown.write("eval_3", dated(a_run(3), 3))
    page = shown.open()
    page.wait("document.querySelectorAll('.r-mean .mean-bar').length === 3")
    assert page.js("document.querySelector('.compare').disabled")
    page.click(".runs tbody tr:nth-child(3) input")
    assert page.text(".compare") == "Select one more run"
    page.click(".runs tbody tr:nth-child(2) input")
    assert page.text(".compare") == "Compare these two"
    assert page.js("location.hash").startswith("#chosen=")
    page.click(".compare")
    page.wait("location.pathname.startsWith('/compare/') && document.querySelectorAll('.rows .row').length === 3")
    assert page.js("location.pathname") == shown.run("eval_1", "eval_2")  # the older is the base
    assert page.text("h1").startswith("Cannot tell: +0.0") and "1 case fixed, 1 broken" in page.text("h1")
    assert page.ids == ["broken", "fixed", "same"]
    page.click(".rows .row:nth-child(1) .id")
    page.wait("document.querySelector('.case h1')?.innerText === 'broken'")
    assert "1.00" in page.text(".both-scores") and "0.20" in page.text(".both-scores")
    page.go_back()
    page.wait("!location.hash.includes('case=')")
    page.go_back()
    page.wait("location.pathname === '/' && document.querySelectorAll('.runs input:checked').length === 2")


def test_filters_by_fields_of_the_cases(shown: Shown) -> None:
    cases = [
        a_result("one", tags=["smoke", "slow"], vars={"city": "Bonn"}, metadata={"level": 3}),
        a_result("two", tags=["smoke"], vars={"city": "Rome"}, metadata={"level": "1"}),
        a_result("three"),
    ]
    shown.write("a", cases)
    page = shown.open(shown.run("a"))
    for query, ids in {
        "tag:smoke -tag:slow": ["two"],
        "vars.city:B*": ["one"],
        "metadata.level<2": ["two"],
        "-metadata.level>=2": ["two", "three"],
    }.items():
        page.filter(query)
        assert page.ids == ids, query
    page.filter("tgs:smoke")
    assert len(page.ids) == 3
    assert "unknown key 'tgs'" in page.text()


def test_cases_that_share_an_id_across_datasets_are_compared_separately(shown: Shown) -> None:
    """The datasets come in another order in each file, so that their numbers differ."""
    geo = {"dataset": "geo"}
    math = {"dataset": "math"}
    shown.write("eval_1", [a_result("c", 1.0, **geo), a_result("c", 0.1, **math), a_result("x", dataset="old")])
    shown.write("eval_2", [a_result("c", 0.9, **math), a_result("c", 0.2, **geo), a_result("x", dataset="new")])
    page = shown.open(shown.run("eval_1", "eval_2"))
    page.wait("document.querySelectorAll('.rows .row').length === 3")
    assert page.text("h1").endswith("1 case fixed, 1 broken.")
    assert page.text(".flip.broken").endswith("c\n1.00 → 0.20")


def test_runs_without_a_common_case_are_reported(shown: Shown) -> None:
    shown.write("eval_1", [a_result("one")])
    shown.write("eval_2", [a_result("two")])
    shown.expected.append("Failed to load resource: the server responded with a status of 409 (Conflict)")
    page = shown.open(shown.run("eval_1", "eval_2"))
    page.wait("document.querySelector('.notice.failed')?.innerText.includes('No eval_id occurs in both')")


@pytest.mark.smoke
def test_a_run_grows_in_the_page_and_nothing_moves(shown: Shown) -> None:
    results = a_run(300)
    path = shown.write("eval_1", results[:200])
    page = shown.open(shown.run("eval_1"))
    page.filter("score<2")
    page.wait("document.querySelector('.status').innerText === '200 cases'")
    page.js("scrollTo(0, 3000)")
    page.click(".rows .row:nth-child(12) .id")
    page.wait("document.querySelector('.case h1')")
    page.wait("[...document.querySelectorAll('.rows .c-answer')].every((each) => each.innerText)")
    place = "[scrollY, location.hash, document.getElementById('filter').value, document.querySelector('.case h1').innerText]"
    rows = (
        "[...document.querySelectorAll('.rows .row')].map((each) => [each.innerText, each.getBoundingClientRect().top])"
    )
    before, rows_before, title = page.js(place), page.js(rows), page.js("document.querySelector('h1').textContent")
    append(path, results[200:])
    page.wait("document.querySelector('.status').innerText.startsWith('300 cases, 100 new at the end')")
    assert page.js(place) == before
    assert page.js(rows) == rows_before
    assert page.js("document.querySelector('h1').textContent") != title  # the figures are those of all
    assert len([url for url in page.requests() if "/run/" in url and "/api/" not in url]) == 1  # no reload
    page.press("Escape")
    page.click(".status button")
    page.wait("document.querySelector('.status').innerText === '300 cases'")
    worst = sorted(results, key=lambda each: (each.get("error") is None, each["verdict"] != "fail", each["score"]))
    page.js("scrollTo(0, 0)")
    page.wait(f"document.querySelector('.rows .id').innerText === {json.dumps(worst[0]['eval_id'])}")


def test_a_header_that_is_replaced_no_longer_follows_the_color_scheme(shown: Shown) -> None:
    path = shown.write("eval_1", a_run(30))
    page = shown.open(shown.run("eval_1"))
    page.wait("document.querySelector('.scatter canvas')")
    for seed in (1, 2):
        before = page.text("h1")
        append(path, [each | {"eval_id": f"{seed} {each['eval_id']}"} for each in a_run(30, seed, seed / 2)])
        page.wait(f"document.querySelector('h1').innerText !== {json.dumps(before)}")
    page.js("""
        window.drawn = [];
        const measure = Element.prototype.getBoundingClientRect;
        Element.prototype.getBoundingClientRect = function () {
          if (this.className === 'scatter-field') window.drawn.push(this.isConnected);
          return measure.call(this);
        };
    """)
    page.set_theme(dark=True)
    page.wait("window.drawn.length > 0")
    assert page.js("window.drawn") == [True]


def test_a_click_is_not_lost_while_answers_arrive(shown: Shown) -> None:
    shown.write("eval_1", [a_result("one"), a_result("two")])
    shown.page.send("Fetch.enable", patterns=[{"urlPattern": "*/snippets/*"}])
    page = shown.open(shown.run("eval_1"))
    waiting = page.paused_request()
    box = "document.querySelector('.rows .row .id').getBoundingClientRect()"
    place = page.js(f"(({{left, top, height}}) => [left + 5, top + height / 2])({box})")
    page.mouse("mousePressed", *place)
    page.send("Fetch.continueRequest", requestId=waiting["requestId"])
    page.wait("document.querySelector('.rows .c-answer').innerText")
    page.mouse("mouseReleased", *place)
    page.wait("document.querySelector('.case h1')")
    assert page.text(".case h1") == "one"


def test_a_new_trial_updates_the_existing_row(shown: Shown) -> None:
    path = shown.write("eval_1", [a_result("a", 1.0, trial=1), a_result("b", 1.0, trial=1)])
    page = shown.open(shown.run("eval_1"))
    page.wait("document.querySelectorAll('.rows .row').length === 2")
    append(path, [a_result("a", 0.0, trial=2)])
    page.wait("document.querySelector('.rows .row .c-score').innerText.includes('0.50')")
    assert page.ids == ["a", "b"]
    assert "2 cases × 2 trials" in page.text(".facts")


def test_a_text_search_finds_new_results(shown: Shown) -> None:
    path = shown.write("eval_1", a_run(20))
    page = shown.open(shown.run("eval_1"))
    page.filter("needle")
    page.wait("document.querySelector('.status').innerText === '0 of 20 cases'")
    append(path, [a_result("found", candidate_answer="a needle"), a_result("other", candidate_answer="hay")])
    page.wait("document.querySelector('.status').innerText.startsWith('1 of 22 cases')")
    assert page.ids == ["found"]


def test_a_slow_text_search_finds_new_results_once(shown: Shown) -> None:
    path = shown.write("eval_1", a_run(20))
    page = shown.open(shown.run("eval_1"))
    page.filter("needle")
    page.wait("document.querySelector('.status').innerText === '0 of 20 cases'")
    page.js("(() => { let now = 0; performance.now = () => (now += 1000); })()")  # a second passes at each look
    append(path, [a_result("found", candidate_answer="a needle")])
    page.wait("document.querySelector('.rows .row .id')")
    assert page.ids == ["found"]
    assert page.text(".status").startswith("1 of 21 cases")


def test_a_run_in_progress_starts_empty_with_a_notice(shown: Shown) -> None:
    path = shown.write("eval_1", [])
    record = {"run_id": "20261101-100000-ab12", "status": "running", "results": "results/eval_1.jsonl"}
    runs = shown.folder.parent / ".agentv" / "runs"
    runs.mkdir(parents=True)
    process = {"pid": os.getpid(), "started": ""}
    (runs / "20261101-100000-ab12.json").write_text(json.dumps(record | {"process": process}))
    page = shown.open(shown.run("eval_1"))
    page.wait(
        "document.querySelector('.notices').innerText.includes('No results yet. They appear here as cases finish.')"
    )
    append(path, [a_result("one", run_id="20261101-100000-ab12")])
    page.wait("document.querySelectorAll('.rows .row').length === 1")
    page.wait("document.querySelector('.live-line').innerText === '● in progress, 1 result'")
    assert page.text(".notices") == ""
    assert "ledger 1 scored" in page.texts(".about div")  # how many are planned is told at the end
    ended = {"status": "interrupted", "ledger": {"planned": 3, "scored": 1, "not_run": 2}}
    (runs / "20261101-100000-ab12.json").write_text(json.dumps(record | ended))
    page.wait("document.querySelector('.live-line').innerText === 'this run was interrupted'")
    page.wait("document.querySelector('.about').innerText.includes('3 planned = 1 scored + 2 not run')")


def test_empty_files_truncated_lines_and_foreign_results_are_reported(shown: Shown) -> None:
    shown.write("eval_1", [])
    truncated = shown.write("eval_2", [a_result("one")])
    with truncated.open("a") as file:
        file.write('{"timestamp":"2026')
    foreign = shown.write("eval_3", [])
    page = shown.open(shown.run("eval_1"))
    page.wait("document.querySelector('.notices').innerText === 'This file contains no results.'")
    page = shown.open(shown.run("eval_2"))
    page.wait("document.querySelector('.notices').innerText.startsWith('The last line is truncated; skipped.')")
    assert page.ids == ["one"]
    shown.open(shown.run("eval_3"))
    foreign.write_text('{"prompt": "hi", "pass": true}\n')
    page.wait("document.querySelector('.notices').innerText.includes('1 record of this file is not a result')")
    assert "missing eval_id" in page.text(".notices")
    page = shown.open("/")
    page.wait("document.querySelector('.runs .problem')?.innerText === '✗ line 1: missing eval_id (and 1 more)'")
    assert page.text(f'[data-run="{shown.run("eval_3").rpartition("/")[2]}"] .r-run').startswith("eval_3.jsonl")


def test_truncated_replaced_and_deleted_files_are_reported(shown: Shown) -> None:
    path = shown.write("eval_1", a_run(30))
    shown.expected.append("Failed to load resource: the server responded with a status of 409 (Conflict)")
    page = shown.open(shown.run("eval_1"))
    page.wait("document.querySelectorAll('.rows .row').length > 10")
    os.truncate(path, 1000)
    page.wait("document.querySelector('.notices').innerText.includes('The results file was truncated')")
    assert len(page.ids) > 10  # what was read stays
    shown.write("eval_1", a_run(40))
    page.click(".notices button")
    page.wait("document.querySelector('.status')?.innerText === '40 cases'")
    fresh = shown.write("other", a_run(50))
    os.replace(fresh, path)
    page.wait("document.querySelector('.notices').innerText.includes('The results file was replaced')")
    path.unlink()
    shown.write("eval_2", a_run(5))
    gone = "The results file no longer exists. This page shows the part that was read."
    page.wait(f"document.querySelector('.notices').innerText.startsWith('{gone}')")
    page = shown.open(shown.run("eval_2"))
    page.wait("document.querySelector('.status')?.innerText === '5 cases'")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_stays_text(shown: Shown, payload: str) -> None:
    evil = hostile_result(payload)
    name = "eval_<img src=x onerror=hacked=1>"
    shown.write(name, [evil, a_result("x")])
    shown.write("eval_2", [evil | {"candidate_answer": payload + " changed"}, a_result("x")])
    record: dict[str, Any] = {"run_id": "20261101-100000-ab12", "status": "done", "started": payload}
    record |= {"results": "results/eval_2.jsonl"}
    record |= {"targets": [{"name": payload}], "eval_files": [{"path": payload, "cases": 1}], "summary": {"mean": 0.5}}
    record |= {"git": {"commit": payload, "branch": payload}, "command": [payload]}
    runs = shown.folder.parent / ".agentv" / "runs"
    runs.mkdir(parents=True)
    (runs / "20261101-100000-ab12.json").write_text(json.dumps(record))
    page = shown.open()
    page.wait("document.querySelectorAll('.runs tbody tr').length === 2")
    harmless = (
        'document.querySelectorAll(\'img, iframe, object, embed, base, form, svg[onload], link:not([href^="/assets/"]),'
        ' a:not([href^="#"]):not([href^="/"])\').length'
    )
    assert page.js(harmless) == 0
    for path in (shown.run(name), shown.run(name, "eval_2")):
        shown.open(path)
        page.wait("document.querySelector('.rows .id')")
        page.click(".rows .row:nth-child(1) .id")
        page.wait("document.querySelector('.case h1')")
        page.js("for (const each of document.querySelectorAll('details')) each.open = true")
        assert page.js(harmless) == 0
    time.sleep(0.1)
    assert page.js("window.hacked") is None


@pytest.mark.parametrize("dark", [False, True])
def test_names_landmarks_and_contrast(shown: Shown, dark: bool) -> None:
    for day in (1, 2, 3):
        shown.write(f"eval_{day}", dated(a_run(12, day) + hard_ones(), day))
    with (shown.folder / "eval_3.jsonl").open("a") as file:
        file.write('{"timestamp":"2026')
    shown.page.set_theme(dark=dark)
    page = shown.open()
    page.wait("document.querySelectorAll('.r-mean .mean-bar').length === 3")
    page.click(".runs tbody tr:nth-child(1) input")
    page.click(".runs tbody tr:nth-child(2) input")
    assert page.js(ACCESSIBLE) == []
    for path, fragment in (
        (shown.run("eval_3"), ""),
        (shown.run("eval_3"), "#case=code"),
        (shown.run("eval_1", "eval_2"), ""),
    ):
        shown.open(path, fragment)
        page.wait("document.querySelector('.rows .id')")
        if fragment:
            page.wait("document.querySelector('.case h1')")
        assert page.js(ACCESSIBLE) == []


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_is_wider_than_the_screen(shown: Shown, width: int) -> None:
    for day in (1, 2):
        long = [a_result("a-very-long-" + "id" * 60, target="target" * 20, dataset="dataset" * 20)]
        shown.write(f"eval_{day}{'x' * 80}", dated(long + a_run(10, day), day))
    shown.page.resize(width, 900)
    page = shown.open()
    page.wait("document.querySelectorAll('.runs tbody tr').length === 2")
    time.sleep(0.3)
    assert page.js("document.documentElement.scrollWidth") <= width
    names = [f"eval_{day}{'x' * 80}" for day in (1, 2)]
    for path in (shown.run(names[0]), shown.run(*names)):
        shown.open(path)
        page.wait("document.querySelector('.rows .id')")
        assert page.js("document.documentElement.scrollWidth") <= width


def test_the_list_can_be_used_without_a_mouse(shown: Shown) -> None:
    for day in (1, 2):
        shown.write(f"eval_{day}", dated(a_run(5, day), day))
    page = shown.open()
    page.wait("document.querySelectorAll('.r-mean .mean-bar').length === 2")
    page.press("/")
    page.wait("document.activeElement.id === 'filter'")
    page.press("Escape")
    reached = []
    for _ in range(12):
        page.press("Tab")
        reached.append(page.js("document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"))
    assert [text for text in reached if text.startswith("compare eval_2.jsonl")]
    assert "eval_1.jsonl" in reached


def test_the_file_that_opens_the_browser_leads_to_the_page(shown: Shown) -> None:
    shown.write("eval_1", a_run(3))
    shown.open()
    shown.page.send("Page.navigate", url="about:blank")
    shown.page.wait("location.href === 'about:blank'")
    shown.page.send("Storage.clearDataForOrigin", origin=shown.at.origin, storageTypes="all")
    opened: list[str] = []

    def take(address: str) -> bool:
        opened.append(address)
        return True

    with opened_browser(shown.at.whole, take) as is_open:
        assert is_open
        shown.page._browser.events.clear()
        shown.page.send("Page.navigate", url=opened[0])
        shown.page.wait(f"location.href === '{shown.at.origin}/' && document.querySelector('.runs a')")
    shown.page._browser.events[:] = [
        event for event in shown.page._browser.events if "agentv-view-" not in json.dumps(event.get("params", {}))
    ]


def test_the_front_end_is_small_and_parses_no_markup() -> None:
    root = Path(__file__).parent.parent.parent / "src" / "agentv"
    own = root / "view" / "assets"
    shared = root / "report" / "page" / "assets"
    modules = {name for entry in SCRIPTS for name in module_names(entry, source)}
    styles = {*STYLES, *VIEW_STYLES}
    # Every file once, as it is served: comments and indentation are for readers of the source.
    files = (*modules, ENTRY, *styles, ICON)
    assert sum(len(without_comments(source(name)).encode()) for name in files) <= 200_000
    # No page loads more than that either, with what wraps its modules.
    assert len(script().encode()) + len(style().encode()) <= 200_000
    for name in SCRIPTS:
        loaded = [asset_answer(each).body for each in (name, STYLE, ICON)]
        assert sum(map(len, loaded)) <= 200_000
    assert {path.name for path in own.iterdir()} <= {*modules, *styles, ICON}
    assert {path.name for path in shared.iterdir()} - {ENTRY} <= {*modules, *styles}
    for path in (*own.iterdir(), *shared.iterdir()):
        text = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, path
