"""The pytest plugin in projects of users: cases as tests, and the fixture `agentv`. pytest runs in this process."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.kits.project import flat
from tests.kits.pytest_projects import EVALS, FIXTURE, PytestProject, calls, outcomes, results


def test_cases_are_tests_that_pass_fail_or_end_in_an_error(project: PytestProject) -> None:
    printed = project.run("-v", code=1)
    assert outcomes(printed) == {
        "tests/test_plain.py::test_plain": "PASSED",
        "evals/capitals.yaml::france": "PASSED",
        "evals/capitals.yaml::norway": "FAILED",
        "evals/capitals.yaml::broken": "ERROR",
    }
    assert "norway: 0.000 fail (capitals, evals/capitals.yaml:6, target default)" in printed
    assert "  answer      The capital is Oslo\n" in printed
    assert "- does not contain 'Paris'" in printed
    assert "agent.py:8 in answer: ValueError: no idea" in printed
    assert "_pytest/runner.py" not in printed  # no traceback of pytest, nor of ours
    assert calls() == ["broken/1", "france/1", "norway/1"]
    assert results() == ["broken", "france", "norway"]
    assert re.search(r"agentv: results written to \S+/\.agentv/results/eval_\S+\.jsonl", printed)
    assert not Path(".agentv/pytest").exists()


def test_timeouts_and_judge_failures_are_errors_not_failures(project: PytestProject) -> None:
    project("judge.py", "raise SystemExit('the judge is ill')\n")
    slow = "{name: default, provider: cli, command_template: sleep 60, timeout_seconds: 0.1}"
    project("targets.yaml", f"targets: [{slow}, {{name: quick, provider: mock, response: hello}}]\n")
    judge = f"{{type: code_judge, script: [{sys.executable}, ../judge.py]}}"
    cases = "  - {id: slow, expected_outcome: x, input: y}\n  - {id: judged, expected_outcome: x, input: y, execution: {target: quick}}\n"
    project("evals/capitals.yaml", f"execution:\n  evaluators: [{judge}]\nevalcases:\n{cases}")
    printed = project.run("-v", "evals", code=1)
    assert outcomes(printed) == {"evals/capitals.yaml::slow": "ERROR", "evals/capitals.yaml::judged": "ERROR"}
    assert "timed out" in printed and "the judge is ill" in printed


def test_only_selected_cases_run(project: PytestProject) -> None:
    assert outcomes(project.run("-v", "-k", "france")) == {"evals/capitals.yaml::france": "PASSED"}
    assert calls() == ["france/1"]
    assert outcomes(project.run("-v", "evals/capitals.yaml::norway", code=1)) == {
        "evals/capitals.yaml::norway": "FAILED"
    }
    assert calls() == ["france/1", "norway/1"]
    assert outcomes(project.run("-v", "tests")) == {"tests/test_plain.py::test_plain": "PASSED"}
    assert calls() == ["france/1", "norway/1"]


def test_a_case_marked_with_skip_is_a_skipped_test(project: PytestProject) -> None:
    project("evals/capitals.yaml", EVALS.replace("{id: norway,", "{id: norway, skip: the ferry is late,"))
    printed = project.run("-v", "-rs", "evals", "-k", "not broken")
    assert outcomes(printed)["evals/capitals.yaml::france"] == "PASSED"
    assert "evals/capitals.yaml::norway SKIPPED (the ferry is late)" in printed
    assert calls() == ["france/1"]
    project.run("evals/capitals.yaml::norway")
    assert calls() == ["france/1"]


NAMES = ["geo::france", "geo::v1.2", "poems", "geo::a::b[x::y]", "geo", "::odd", "end::"]


@pytest.mark.slow
def test_any_id_can_be_selected_on_the_command_line(project: PytestProject) -> None:
    cases = [{"id": name, "expected_outcome": "x", "input": "Paris"} for name in NAMES]
    checks = {"evaluators": [{"type": "contains", "value": "Paris"}]}
    project("evals/capitals.yaml", json.dumps({"execution": checks, "evalcases": cases}))
    every = [f"evals/capitals.yaml::{name}" for name in NAMES]
    assert list(outcomes(project.run("-v", "evals"))) == every  # in their order
    for node_id, name in zip(every, NAMES, strict=True):
        if name != "geo":
            assert list(outcomes(project.run("-v", node_id))) == [node_id]
    assert list(outcomes(project.run("-v", "evals/capitals.yaml::geo"))) == [every[0], every[1], every[3], every[4]]
    assert list(outcomes(project.run("-v", "evals", "-k", "geo::france"))) == [every[0]]
    assert "not found: " in project.run("evals/capitals.yaml::geo::spain", code=4)
    project("pytest.ini", "[pytest]\nagentv_files = evals/*.yaml\nagentv_trials = 2\n")
    assert list(outcomes(project.run("-v", f"{every[0]}[trial-2]"))) == [f"{every[0]}[trial-2]"]


def test_a_case_in_a_group_that_failed_runs_again(project: PytestProject) -> None:
    project("evals/capitals.yaml", EVALS.replace("norway", "geo::norway").replace("france", "geo::france"))
    printed = project.run("-v", "evals", "--junitxml", "junit.xml", code=1)
    assert outcomes(printed)["evals/capitals.yaml::geo::norway"] == "FAILED"
    assert re.search(r"^_+ geo::norway _+$", printed, re.MULTILINE)
    assert list(outcomes(project.run("-v", "--lf", "evals", "-k", "not broken", code=1))) == [
        "evals/capitals.yaml::geo::norway"
    ]
    names = [(case.get("classname"), case.get("name")) for case in ElementTree.parse("junit.xml").iter("testcase")]
    assert names[:2] == [("evals.capitals.yaml.geo", "france"), ("evals.capitals.yaml.geo", "norway")]


def test_last_failed_and_exitfirst_are_supported(project: PytestProject) -> None:
    project.run(code=1)
    assert outcomes(project.run("-v", "--lf", code=1)) == {
        "evals/capitals.yaml::norway": "FAILED",
        "evals/capitals.yaml::broken": "ERROR",
    }
    assert calls() == ["broken/1", "broken/1", "france/1", "norway/1", "norway/1"]
    assert "evals/capitals.yaml::broken" not in outcomes(project.run("-v", "-x", code=1))


def test_each_trial_is_a_test_and_junit_has_them_all(project: PytestProject) -> None:
    project(
        "pytest.ini",
        "[pytest]\nagentv_files = evals/*.yaml\ntestpaths = tests\nagentv_trials = 2\nagentv_workers = 3\n",
    )
    found = outcomes(project.run("-v", "--junitxml", "junit.xml", "-k", "not norway", code=1))
    assert found["evals/capitals.yaml::france[trial-2]"] == "PASSED"
    assert found["evals/capitals.yaml::broken[trial-1]"] == "ERROR"
    assert calls() == ["broken/1", "broken/2", "france/1", "france/2"]
    names = [case.get("name") for case in ElementTree.parse("junit.xml").iter("testcase")]
    assert sorted(names, key=str) == [
        "broken[trial-1]",
        "broken[trial-2]",
        "france[trial-1]",
        "france[trial-2]",
        "test_plain",
    ]
    assert outcomes(project.run("-v", "evals/capitals.yaml::france[trial-2]")) == {
        "evals/capitals.yaml::france[trial-2]": "PASSED"
    }


def test_only_the_selected_trials_run(project: PytestProject) -> None:
    project("pytest.ini", "[pytest]\nagentv_files = evals/*.yaml\nagentv_trials = 3\n")
    project.run("evals/capitals.yaml::france[trial-2]")
    assert calls() == ["france/2"]
    (results,) = Path(".agentv/results").glob("*.jsonl")
    assert [json.loads(line)["trial"] for line in results.read_text().splitlines()] == [2]
    project.run("evals", "-k", "france and not trial-2")
    assert calls() == ["france/1", "france/2", "france/3"]


def test_tests_have_the_location_of_their_case(project: PytestProject) -> None:
    project(
        "conftest.py", "def pytest_collection_finish(session):\n    print([item.location for item in session.items])\n"
    )
    assert "('evals/capitals.yaml', 5, 'norway')" in project.run("--collect-only", "-s")  # lines count from 0 there


@pytest.mark.slow
def test_the_fixture_passes_fails_or_is_undecided(project: PytestProject) -> None:
    project("tests/test_plain.py", FIXTURE)
    printed = project.run("-v", "tests", code=1)
    found = outcomes(printed)
    assert {name.partition("::")[2]: verdict for name, verdict in found.items()} == {
        "test_reached": "PASSED",
        "test_missed": "FAILED",
        "test_undecided": "FAILED",
        "test_close": "FAILED",
        "test_bad_bar": "FAILED",
        "test_worse": "FAILED",
        "test_no_such_target": "FAILED",
        "test_no_number": "FAILED",
        "test_no_base": "FAILED",
        "test_errors": "FAILED",
        "test_few": "FAILED",
        "test_missing": "FAILED",
        "test_in_a_running_loop": "PASSED",
    }
    assert "mean 0.500 (95%: 0.338 to 0.662) of 40 cases, threshold 0.8: below the threshold" in printed
    assert (
        "undecided: pass rate 0.850 (95%: 0.709 to 0.929) of 40 cases, threshold 0.8: too few cases to decide"
        in printed
    )
    assert re.search(r"about \d+ cases would probably decide it", printed)
    assert "threshold 0.851: too few cases to decide; more than 10,000 cases would probably decide it" in printed
    assert "invalid threshold for the mean: 80" in printed
    assert "worse: the mean changed by -0.700 (95%: " in flat(printed)
    assert "unknown target 'nobody'" in printed
    assert "invalid threshold for the mean: '0.8'" in printed
    assert "base.jsonl: no such file" in printed
    assert "of 40 cases (results that are errors: 40), threshold 0.8: below the threshold" in printed
    assert "4 cases: too few cases to decide: 4 pairs, at least 10 needed" in flat(printed)
    assert "B has no result for 2 cases of A: 38, 39: the mean changed by +0.000" in flat(printed)
    assert "During handling" not in printed
    assert "agentv/run/" not in printed  # what is shown is the line of the test


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "verdict"), [("warn", "PASSED"), ("pass", "PASSED"), ("fail", "FAILED")])
def test_the_outcome_of_an_undecided_check_is_a_setting(project: PytestProject, setting: str, verdict: str) -> None:
    project("pytest.ini", f"[pytest]\nagentv_undecided = {setting}\n")
    project("tests/test_plain.py", FIXTURE)
    printed = project.run("-v", "tests", "-k", "undecided", code=0 if verdict == "PASSED" else 1)
    assert list(outcomes(printed).values()) == [verdict]
    assert ("PytestWarning: undecided: pass rate 0.850" in printed) == (setting == "warn")
    assert bool(re.search(r"tests/test_plain\.py:\d+: PytestWarning", printed)) == (setting == "warn")


@pytest.mark.parametrize(
    ("ini", "message"),
    [
        ("agentv_files = evals/none.yaml", "agentv_files: no such eval file: evals/none.yaml (in "),
        ("agentv_files = none/*.yaml", "agentv_files: no eval file matches none/*.yaml (in "),
        (
            "agentv_files = evals/*.yaml\nagentv_trials = many",
            "agentv_trials = many: expected an integer 1 or greater",
        ),
        (
            "agentv_files = evals/*.yaml\nagentv_workers = 99",
            "agentv_workers = 99: expected an integer from 1 to 50",
        ),
        ("agentv_undecided = maybe", "agentv_undecided = maybe: expected one of fail, warn, pass"),
        ("agentv_files = empty", "agentv_files: no eval file in the folder empty (in "),
    ],
)
def test_settings_that_cannot_be_used(project: PytestProject, ini: str, message: str) -> None:
    Path("empty").mkdir()
    project("pytest.ini", f"[pytest]\n{ini}\n")
    assert message in project.run(code=4)
    assert calls() == []


def test_errors_in_eval_files_are_reported_with_file_and_line(project: PytestProject) -> None:
    project("evals/wrong.yaml", "evalcases:\n  - {id: a, expected_outcome: x, input: [}\n")
    printed = project.run("evals/wrong.yaml", code=2)
    assert "ERROR collecting evals/wrong.yaml" in printed
    assert re.search(r"evals/wrong\.yaml:2:\d+: ", printed)
    assert "Traceback" not in printed
    project("evals/wrong.yaml", EVALS.replace("Paris}]", "Paris}]\n  target: nobody"))
    printed = project.run("-v", "evals/wrong.yaml::france", code=1)
    assert outcomes(printed) == {"evals/wrong.yaml::france": "ERROR"}
    assert "unknown target 'nobody'" in printed
    assert "During handling" not in printed


def test_invalid_evaluators_are_collection_errors(project: PytestProject) -> None:
    project("evals/wrong.yaml", EVALS.replace("contains", "contans"))
    printed = project.run("evals/wrong.yaml", code=2)
    assert "ERROR collecting evals/wrong.yaml" in printed
    assert re.search(r"evals/wrong\.yaml:3:\d+: .*unknown evaluator type 'contans'", printed)
    assert printed.count("unknown evaluator type") == 1
    assert "did you mean 'contains'?" in printed


def test_files_next_to_eval_files_are_not_collected(project: PytestProject) -> None:
    Path("targets.yaml").rename("evals/targets.yaml")
    assert outcomes(project.run("-v", "-k", "france")) == {"evals/capitals.yaml::france": "PASSED"}
    project("pytest.ini", "[pytest]\nagentv_files = evals\n")
    assert outcomes(project.run("-v", "-k", "france")) == {"evals/capitals.yaml::france": "PASSED"}


def test_the_paths_of_the_option_are_relative_to_the_current_folder(
    project: PytestProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project("pytest.ini", "[pytest]\n")
    monkeypatch.chdir("tests")
    printed = project.run("-v", "--agentv", "../evals/capitals.yaml", "-k", "france")
    assert list(outcomes(printed).values()) == ["PASSED"]


def test_an_option_names_files_as_well(project: PytestProject) -> None:
    project("pytest.ini", "[pytest]\n")
    assert outcomes(project.run("-v", "tests", "--agentv", "evals/capitals.yaml", "-k", "france or plain")) == {
        "tests/test_plain.py::test_plain": "PASSED",
        "evals/capitals.yaml::france": "PASSED",
    }
    assert "--agentv: no such eval file: nowhere.yaml" in project.run("--agentv", "nowhere.yaml", code=4)


def test_two_plugins_that_collect_the_same_file_are_reported(project: PytestProject) -> None:
    project(
        "conftest.py",
        "import pytest\n"
        "class Other(pytest.File):\n"
        "    def collect(self):\n"
        "        return []\n"
        "def pytest_collect_file(file_path, parent):\n"
        "    if file_path.suffix == '.yaml':\n"
        "        return Other.from_parent(parent, path=file_path)\n",
    )
    printed = project.run("-k", "france")
    assert "capitals.yaml: collected by agentv and, as conftest.Other, by another plugin" in printed
