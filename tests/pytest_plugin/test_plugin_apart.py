"""The pytest plugin in separate processes: other versions, pytest-xdist, and imports."""

import sys
from pathlib import Path

import pytest

from tests.kits.pytest_projects import EVALS, FIXTURE, PytestProject, calls, outcomes, results

pytestmark = pytest.mark.slow


PYTEST_8 = Path(sys.prefix) / "pytest-8"
"""Where `make` puts the oldest pytest that the plugin is for."""


def test_it_works_with_the_oldest_supported_pytest(project: PytestProject, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PYTEST_8.is_dir(), "run make first: it installs an older pytest, too"
    monkeypatch.setenv("PYTHONPATH", str(PYTEST_8))
    project("tests/test_plain.py", FIXTURE)
    project("evals/capitals.yaml", EVALS.replace("france", "geo::france"))
    named = [f"evals/capitals.yaml::{name}" for name in ("geo::france", "norway", "broken")]
    printed = project.run_apart("-v", *named, "tests/test_plain.py::test_reached", code=1)
    assert "pytest-8.2." in printed
    assert outcomes(printed) == {
        "evals/capitals.yaml::geo::france": "PASSED",
        "evals/capitals.yaml::norway": "FAILED",
        "evals/capitals.yaml::broken": "ERROR",
        "tests/test_plain.py::test_reached": "PASSED",
    }


@pytest.mark.parametrize("workers", [2, 4])
def test_with_xdist_each_case_runs_once_and_there_is_one_results_file(project: PytestProject, workers: int) -> None:
    more = EVALS.replace("france", "italy").replace("norway", "spain").replace("broken", "empty")
    project("evals/more.yaml", more)
    found = outcomes(project.run_apart("-v", "-n", str(workers), code=1))
    assert len(found) == 7
    assert [found[f"evals/more.yaml::{name}"] for name in ("italy", "spain", "empty")] == ["PASSED", "FAILED", "ERROR"]
    assert calls() == ["broken/1", "empty/1", "france/1", "italy/1", "norway/1", "spain/1"]
    assert results() == ["broken", "empty", "france", "italy", "norway", "spain"]


def test_without_eval_files_only_the_plugin_is_imported(project: PytestProject) -> None:
    project("pytest.ini", "[pytest]\n")
    project(
        "tests/test_plain.py",
        "import sys\n"
        "def test_plain():\n"
        "    found = {name for name in sys.modules if name.partition('.')[0] in ('agentv', 'msgspec', 'click', 'yaml')}\n"
        "    print('imported', sorted(found - {'agentv._version'}))\n",
    )
    assert "imported ['agentv', 'agentv.pytest_plugin', 'agentv.pytest_plugin.keys']\n" in project.run_apart(
        "tests", "-s"
    )
