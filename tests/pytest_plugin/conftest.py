"""The project for tests of the plugin."""

import os

import pytest

from tests.kits.pytest_projects import AGENT, EVALS, TARGETS, WITHOUT_OTHERS, PytestProject


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> PytestProject:
    for name in os.environ:
        if name.startswith(("PYTEST_", "CI")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CALLS", str(pytester.path / "calls.txt"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOME", str(pytester.path.parent))  # pytester makes it the project, and a home is none
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
    project = PytestProject(pytester)
    project("evals/capitals.yaml", EVALS)
    project("agent.py", AGENT)
    project("targets.yaml", TARGETS)
    project("pytest.ini", "[pytest]\nagentv_files = evals/*.yaml\ntestpaths = tests\n")
    project("tests/test_plain.py", "def test_plain():\n    pass\n")
    return project
