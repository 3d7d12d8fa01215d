"""Versions of Python files: syntax trees, and imported files of the project."""

from pathlib import Path

import pytest

from agentv.versions.python_files import parse_source, python_files
from tests.kits.project import Write

SOURCE = "def answer(question):\n    return 'Paris'\n"


def digest_of(write: Write, source: str) -> str:
    return parse_source(write("module.py", source)).digest


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n" + SOURCE,
        'def answer( question ):  # why\n\n    return ("Paris")\n',
        SOURCE.replace("\n", "\r\n"),
    ],
)
def test_comments_and_formatting_do_not_change_a_version(write: Write, same: str) -> None:
    assert digest_of(write, same) == digest_of(write, SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace("Paris", "Rome"),
        SOURCE.replace("(question)", "(question, k=None)"),
        SOURCE.replace("    return", "    'You are a guide.'\n    return"),
        SOURCE.replace("'Paris'", "b'Paris'"),
        SOURCE.replace("return 'Paris'", "return None"),
        SOURCE.replace("return 'Paris'", "return"),
        SOURCE + "X = 1\n",
        SOURCE + "X = 1.0\n",
        SOURCE + "X = True\n",
        "not python at all",
    ],
)
def test_everything_else_does(write: Write, other: str) -> None:
    assert digest_of(write, other) != digest_of(write, SOURCE)


def test_numbers_of_different_types_are_different(write: Write) -> None:
    digests = {digest_of(write, f"X = {value}\n") for value in ("1", "1.0", "True", "'1'", "None", "-1", "[1]", "(1,)")}
    assert len(digests) == 8


def imported(start: str, *folders: str) -> set[str]:
    found = python_files(Path(start), [Path(folder) for folder in folders])
    return {str(path.relative_to(Path.cwd())) for path in found}


def test_imports_are_followed_wherever_they_are_written(write: Write) -> None:
    write(
        "agent.py",
        "import json, numpy\nimport direct\nfrom pack import inner, VALUE\nfrom pack.deep import tool as t\n"
        "import importlib\n\ndef answer(q):\n    import lazy\n    importlib.import_module('named.late')\n    return q\n",
    )
    write("direct.py", "import indirect\n")
    write("indirect.py", "import agent\n")
    write("lazy.py", "")
    write("named/late.py", "")
    write("pack/__init__.py", "")
    write("pack/inner.py", "from . import sibling\nfrom .deep import *\nfrom .. import nowhere\n")
    write("pack/sibling.py", "")
    write("pack/unused.py", "")
    write("pack/deep/__init__.py", "")
    write("pack/deep/tool.py", "from ..other import x\n")
    write("pack/other.py", "")
    write("unused.py", "")
    assert imported("agent.py") == {
        "agent.py",
        "direct.py",
        "indirect.py",
        "lazy.py",
        "named/late.py",
        "pack/__init__.py",
        "pack/inner.py",
        "pack/sibling.py",
        "pack/deep/__init__.py",
        "pack/deep/tool.py",
        "pack/other.py",
    }


def test_virtual_environments_and_installed_packages_are_excluded(write: Write) -> None:
    write("agent.py", "import installed, vendored, ours\n")
    write("lib/site-packages/installed.py", "")
    write("env/pyvenv.cfg", "")
    write("env/stuff/vendored.py", "")
    write("src/ours.py", "")
    assert imported("agent.py", ".", "lib/site-packages", "env/stuff", "src") == {"agent.py", "src/ours.py"}


def test_files_outside_of_the_project_are_not_followed(write: Write, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "foreign.py").write_text("")
    write("agent.py", "import foreign\n")
    Path("foreign.py").symlink_to(elsewhere / "foreign.py")
    assert imported("agent.py") == {"agent.py"}
