"""Where people look for failures: `--junit FILE`, and annotations when GitHub runs agentv."""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.kits.project import Write, a_case, agentv

AGENT = """
def answer(question):
    if "break" in question:
        raise ValueError('no <answer> & "no" \\x01 idea')
    return question
"""


def project(write: Write, **questions: str) -> None:
    write("agent.py", AGENT)
    write("targets.yaml", "targets: [{name: default, provider: python, function: '../agent.py:answer'}]\n")
    cases = [a_case(name, input_messages=[{"role": "user", "content": text}]) for name, text in questions.items()]
    write("evals/some.jsonl", cases)
    write("evals/some.yaml", "evaluators: [{type: contains, value: good}, {type: contains, value: ood, weight: 2.2}]\n")


def evaluate(*args: str, code: int = 0, **environment: str) -> str:
    ran = agentv("eval", "evals", "--out", "out.jsonl", *args, env={**os.environ, **environment})
    assert ran.returncode == code, ran.stderr
    return ran.stderr


@pytest.mark.parametrize("form", ["jsonl", "yaml"])
def test_junit_tells_what_passed_failed_and_broke(write: Write, form: str) -> None:
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


def test_junit_has_what_an_earlier_run_has_done_and_every_trial(write: Write) -> None:
    project(write, one="all good", two="good too")
    evaluate("--limit", "1")
    evaluate("--resume", "--junit", "junit.xml")
    assert [case.get("name") for case in ElementTree.parse("junit.xml").iter("testcase")] == ["one", "two"]
    evaluate("--trials", "2", "--junit", "junit.xml", "--limit", "1")
    names = [case.get("name") for case in ElementTree.parse("junit.xml").iter("testcase")]
    assert names == ["one, trial 1", "one, trial 2"]


def test_a_junit_file_that_cannot_be_written_is_said(write: Write) -> None:
    project(write, one="all good")
    Path("folder").mkdir()
    assert "folder: --junit is a folder" in evaluate("--junit", "folder", code=2)
    assert not Path("out.jsonl").exists()
    ran = agentv("eval", "evals", "--out", "/dev/stdout", "--junit", "junit.xml")
    assert ran.returncode == 2
    assert "--junit needs results in a regular file" in ran.stderr


def test_github_is_told_what_did_not_pass_and_where(write: Write) -> None:
    project(write, fine="all good", bad="50%, no: none", mean="a mood", broken="break it")
    said = evaluate("--quiet", code=1, GITHUB_ACTIONS="true", GITHUB_WORKSPACE=os.getcwd())
    lines = [line for line in said.splitlines() if line.startswith("::")]
    assert len(lines) == 3
    assert any(
        line.startswith("::error file=evals/some.jsonl,line=2,title=agentv%3A bad::score 0.000") for line in lines
    )
    assert any(line.startswith("::warning file=evals/some.jsonl,line=3,title=agentv%3A mean::") for line in lines)
    assert any(line.startswith("::error file=evals/some.jsonl,line=4,title=agentv%3A broken::") for line in lines)
    assert "%0A- " in said


def test_no_more_annotations_than_github_shows(write: Write) -> None:
    project(write, **{f"c{number}": "no" for number in range(25)})
    said = evaluate("--quiet", GITHUB_ACTIONS="true")
    assert said.count("::error ") == 10
    assert "::notice title=agentv::15 more cases did not pass" in said


def test_nobody_else_sees_annotations(write: Write) -> None:
    project(write, bad="no")
    assert "::error" not in evaluate(GITHUB_ACTIONS="")
