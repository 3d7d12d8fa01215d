"""Every example runs unchanged and prints what its page shows."""

import re
import shutil
from pathlib import Path

import pytest

from tests.kits.docs import ROOT, blocks, check_workflow, commands, run_console
from tests.kits.project import agentv

EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir())

WITH_COMMANDS = [folder for folder in EXAMPLES if not list(folder.glob("*.ipynb"))]
"""The examples that run on the command line. Notebooks are executed by tests/api/test_notebooks.py."""


@pytest.fixture(params=WITH_COMMANDS, ids=lambda folder: folder.name)
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an example, which is also the current folder."""
    folder: Path = request.param
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", ".agentv"))
    monkeypatch.chdir(copy)
    if copy.name == "extending":
        extension: Path = request.getfixturevalue("extension")
        monkeypatch.setenv("PYTHONPATH", str(extension))
        monkeypatch.syspath_prepend(extension)
    return copy


@pytest.mark.slow
def test_an_example_prints_what_its_page_says(example: Path) -> None:
    found = [block.text for block in blocks(example / "README.md") if block.language == "console"]
    assert found, "the README has no console block"
    for text in found:
        run_console(text)


def test_an_example_is_small_and_valid(example: Path) -> None:
    ran = agentv("validate", ".", cwd=example)
    counted = re.fullmatch(r"\d+ files, (\d+) cases: 0 errors, 0 warnings\n", ran.stdout)
    assert counted is not None, ran.stdout
    assert 2 <= int(counted[1]) <= 12  # a comparison needs ten


def test_the_list_of_examples_is_complete() -> None:
    listed = re.findall(r"^\| \[(.+?)\]\((.+?)/README\.md\)", (ROOT / "examples/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [(folder.name, folder.name) for folder in EXAMPLES]
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("page", sorted((ROOT / "examples").rglob("README.md")), ids=lambda page: page.parent.name)
def test_links_of_examples_are_valid(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_workflow_runs_the_commands_of_its_page() -> None:
    folder = ROOT / "examples/compare-in-ci"
    *evals, gate = check_workflow((folder / ".github/workflows/evals.yaml").read_text())
    (shown,) = (block.text for block in blocks(folder / "README.md"))
    assert evals == [line for line, _ in commands(shown)][:2]
    assert gate.startswith("agentv compare old.jsonl new.jsonl --gate noninferior --undecided pass ")
