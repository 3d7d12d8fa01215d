"""`agentv eval --report FILE`: the report written at the end of a run."""

import json
from pathlib import Path

from tests.kits.pages import meta_of
from tests.kits.project import Write, agentv, agentv_process
from tests.kits.reports import evaluate, project


def test_the_page_is_written_and_named_after_the_results(write: Write) -> None:
    project(write, fine="all good", broken="break it")
    ran = agentv("eval", "evals", "--out", "out.jsonl", "--report", "pages/run.html")
    assert ran.returncode == 1  # as without a page: a case ended in an error
    assert ran.stdout.endswith("Results: out.jsonl\nReport: pages/run.html\n")
    page = Path("pages/run.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "1 target error" in page
    assert "planned" in page  # the record of the run was complete when the page was written


def test_an_unwritable_report_stops_the_run_before_it_starts(write: Write) -> None:
    project(write, one="all good")
    Path("folder").mkdir()
    assert "folder: --report is a folder\nhint: pass a file in it: folder/report.html" in evaluate(
        "--report", "folder", code=2
    )
    assert not Path("out.jsonl").exists()
    ran = agentv("eval", "evals", "--out", "-", "--report", "page.html")
    assert (ran.returncode, "--report needs results in a regular file" in ran.stderr) == (2, True)
    ran = agentv("eval", "evals", "--out", "out.jsonl", "--report", "out.jsonl")
    assert (ran.returncode, "out.jsonl: --report is --out as well" in ran.stderr) == (2, True)


def test_results_are_kept_if_the_report_cannot_be_written(write: Write) -> None:
    project(write, one="all good")
    write(
        "agent.py",
        "import os\ndef answer(question):\n    os.rmdir('pages')\n    open('pages', 'w').close()\n    return question\n",
    )
    Path("pages").mkdir()
    told = evaluate("--report", "pages/page.html", "--junit", "junit.xml", code=1)
    assert "error: pages/page.html: cannot be written: " in told
    assert Path("out.jsonl").read_text().count("\n") == 1
    assert Path("junit.xml").exists()
    assert '"exit_code":1' in next(Path(".agentv/runs").iterdir()).read_text().replace(" ", "")


def test_a_run_stopped_before_its_first_result_reports_that_no_page_was_written(write: Write) -> None:
    project(write, one="all good")
    write(
        "agent.py",
        "import os, signal, time\ndef answer(question):\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(60)\n",
    )
    ran = agentv_process("eval", "evals", "--out", "out.jsonl", "--report", "page.html")
    assert ran.returncode == 130
    assert "no report written: there are no results\n" in ran.stderr
    assert not Path("page.html").exists()


def test_pages_exclude_results_of_cases_that_are_not_in_the_eval_files(write: Write) -> None:
    project(write, kept="all good", removed="bad")
    assert "title=agentv%3A removed" in evaluate(GITHUB_ACTIONS="true")
    project(write, kept="all good", new="good as well")
    pages = ["--report", "page.html", "--junit", "junit.xml", "--record", "record.json"]
    assert "title=agentv%3A removed" not in evaluate("--resume", *pages, GITHUB_ACTIONS="true")
    assert Path("out.jsonl").read_text().count("\n") == 3
    junit = Path("junit.xml").read_text()
    assert 'tests="2"' in junit
    assert "removed" not in junit
    (run,) = meta_of("page.html")["runs"]
    assert (run["figures"]["results"], run["figures"]["pass_rate"], run["troubles"]) == (2, 1.0, "")
    assert json.loads(Path("record.json").read_text())["ledger"]["unplanned_results"] == 1


def test_a_report_counts_results_without_a_case(write: Write) -> None:
    project(write, kept="all good", removed="bad")
    evaluate()
    project(write, kept="all good", new="good as well")
    evaluate("--resume")
    assert agentv("report", "out.jsonl").returncode == 0
    (run,) = meta_of("out.html")["runs"]
    assert run["figures"]["results"] == 3
    assert run["troubles"] == "1 result of cases that are not in the eval files"
