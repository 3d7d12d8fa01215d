"""The pytest plugin in projects of users: cases as tests, and the fixture `agentv`. pytest runs in processes of its own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.kits.project import Write, flat

EVALS = """
execution:
  evaluators: [{type: contains, value: Paris}]
evalcases:
  - {id: france, expected_outcome: Names Paris., input: The capital is Paris}
  - {id: norway, expected_outcome: Names Paris., input: The capital is Oslo}
  - {id: broken, expected_outcome: Names Paris., input: break}
"""
AGENT = """
import os

def answer(question, eval_id, request):
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{eval_id}/{request.trial}\\n")
    if "break" in question:
        raise ValueError("no idea")
    return question
"""
TARGETS = "targets: [{name: default, provider: python, function: agent.py:answer}]\n"


@pytest.fixture
def project(write: Write) -> Write:
    write("evals/capitals.yaml", EVALS)
    write("agent.py", AGENT)
    write("targets.yaml", TARGETS)
    write("pytest.ini", "[pytest]\nagentv_files = evals/*.yaml\ntestpaths = tests\n")
    write("tests/test_plain.py", "def test_plain():\n    pass\n")
    return write


WITHOUT_OTHERS = "-p no:anyio -p no:hypothesispytest"
"""Plugins that are only installed here; to load them takes as long as all the rest of pytest."""
PYTEST_8 = Path(sys.prefix) / "pytest-8"
"""Where `make` puts the oldest pytest that the plugin is for."""


def run(*args: str, code: int = 0, **more: str) -> str:
    """What pytest prints, run with these arguments and variables in the current folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
    environment |= {"CALLS": str(Path("calls.txt").absolute()), "COLUMNS": "200", "PYTEST_ADDOPTS": WITHOUT_OTHERS}
    environment |= more
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *args],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=300,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def outcomes(printed: str) -> dict[str, str]:
    """What became of each test, by its id, as `-v` tells it."""
    found = re.findall(
        r"^(?:\[gw\d+\] \[ *\d+%\] )?(\S+::\S+)? ?(PASSED|FAILED|ERROR) ?(\S+::\S+)?", printed, re.MULTILINE
    )
    return {before or after: verdict for before, verdict, after in found if before or after}


def calls() -> list[str]:
    return sorted(Path("calls.txt").read_text().split()) if Path("calls.txt").exists() else []


def results() -> list[str]:
    """The cases of the one results file."""
    (path,) = Path(".agentv/results").glob("*.jsonl")
    return sorted(json.loads(line)["eval_id"] for line in path.read_text().splitlines())


def test_cases_are_tests_that_pass_fail_or_end_in_an_error(project: Write) -> None:
    printed = run("-v", code=1)
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
    assert re.search(r"agentv: results are in \S+/\.agentv/results/eval_\S+\.jsonl", printed)
    assert not Path(".agentv/pytest").exists()


def test_it_works_with_the_oldest_pytest_that_it_is_for(project: Write) -> None:
    assert PYTEST_8.is_dir(), "run make first: it installs an older pytest, too"
    project("tests/test_plain.py", FIXTURE)
    printed = run("-v", "-k", "france or norway or broken or reached", code=1, PYTHONPATH=str(PYTEST_8))
    assert "pytest-8.2." in printed
    assert outcomes(printed) == {
        "evals/capitals.yaml::france": "PASSED",
        "evals/capitals.yaml::norway": "FAILED",
        "evals/capitals.yaml::broken": "ERROR",
        "tests/test_plain.py::test_reached": "PASSED",
    }


def test_only_selected_cases_run(project: Write) -> None:
    assert outcomes(run("-v", "-k", "france")) == {"evals/capitals.yaml::france": "PASSED"}
    assert calls() == ["france/1"]
    assert outcomes(run("-v", "evals/capitals.yaml::norway", code=1)) == {"evals/capitals.yaml::norway": "FAILED"}
    assert calls() == ["france/1", "norway/1"]
    assert outcomes(run("-v", "tests")) == {"tests/test_plain.py::test_plain": "PASSED"}
    assert calls() == ["france/1", "norway/1"]


def test_what_failed_last_runs_again_and_the_first_failure_may_end_it(project: Write) -> None:
    run(code=1)
    assert outcomes(run("-v", "--lf", code=1)) == {
        "evals/capitals.yaml::norway": "FAILED",
        "evals/capitals.yaml::broken": "ERROR",
    }
    assert calls() == ["broken/1", "broken/1", "france/1", "norway/1", "norway/1"]
    assert "evals/capitals.yaml::broken" not in outcomes(run("-v", "-x", code=1))


def test_each_trial_is_a_test_and_junit_has_them_all(project: Write) -> None:
    project(
        "pytest.ini",
        "[pytest]\nagentv_files = evals/*.yaml\ntestpaths = tests\nagentv_trials = 2\nagentv_workers = 3\n",
    )
    found = outcomes(run("-v", "--junitxml", "junit.xml", "-k", "not norway", code=1))
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
    assert outcomes(run("-v", "evals/capitals.yaml::france[trial-2]")) == {
        "evals/capitals.yaml::france[trial-2]": "PASSED"
    }


@pytest.mark.parametrize("workers", [2, 4])
def test_with_xdist_each_case_is_asked_once_and_there_is_one_results_file(project: Write, workers: int) -> None:
    more = EVALS.replace("france", "italy").replace("norway", "spain").replace("broken", "empty")
    project("evals/more.yaml", more)
    found = outcomes(run("-v", "-n", str(workers), code=1))
    assert len(found) == 7
    assert [found[f"evals/more.yaml::{name}"] for name in ("italy", "spain", "empty")] == ["PASSED", "FAILED", "ERROR"]
    assert calls() == ["broken/1", "empty/1", "france/1", "italy/1", "norway/1", "spain/1"]
    assert results() == ["broken", "empty", "france", "italy", "norway", "spain"]


def test_tests_have_the_place_of_their_case(project: Write) -> None:
    project(
        "conftest.py", "def pytest_collection_finish(session):\n    print([item.location for item in session.items])\n"
    )
    assert "('evals/capitals.yaml', 5, 'norway')" in run("--collect-only", "-s")  # lines count from 0 there


FIXTURE = """
import pytest

def answers(share):
    def answer(eval_id):
        return "Paris" if int(eval_id) < share * 40 else "Rome"
    return answer

@pytest.fixture
def evals(tmp_path):
    path = tmp_path / "many.jsonl"
    line = '{"id": "%d", "expected_outcome": "Names Paris.", "input": "Which?", "evaluators": [{"type": "contains", "value": "Paris"}]}'
    path.write_text("\\n".join(line % number for number in range(40)))
    return path

def test_reached(agentv, evals):
    run = agentv(evals, target=answers(1), workers=8)
    assert (len(run.results), run.summary.mean) == (40, 1.0)
    run.check(mean=0.9, pass_rate=0.9)

def test_missed(agentv, evals):
    agentv(evals, target=answers(0.5)).check(mean=0.8)

def test_undecided(agentv, evals):
    agentv(evals, target=answers(0.85)).check(pass_rate=0.8)

def test_close(agentv, evals):
    agentv(evals, target=answers(0.85)).check(pass_rate=0.851)

def test_bad_bar(agentv, evals):
    agentv(evals, target=answers(1)).check(mean=80)

def test_worse(agentv, evals):
    base = agentv(evals, target=answers(0.9)).path
    agentv(evals, target=answers(0.95)).not_worse_than(base, margin=0.1)
    agentv(evals, target=answers(0.2)).not_worse_than(base)

def test_no_such_target(agentv, evals):
    agentv(evals, target="nobody", targets=".")

def test_no_number(agentv, evals):
    agentv(evals, target=answers(1)).check(mean="0.8")

def test_no_base(agentv, evals):
    agentv(evals, target=answers(1), out=None).not_worse_than("base.jsonl")

def test_errors(agentv, evals):
    agentv(evals, target=lambda question: 1 / 0).check(mean=0.8)

def test_few(agentv, evals):
    base = agentv(evals, target=answers(1), limit=4, out=None).path
    agentv(evals, target=answers(0), limit=4).not_worse_than(base)

async def run_inside(agentv, evals):
    return agentv(evals, target=answers(1), trials=2).summary.trials

def test_in_a_running_loop(agentv, evals):
    import asyncio
    assert asyncio.run(run_inside(agentv, evals)) == 2
"""


def test_the_fixture_passes_fails_or_says_that_it_cannot_tell(project: Write) -> None:
    project("tests/test_plain.py", FIXTURE)
    printed = run("-v", "tests", code=1)
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
        "test_in_a_running_loop": "PASSED",
    }
    assert "mean 0.500 (95%: 0.338 to 0.662) of 40 cases, bar 0.8: it is under the bar" in printed
    assert (
        "undecided: pass rate 0.850 (95%: 0.709 to 0.929) of 40 cases, bar 0.8: the cases are too few to tell"
        in printed
    )
    assert re.search(r"about \d+ cases would probably tell", printed)
    assert "bar 0.851: the cases are too few to tell; more than 10,000 cases would probably tell" in printed
    assert "the bar for the mean is 80" in printed
    assert "worse: the mean changed by -0.700 (95%: " in flat(printed)
    assert "unknown target 'nobody'" in printed
    assert "the bar for the mean is '0.8'" in printed
    assert "base.jsonl: no such file" in printed
    assert "of 40 cases (results that are errors: 40), bar 0.8: it is under the bar" in printed
    assert "4 cases: 4 pairs cannot support a claim: at least 10 are needed" in flat(printed)
    assert "During handling" not in printed
    assert "agentv/run/" not in printed  # what is shown is the line of the test


@pytest.mark.parametrize(("setting", "verdict"), [("warn", "PASSED"), ("pass", "PASSED"), ("fail", "FAILED")])
def test_what_an_undecided_check_does_is_a_setting(project: Write, setting: str, verdict: str) -> None:
    project("pytest.ini", f"[pytest]\nagentv_undecided = {setting}\n")
    project("tests/test_plain.py", FIXTURE)
    printed = run("-v", "tests", "-k", "undecided", code=0 if verdict == "PASSED" else 1)
    assert list(outcomes(printed).values()) == [verdict]
    assert ("PytestWarning: undecided: pass rate 0.850" in printed) == (setting == "warn")
    assert bool(re.search(r"tests/test_plain\.py:\d+: PytestWarning", printed)) == (setting == "warn")


@pytest.mark.parametrize(
    ("ini", "message"),
    [
        ("agentv_files = evals/none.yaml", "agentv_files: no such eval file: evals/none.yaml (in "),
        ("agentv_files = none/*.yaml", "agentv_files: no eval file fits none/*.yaml (in "),
        (
            "agentv_files = evals/*.yaml\nagentv_trials = many",
            "agentv_trials = many: it must be a whole number from 1 on",
        ),
        (
            "agentv_files = evals/*.yaml\nagentv_workers = 99",
            "agentv_workers = 99: it must be a whole number from 1 to 50",
        ),
        ("agentv_undecided = maybe", "agentv_undecided = maybe: it must be one of fail, warn, pass"),
        ("agentv_files = empty", "agentv_files: no eval file in the folder empty (in "),
    ],
)
def test_settings_that_cannot_be_used(project: Write, ini: str, message: str) -> None:
    Path("empty").mkdir()
    project("pytest.ini", f"[pytest]\n{ini}\n")
    assert message in run(code=4)
    assert calls() == []


def test_errors_of_eval_files_are_told_with_file_and_line(project: Write) -> None:
    project("evals/wrong.yaml", "evalcases:\n  - {id: a, expected_outcome: x, input: [}\n")
    printed = run("evals/wrong.yaml", code=2)
    assert "ERROR collecting evals/wrong.yaml" in printed
    assert re.search(r"evals/wrong\.yaml: Line 2: ", printed)
    assert "Traceback" not in printed
    project("evals/wrong.yaml", EVALS.replace("Paris}]", "Paris}]\n  target: nobody"))
    printed = run("-v", "evals/wrong.yaml::france", code=1)
    assert outcomes(printed) == {"evals/wrong.yaml::france": "ERROR"}
    assert "unknown target 'nobody'" in printed
    assert "During handling" not in printed


def test_evaluators_that_cannot_be_used_are_errors_of_the_collection(project: Write) -> None:
    project("evals/wrong.yaml", EVALS.replace("contains", "contans"))
    printed = run("evals/wrong.yaml", code=2)
    assert "ERROR collecting evals/wrong.yaml" in printed
    assert re.search(r"evals/wrong\.yaml: Line 3: .*unknown evaluator type 'contans'", printed)
    assert printed.count("unknown evaluator type") == 1
    assert "did you mean 'contains'?" in printed


def test_files_beside_the_eval_files_are_not_collected(project: Write) -> None:
    Path("targets.yaml").rename("evals/targets.yaml")
    assert outcomes(run("-v", "-k", "france")) == {"evals/capitals.yaml::france": "PASSED"}
    project("pytest.ini", "[pytest]\nagentv_files = evals\n")
    assert outcomes(run("-v", "-k", "france")) == {"evals/capitals.yaml::france": "PASSED"}


def test_the_paths_of_the_option_are_relative_to_the_current_folder(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    project("pytest.ini", "[pytest]\n")
    monkeypatch.chdir("tests")
    printed = run("-v", "--agentv", "../evals/capitals.yaml", "-k", "france")
    assert list(outcomes(printed).values()) == ["PASSED"]


def test_an_option_names_files_as_well(project: Write) -> None:
    project("pytest.ini", "[pytest]\n")
    assert outcomes(run("-v", "tests", "--agentv", "evals/capitals.yaml", "-k", "france or plain")) == {
        "tests/test_plain.py::test_plain": "PASSED",
        "evals/capitals.yaml::france": "PASSED",
    }
    assert "--agentv: no such eval file: nowhere.yaml" in run("--agentv", "nowhere.yaml", code=4)


def test_two_plugins_that_want_the_same_file_are_told_of(project: Write) -> None:
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
    printed = run("-k", "france")
    assert "capitals.yaml: agentv collects it, and another plugin as conftest.Other" in printed


def test_a_project_that_does_not_use_it_imports_nothing_of_agentv_but_the_plugin(project: Write) -> None:
    project("pytest.ini", "[pytest]\n")
    project(
        "tests/test_plain.py",
        "import sys\n"
        "def test_plain():\n"
        "    found = sorted(name for name in sys.modules if name.partition('.')[0] in ('agentv', 'msgspec', 'click', 'yaml'))\n"
        "    print('imported', found)\n",
    )
    assert "imported ['agentv', 'agentv.pytest_plugin', 'agentv.pytest_plugin.keys']\n" in run("tests", "-s")
