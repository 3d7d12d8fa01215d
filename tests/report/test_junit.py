"""JUnit XML of a run: `--junit FILE`."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentv.report.junit import junit_blocks
from tests.kits.project import Write, agentv_process
from tests.kits.reports import evaluate, project


@pytest.mark.parametrize("form", ["jsonl", "yaml"])
def test_junit_distinguishes_passes_failures_and_errors(write: Write, form: str) -> None:
    project(write, fine="all good", bad="no", mean="a mood", broken="break it")
    evaluate("--output-format", form, "--junit", "reports/junit.xml", code=1)
    root = ElementTree.parse("reports/junit.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "4", "2", "1")
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert {case.get("classname") for case in cases.values()} == {"some"}
    assert list(cases["fine"]) == []
    (failure,) = cases["bad"]
    assert (failure.tag, failure.get("message"), failure.get("type")) == ("failure", "score 0.000, fail", "fail")
    assert "good" in (failure.text or "")
    assert cases["mean"][0].get("type") == "borderline"
    (error,) = cases["broken"]
    assert (error.tag, error.get("type")) == ("error", "target")
    assert 'no <answer> & "no" \ufffd idea' in (error.get("message") or "")


def test_a_machine_failure_is_an_error(write: Write) -> None:
    write("r.jsonl", [{"eval_id": "a", "score": 0.0, "error": "no room", "failure": "machine", "verdict": "fail"}])
    root = ElementTree.fromstring(b"".join(junit_blocks(Path("r.jsonl"))))
    assert (root.get("failures"), root.get("errors")) == ("0", "1")
    (error,) = root.iter("error")
    assert (error.get("type"), error.get("message")) == ("machine", "no room")


def test_junit_includes_resumed_results_and_every_trial(write: Write) -> None:
    project(write, one="all good", two="good too")
    evaluate("--limit", "1")
    evaluate("--resume", "--junit", "junit.xml")
    assert [case.get("name") for case in ElementTree.parse("junit.xml").iter("testcase")] == ["one", "two"]
    evaluate("--trials", "2", "--junit", "junit.xml", "--limit", "1")
    names = [case.get("name") for case in ElementTree.parse("junit.xml").iter("testcase")]
    assert names == ["one, trial 1", "one, trial 2"]


def test_an_unwritable_junit_file_is_reported(write: Write) -> None:
    project(write, one="all good")
    Path("folder").mkdir()
    assert "folder: --junit is a folder" in evaluate("--junit", "folder", code=2)
    assert not Path("out.jsonl").exists()
    ran = agentv_process("eval", "evals", "--out", "/dev/stdout", "--junit", "junit.xml")
    assert ran.returncode == 2
    assert "--junit needs results in a regular file" in ran.stderr
