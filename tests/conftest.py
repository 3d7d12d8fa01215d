"""Shared fixtures: files, and the command line."""

import compileall
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.kits.processes import end_processes, kill_living, unique_nap
from tests.kits.project import Write
from tests.kits.time_limits import REACHED, JumpingLoop

ROOT = Path(__file__).parent.parent

pytest_plugins = ["pytester"]  # which only works here, at the top

# The same examples in every run: a suite that was green stays green. Set RANDOM_EXAMPLES=1 to search for new ones.
settings.register_profile(
    "quick",
    max_examples=10,
    deadline=None,
    derandomize=not os.environ.get("RANDOM_EXAMPLES"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=300)

os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"  # servers of tests are on loopback

os.environ.pop("GITHUB_ACTIONS", None)  # where these tests run is not what they are about

sys.dont_write_bytecode = False  # until all tests are read: pytest's rewriting of them is most of that time


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples property tests try, and compile the sources once for all processes.

    Where PYTHONDONTWRITEBYTECODE is set, each child would compile the sources for itself.
    """
    settings.load_profile("thorough" if "slow" in config.option.markexpr.split() else "quick")
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "src", quiet=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark property tests, and the browser tests of the slow tier."""
    for item in items:
        if is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker("prop")
        if item.path.stem.endswith("_in_browser") and item.get_closest_marker("smoke") is None:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Modules that tests write may change within a second, which compiled ones do not notice: they are not kept."""
    sys.dont_write_bytecode = True


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file in an empty project folder, which is also the current one, and gives its path."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, content: str | bytes | list[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.fixture(autouse=True)
def _end_processes() -> Iterator[None]:
    """A test that fails leaves no process behind."""
    yield
    end_processes()


@pytest.fixture
def nap() -> Iterator[str]:
    """A command that sleeps for a long time and is unique."""
    command = unique_nap()
    yield command
    kill_living(command)


@pytest.fixture
def reached(write: Write, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command by which a target says that it is where its time is to be up: time limits do not go by the clock."""
    path = Path("reached").absolute()
    monkeypatch.setenv(REACHED, str(path))
    monkeypatch.setattr("asyncio.events.new_event_loop", lambda: JumpingLoop(path))
    return f'echo >> "${REACHED}"'


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for `sys.path` with the package of examples/extending, installed as a user would, without a network."""
    folder = tmp_path_factory.mktemp("extension")
    package = ROOT / "examples" / "extending"
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder), str(package)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return folder
