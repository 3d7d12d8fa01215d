"""`agentv eval --report FILE`: the page of a run, written at its end."""

from pathlib import Path

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


def test_a_page_that_could_not_be_written_stops_the_run_before_it_starts(write: Write) -> None:
    project(write, one="all good")
    Path("folder").mkdir()
    assert "folder: --report is a folder\nhint: name a file in it: folder/report.html" in evaluate(
        "--report", "folder", code=2
    )
    assert not Path("out.jsonl").exists()
    ran = agentv("eval", "evals", "--out", "-", "--report", "page.html")
    assert (ran.returncode, "--report needs results in a regular file" in ran.stderr) == (2, True)
    ran = agentv("eval", "evals", "--out", "out.jsonl", "--report", "out.jsonl")
    assert (ran.returncode, "out.jsonl: --report is --out as well" in ran.stderr) == (2, True)


def test_results_are_kept_when_the_page_cannot_be_written(write: Write) -> None:
    project(write, one="all good")
    Path("file").touch()
    told = evaluate("--report", "file/page.html", "--junit", "junit.xml", code=1)
    assert "error: file/page.html: cannot be written: " in told
    assert Path("out.jsonl").read_text().count("\n") == 1
    assert Path("junit.xml").exists()
    assert '"exit_code":1' in next(Path(".agentv/runs").iterdir()).read_text().replace(" ", "")


def test_a_run_that_is_stopped_before_its_first_result_writes_no_page_and_says_so(write: Write) -> None:
    project(write, one="all good")
    write(
        "agent.py",
        "import os, signal, time\ndef answer(question):\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(60)\n",
    )
    ran = agentv_process("eval", "evals", "--out", "out.jsonl", "--report", "page.html")
    assert ran.returncode == 130
    assert "there are no results, so no report was written\n" in ran.stderr
    assert not Path("page.html").exists()
