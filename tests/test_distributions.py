"""The published wheel and sdist: they install, and their builds are reproducible."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from agentv import SOURCE_VERSION as VERSION
from tests.kits.docs import ROOT

NOT_IN_GIT = shutil.ignore_patterns(
    ".git", ".venv*", "node_modules", ".*_cache", ".hypothesis", "__pycache__", "_version.py", "site", "dist", ".demo"
)


def build(checkout: Path, umask: int) -> list[Path]:
    """Build both distributions of a checkout."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", "dist"],
        cwd=checkout,
        env=environment,
        umask=umask,
        check=True,
        capture_output=True,
    )
    return sorted((checkout / "dist").iterdir())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository without Git, whose version is that of the source."""
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("copy") / "agentv", ignore=NOT_IN_GIT)


@pytest.fixture(scope="module")
def distributions(checkout: Path) -> list[Path]:
    found = build(checkout, 0o022)
    assert [path.name for path in found] == [f"agentv-{VERSION}-py3-none-any.whl", f"agentv-{VERSION}.tar.gz"]
    return found


@pytest.mark.slow
def test_another_checkout_builds_the_same_bytes(distributions: list[Path], checkout: Path, tmp_path: Path) -> None:
    other = shutil.copytree(checkout, tmp_path / "elsewhere", ignore=NOT_IN_GIT)
    for path in other.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    again = build(other, 0o077)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in distributions]


@pytest.mark.slow
def test_twine_accepts_the_metadata(distributions: list[Path]) -> None:
    pytest.importorskip("twine", reason="twine is not installed")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, distributions)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["wheel", "sdist"])
def test_a_distribution_installs_and_runs(distributions: list[Path], number: int, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    place = tmp_path / "installed"
    install = [*pip, "--no-build-isolation", "--target", str(place), str(distributions[number])]
    subprocess.run(install, check=True, cwd=tmp_path)
    # the dependencies are those of this environment, agentv is not
    code = "import agentv, sys; print(agentv.__file__); from agentv.__main__ import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    path, version = ran.stdout.splitlines()
    assert Path(path).is_relative_to(place)
    assert VERSION in version


@pytest.mark.slow
def test_the_core_has_at_most_12_distributions_and_25_megabytes(distributions: list[Path], tmp_path: Path) -> None:
    wheel = distributions[0]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(tmp_path), str(wheel)], check=True)
    needed = core_distributions()
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    for name in needed:
        installed = metadata.distribution(name)
        files |= {Path(str(installed.locate_file(file))) for file in installed.files or ()}
    assert len(needed) + 1 <= 12
    assert sum(path.stat().st_size for path in files) <= 25_000_000


def core_distributions() -> set[str]:
    """Return the distributions that agentv needs without extras, and those that they need in turn."""
    waiting = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_needed and requirement.name not in found:
            found.add(requirement.name)
            waiting += metadata.requires(requirement.name) or []
    return found


@pytest.mark.slow
def test_the_wheel_contains_the_package_and_the_sdist_the_tests(distributions: list[Path]) -> None:
    wheel, sdist = distributions
    with zipfile.ZipFile(wheel) as packed:
        assert {name.split("/")[0] for name in packed.namelist()} == {"agentv", f"agentv-{VERSION}.dist-info"}
    with tarfile.open(sdist) as packed:
        names = {name.removeprefix(f"agentv-{VERSION}/") for name in packed.getnames()}
    needed = {"LICENSE", "Makefile", "SECURITY.md", "action.yml", "mkdocs.yml", "tests/conftest.py", "docs/run.svg"}
    assert needed <= names
    assert ".github/workflows/release.yml" in names


def test_ci_runs_the_versions_and_systems_that_the_metadata_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: 3."
    named = [name.rpartition(" ")[2] for name in project["classifiers"] if name.startswith(prefix)]
    assert matrix["python"] == named
    assert project["requires-python"] == f">={named[0]}"
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]
