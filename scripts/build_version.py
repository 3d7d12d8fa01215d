"""Compute the version of a build, which hatchling asks for: from the Git tags, else from the source."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "agentv" / "__init__.py"
DESCRIPTION = re.compile(r"v(?P<tag>.+)-(?P<commits>\d+)-g(?P<hash>[0-9a-f]+)")


def version() -> str:
    """Return the version of a build: that of the sdist it is made from, or of the commit, or of the source."""
    metadata = ROOT / "PKG-INFO"
    if metadata.is_file():
        found = re.search(r"^Version: (\S+)$", metadata.read_text("utf-8"), re.MULTILINE)
        assert found is not None, "PKG-INFO has no version"
        return found[1]
    return version_of(source_version(), describe())


def version_of(source: str, description: str) -> str:
    """Return a version for what `git describe` says: `v0.1.0-12-gfdff03c` is 12 commits after the tag v0.1.0."""
    found = DESCRIPTION.fullmatch(description)
    if found is None:
        return source
    if found["commits"] == "0":
        return found["tag"]
    # the source has the version of the next release, or of the last one as long as nobody has changed it
    kind = "dev"
    if found["tag"] == source:
        kind = "post"
    return f"{source}.{kind}{found['commits']}+g{found['hash']}"


def source_version() -> str:
    """Return the version that is written in the source."""
    found = re.search(r'^SOURCE_VERSION = "(.+)"$', SOURCE.read_text("utf-8"), re.MULTILINE)
    assert found is not None, f"no version in {SOURCE}"
    return found[1]


def describe() -> str:
    """Return what `git describe` says of this checkout; empty outside of a checkout, and without Git or tags."""
    if not (ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return ran.stdout.strip()
