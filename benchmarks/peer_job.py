"""The job that every tool is given, and where a tool of either registry is installed.

The job: `count` cases with a question each, a target that answers at once inside the tool's own process, one check for
a word, ten cases at a time, results on disk. Nothing here uses the network once a tool is installed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

SCRIPTS = Path(__file__).parent
QUIET = {
    "AGENTV_NO_UPDATE_CHECK": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
}
"""What keeps the tools from calling home."""

Job = Callable[[Path, int], list[str]]
"""Writes what a run of so many cases needs into a folder, and returns the command that runs them there."""


def script(name: str) -> Job:
    """The job of a library: a script that takes the number of cases."""
    return lambda _folder, count: ["python", str(SCRIPTS / name), str(count)]


def questions(count: int) -> list[str]:
    return [f"Say hello to number {number}" for number in range(count)]


class Installed(NamedTuple):
    """A tool as it was installed, with all that it needs."""

    version: str
    packages: int
    megabytes: float


class Registry(Protocol):
    """Where a tool comes from."""

    def install(self, folder: Path) -> Installed: ...

    def programs(self, folder: Path) -> Path: ...


class PyPI(NamedTuple):
    """A distribution, or a checkout of one, in a virtual environment of its own."""

    name: str
    source: str

    def install(self, folder: Path) -> Installed:
        python = folder / "bin" / "python"
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(folder)])
        if self.source != self.name or not self._is_there(python):  # a checkout may have changed since
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", self.source])
        version, packages, size = _run([str(python), "-c", CONTENTS, self.name]).split()
        return Installed(version, int(packages), int(size) / 1e6)

    def programs(self, folder: Path) -> Path:
        return folder / "bin"

    def _is_there(self, python: Path) -> bool:
        asked = [str(python), "-m", "pip", "show", "--quiet", self.name]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0


CONTENTS = """
import sys
from importlib.metadata import distributions, version
found = [each for each in distributions() if each.name not in ("pip", "setuptools")]
files = {path for each in found for file in each.files or () if (path := each.locate_file(file)).is_file()}
print(version(sys.argv[1]), len(found), sum(path.stat().st_size for path in files))
"""


class Npm(NamedTuple):
    """A package in a folder of its own, for node."""

    name: str

    def install(self, folder: Path) -> Installed:
        modules = folder / "node_modules"
        if not (modules / self.name).exists():
            _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), self.name])
        version = json.loads((modules / self.name / "package.json").read_bytes())["version"]
        packages = json.loads((modules / ".package-lock.json").read_bytes())["packages"]
        files = (Path(place) / file for place, _, names in os.walk(modules) for file in names)
        return Installed(version, len(packages), sum(file.lstat().st_size for file in files) / 1e6)

    def programs(self, folder: Path) -> Path:
        return folder / "node_modules" / ".bin"


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
