"""Names of runs: `--name`, and the commands that accept a name."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK, evaluate, results


@pytest.fixture
def project(write: Write) -> Write:
    """Two runs called nightly, of which the second has another answer, and one without a name."""
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case("one", evaluators=[HELLO])])
    evaluate("a.jsonl", "--name", "nightly", "--out", "1.jsonl")
    write("targets.yaml", MOCK.replace("hello from default", "goodbye"))
    evaluate("a.jsonl", "--name", "nightly", "--out", "2.jsonl")
    evaluate("a.jsonl", "--out", "3.jsonl")
    return write


def test_the_record_has_the_name(project: Write) -> None:
    listed = json.loads(agentv("runs", "--format", "json").stdout)
    assert [run.get("name") for run in listed] == [None, "nightly", "nightly"]


def test_runs_lists_the_runs_of_a_name(project: Write) -> None:
    listed = json.loads(agentv("runs", "nightly", "--format", "json").stdout)
    assert [run["results"] for run in listed] == ["2.jsonl", "1.jsonl"]
    heading, first, *_ = agentv("runs").stdout.splitlines()
    assert heading.split()[:2] == ["run", "name"]
    assert "nightly" not in first


def test_an_unknown_name_is_an_error(project: Write) -> None:
    ran = agentv("runs", "nigthly")
    assert (ran.returncode, ran.stderr) == (2, "error: no run is called 'nigthly'\nhint: did you mean 'nightly'?\n")


def test_without_names_the_hint_explains_how_to_name_a_run(write: Write) -> None:
    ran = agentv("runs", "nightly")
    assert ran.stderr == "error: no run is called 'nightly'\nhint: 'agentv eval --name' names a run\n"


def test_show_prints_the_newest_run_of_a_name(project: Write) -> None:
    assert "goodbye" in agentv("show", "nightly").stdout


def test_a_file_takes_precedence_over_a_name(project: Write) -> None:
    shutil.copy("1.jsonl", "nightly")
    assert "hello from default" in agentv("show", "nightly").stdout


def test_compare_and_report_accept_names_and_ids(project: Write) -> None:
    ran = agentv("compare", "1.jsonl", "nightly")
    assert [file["path"] for file in json.loads(ran.stdout)["files"]] == ["1.jsonl", "2.jsonl"]
    listed = json.loads(agentv("runs", "--format", "json").stdout)
    ran = agentv("compare", listed[2]["run_id"], "--vs", "nightly")
    assert [file["path"] for file in json.loads(ran.stdout)["files"]] == ["1.jsonl", "2.jsonl"]
    assert agentv("report", "nightly").returncode == 0
    assert Path("2.html").is_file()


def test_neither_a_file_nor_a_name_is_an_error(project: Write) -> None:
    for command in (("show", "weekly"), ("compare", "1.jsonl", "weekly"), ("report", "weekly")):
        ran = agentv(*command)
        assert ran.returncode == 2
        assert "weekly" in ran.stderr


def test_results_of_other_runs_in_the_same_file_are_ignored(project: Write) -> None:
    project("a.jsonl", [a_case("one", evaluators=[HELLO]), a_case("two", evaluators=[HELLO])])
    evaluate("a.jsonl", "--name", "resumed", "--out", "2.jsonl", "--resume")
    assert len(results("2.jsonl")) == 2
    ran = agentv("compare", "1.jsonl", "nightly")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: 2.jsonl: run 'nightly' shares its results file with other runs\n")
    assert agentv("compare", "1.jsonl", "resumed", "--undecided", "pass").returncode in (0, 1)


def test_a_name_is_not_empty(project: Write) -> None:
    ran = agentv("eval", "a.jsonl", "--name", " ")
    assert ran.returncode == 2
    assert "error: --name is empty\n" in ran.stderr


def test_a_name_is_valid_utf_8(project: Write) -> None:
    ran = agentv("eval", "a.jsonl", "--name", os.fsdecode(b"\xff"))
    assert ran.returncode == 2
    assert "error: --name is not valid UTF-8\n" in ran.stderr
