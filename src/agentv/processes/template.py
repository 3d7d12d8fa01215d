"""A command template -> a script for `/bin/sh` that takes its values from the environment.

A value never becomes part of the script: where `{PROMPT}` stands, the script has the expansion of a variable,
quoted as the place demands. The shell passes its value on byte for byte and never runs it, so no prompt and no id
can break out, in quotes or not. What the command itself would run, as `bash -c` does, is refused as far as it
can be told from the template.
"""

import enum
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from agentv.errors import nearest

VARIABLES = "AGENTV_"


class Place(enum.Enum):
    """Where in a script something stands, by the sign that ends it."""

    PLAIN = ")"
    DOUBLE = '"'
    SINGLE = "'"
    COMMENT = "\n"
    BACKTICKS = "`"
    ARITHMETIC = "))"


class Slot(NamedTuple):
    """A place in a template where a value goes; `command` is the command up to the word that it stands in."""

    name: str
    start: int
    end: int
    place: Place
    command: str


class Scan(NamedTuple):
    """The slots of a template, known or not, whether a quote is left open, and where here-documents begin and end."""

    slots: tuple[Slot, ...]
    is_open: bool
    here_documents: tuple[tuple[int, int], ...]


_SLOT = r"(?<!\$)(?<!\$\{)\{[A-Za-z][A-Za-z0-9_]*\}"
"""Neither a `${VARIABLE}` of the shell's nor a `${{VARIABLE}}` of the targets file."""
_TOKENS = {
    Place.PLAIN: re.compile(
        rf"\\.|'|\"|`|\$\(\(|\$?\(|\)|(?<![^\s;&|()`])#|<<-?\s*[\\'\"]?\w+|[;&|\n]|[ \t]+|{_SLOT}", re.DOTALL
    ),
    Place.DOUBLE: re.compile(rf"\\.|\"|`|\$\(\(|\$\(|{_SLOT}", re.DOTALL),
    Place.SINGLE: re.compile(rf"'|{_SLOT}"),
    Place.COMMENT: re.compile(r"\n"),
    Place.BACKTICKS: re.compile(rf"\\.|`|{_SLOT}", re.DOTALL),
    Place.ARITHMETIC: re.compile(rf"\)\)|{_SLOT}"),
}
_OPENS = {
    "'": Place.SINGLE,
    '"': Place.DOUBLE,
    "(": Place.PLAIN,
    "$(": Place.PLAIN,
    "$((": Place.ARITHMETIC,
    "#": Place.COMMENT,
    "`": Place.BACKTICKS,
}
_SHELLS = r"(?:(?:ba|da|z|k|a|fi)?sh|python[\d.]*|node|deno|bun|perl|ruby|php|pwsh|osascript)"
_RUNS_TEXT = re.compile(
    rf"(?:^|[\s/\"'])(?:"
    rf"{_SHELLS}[\"']?(?:\s+-\S+)*\s+(?:-\w*[cepE]\w*|--eval|--print|--command)(?:\s+-\S+)*"
    r"|eval\b.*|ssh\b.*|trap|[gmn]?awk(?:\s+-\S+)*|env\b.*\s-S|(?:su|script|flock)\s(?:.*\s)?-\w*c"
    r")\s*$",
    re.DOTALL,
)
"""What stands before a word that a program takes for code."""


def scan(template: str) -> Scan:
    """Find the slots of a template; the quotes around them are followed as a shell would."""
    places = [Place.PLAIN]
    starts = [(0, 0)]
    """Where the command and the word begin that we are in, in each of the places."""
    slots: list[Slot] = []
    here: list[tuple[int, int]] = []
    at = 0
    while found := _TOKENS[places[-1]].search(template, at):
        token, place, at = found[0], places[-1], found.end()
        command, word = starts[-1]
        if token.startswith("{"):
            slots.append(Slot(token[1:-1], found.start(), at, place, template[command:word].replace("\\\n", " ")))
        elif token == place.value:
            if len(places) > 1:
                places.pop()
                starts.pop()
        elif token in _OPENS:
            places.append(_OPENS[token])
            starts.append((at, at) if _OPENS[token] is Place.PLAIN else (command, word))
        elif token.startswith("<<"):
            here.append((at, _end_of_here_document(template, at, token)))
        elif token == "\\\n" or token.strip(" \t") == "":
            starts[-1] = command, at
        elif token in (";", "&", "|", "\n"):
            starts[-1] = at, at
    is_open = any(place not in (Place.PLAIN, Place.COMMENT) for place in places)
    return Scan(tuple(slots), is_open, tuple(here))


def _end_of_here_document(template: str, at: int, token: str) -> int:
    mark = re.sub(r"\W", "", token)
    end = re.compile(rf"\n\t*{mark}(?:\n|$)").search(template, at)
    return end.end() if end else len(template)


def problems(template: str, known: Collection[str], foreign: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with the slots of a template, and what to do; `foreign` are those whose values others write."""
    found = scan(template)
    if found.is_open:
        yield "a quote is not closed", ""
    in_capitals = all(name.isupper() for name in known)  # then lower case is rather the shell's own
    for slot in found.slots:
        shown = template[slot.start : slot.end]
        if slot.name not in known:
            if slot.name.isupper() or slot.name.upper() in known or not in_capitals:
                yield f"unknown placeholder {shown}", nearest(shown.upper(), [f"{{{name}}}" for name in known])
        elif slot.name in foreign and (_RUNS_TEXT.search(slot.command) or slot.place is Place.ARITHMETIC):
            yield f"{shown} would be run as code here", f"hand it over as an argument: sh -c '… \"$1\"' - {shown}"
        elif slot.place is Place.BACKTICKS:
            yield f"{shown} stands in backticks", f"write $(… {shown} …)"
        elif any(
            begin < slot.start < end and "\n" in template[begin : slot.start] for begin, end in found.here_documents
        ):
            yield f"{shown} stands in a here-document", "hand it over as an argument, or use {PROMPT_FILE}"
        elif template[: slot.start].endswith("{") and template[slot.end :].startswith("}"):
            yield f"{shown} stands in double braces", f"write {shown}"


def script(template: str, known: Collection[str], expansion: Callable[[str, Place], str]) -> str:
    """The template with each known slot replaced by its expansion."""
    parts: list[str] = []
    end = 0
    for slot in scan(template).slots:
        if slot.name in known:
            parts += [template[end : slot.start], expansion(slot.name, slot.place)]
            end = slot.end
    return "".join([*parts, template[end:]])


def expanded(name: str, place: Place) -> str:
    """The expansion of one of our variables, quoted for its place."""
    bare = f"${{{VARIABLES}{name}}}"
    return {Place.DOUBLE: bare, Place.ARITHMETIC: bare, Place.SINGLE: f"'\"{bare}\"'"}.get(place, f'"{bare}"')
