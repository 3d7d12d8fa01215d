"""`agentv import`: its messages and its output."""

import json
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.files.yaml import read_yaml
from tests.kits.project import agentv


def run_import(*args: str | Path, expect: int = 0) -> list[str]:
    """The lines on stderr of an import that ends with this exit code; a traceback is none of them."""
    ran = agentv("import", *args)
    assert ran.returncode == expect, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr and "agentv broke" not in ran.stderr
    return ran.stderr.splitlines()


def imported(*args: str | Path) -> list[dict[str, Any]]:
    """The rows of the file that an import wrote."""
    said = run_import(*args, "--overwrite")
    (path,) = [Path(line.removeprefix("written: ")) for line in said if line.startswith("written: ")]
    if path.suffix == ".yaml":
        cases: list[dict[str, Any]] = read_yaml(path, AgentvError).value["evalcases"]
        return cases
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def refused(*args: str | Path, expect: int = 2) -> str:
    """The error, with its hint, of an import that writes nothing."""
    before = set(Path.cwd().rglob("*"))
    said = run_import(*args, expect=expect)
    assert set(Path.cwd().rglob("*")) == before
    return "\n".join(said[next(number for number, line in enumerate(said) if line.startswith("error: ")) :])


def validates(path: str | Path) -> None:
    """An eval file passes `agentv validate`."""
    checked = agentv("validate", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.endswith(": 0 errors, 0 warnings\n"), checked.stdout
