"""Read YAML into values, with the line and column of each.

libyaml parses YAML into events, and this module builds the values from them. It applies the types of YAML 1.2 (`NO`,
`on` and `12:30` are strings), rejects duplicate keys and aliases that expand to a huge size, and records the place of
every value. It uses a stack instead of recursion.
"""

import math
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from agentv.errors import AgentvError

Steps = tuple[str | int, ...]
"""The path to a value inside a document: `("evalcases", 0, "id")`."""

MAX_ALIAS_CHARACTERS = 10_000_000
MAX_DEPTH = 100
TOO_DEEP = "nested too deeply"


class Place(NamedTuple):
    """A line and a column of a text, both starting at 1 as in editors."""

    line: int
    column: int


class Document(NamedTuple):
    """The value of a YAML text and the positions of its parts. The position of a field is that of its key."""

    value: Any
    places: Mapping[Steps, Place]

    def place(self, steps: Steps) -> Place:
        """Return the position of the value at `steps`, or of the innermost existing value around it."""
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
    """Open a file for reading. Raise `ValueError` if it is a pipe or a device, which may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("not a regular file")
    return path.open("rb")


def read_error(
    problem: OSError | ValueError,
    path: Path,
    error: type[AgentvError],
) -> AgentvError:
    """Return an `error` that explains why a file cannot be read."""
    match problem:
        case ValueError():
            return error(str(problem), file=path)
        case FileNotFoundError() | NotADirectoryError():
            return error(
                "no such file",
                file=path,
                hint="check the path and the current folder",
            )
        case IsADirectoryError():
            return error("this is a folder, not a file", file=path)
        case PermissionError():
            return error(
                "no permission to read this file",
                file=path,
                hint="check its owner and permissions",
            )
    reason = getattr(problem, "strerror", None) or problem
    return error(f"cannot be read: {reason}", file=path)


def read_yaml(path: Path, error: type[AgentvError]) -> Document:
    """Return the document of a YAML file. Raise `error` if it cannot be read or is not one valid document."""
    data = read_bytes(path, error)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line, column = line_and_column(data[: problem.start])
        raise error(
            utf8_error_message(problem),
            file=path,
            line=line,
            column=column,
            hint="save the file as UTF-8",
        ) from None
    return parse_yaml(text, path, error)


def parse_yaml(
    text: str,
    path: Path,
    error: type[AgentvError],
    max_depth: int = MAX_DEPTH,
) -> Document:
    """Return the document of a YAML text. Raise `error` if it is not valid; `path` is for its message."""
    import yaml

    replacements = _unused_characters(text)
    originals = {}
    for old, new in replacements.items():
        originals[new] = old
    composer = _Composer(max_depth, originals)
    replaced = text
    if replacements:
        replaced = text.translate(replacements)
    try:
        for event in yaml.parse(replaced, Loader=_loader()):
            composer.take(event)
    except _Refused as refusal:
        place, message, hint = refusal.args
        raise error(
            message,
            file=path,
            line=place.line,
            column=place.column,
            hint=hint,
        ) from None
    except yaml.MarkedYAMLError as problem:
        raise _syntax_error(problem, text, path, error) from None
    except yaml.YAMLError as problem:
        position = getattr(problem, "position", 0)
        line, column = line_and_column(text.encode()[:position])
        detail = str(problem).splitlines()[0]
        raise error(
            f"Invalid YAML: {detail}",
            file=path,
            line=line,
            column=column,
        ) from None
    return Document(composer.value, composer.places)


def _loader() -> Any:
    """Return the loader that uses libyaml, if PyYAML was built with it."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _unused_characters(text: str) -> dict[int, int]:
    """Map each character in the text that libyaml wrongly interprets as a line break to a character that is unused.

    These three characters were line breaks in YAML 1.1. In YAML 1.2 they are text.
    """
    replacements = {}
    unused = 0x10FFFD
    for code in (0x85, 0x2028, 0x2029):
        if chr(code) not in text:
            continue
        while chr(unused) in text:
            unused -= 1
        replacements[code] = unused
        unused -= 1
    return replacements


def line_and_column(before: bytes) -> tuple[int, int]:
    """Return the line and the column after these bytes, both starting at 1."""
    _, _, last_line = before.rpartition(b"\n")
    characters = last_line.decode("utf-8", "replace")
    line = before.count(b"\n") + 1
    return line, len(characters) + 1


def _syntax_error(
    problem: Any,
    text: str,
    path: Path,
    error: type[AgentvError],
) -> AgentvError:
    """Return an `error` that explains the parser's error."""
    quote = _find_unclosed_quote(problem, text)
    if quote is not None:
        end = "not closed"
        if quote.closed_on:
            end = f"only closed on line {quote.closed_on}"
        return error(
            f"Invalid YAML: the quote that opens here is {end}",
            file=path,
            line=quote.place.line,
            column=quote.place.column,
            hint="close it where the text ends",
        )
    place = Place(1, 1)
    mark = problem.problem_mark or problem.context_mark
    if mark:
        place = _place_of(mark)
    parts = filter(None, (problem.problem, problem.context))
    detail = ", ".join(parts)
    hint = ""
    if _has_tab(text, place):
        detail = f"line {place.line} is indented with a tab"
        hint = "use spaces: YAML does not allow tabs for indentation"
    return error(
        f"Invalid YAML: {detail}",
        file=path,
        line=place.line,
        column=place.column,
        hint=hint,
    )


def _has_tab(text: str, place: Place) -> bool:
    """Return whether there is a tab at this position, or in the indentation of its line."""
    lines = text.splitlines()
    if place.line > len(lines):
        return False
    line = lines[place.line - 1]
    indented = len(line) - len(line.lstrip())
    indentation = line[:indented]
    character = line[place.column - 1 : place.column]
    return "\t" in indentation + character


class _UnclosedQuote(NamedTuple):
    """The position of an opening quote, and the line of the quote that closes it, or 0."""

    place: Place
    closed_on: int


def _find_unclosed_quote(problem: Any, text: str) -> _UnclosedQuote | None:
    """Return the unclosed quote that caused an error, if any.

    The text of an unclosed quote extends to the next quote, often several lines below. The parser stops there.
    """
    if "quoted scalar" in (problem.context or ""):
        return _UnclosedQuote(_place_of(problem.context_mark), closed_on=0)
    if problem.problem_mark is None:
        return None
    import yaml

    stopped = problem.problem_mark.line
    quote = None
    with suppress(yaml.YAMLError):
        for token in yaml.scan(text, Loader=_loader()):
            start = token.start_mark
            if start.line > stopped:
                break
            is_quoted = isinstance(token, yaml.ScalarToken) and token.style in ("'", '"')
            end_line = token.end_mark.line
            if is_quoted and start.line < end_line and end_line == stopped:
                quote = _UnclosedQuote(_place_of(start), closed_on=stopped + 1)
    return quote


class _Refused(Exception):
    """YAML that is well-formed but not supported: its position, a message and a hint."""


class _Open(NamedTuple):
    """A collection that has not ended yet."""

    value: dict[str, Any] | list[Any]
    steps: Steps
    anchor: str | None
    before: int
    """Size of the document before the collection."""


_NO_KEY = object()


class _Composer:
    """Builds the value of one document from parser events and records the positions of its parts."""

    def __init__(self, max_depth: int, originals: Mapping[int, int]) -> None:
        self._max_depth = max_depth
        self._originals = originals
        self.value: Any = None
        self.places: dict[Steps, Place] = {(): Place(1, 1)}
        self._stack: list[_Open] = []
        self._key: Any = _NO_KEY
        """The key whose value comes next."""
        self._anchors: dict[str, tuple[Any, int]] = {}
        """The value of each anchor, and its size."""
        self._size = 0
        """Size of the document so far: the characters of all scalars, plus one per value."""
        self._aliased = 0
        """The part of the size that comes from aliases."""
        self._documents = 0

    def take(self, event: Any) -> None:
        """Process one event of the parser."""
        action = _ACTIONS.get(type(event).__name__)
        if action is not None:
            action(self, event, _place_of(event.start_mark))

    def _expects_key(self) -> bool:
        """Return whether the next value is a key of the innermost mapping."""
        if not self._stack or self._key is not _NO_KEY:
            return False
        return type(self._stack[-1].value) is dict

    def _document(self, _event: Any, place: Place) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _Refused(
                place,
                "a second YAML document starts here",
                "use one file per document",
            )

    def _scalar(self, event: Any, place: Place) -> None:
        self._size += len(event.value) + 1
        if self._originals:
            event.value = event.value.translate(self._originals)
        value = _resolve(event, place)
        if self._expects_key():
            self._take_key(event, place)
        else:
            self._put(value, place)
        self._anchor(event.anchor, value, len(event.value) + 1)

    def _take_key(self, event: Any, place: Place) -> None:
        """Record a key of the innermost mapping. Its value comes with the next event."""
        mapping = self._stack[-1]
        key = event.value
        steps = (*mapping.steps, key)
        if key in mapping.value:
            first = self.places[steps]
            raise _Refused(
                place,
                f"duplicate key {key!r}, first on line {first.line}",
                "remove one",
            )
        if key == "<<" and event.implicit[0]:
            raise _Refused(
                place,
                "merge keys (<<) are not part of YAML 1.2",
                "repeat the keys, or move shared settings to the top of the file",
            )
        self._key = key
        self.places[steps] = place

    def _start(self, event: Any, place: Place) -> None:
        if self._expects_key():
            raise _Refused(place, "a key must be a scalar, not a list or a mapping", "")
        if len(self._stack) >= self._max_depth:
            raise _Refused(place, TOO_DEEP, f"at most {self._max_depth} levels are read")
        wanted = _COLLECTION_TAGS[type(event).__name__]
        if event.tag not in (None, "!", wanted):
            raise _Refused(place, f"the tag {event.tag} is not supported", "remove the tag")
        value: dict[str, Any] | list[Any] = []
        if wanted == _COLLECTION_TAGS["MappingStartEvent"]:
            value = {}
        steps = self._put(value, place)
        collection = _Open(value, steps, event.anchor, before=self._size)
        self._stack.append(collection)
        self._size += 1

    def _end(self, _event: Any, _place: Place) -> None:
        done = self._stack.pop()
        size = self._size - done.before
        self._anchor(done.anchor, done.value, size)

    def _alias(self, event: Any, place: Place) -> None:
        if event.anchor not in self._anchors:
            raise _Refused(place, f"the alias *{event.anchor} has no anchor before it, or is inside its own anchor", "")
        if self._expects_key():
            raise _Refused(place, "an alias cannot be a key", "write the key out")
        value, size = self._anchors[event.anchor]
        self._size += size
        self._aliased += size
        if self._aliased > MAX_ALIAS_CHARACTERS:
            raise _Refused(
                place,
                "aliases expand to too many values",
                "write the values out",
            )
        self._put(value, place)

    def _anchor(self, name: str | None, value: Any, size: int) -> None:
        """Remember a value for aliases, if it has an anchor."""
        if name:
            self._anchors[name] = value, size

    def _put(self, value: Any, place: Place) -> Steps:
        """Put `value` into the collection around it, and return the steps to it."""
        if not self._stack:
            self.value = value
            self.places[()] = place
            return ()
        around = self._stack[-1]
        if isinstance(around.value, list):
            steps = (*around.steps, len(around.value))
            self.places[steps] = place
            around.value.append(value)
            return steps
        # the position of a field is that of its key, which is already recorded
        steps = (*around.steps, self._key)
        around.value[self._key] = value
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


def _place_of(mark: Any) -> Place:
    """Return the position of a PyYAML mark, whose lines and columns start at 0."""
    return Place(mark.line + 1, mark.column + 1)


_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def _parse_int(text: str) -> int:
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    return int(text)


def _parse_float(text: str) -> float:
    """Return a finite number. Raise `ValueError` for .inf, .nan and numbers out of range, which JSON cannot express."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


_CORE: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (_NULL, lambda _: None),
    "bool": (_BOOL, lambda text: text[0] in "tT"),
    "int": (_INT, _parse_int),
    "float": (_FLOAT, _parse_float),
}
"""The types of the core schema: tag -> pattern of its plain scalars, and the function that parses them."""
_PREFIX = "tag:yaml.org,2002:"


def _resolve(event: Any, place: Place) -> Any:
    """Return the value of a scalar in the core schema of YAML 1.2. Raise `_Refused` if its tag does not fit."""
    text: str = event.value
    tag = None
    if event.tag:
        tag = event.tag.removeprefix(_PREFIX)
    is_text = tag is None and not event.implicit[0]  # quoted, or a block
    if is_text or tag in ("str", "!"):
        return text
    try:
        if tag in ("null", "bool", "int", "float"):
            pattern, value_of = _CORE[tag]
            if not pattern.fullmatch(text):
                raise _Refused(place, f"{text!r} is not of the type !!{tag}", "remove the tag")
            return value_of(text)
        if tag is None:
            return _resolve_plain(text)
    except ValueError as problem:
        raise _Refused(
            place,
            f"the number {text[:40]} is out of range",
            "quote it if it is text",
        ) from problem
    raise _Refused(place, f"the tag {event.tag} is not supported", "remove the tag")


_MAY_BE_OTHER = frozenset(["", *"~nNtTfF+-.0123456789"])
"""First characters of plain scalars that are not strings."""


def _resolve_plain(text: str) -> Any:
    """Return the value of a scalar without a tag or quotes. Raise `ValueError` for a number out of range."""
    if text[:1] not in _MAY_BE_OTHER:
        return text
    for pattern, value_of in _CORE.values():
        if pattern.fullmatch(text):
            return value_of(text)
    return text


def utf8_error_message(problem: UnicodeDecodeError) -> str:
    """Return the message for bytes that are not valid UTF-8."""
    byte = problem.object[problem.start]
    return f"not valid UTF-8: byte 0x{byte:02x} is invalid here"
