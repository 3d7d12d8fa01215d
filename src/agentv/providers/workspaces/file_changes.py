"""The changes in a folder since a snapshot, as a diff in Git's format.

Time, memory and the size of the diff are bounded, regardless of what is in the folder. Only regular files are opened.
"""

import difflib
import io
import os
import re
import stat
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentv.files.trees import walk_tree
from agentv.providers.workspaces.snapshot import (
    MAX_ENTRIES,
    MAX_TEXT_BYTES,
    Content,
    FileState,
    Snapshot,
    item_of,
    read_content,
)
from agentv.redact import clean

MAX_BYTES = 200_000
MAX_COMPARED = 4_000_000
"""The maximum number of pairs of lines that are compared to find what two texts have in common."""
MAX_LINES = 200_000
"""Longer texts are not compared line by line."""
COMPARE_SECONDS = 10.0
"""After this time, the remaining files are shown as completely changed."""
CONTEXT = 3
GENERATED = frozenset(
    (
        b"node_modules",
        b"__pycache__",
        b".venv",
        b"venv",
        b".tox",
        b".pytest_cache",
        b".mypy_cache",
    )
)
"""Folders that tools generate. Their content comes last, where the diff may be truncated."""
NO_FILE = "/dev/null"
_PLAIN_NAME = re.compile(r'[^\x00-\x1f\x7f"\\]+')
_ESCAPES = {
    0x07: "\\a",
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0B: "\\v",
    0x0C: "\\f",
    0x0D: "\\r",
}


class FileChanges(NamedTuple):
    """The changes in a folder."""

    diff: str
    notes: tuple[str, ...] = ()
    """Limitations of the diff that readers need to know."""


def find_changes(before: Snapshot) -> FileChanges:
    """Return the changes in a folder since a snapshot. The diff has at most `MAX_BYTES`."""
    if not before.is_complete:
        note = f"file_changes: unknown, the workspace had more than {MAX_ENTRIES} files"
        return FileChanges("", (note,))
    notes: list[str] = []
    changed = _changed_paths(before, notes)
    paths = sorted(changed, key=_position)
    lines: list[str] = []
    size = 0
    shown = 0
    deadline = time.monotonic() + COMPARE_SECONDS
    for path in paths:
        if size > MAX_BYTES:
            break
        shown += 1
        has_time = time.monotonic() < deadline
        for line in _section(before, path, changed[path], has_time):
            lines.append(line)
            size += len(line.encode("utf-8", "replace"))
            # Secrets are masked before the diff is truncated, since half of one would not be recognised.
            if size > MAX_BYTES + clean.longest:
                break
    diff, is_cut = _cut(clean("".join(lines)))
    if is_cut:
        notes.insert(0, _cut_note(paths, shown))
    return FileChanges(diff, tuple(notes))


def _position(path: bytes) -> tuple[bool, bytes]:
    """Return the sort key of a path: generated files come last."""
    is_generated = not GENERATED.isdisjoint(path.split(b"/"))
    return is_generated, path


def _cut_note(paths: Sequence[bytes], shown: int) -> str:
    """Return the note for a diff that is truncated in the last of the first `shown` paths."""
    note = f"file_changes is truncated at {MAX_BYTES // 1000} kB, in {_name(paths[shown - 1])}"
    hidden = len(paths) - shown
    if hidden:
        note += f": up to {hidden} more files are omitted"
    return note


def _changed_paths(before: Snapshot, notes: list[str]) -> dict[bytes, FileState | None]:
    """Return the paths that may have changed, with their current items; None for a path that was removed."""
    problems = dict(before.problems)
    changed: dict[bytes, FileState | None] = {}
    seen: set[bytes] = set()

    def skip(path: bytes, error: OSError) -> None:
        problems[path] = error.strerror or str(error)

    for path, status in walk_tree(before.root, skip):
        if stat.S_ISDIR(status.st_mode):
            continue
        if len(seen) >= 2 * MAX_ENTRIES:
            notes.append(f"file_changes: only the first {len(seen)} files of the workspace are compared")
            break  # without the removed paths: `seen` lacks some of the files that exist
        seen.add(path)
        item = item_of(os.path.join(before.root, path), status)
        old = before.items.get(path)
        if old is None or not old.is_same(item):
            changed[path] = item
    else:
        for path in _removed_paths(before, seen, problems):
            changed[path] = None
    unread = problems | dict(before.unread)
    if unread:
        notes.append(_unread_note(unread))
    return changed


def _removed_paths(
    before: Snapshot,
    seen: Container[bytes],
    problems: Mapping[bytes, str],
) -> Iterator[bytes]:
    """Yield the deleted paths. Paths that cannot be examined, and those below them, are not reported."""
    unknown_folders = tuple(path + b"/" for path in problems)
    for path in before.items:
        if path not in seen and path not in problems and not path.startswith(unknown_folders):
            yield path


def _unread_note(unread: Mapping[bytes, str]) -> str:
    """Return the note for paths that cannot be read: the first one, and how many more there are."""
    path, reason = next(iter(unread.items()))
    note = f"file_changes: {_name(path) or 'the workspace'} cannot be read: {reason}"
    if len(unread) > 1:
        note += f", and {len(unread) - 1} more"
    return note


def _cut(text: str) -> tuple[str, bool]:
    """Return the lines of a text that fit into `MAX_BYTES`, and whether any were dropped."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data.decode(), False
    end = data.rfind(b"\n", 0, MAX_BYTES) + 1
    return data[:end].decode("utf-8", "replace"), True


def _section(
    before: Snapshot,
    path: bytes,
    new: FileState | None,
    has_time: bool,
) -> Iterator[str]:
    """Yield the lines of the diff for one path. Yield nothing if it has not changed."""
    old = before.items.get(path)
    sections = [_Section(before, path, old, new, has_time)]
    if old is not None and new is not None and stat.S_IFMT(old.mode) != stat.S_IFMT(new.mode):
        # like Git, show another type of file as a removal and an addition
        sections = [
            _Section(before, path, old, None, has_time),
            _Section(before, path, None, new, has_time),
        ]
    for section in sections:
        yield from section.lines()


class _Section:
    """The part of a diff about one path: an item that was added, removed or changed."""

    def __init__(
        self,
        before: Snapshot,
        path: bytes,
        old: FileState | None,
        new: FileState | None,
        has_time: bool,
    ):
        self._before = before
        self._path = path
        self._old = old
        self._new = new
        self._has_time = has_time
        self._old_name = _name(b"a/" + path)
        self._new_name = _name(b"b/" + path)

    def lines(self) -> Iterator[str]:
        head = list(self._head())
        body = self._body()
        first = next(body, None)
        if not head and first is None:
            return
        yield f"diff --git {self._old_name} {self._new_name}\n"
        yield from head
        if first is not None:
            yield first
        yield from body

    def _head(self) -> Iterator[str]:
        """Yield the lines about the mode."""
        old = self._old
        new = self._new
        item = new or old
        if item is not None and item.special is not None:
            return  # Git has no mode for it
        if old is None and new is not None:
            yield f"new file mode {_mode(new)}\n"
        elif new is None and old is not None:
            yield f"deleted file mode {_mode(old)}\n"
        elif old is not None and new is not None and old.mode != new.mode:
            yield f"old mode {old.mode:o}\n"
            yield f"new mode {new.mode:o}\n"

    def _body(self) -> Iterator[str]:
        """Yield the lines about the content."""
        item = self._new or self._old
        if item is None:
            return
        if item.special is not None:
            yield from self._special()
        elif item.is_link:
            yield from self._links()
        else:
            yield from self._files()

    def _special(self) -> Iterator[str]:
        old = self._old
        new = self._new
        if new is None and old is not None:
            yield f"Special file {self._old_name} removed: a {old.special}\n"
        elif old is None and new is not None:
            yield f"Special file {self._new_name} added: a {new.special}\n"

    def _links(self) -> Iterator[str]:
        old_target = self._old.target if self._old else None
        new_target = self._new.target if self._new else None
        if old_target != new_target:
            yield from self._texts(old_target, new_target)

    def _files(self) -> Iterator[str]:
        if self._new is None:
            yield from self._contents(None)
            return
        try:
            content = read_content(os.path.join(self._before.root, self._path))
        except OSError as error:
            reason = error.strerror or error
            yield f"File {self._new_name} cannot be read: {reason} ({self._sizes()})\n"
            return
        if self._old is None or self._old.digest != content.digest:
            yield from self._contents(content)

    def _contents(self, content: Content | None) -> Iterator[str]:
        """Yield the difference between two files: of their texts, or of their sizes. `content` is the new one."""
        old = self._old
        new = self._new
        old_text = self._before.text(old) if old else None
        new_text = content.text if content else None
        has_old_text = old is None or old_text is not None
        has_new_text = new is None or new_text is not None
        if has_old_text and has_new_text:
            yield from self._texts(old_text, new_text)
        elif _is_too_large(old) or _is_too_large(new):
            name = self._old_name if new is None else self._new_name
            yield f"File {name} is too large to be compared ({self._sizes()})\n"
        elif old is not None and old.digest is None and old.offset is None and new_text is not None:
            yield f"File {self._new_name} has changed, its former content is unknown ({self._sizes()})\n"
        else:
            old_name = self._old_name if old else NO_FILE
            new_name = self._new_name if new else NO_FILE
            yield f"Binary files {old_name} and {new_name} differ ({self._sizes()})\n"

    def _sizes(self) -> str:
        if self._old is not None and self._new is not None:
            return f"{self._old.size} -> {self._new.size} bytes"
        item = self._old or self._new
        return f"{item.size if item else 0} bytes"

    def _texts(self, old: bytes | None, new: bytes | None) -> Iterator[str]:
        """Yield the difference between two texts; pass None for a file that does not exist."""
        hunks = self._hunks(old, new)
        first = next(hunks, None)
        if first is None:
            return
        old_name = NO_FILE if old is None else _end_name(self._old_name)
        new_name = NO_FILE if new is None else _end_name(self._new_name)
        yield f"--- {old_name}\n"
        yield f"+++ {new_name}\n"
        yield first
        yield from hunks

    def _hunks(self, old: bytes | None, new: bytes | None) -> Iterator[str]:
        if old is None or new is None:
            return _whole(old, new)
        if old.count(b"\n") > MAX_LINES or new.count(b"\n") > MAX_LINES:
            return _whole(old, new)
        return _hunks(old, new, self._has_time)


def _is_too_large(item: FileState | None) -> bool:
    return item is not None and item.size > MAX_TEXT_BYTES


def _whole(old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Yield one text as removed and the other as added, line by line, without holding all lines in memory."""
    old_text = old or b""
    new_text = new or b""
    old_count = _count_lines(old_text)
    new_count = _count_lines(new_text)
    if old_count or new_count:
        yield f"@@ -{_range(0, old_count)} +{_range(0, new_count)} @@\n"
    for line in io.BytesIO(old_text):
        yield _line("-", line.decode("utf-8", "replace"))
    for line in io.BytesIO(new_text):
        yield _line("+", line.decode("utf-8", "replace"))


def _count_lines(text: bytes) -> int:
    return sum(1 for _ in io.BytesIO(text))


class _Change(NamedTuple):
    """A range of old lines and the new lines that replace it, as in the opcodes of `difflib`."""

    tag: str
    old_start: int
    old_end: int
    new_start: int
    new_end: int


def _hunks(old_text: bytes, new_text: bytes, has_time: bool) -> Iterator[str]:
    """Yield the differences between two texts, with the lines around them.

    The common beginning and end of both texts are not compared. If comparing the rest would take too long, all of it
    is shown as changed.
    """
    old = _lines(old_text)
    new = _lines(new_text)
    start = _common_start(old, new)
    end = _common_end(old, new, start)
    # the part to compare, with its context
    first = max(0, start - CONTEXT)
    last = max(0, end - CONTEXT)
    old_part = old[first : len(old) - last]
    new_part = new[first : len(new) - last]
    if has_time and len(old_part) * len(new_part) <= MAX_COMPARED:
        if old_text == new_text:
            return
        matcher = difflib.SequenceMatcher(None, old_part, new_part)
        for group in matcher.get_grouped_opcodes(CONTEXT):
            changes = [_shifted(opcode, first) for opcode in group]
            yield from _hunk_lines(old, new, changes)
        return
    old_end = len(old) - end
    new_end = len(new) - end
    changes = [
        _Change("equal", first, start, first, start),
        _Change("replace", start, old_end, start, new_end),
        _Change("equal", old_end, len(old) - last, new_end, len(new) - last),
    ]
    yield from _hunk_lines(old, new, changes)


def _common_start(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines both texts have in common at the start."""
    shorter = min(len(old), len(new))
    count = 0
    while count < shorter and old[count] == new[count]:
        count += 1
    return count


def _common_end(old: Sequence[str], new: Sequence[str], start: int) -> int:
    """Return how many lines both texts have in common at the end, after the first `start`."""
    shorter = min(len(old), len(new))
    count = 0
    while count < shorter - start and old[-1 - count] == new[-1 - count]:
        count += 1
    return count


def _shifted(opcode: tuple[str, int, int, int, int], offset: int) -> _Change:
    """Return an opcode of `difflib` with its line numbers shifted."""
    tag, old_start, old_end, new_start, new_end = opcode
    return _Change(
        tag,
        old_start + offset,
        old_end + offset,
        new_start + offset,
        new_end + offset,
    )


def _hunk_lines(
    old: Sequence[str],
    new: Sequence[str],
    changes: Sequence[_Change],
) -> Iterator[str]:
    first = changes[0]
    last = changes[-1]
    old_range = _range(first.old_start, last.old_end)
    new_range = _range(first.new_start, last.new_end)
    yield f"@@ -{old_range} +{new_range} @@\n"
    for change in changes:
        old_lines = old[change.old_start : change.old_end]
        if change.tag == "equal":
            for line in old_lines:
                yield _line(" ", line)
            continue
        for line in old_lines:
            yield _line("-", line)
        for line in new[change.new_start : change.new_end]:
            yield _line("+", line)


def _line(sign: str, line: str) -> str:
    if line.endswith("\n"):
        return f"{sign}{line}"
    return f"{sign}{line}\n\\ No newline at end of file\n"


def _range(start: int, end: int) -> str:
    """Return a range of lines as Git writes it. Lines count from 1, but an empty range names the line before it."""
    count = end - start
    if count == 0:
        return f"{start},0"
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1},{count}"


def _lines(text: bytes) -> list[str]:
    """Return the lines of a text with their line feeds. A carriage return does not end a line."""
    return [line.decode("utf-8", "replace") for line in io.BytesIO(text)]


def _mode(item: FileState) -> str:
    """Return the mode as Git writes it, which only records whether a file is executable."""
    if item.is_link:
        return "120000"
    if not item.is_file:
        return f"{item.mode:o}"
    return "100755" if item.mode & stat.S_IXUSR else "100644"


def _name(path: bytes) -> str:
    """Return a path as Git writes it: with escapes and in quotes if it has special characters."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        text = ""
    if not path or _PLAIN_NAME.fullmatch(text):
        return text
    escaped = "".join(map(_escape, path))
    return f'"{escaped}"'


def _escape(byte: int) -> str:
    if byte in b'"\\':
        return f"\\{chr(byte)}"
    is_printable = 0x20 <= byte < 0x7F
    if is_printable:
        return chr(byte)
    return _ESCAPES.get(byte) or f"\\{byte:03o}"


def _end_name(name: str) -> str:
    """Return a name for the end of a header line: Git adds a tab after a name with spaces."""
    if " " in name and not name.startswith('"'):
        return f"{name}\t"
    return name
