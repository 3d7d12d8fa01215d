"""An agent's changes in a folder as a diff in Git's format, regardless of the folder's content."""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentv.providers.workspaces import file_changes, snapshot
from agentv.providers.workspaces.file_changes import FileChanges, find_changes
from agentv.providers.workspaces.snapshot import Snapshot

NOBODY = 65534


def changes(folder: Path, change: Callable[[], object]) -> FileChanges:
    """The diff of a change in a folder."""
    before = Snapshot(os.fsencode(folder))
    try:
        before.take()
        change()
        return find_changes(before)
    finally:
        before.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(name: str, text: str | bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_changed_an_added_and_a_removed_file(here: Path) -> None:
    write("a.txt", "one\ntwo\nthree\n")
    write("gone.txt", "gone\n")

    def change() -> None:
        write("a.txt", "one\n2\nthree\n")
        write("sub/new.txt", "new\n")
        Path("gone.txt").unlink()

    assert changes(here, change) == FileChanges(
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "diff --git a/sub/new.txt b/sub/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/sub/new.txt\n"
        "@@ -0,0 +1 @@\n+new\n"
    )


def test_touched_or_rewritten_files_are_unchanged(here: Path) -> None:
    write("a.txt", "one\n")
    write("b.bin", b"\0\1")

    def change() -> None:
        Path("a.txt").write_text("one\n")
        os.utime("b.bin", (1, 1))
        os.rename("b.bin", "c")
        os.rename("c", "b.bin")

    assert changes(here, change) == FileChanges("")


def test_a_change_that_keeps_size_and_time_is_detected(here: Path) -> None:
    path = write("a.txt", "one\n")
    status = path.stat()

    def change() -> None:
        path.write_text("two\n")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert "-one\n+two\n" in changes(here, change).diff


def test_line_endings_and_missing_final_newlines_are_shown(here: Path) -> None:
    write("crlf", "one\r\ntwo\r\n")
    write("end", "one\ntwo")
    write("form", "a\fb\u2028c\n")

    def change() -> None:
        write("crlf", "one\r\n2\r\n")
        write("end", "one\ntwo\n")
        write("form", "a\fb\u2028d\n")

    diff = changes(here, change).diff
    assert " one\r\n-two\r\n+2\r\n" in diff
    assert " one\n-two\n\\ No newline at end of file\n+two\n" in diff
    assert "-a\fb\u2028c\n+a\fb\u2028d\n" in diff


def test_binary_files_are_shown_by_name_and_size(here: Path) -> None:
    write("a.png", b"\x89PNG\0")
    write("latin", "caf\xe9".encode("latin-1"))

    def change() -> None:
        write("a.png", b"\x89PNG\0\0")
        write("latin", "caf\xe8".encode("latin-1"))
        write("new.bin", bytes(100))

    diff = changes(here, change).diff
    assert "Binary files a/a.png and b/a.png differ (5 -> 6 bytes)\n" in diff
    assert "Binary files a/latin and b/latin differ (4 -> 4 bytes)\n" in diff
    assert "new file mode 100644\nBinary files /dev/null and b/new.bin differ (100 bytes)\n" in diff


def test_symlinks_are_shown_by_target_and_never_followed(here: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("secret\n")
    Path("loop").symlink_to("loop")
    Path("folder").symlink_to(".")

    def change() -> None:
        Path("out").symlink_to(outside)
        Path("null").symlink_to("/dev/zero")
        Path("folder").unlink()
        Path("folder").symlink_to("..")
        outside.write_text("changed\n")

    diff = changes(here, change).diff
    assert "secret\n" not in diff.replace(str(outside), "")
    assert "changed" not in diff
    assert f"new file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n+{outside}\n\\ No newline" in diff
    assert "+/dev/zero\n" in diff
    assert "-.\n\\ No newline at end of file\n+..\n" in diff
    assert "loop" not in diff


def test_pipes_and_sockets_are_named_and_do_not_hang(here: Path) -> None:
    os.mkfifo("before")

    def change() -> None:
        os.mkfifo("pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("sock")
        Path("before").unlink()

    diff = changes(here, change).diff
    assert "Special file b/pipe added: a named pipe\n" in diff
    assert "Special file b/sock added: a socket\n" in diff
    assert "Special file a/before removed: a named pipe\n" in diff


def test_modes_are_shown(here: Path) -> None:
    path = write("run.sh", "#!/bin/sh\n")
    path.chmod(0o644)

    def change() -> None:
        path.chmod(0o755)
        write("new.sh", "x\n").chmod(0o755)

    diff = changes(here, change).diff
    assert diff.startswith("diff --git a/new.sh b/new.sh\nnew file mode 100755\n")
    assert diff.endswith("diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n")


def test_a_file_that_becomes_a_link_or_a_folder(here: Path) -> None:
    write("a", "a\n")
    write("b", "b\n")

    def change() -> None:
        Path("a").unlink()
        Path("a").symlink_to("b")
        Path("b").unlink()
        write("b/c", "c\n")

    diff = changes(here, change).diff
    assert diff.count("diff --git a/a b/a\n") == 2
    assert "deleted file mode 100644\n--- a/a\n" in diff
    assert "deleted file mode 100644\n--- a/b\n" in diff
    assert "+++ b/b/c\n" in diff


def test_special_names_are_escaped(here: Path) -> None:
    def change() -> None:
        for name in (b"new\nline", b"odd\xff", b'quo"te', "grün".encode(), b"with space"):
            (here / os.fsdecode(name)).write_text("x\n")

    lines = changes(here, change).diff.splitlines()
    assert 'diff --git "a/new\\nline" "b/new\\nline"' in lines
    assert 'diff --git "a/odd\\377" "b/odd\\377"' in lines
    assert '+++ "b/quo\\"te"' in lines
    assert "diff --git a/grün b/grün" in lines
    assert "+++ b/with space\t" in lines


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of an unprivileged user, as whom the test runs, because root may read everything."""
    with tempfile.TemporaryDirectory() as name:
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(name, NOBODY, -1)
            os.seteuid(NOBODY)
        before = Path.cwd()
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)
            os.chdir(before)


def test_unreadable_files_are_named(unprivileged: Path) -> None:
    here = unprivileged
    write("locked", "x\n").chmod(0)
    write("same", "x\n").chmod(0)

    def change() -> None:
        write("new", "x\n").chmod(0)
        Path("locked").unlink()
        Path("folder").mkdir(mode=0)

    found = changes(here, change)
    assert "File b/new cannot be read: Permission denied (2 bytes)\n" in found.diff
    assert "deleted file mode 100644\n" in found.diff
    assert "b/same" not in found.diff
    assert "cannot be read: Permission denied" in found.notes[0]


def test_git_folders_are_excluded(here: Path) -> None:
    write(".git/HEAD", "one\n")

    def change() -> None:
        write(".git/HEAD", "two\n")
        write("sub/.git/x", "x\n")
        write("sub/a", "a\n")

    assert changes(here, change).diff.count("diff --git") == 1


def test_files_written_by_tools_come_last(here: Path) -> None:
    def change() -> None:
        write("node_modules/a.js", "a\n")
        write("src/b.js", "b\n")

    lines = [line for line in changes(here, change).diff.splitlines() if line.startswith("diff")]
    assert lines == ["diff --git a/src/b.js b/src/b.js", "diff --git a/node_modules/a.js b/node_modules/a.js"]


def test_a_diff_of_10_mb_is_cut_at_a_line_with_a_note(here: Path) -> None:
    line = "x" * 99 + "\n"
    found = changes(here, lambda: (write("big.txt", line * 100_000), write("small.txt", "small\n")))
    assert len(found.diff.encode()) <= 200_000
    assert found.diff.endswith(f"\n+{line}")
    assert found.notes == ("file_changes is truncated at 200 kB, in big.txt: up to 1 more files are omitted",)


@pytest.mark.slow
def test_texts_of_very_many_lines_are_not_held_as_lines(here: Path) -> None:
    write("many", "x\n" * 3_000_000)
    tracemalloc.start()
    try:
        found = changes(here, lambda: (write("many", "y\n" * 3_000_000), write("new", "z\n" * 3_000_000)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "@@ -1,3000000 +1,3000000 @@\n-x\n-x\n" in found.diff
    assert found.notes == ("file_changes is truncated at 200 kB, in many: up to 1 more files are omitted",)
    assert peak < 100 << 20


def test_an_empty_file_has_no_lines(here: Path) -> None:
    write("gone", "")

    def change() -> None:
        write("new", "")
        Path("gone").unlink()

    diff = changes(here, change).diff
    assert diff == (
        "diff --git a/gone b/gone\ndeleted file mode 100644\ndiff --git a/new b/new\nnew file mode 100644\n"
    )


def test_a_large_file_is_shown_by_its_size(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_TEXT_BYTES", 1000)
    monkeypatch.setattr(file_changes, "MAX_TEXT_BYTES", 1000)
    write("a.txt", "x\n" * 600)
    diff = changes(here, lambda: write("a.txt", "y\n" * 700)).diff
    assert diff.endswith("File b/a.txt is too large to be compared (1200 -> 1400 bytes)\n")


def test_texts_that_are_slow_to_compare_are_shown_as_replaced(here: Path) -> None:
    old = [f"{number % 7}\n" for number in range(5000)]
    new = [f"{number % 5}\n" for number in range(5000)]
    write("a.txt", "same\n" + "".join(old) + "end\n")
    diff = changes(here, lambda: write("a.txt", "same\n" + "".join(new) + "end\n")).diff
    assert "@@ -4,4999 +4,4999 @@\n 2\n 3\n 4\n-5\n" in diff
    assert diff.endswith("\n end\n")


@pytest.mark.slow
def test_50000_files_are_compared(here: Path) -> None:
    for folder in range(50):
        Path(f"{folder}").mkdir()
        for name in range(1000):
            with open(f"{folder}/{name}", "w") as file:
                file.write("x\n")
    diff = changes(here, lambda: write("7/77", "y\n")).diff
    assert diff == "diff --git a/7/77 b/7/77\n--- a/7/77\n+++ b/7/77\n@@ -1 +1 @@\n-x\n+y\n"


def test_too_many_files_are_reported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_ENTRIES", 3)
    monkeypatch.setattr(file_changes, "MAX_ENTRIES", 3)
    for name in "abcd":
        write(name, name)
    found = changes(here, lambda: None)
    assert found == FileChanges("", ("file_changes: unknown, the workspace had more than 3 files",))


def test_a_folder_that_the_agent_removed(here: Path) -> None:
    write("a.txt", "a\n")
    found = changes(here, lambda: shutil.rmtree(here))
    assert "-a\n" in found.diff
    assert found.notes == ("file_changes: the workspace cannot be read: No such file or directory",)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git to apply diffs")
@pytest.mark.parametrize("seed", range(12))
def test_git_applies_the_diff(here: Path, tmp_path: Path, seed: int) -> None:
    """The diff, applied to a copy of the folder as it was, gives the folder as it is."""
    dice = random.Random(seed)
    names = ["a", "b c", "dir/d", 'q"', "new\nline", "grün", "dir/sub/e", "odd\udcff"]
    ends = ["\n", "\r\n", "\n\n", ""]

    def text() -> str:
        return "".join(dice.choice(["x", "y", "é", "z\t", ""]) + dice.choice(ends) for _ in range(dice.randrange(40)))

    def fill() -> None:
        for name in names:
            path = here / name
            if path.is_symlink() or path.exists():
                path.unlink()
            kind = dice.choice(["text", "text", "text", "link", "none"])
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "link":
                path.symlink_to(dice.choice(["a", "nowhere", "../x y"]))
            elif kind == "text":
                path.write_bytes(text().encode())
                path.chmod(dice.choice([0o644, 0o755]))

    fill()
    copy = tmp_path / "copy"
    shutil.copytree(here, copy, symlinks=True)
    diff = changes(here, fill).diff
    applied = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "--allow-empty", "-"],
        cwd=copy,
        input=diff.encode(),
        capture_output=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr.decode() + diff
    assert _content(copy) == _content(here)


def _content(folder: Path) -> dict[str, object]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()]
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode & 0o100)
        for path in paths
    }
