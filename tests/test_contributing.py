"""The steps in CONTRIBUTING.md work: they are applied to a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.docs import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(r"^ *```(python|diff)\n( *)# (\S+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
KINDS = ("eval", "sidecar", "case", "targets", "config", "result")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with everything added that the page adds."""
    folder = tmp_path_factory.mktemp("copy")
    without_caches = shutil.ignore_patterns("__pycache__")
    for name in ("src", "scripts", "tests/kits"):
        shutil.copytree(ROOT / name, folder / name, ignore=without_caches)
    for path in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
        shutil.copy(ROOT / path, folder / path)
    for language, indent, path, text in BLOCK.findall(PAGE):
        lines = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        file = folder / path
        if language == "diff":
            file.write_text(changed(file.read_text(), lines))
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(lines)
    return folder


def changed(text: str, diff: str) -> str:
    """The text with the lines of a diff that begin with `+` added between those that begin with a space."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line.startswith(" "))
    assert text.count(before) == 1, f"not there, or more than once:\n{before}"
    return text.replace(before, "".join(line[1:] for line in lines))


def run(folder: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    command = [sys.executable, *args]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


@pytest.mark.slow
def test_the_tests_of_the_added_code_pass(copy: Path) -> None:
    ran = run(copy, "-m", "pytest", "-q", "-p", "no:xdist", "tests")
    assert ran.stdout.splitlines()[-1].startswith("6 passed")


@pytest.mark.slow
def test_the_structure_stands(copy: Path) -> None:
    assert "imports that point up: 0\n" in run(copy, "scripts/structure.py").stdout


def test_schemas_can_be_made(copy: Path) -> None:
    found = {kind: run(copy, "-m", "agentv", "schema", kind).stdout for kind in KINDS}
    assert '"echo"' in found["targets"]
    assert '"answer_length"' in found["result"]


def test_files_and_commands_on_the_page_exist() -> None:
    added = {path for _, _, path, _ in BLOCK.findall(PAGE)}
    named = set(re.findall(r"`((?:src|docs|scripts|tests|schemas|benchmarks)/[\w./-]*|[A-Z]+\.md)`", PAGE))
    assert [path for path in named - added if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([\w./-]+)", PAGE))
    assert {"demo", "test", "bench"} <= targets
    assert [name for name in targets if not re.search(rf"^{re.escape(name)}:", makefile, re.MULTILINE)] == []
