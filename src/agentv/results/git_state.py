"""The Git state of the eval files of a run, for its record."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from agentv.log import warn
from agentv.records import Problem

GIT_SECONDS = 10
NOT_A_REPOSITORY = "not a git repository"
DUBIOUS_OWNER = "dubious ownership"
_FILES_PER_CALL = 500


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Git state of the eval files when a run started, or why it is unknown."""

    commit: str = ""
    """The hash of the commit."""
    branch: str | None = None
    """The name of the branch."""
    dirty: bool | None = None
    """Whether there were uncommitted changes; omitted in old records if there were none."""
    unavailable: str | None = None
    """Why the state of the repository cannot be read."""

    @property
    def label(self) -> str:
        """The short hash, with a plus sign if there were uncommitted changes; empty if it is unknown."""
        text = self.commit[:9]
        if self.dirty:
            text += "+"
        return text


def short_commit(commit: str) -> str:
    """Return the abbreviated hash of a commit."""
    return commit[:10]


def git_state(files: Sequence[Path]) -> Commit | None:
    """Return the state of the repository of the first file, or None outside a repository.

    A file of the run that Git does not track counts as an uncommitted change. Warn if the repository cannot be read.
    """
    folder = Path.cwd()
    if files:
        folder = Path(os.path.realpath(files[0])).parent
    try:
        return _read_state(folder, files)
    except _GitError as error:
        reason = str(error)
        if NOT_A_REPOSITORY in reason:
            return None
        if DUBIOUS_OWNER in reason:
            reason = f"the repository of {folder} belongs to another user, so Git refuses to read it"
    except FileNotFoundError:
        if not _is_in_repository(folder):
            return None
        reason = "git is not installed"
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        reason = f"git cannot be run: {error}"
    message = f"the commit is not recorded: {reason}"
    warn(Problem(message=message, severity="warning"))
    return Commit(unavailable=reason)


class _GitError(Exception):
    """Git failed; the message is its own."""


def _read_state(folder: Path, files: Sequence[Path]) -> Commit | None:
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    headers: dict[str, str] = {}
    is_dirty = False
    for line in status.splitlines():
        if line.startswith("# branch."):
            name, value = line.removeprefix("# ").split(" ", 1)
            headers[name] = value
        elif not line.startswith("#"):
            is_dirty = True
    commit = headers.get("branch.oid")
    if commit is None or commit == "(initial)":
        return None
    branch = headers.get("branch.head")
    if branch == "(detached)":
        branch = None
    if not is_dirty:
        is_dirty = _has_untracked(folder, files)
    return Commit(commit=commit, branch=branch, dirty=is_dirty)


def _has_untracked(folder: Path, files: Sequence[Path]) -> bool:
    """Return whether Git does not track one of the files. Files of other repositories are ignored."""
    root = _git(folder, "rev-parse", "--show-toplevel").removesuffix("\n")
    inside = _files_in(Path(root), files)
    while batch := list(islice(inside, _FILES_PER_CALL)):
        if _git(folder, "ls-files", "--others", "--", *batch):
            return True
    return False


def _files_in(root: Path, files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        path = Path(os.path.realpath(file))
        if path.is_relative_to(root):
            yield str(path)


def _git(folder: Path, *args: str) -> str:
    """Return the output of a git command. Raise `_GitError` if it fails."""
    # The messages are compared with English ones.
    environment = {**os.environ, "LC_ALL": "C"}
    ran = subprocess.run(
        ["git", "-C", str(folder), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=GIT_SECONDS,
        env=environment,
    )
    if ran.returncode != 0:
        raise _GitError(ran.stderr.strip() or f"git exited with {ran.returncode}")
    return ran.stdout


def _is_in_repository(folder: Path) -> bool:
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))
