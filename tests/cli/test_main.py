"""The command line itself: help, version, imports and failures."""

import subprocess
import sys
from pathlib import Path

import pytest

import agentv as package
from tests.kits.imports import HEAVY
from tests.kits.processes import start_process
from tests.kits.project import Write, agentv


def loaded_by(code: str) -> set[str]:
    script = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    loaded = loaded_by("import agentv.cli")
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert "agentv.records" not in loaded


def test_importing_the_package_loads_nothing_else_of_it() -> None:
    loaded = loaded_by("import agentv")
    assert {name for name in loaded if name.startswith("agentv")} <= {"agentv", "agentv._version"}
    assert loaded.isdisjoint([*HEAVY, "click"])


def test_version_and_help() -> None:
    assert agentv("--version").stdout == f"agentv {package.__version__}\n"
    top = agentv("--help")
    assert "validate    Check eval, targets and config files" in top.stdout
    assert top.stdout == agentv("-h").stdout


def test_no_command_at_all_shows_the_help() -> None:
    ran = agentv()
    assert ran.returncode == 2
    assert ran.stderr.startswith("Usage: agentv [OPTIONS] COMMAND")
    assert "Error" not in ran.stderr


def test_an_unknown_command_suggests_a_similar_one() -> None:
    ran = agentv("validat", "x")
    assert ran.returncode == 2
    assert ran.stderr.endswith("error: no such command 'validat'\nhint: did you mean 'validate'?\n")


def test_a_bug_shows_its_traceback_only_when_verbose(write: Write) -> None:
    write(
        "bug.py",
        "import agentv.project.validate as v\nv.check_file = lambda *_: 1 / 0\nfrom agentv.__main__ import main\nmain()\n",
    )
    write("a.yaml", "evalcases: []")
    for flag, shown in (("--format=text", False), ("--verbose", True)):
        run = subprocess.run(
            [sys.executable, "bug.py", "validate", "a.yaml", flag], capture_output=True, text=True, check=False
        )
        assert run.returncode != 0
        assert ("Traceback" in run.stderr) is shown
        assert "ZeroDivisionError" in run.stderr


def test_a_current_folder_that_was_removed_is_named(write: Write, tmp_path: Path) -> None:
    path = write("evals/a.yaml", "evalcases: [{id: a, outcome: x, input: y}]\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'cd "{gone}" && rmdir "{gone}" && exec "$0" -m agentv eval "{path.absolute()}"'
    ran = subprocess.run(["/bin/sh", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == "error: the current folder was removed: change to another one\n"


def test_the_public_names() -> None:
    assert package.__all__ == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_an_interruption_inside_exec_exits_with_130_as_well(write: Write) -> None:
    """Which is where it arrives when it comes while a named tuple is being made, at import."""
    code = "import os, signal, agentv.cli\nagentv.cli.run = lambda: exec('os.kill(os.getpid(), signal.SIGTERM)')\n"
    write("late.py", code + "from agentv.__main__ import main\nmain()\n")
    run = start_process([sys.executable, "-m", "late"], stderr=subprocess.PIPE, text=True)
    _, err = run.communicate()
    assert (run.returncode, err) == (130, "")


def test_dir_lists_the_public_names() -> None:
    code = "import agentv; print(set(agentv.__all__) <= set(dir(agentv)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert ran.stdout == "True\n", ran.stderr


def test_eval_without_a_project_suggests_init(write: Write) -> None:
    ran = agentv("eval")
    assert ran.returncode == 2
    assert (
        "error: name an eval file, a folder or a glob\nhint: for example: agentv eval evals/; 'agentv init'"
        in ran.stderr
    )
    ran = agentv("eval", ".")
    assert ran.returncode == 2
    assert "error: no eval, targets or config file in '.'" in ran.stderr
    assert "'agentv init' creates a project" in ran.stderr
