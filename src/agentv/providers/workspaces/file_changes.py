"""A snapshot of a folder, and the folder as it is now -> what has changed, as a diff in the form that Git writes.

Time, memory and the size of the diff are bounded, whatever is in the folder. Nothing but plain files is opened.
"""

import difflib
import io
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentv.providers.workspaces.snapshot import (
    MAX_ENTRIES,
    MAX_TEXT_BYTES,
    Content,
    Item,
    Snapshot,
    item_of,
    read_content,
)
from agentv.redact import clean
from agentv.system.trees import walk_tree

MAX_BYTES = 200_000
MAX_COMPARED = 4_000_000
"""How many pairs of lines are compared to find what two texts have in common."""
MAX_LINES = 200_000
"""A longer text is not compared line by line."""
COMPARE_SECONDS = 10.0
"""After this time, what is left is shown as lines that all have changed."""
CONTEXT = 3
GENERATED = frozenset((b"node_modules", b"__pycache__", b".venv", b"venv", b".tox", b".pytest_cache", b".mypy_cache"))
"""Folders that tools fill. What is in them comes last, where it may be cut off."""
_NOTHING = Item(0, 0, (0, 0, 0, 0))
_PLAIN_NAME = re.compile(r'[^\x00-\x1f\x7f"\\]+')
_ESCAPES = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r"}


class FileChanges(NamedTuple):
    """What has changed in a folder."""

    diff: str
    notes: tuple[str, ...] = ()
    """What a reader of the diff must know."""


def find_changes(before: Snapshot) -> FileChanges:
    """Return what has changed in a folder since a snapshot; the diff has at most `MAX_BYTES`."""
    notes: list[str] = []
    if not before.is_complete:
        return FileChanges("", (f"file_changes: not told, the workspace had more than {MAX_ENTRIES} files",))
    changed = _changed_paths(before, notes)
    lines: list[str] = []
    size, shown, last = 0, 0, b""
    deadline = time.monotonic() + COMPARE_SECONDS
    ordered = sorted(changed, key=lambda path: (not GENERATED.isdisjoint(path.split(b"/")), path))
    for path in ordered:
        if size > MAX_BYTES:
            break
        shown, last = shown + 1, path
        for line in _Section(before, path, changed[path], time.monotonic() < deadline).lines():
            lines.append(line)
            size += len(line.encode("utf-8", "replace"))
            if size > MAX_BYTES + clean.longest:
                break
    diff, is_cut = _cut(clean("".join(lines)))
    if is_cut:
        left = f": it leaves out up to {len(ordered) - shown} more files" if len(ordered) > shown else ""
        notes.insert(0, f"file_changes is cut at {MAX_BYTES // 1000} kB, in {_name(last)}{left}")
    return FileChanges(diff, tuple(notes))


def _changed_paths(before: Snapshot, notes: list[str]) -> dict[bytes, Item | None]:
    """Return what may have changed, as it is now; None for what is gone."""
    problems = dict(before.problems)
    changed: dict[bytes, Item | None] = {}
    seen: set[bytes] = set()

    def skip(path: bytes, error: OSError) -> None:
        problems[path] = error.strerror or str(error)

    for path, status in walk_tree(before.root, skip):
        if stat.S_ISDIR(status.st_mode):
            continue
        if len(seen) >= 2 * MAX_ENTRIES:
            notes.append(f"file_changes: only the first {len(seen)} files of the workspace are compared")
            break
        seen.add(path)
        item, old = item_of(os.path.join(before.root, path), status), before.items.get(path)
        if old is None or not old.is_same(item):
            changed[path] = item
    else:
        unseen = tuple(path + b"/" for path in problems)
        gone = (path for path in before.items if path not in seen)
        changed |= {path: None for path in gone if path not in problems and not path.startswith(unseen)}
    if unread := problems | dict(before.unread):
        path, reason = next(iter(unread.items()))
        more = f", and {len(unread) - 1} more" if len(unread) > 1 else ""
        notes.append(f"file_changes: {_name(path) or 'the workspace'} cannot be read: {reason}{more}")
    return changed


def _cut(text: str) -> tuple[str, bool]:
    """Return the lines of a text that fit into `MAX_BYTES`, and whether that is not all of it."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data.decode(), False
    return data[: data.rfind(b"\n", 0, MAX_BYTES) + 1].decode("utf-8", "replace"), True


class _Section:
    """The part of a diff that tells of one file."""

    def __init__(self, before: Snapshot, path: bytes, new: Item | None, has_time: bool):
        self._before, self._path, self._new, self._has_time = before, path, new, has_time
        self._old = before.items.get(path)
        self._names = _name(b"a/" + path), _name(b"b/" + path)

    def lines(self) -> Iterator[str]:
        """Yield the lines; none if nothing has changed."""
        old, new = self._old, self._new
        if old is not None and new is not None and stat.S_IFMT(old.mode) != stat.S_IFMT(new.mode):
            yield from self._part(old, None)  # as Git does
            yield from self._part(None, new)
        else:
            yield from self._part(old, new)

    def _part(self, old: Item | None, new: Item | None) -> Iterator[str]:
        head, body = list(self._head(old, new)), self._body(old, new)
        first = next(body, None)
        if head or first is not None:
            yield f"diff --git {self._names[0]} {self._names[1]}\n"
            yield from head
            yield from () if first is None else (first,)
            yield from body

    def _head(self, old: Item | None, new: Item | None) -> Iterator[str]:
        if (new or old or _NOTHING).special is not None:
            return  # for which Git has no mode
        if old is None and new is not None:
            yield f"new file mode {_mode(new)}\n"
        elif new is None and old is not None:
            yield f"deleted file mode {_mode(old)}\n"
        elif old is not None and new is not None and old.mode != new.mode:
            yield f"old mode {old.mode:o}\n"
            yield f"new mode {new.mode:o}\n"

    def _body(self, old: Item | None, new: Item | None) -> Iterator[str]:
        item = new or old
        if item is None or item.special is not None:
            if item is not None and (old is None or new is None):
                done = "removed" if new is None else "added"
                yield f"Special file {self._names[new is not None]} {done}: a {item.special}\n"
            return
        if item.is_link:
            if (old and old.target) != (new and new.target):
                yield from self._texts(old.target if old else None, new.target if new else None)
            return
        try:
            content = read_content(os.path.join(self._before.root, self._path)) if new else None
        except OSError as error:
            reason = error.strerror or error
            yield f"File {self._names[1]} cannot be read: {reason} ({_sizes(old, new)})\n"
            return
        if old is not None and content is not None and old.digest == content.digest:
            return
        yield from self._contents(old, new, content)

    def _contents(self, old: Item | None, new: Item | None, content: Content | None) -> Iterator[str]:
        """Yield how the contents of two files differ: their texts, or else their sizes."""
        was = self._before.text(old) if old else None
        now = content.text if content else None
        if (old is None or was is not None) and (new is None or now is not None):
            yield from self._texts(was, now)
        elif any(item is not None and item.size > MAX_TEXT_BYTES for item in (old, new)):
            yield f"File {self._names[new is not None]} is too large to be compared ({_sizes(old, new)})\n"
        elif old is not None and old.offset is None and now is not None and old.digest is None:
            yield f"File {self._names[1]} has changed, its former content is not known ({_sizes(old, new)})\n"
        else:
            first, second = self._names[0] if old else "/dev/null", self._names[1] if new else "/dev/null"
            yield f"Binary files {first} and {second} differ ({_sizes(old, new)})\n"

    def _texts(self, was: bytes | None, now: bytes | None) -> Iterator[str]:
        """Yield how two texts differ; None is a file that is not there."""
        is_long = max((was or b"").count(b"\n"), (now or b"").count(b"\n")) > MAX_LINES
        hunks = _whole(was, now) if was is None or now is None or is_long else _hunks(was, now, self._has_time)
        for number, line in enumerate(hunks):
            if not number:
                yield f"--- {_end_name(self._names[0]) if was is not None else '/dev/null'}\n"
                yield f"+++ {_end_name(self._names[1]) if now is not None else '/dev/null'}\n"
            yield line


Opcode = tuple[str, int, int, int, int]


def _whole(was: bytes | None, now: bytes | None) -> Iterator[str]:
    """Yield a text as removed and another as added, line by line; they are never held as lines."""
    counts = [sum(1 for _ in io.BytesIO(text or b"")) for text in (was, now)]
    if any(counts):
        yield f"@@ -{_range(0, counts[0])} +{_range(0, counts[1])} @@\n"
    for sign, text in (("-", was), ("+", now)):
        for line in io.BytesIO(text or b""):
            yield _line(sign, line.decode("utf-8", "replace"))


def _hunks(was: bytes, now: bytes, has_time: bool) -> Iterator[str]:
    """Yield the places in which two texts differ, with the lines around them.

    What both texts begin and end with is not compared. The rest is taken for changed if to compare it takes long.
    """
    old, new = _lines(was), _lines(now)
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    first, last = max(0, start - CONTEXT), max(0, end - CONTEXT)
    a, b = old[first : len(old) - last], new[first : len(new) - last]
    if has_time and len(a) * len(b) <= MAX_COMPARED:
        groups = difflib.SequenceMatcher(None, a, b).get_grouped_opcodes(CONTEXT)
        for group in groups if was != now else ():
            moved = [(tag, i1 + first, i2 + first, j1 + first, j2 + first) for tag, i1, i2, j1, j2 in group]
            yield from _hunk_lines(old, new, moved)
        return
    i, j = len(old) - end, len(new) - end
    yield from _hunk_lines(
        old,
        new,
        [
            ("equal", first, start, first, start),
            ("replace", start, i, start, j),
            ("equal", i, len(old) - last, j, len(new) - last),
        ],
    )


def _hunk_lines(old: Sequence[str], new: Sequence[str], group: Sequence[Opcode]) -> Iterator[str]:
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    yield f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@\n"
    for tag, a1, a2, b1, b2 in group:
        if tag == "equal":
            yield from (_line(" ", line) for line in old[a1:a2])
            continue
        yield from (_line("-", line) for line in old[a1:a2])
        yield from (_line("+", line) for line in new[b1:b2])


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _range(start: int, end: int) -> str:
    count = end - start
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1 if count else start},{count}"


def _lines(text: bytes) -> list[str]:
    """Return the lines of a text with their ends; a carriage return is part of its line."""
    return [line.decode("utf-8", "replace") for line in io.BytesIO(text)]


def _sizes(old: Item | None, new: Item | None) -> str:
    if old is not None and new is not None:
        return f"{old.size} -> {new.size} bytes"
    item = old or new
    return f"{item.size if item else 0} bytes"


def _mode(item: Item) -> str:
    """Return the mode as Git writes it: a file can be executed or not."""
    if item.is_link:
        return "120000"
    return "100755" if item.is_file and item.mode & stat.S_IXUSR else "100644" if item.is_file else f"{item.mode:o}"


def _name(path: bytes) -> str:
    """Return a path as text; one that is not plain stands in quotes, with escapes, as Git writes it."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        text = ""
    if not path or _PLAIN_NAME.fullmatch(text):
        return text
    return '"' + "".join(map(_escape, path)) + '"'


def _escape(byte: int) -> str:
    if byte in b'"\\':
        return f"\\{chr(byte)}"
    return chr(byte) if 0x20 <= byte < 0x7F else _ESCAPES.get(byte) or f"\\{byte:03o}"  # printable


def _end_name(name: str) -> str:
    """Return a name as it stands at the end of a line: behind one with spaces Git puts a tab."""
    return f"{name}\t" if " " in name and not name.startswith('"') else name
