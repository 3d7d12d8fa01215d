"""`make demo`, a newcomer's first impression."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.docs import ROOT

COLUMNS = 80


def a_checkout(folder: Path) -> None:
    """The files of this repository that `make demo` needs, under Git, with a ready environment."""
    for name in ("Makefile", "pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "examples/first", folder / "examples/first", ignore=shutil.ignore_patterns("__pycache__"))
    program = folder / ".venv/bin/agentv"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentv "$@"\n')
    program.chmod(0o755)
    (folder / ".venv/bin/python").touch()
    (folder / ".venv/demo.stamp").touch()
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)


def demo(folder: Path) -> str:
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")  # these tests may be run by make themselves
    environment = {name: value for name, value in os.environ.items() if name not in of_make}
    environment["COLUMNS"] = str(COLUMNS)
    ran = subprocess.run(
        ["make", "demo"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_it_shows_why_cases_fail_and_ends_with_the_comparison(tmp_path: Path) -> None:
    a_checkout(tmp_path)

    shown = demo(tmp_path)

    first, second, compared, page = re.split(r"\n\n(?:The same questions|Is the new version|Yes\.).*\n", shown)
    assert "$ agentv eval capitals.yaml sums.jsonl --out old.jsonl\n" in first
    assert "  pass 6/12 " in first
    assert (
        "  0.000  seven-times-six\n         - says-42: does not contain '42'\n         answer: The sum is 13.\n"
        in first
    )
    assert "  pass 12/12 " in second
    assert "mean   A 0.528   B 1.000   Δ +0.472 " in compared
    assert "verdict: BETTER " in compared
    assert "largest gains: seven-times-six +1.00, three-times-nine +1.00, " in compared
    assert page.startswith("$ agentv report old.jsonl new.jsonl --out report.html\nReport: report.html (12 cases, ")
    assert "\nOpen .demo/report.html in a browser. " in page
    assert (tmp_path / ".demo/report.html").read_bytes().startswith(b"<!doctype html>")
    wide = [line for line in shown.splitlines() if len(line) > COLUMNS and not line.startswith("largest gains: ")]
    assert [line for line in wide if not line.startswith("note: ")] == []  # a terminal gets notes in several lines


@pytest.mark.slow
def test_it_can_be_rerun_and_leaves_no_untracked_files(tmp_path: Path) -> None:
    a_checkout(tmp_path)

    assert demo(tmp_path).count("Results: ") == demo(tmp_path).count("Results: ") == 2

    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    changes = subprocess.run(status, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in changes if not line.startswith("A  ")] == []
