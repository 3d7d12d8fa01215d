"""A build has a version that identifies its commit."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_version", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("description", "version"),
    [
        ("v0.1.0-12-gfdff03c", "0.2.0.dev12+gfdff03c"),
        ("v0.2.0-3-gfdff03c", "0.2.0.post3+gfdff03c"),
        ("v0.1.0-0-gfdff03c", "0.1.0"),
        ("", "0.2.0"),
    ],
)
def test_the_version_follows_from_the_last_tag(description: str, version: str) -> None:
    script = load_script(ROOT / "scripts" / "build_version.py")
    assert script.version_of("0.2.0", description) == version


def git(folder: Path, *args: str) -> None:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.example", *args]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.slow
def test_wheels_of_a_checkout_and_of_its_sdist_have_the_version_of_the_commit(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("src", "scripts"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "_version.py"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, checkout)
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "first")
    git(checkout, "tag", "v0.1.0")
    git(checkout, "commit", "-qm", "second", "--allow-empty")
    script = load_script(checkout / "scripts" / "build_version.py")
    expected = script.version()
    assert expected.startswith("0.2.0.dev1+g")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=checkout, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.startswith(f"agentv-{expected}-")
    shown = subprocess.run(
        [sys.executable, "-c", "import agentv; print(agentv.__version__)"],
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == expected
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(sdist, unpacked)
    (source,) = unpacked.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    assert [path.name for path in (tmp_path / "again").glob("*.whl")] == [wheel.name]
