"""A command template -> a script for `/bin/sh` that takes its values from the environment.

A value never becomes part of the script: where `{PROMPT}` stands, the script has the expansion of a variable,
quoted as the place demands. The shell passes its value on byte for byte and never runs it, so no prompt and no id
can break out, in quotes or not.
"""

import enum
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from agentv.errors import nearest

VARIABLES = "AGENTV_"


class Place(enum.Enum):
    """Where in a script something stands."""

    PLAIN = "outside of quotes"
    DOUBLE = "in double quotes"
    SINGLE = "in single quotes"
    COMMENT = "in a comment"


class Slot(NamedTuple):
    """A place in a template where a value goes; `is_code` when a program would take the value for code."""

    name: str
    start: int
    end: int
    place: Place
    is_code: bool


_SLOT = r"(?<!\$)(?<!\$\{)\{[A-Za-z][A-Za-z0-9_]*\}"
"""Neither a `${VARIABLE}` of the shell's nor a `${{VARIABLE}}` of the targets file."""
_TOKENS = {
    Place.PLAIN: re.compile(rf"\\.|'|\"|\$?\(|\)|(?<![^\s;&|(])#|{_SLOT}", re.DOTALL),
    Place.DOUBLE: re.compile(rf"\\.|\"|\$\(|{_SLOT}", re.DOTALL),
    Place.SINGLE: re.compile(rf"'|{_SLOT}"),
    Place.COMMENT: re.compile(r"\n"),
}
_OPENS = {"'": Place.SINGLE, '"': Place.DOUBLE, "(": Place.PLAIN, "$(": Place.PLAIN, "#": Place.COMMENT}
_CLOSES = {Place.SINGLE: "'", Place.DOUBLE: '"', Place.PLAIN: ")", Place.COMMENT: "\n"}
_RUNS_TEXT = re.compile(
    r"(?:^|[\s;&|(/])(?:eval|"
    r"(?:(?:ba|da|z|k|a|fi)?sh|python[\d.]*|node|deno|bun|perl|ruby|php|pwsh)\b"
    r"[^;&|\n]*\s(?:-\w*[ce]|--eval|--command))\s+$"
)
"""What stands before a text that a program takes for code."""


def slots(template: str) -> Iterator[Slot]:
    """The slots of a template, known or not, in order. The quotes around them are followed as a shell would."""
    places = [Place.PLAIN]
    quoted = at = 0
    while found := _TOKENS[places[-1]].search(template, at):
        token, place, at = found[0], places[-1], found.end()
        if token.startswith("{"):
            before = template[: found.start() if place is Place.PLAIN else quoted]
            yield Slot(token[1:-1], found.start(), at, place, bool(_RUNS_TEXT.search(before)))
        elif token == _CLOSES[place]:
            if len(places) > 1:
                places.pop()
        elif token in _OPENS:
            places.append(_OPENS[token])
            quoted = found.start()


def problems(template: str, known: Collection[str], foreign: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with the slots of a template, and what to do; `foreign` are those whose values others write."""
    here_document = re.search(r"<<(?!<)", template)
    in_capitals = all(name.isupper() for name in known)  # then lower case is rather the shell's own
    for slot in slots(template):
        shown = template[slot.start : slot.end]
        if slot.name not in known:
            if slot.name.isupper() or slot.name.upper() in known or not in_capitals:
                yield f"unknown placeholder {shown}", nearest(shown.upper(), [f"{{{name}}}" for name in known])
        elif slot.is_code and slot.name in foreign:
            yield f"{shown} would be run as code here", f"hand it over as an argument: sh -c '… \"$1\"' - {shown}"
        elif here_document and "\n" in template[here_document.end() : slot.start]:
            yield f"{shown} stands in a here-document", "hand it over as an argument, or use {PROMPT_FILE}"
        elif template[: slot.start].endswith("{") and template[slot.end :].startswith("}"):
            yield f"{shown} stands in double braces", f"write {shown}"


def script(template: str, known: Collection[str], expansion: Callable[[str, Place], str]) -> str:
    """The template with each known slot replaced by its expansion."""
    parts: list[str] = []
    end = 0
    for slot in slots(template):
        if slot.name in known:
            parts += [template[end : slot.start], expansion(slot.name, slot.place)]
            end = slot.end
    return "".join([*parts, template[end:]])


def expanded(name: str, place: Place) -> str:
    """The expansion of one of our variables, quoted for its place."""
    bare = f"${{{VARIABLES}{name}}}"
    return {Place.DOUBLE: bare, Place.SINGLE: f"'\"{bare}\"'"}.get(place, f'"{bare}"')
