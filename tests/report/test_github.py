"""Annotations in GitHub Actions."""

import os

from tests.kits.project import Write
from tests.kits.reports import evaluate, project


def test_annotations_list_cases_that_did_not_pass_with_their_location(write: Write) -> None:
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


def test_annotations_are_printed_only_in_github_actions(write: Write) -> None:
    project(write, bad="no")
    assert "::error" not in evaluate(GITHUB_ACTIONS="")
