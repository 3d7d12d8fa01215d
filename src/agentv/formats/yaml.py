"""YAML text -> values and their places.

libyaml parses YAML into events, and this module builds the values from them. It applies the types of YAML 1.2 (`NO`,
`on` and `12:30` are strings), refuses duplicate keys and aliases that expand into something huge, and records the
place of every value. It uses a stack, not recursion.
"""

import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from agentv.errors import AgentvError

Steps = tuple[str | int, ...]
"""The way to a value inside a document: `("evalcases", 0, "id")`."""

MAX_ALIAS_CHARACTERS = 10_000_000
MAX_DEPTH = 100
TOO_DEEP = "nested too deeply"


class Place(NamedTuple):
    """A line and a column of a text, counted from 1 as editors do."""

    line: int
    column: int


class Document(NamedTuple):
    """The value of a YAML text, and the places of its parts. The place of a field is that of its key."""

    value: Any
    places: Mapping[Steps, Place]

    def place(self, steps: Steps) -> Place:
        """Return the place of the value that `steps` lead to; if there is none, that of the value around it."""
        while steps not in self.places:
            steps = steps[:-1]
        return self.places[steps]


def read_bytes(path: Path, error: type[AgentvError]) -> bytes:
    """Return the content of a file; raise `error` if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read()
    except (OSError, ValueError) as problem:
        raise read_error(problem, path, error) from problem


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; raise `ValueError` if it is a pipe or a device, which may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("this is no regular file")
    return path.open("rb")


def read_error(problem: OSError | ValueError, path: Path, error: type[AgentvError]) -> AgentvError:
    """Return the `error` that explains why a file cannot be read."""
    match problem:
        case ValueError():
            return error(str(problem), file=path)
        case FileNotFoundError() | NotADirectoryError():
            return error("no such file", file=path, hint="check the path and the folder you are in")
        case IsADirectoryError():
            return error("this is a folder, not a file", file=path)
        case PermissionError():
            return error("no permission to read this file", file=path, hint="check its owner and mode")
    return error(f"cannot be read: {getattr(problem, 'strerror', None) or problem}", file=path)


def read_yaml(path: Path, error: type[AgentvError]) -> Document:
    """Return the document of a YAML file; raise `error` if it cannot be read or is not one valid document."""
    data = read_bytes(path, error)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line, column = line_and_column(data[: problem.start])
        hint = "save the file as UTF-8"
        raise error(utf8_error_message(problem), file=path, line=line, column=column, hint=hint) from None
    return parse_yaml(text, path, error)


def parse_yaml(text: str, path: Path, error: type[AgentvError], max_depth: int = MAX_DEPTH) -> Document:
    """Return the document of a YAML text; raise `error` if it is not valid. `path` is for the messages."""
    import yaml

    replacements = _unused_characters(text)
    composer = _Composer(max_depth, {new: old for old, new in replacements.items()})
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text.translate(replacements) if replacements else text, Loader=loader):
            composer.take(event)
    except _Refused as refusal:
        place, message, hint = refusal.args
        raise error(message, file=path, line=place.line, column=place.column, hint=hint) from None
    except yaml.MarkedYAMLError as problem:
        raise _bad_yaml(problem, text, path, error) from None
    except yaml.YAMLError as problem:
        line, column = line_and_column(text.encode()[: getattr(problem, "position", 0)])
        detail = str(problem).splitlines()[0]
        raise error(f"Invalid YAML: {detail}", file=path, line=line, column=column) from None
    return Document(composer.value, composer.places)


def _unused_characters(text: str) -> dict[int, int]:
    """Return unused characters to replace those three that libyaml takes for line breaks.

    They were line breaks in YAML 1.1. In YAML 1.2 they are text.
    """
    unused = (code for code in range(0x10FFFD, 0x100000, -1) if chr(code) not in text)
    return {code: next(unused) for code in (0x85, 0x2028, 0x2029) if chr(code) in text}


def line_and_column(before: bytes) -> tuple[int, int]:
    """Return the place after these bytes."""
    return before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1


def _bad_yaml(problem: Any, text: str, path: Path, error: type[AgentvError]) -> AgentvError:
    if (place_and_end := _unclosed_quote(problem, text)) is not None:
        place, end = place_and_end
        message = "Invalid YAML: the quote that opens here is " + (
            f"only closed on line {end}" if end else "not closed"
        )
        return error(message, file=path, line=place.line, column=place.column, hint="close it where the text ends")
    mark = problem.problem_mark or problem.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message = ", ".join(part for part in (problem.problem, problem.context) if part)
    source = text.splitlines()[line - 1 : line]
    hint = ""
    if source and "\t" in source[0][: len(source[0]) - len(source[0].lstrip())] + source[0][column - 1 : column]:
        hint = "indent with spaces: YAML does not allow tabs there"
    return error(f"Invalid YAML: {message}", file=path, line=line, column=column, hint=hint)


def _unclosed_quote(problem: Any, text: str) -> tuple[Place, int] | None:
    """Return where a quote opens that is the reason for an error, and the line of the next quote, or 0.

    A quote that nobody closed ends at the next one, which is often lines below, where the parser then stops.
    """
    if "quoted scalar" in (problem.context or ""):
        return Place(problem.context_mark.line + 1, problem.context_mark.column + 1), 0
    if problem.problem_mark is None:
        return None
    import yaml

    stopped = problem.problem_mark.line
    found = None
    with suppress(yaml.YAMLError):
        for token in yaml.scan(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if token.start_mark.line > stopped:
                break
            is_quoted = isinstance(token, yaml.ScalarToken) and token.style in ("'", '"')
            if is_quoted and token.start_mark.line < token.end_mark.line == stopped:
                found = Place(token.start_mark.line + 1, token.start_mark.column + 1), stopped + 1
    return found


class _Refused(Exception):
    """YAML that is well formed and not supported: its place, a message and a hint."""


class _Open(NamedTuple):
    """A collection that has not ended yet."""

    value: dict[str, Any] | list[Any]
    steps: Steps
    anchor: str | None
    before: int


_NO_KEY = object()


class _Composer:
    """Builds the value of one document from parser events, and records the places of its parts."""

    def __init__(self, max_depth: int, originals: Mapping[int, int]) -> None:
        self._max_depth, self._originals = max_depth, originals
        self.value: Any = None
        self.places: dict[Steps, Place] = {(): Place(1, 1)}
        self._stack: list[_Open] = []
        self._key: Any = _NO_KEY
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._size = 0
        self._aliased = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        name = type(event).__name__
        if action := _ACTIONS.get(name):
            action(self, event, _place(event))

    def _document(self, _event: Any, place: Place) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _Refused(place, "a second YAML document begins here", "keep one document in each file")

    def _scalar(self, event: Any, place: Place) -> None:
        self._size += len(event.value) + 1
        if self._originals:
            event.value = event.value.translate(self._originals)
        value = _resolve(event, place)
        if self._stack and type(self._stack[-1].value) is dict and self._key is _NO_KEY:
            self._take_key(event, place)
        else:
            self._put(value, place)
        self._anchor(event.anchor, value, len(event.value) + 1)

    def _take_key(self, event: Any, place: Place) -> None:
        mapping, steps = self._stack[-1].value, self._stack[-1].steps
        if event.value in mapping:
            first = self.places[(*steps, event.value)]
            raise _Refused(place, f"duplicate key {event.value!r}, first on line {first.line}", "remove one")
        if event.value == "<<" and event.implicit[0]:
            hint = "repeat the keys, or move what is shared to the top of the file"
            raise _Refused(place, "merge keys (<<) are not part of YAML 1.2", hint)
        self._key = event.value
        self.places[(*steps, event.value)] = place

    def _start(self, event: Any, place: Place) -> None:
        if self._stack and type(self._stack[-1].value) is dict and self._key is _NO_KEY:
            raise _Refused(place, "a key must be a plain value, not a list or a mapping", "")
        if len(self._stack) >= self._max_depth:
            raise _Refused(place, TOO_DEEP, f"at most {self._max_depth} levels are read")
        wanted = _COLLECTION_TAGS[type(event).__name__]
        if event.tag not in (None, "!", wanted):
            raise _Refused(place, f"the tag {event.tag} is not supported", "leave the tag out")
        value: dict[str, Any] | list[Any] = {} if wanted == "tag:yaml.org,2002:map" else []
        steps = self._put(value, place)
        self._stack.append(_Open(value, steps, event.anchor, self._size))
        self._size += 1

    def _end(self, _event: Any, _place: Place) -> None:
        done = self._stack.pop()
        self._anchor(done.anchor, done.value, self._size - done.before)

    def _alias(self, event: Any, place: Place) -> None:
        if event.anchor not in self._anchors:
            raise _Refused(place, f"the alias *{event.anchor} has no anchor before it, or stands inside it", "")
        if self._stack and type(self._stack[-1].value) is dict and self._key is _NO_KEY:
            raise _Refused(place, "an alias cannot be a key", "write the key out")
        value, size = self._anchors[event.anchor]
        self._size += size
        self._aliased += size
        if self._aliased > MAX_ALIAS_CHARACTERS:
            raise _Refused(place, "aliases expand into something huge", "write out what is meant")
        self._put(value, place)

    def _anchor(self, name: str | None, value: Any, size: int) -> None:
        if name:
            self._anchors[name] = value, size

    def _put(self, value: Any, place: Place) -> Steps:
        """Put `value` into the collection around it, and return the steps to it."""
        if not self._stack:
            self.value = value
            self.places[()] = place
            return ()
        around, steps = self._stack[-1].value, self._stack[-1].steps
        if isinstance(around, list):
            steps = (*steps, len(around))
            self.places[steps] = place
            around.append(value)
            return steps
        steps = (*steps, self._key)
        around[self._key] = value
        self._key = _NO_KEY
        return steps


_ACTIONS: dict[str, Callable[[_Composer, Any, Place], None]] = {
    "DocumentStartEvent": _Composer._document,
    "ScalarEvent": _Composer._scalar,
    "AliasEvent": _Composer._alias,
    "MappingStartEvent": _Composer._start,
    "SequenceStartEvent": _Composer._start,
    "MappingEndEvent": _Composer._end,
    "SequenceEndEvent": _Composer._end,
}
_COLLECTION_TAGS = {
    "MappingStartEvent": "tag:yaml.org,2002:map",
    "SequenceStartEvent": "tag:yaml.org,2002:seq",
}


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CORE: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (_NULL, lambda _: None),
    "bool": (_BOOL, lambda text: text[0] in "tT"),
    "int": (_INT, lambda text: int(text, 0) if text[:2] in ("0o", "0x") else int(text)),
    # .inf and .nan are refused (`float` does not read them): JSON, and so JSONL, has no such numbers
    "float": (_FLOAT, lambda text: _finite(float(text))),
}
_PREFIX = "tag:yaml.org,2002:"


def _resolve(event: Any, place: Place) -> Any:
    """Return the value of a scalar, by the core schema of YAML 1.2."""
    text: str = event.value
    tag = event.tag.removeprefix(_PREFIX) if event.tag else None
    if tag in ("str", "!") or (tag is None and not event.implicit[0]):
        return text
    try:
        if tag in ("null", "bool", "int", "float"):
            pattern, value_of = _CORE[tag]
            if not pattern.fullmatch(text):
                raise _Refused(place, f"{text!r} is not of the type !!{tag}", "leave the tag out")
            return value_of(text)
        if tag is None:
            if text[:1] not in _MAY_BE_OTHER:
                return text
            for pattern, value_of in _CORE.values():
                if pattern.fullmatch(text):
                    return value_of(text)
            return text
    except ValueError as problem:
        raise _Refused(place, f"the number {text[:40]} is out of range", "quote it if it is text") from problem
    raise _Refused(place, f"the tag {event.tag} is not supported", "leave the tag out")


_MAY_BE_OTHER = frozenset(["", *"~nNtTfF+-.0123456789"])
"""First characters of plain scalars that are not strings."""


def _finite(number: float) -> float:
    if number - number != 0:
        raise ValueError("not a finite number")
    return number


def utf8_error_message(problem: UnicodeDecodeError) -> str:
    """Return what is wrong with bytes that are not UTF-8."""
    return f"not valid UTF-8: byte 0x{problem.object[problem.start]:02x} cannot stand here"
