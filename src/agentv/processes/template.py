"""Turn a command template into a script for `/bin/sh` that takes its values from the environment.

A value never becomes part of the script: each placeholder, such as `{PROMPT}`, is replaced with the expansion of a
variable, quoted for its context. The shell passes the value on unchanged and never runs it, so no prompt or id can
inject commands, inside quotes or not. Placeholders that the command itself would run as code, as `bash -c` does, are
rejected as far as the template shows that.
"""

import enum
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from agentv.errors import nearest

VARIABLE_PREFIX = "AGENTV_"


class QuoteContext(enum.Enum):
    """How the shell interprets a part of a script; the value is the token that ends the part."""

    PLAIN = ")"
    DOUBLE = '"'
    SINGLE = "'"
    COMMENT = "\n"
    BACKTICKS = "`"
    ARITHMETIC = "))"


class Placeholder(NamedTuple):
    """A `{NAME}` in a template."""

    name: str
    start: int
    end: int
    context: QuoteContext
    command: str
    """The command up to the word that contains the placeholder."""


class ParsedTemplate(NamedTuple):
    """The placeholders of a template, known or not, and the context that they are in."""

    placeholders: tuple[Placeholder, ...]
    is_open: bool
    """Whether a quote is not closed."""
    here_documents: tuple[tuple[int, int], ...]
    """The start and end of each here-document."""


_PLACEHOLDER = r"(?<!\$)(?<!\$\{)\{[A-Za-z][A-Za-z0-9_]*\}"
"""A placeholder, but not a shell's `${VARIABLE}` or a targets file's `${{VARIABLE}}`."""
_TOKENS = {
    QuoteContext.PLAIN: re.compile(
        rf"\\.|'|\"|`|\$\(\(|\$?\(|\)|(?<![^\s;&|()`])#|<<-?\s*[\\'\"]?\w+|[;&|\n]|[ \t]+|{_PLACEHOLDER}", re.DOTALL
    ),
    QuoteContext.DOUBLE: re.compile(rf"\\.|\"|`|\$\(\(|\$\(|{_PLACEHOLDER}", re.DOTALL),
    QuoteContext.SINGLE: re.compile(rf"'|{_PLACEHOLDER}"),
    QuoteContext.COMMENT: re.compile(r"\n"),
    QuoteContext.BACKTICKS: re.compile(rf"\\.|`|{_PLACEHOLDER}", re.DOTALL),
    QuoteContext.ARITHMETIC: re.compile(rf"\)\)|{_PLACEHOLDER}"),
}
_OPENS = {
    "'": QuoteContext.SINGLE,
    '"': QuoteContext.DOUBLE,
    "(": QuoteContext.PLAIN,
    "$(": QuoteContext.PLAIN,
    "$((": QuoteContext.ARITHMETIC,
    "#": QuoteContext.COMMENT,
    "`": QuoteContext.BACKTICKS,
}
_SHELLS = r"(?:(?:ba|da|z|k|a|fi)?sh|python[\d.]*|node|deno|bun|perl|ruby|php|pwsh|osascript)"
_RUNS_TEXT = re.compile(
    rf"(?:^|[\s/\"'])(?:"
    rf"{_SHELLS}[\"']?(?:\s+-\S+)*\s+(?:-\w*[cepE]\w*|--eval|--print|--command)(?:\s+-\S+)*"
    r"|eval\b.*|ssh\b.*|trap|[gmn]?awk(?:\s+-\S+)*|env\b.*\s-S|(?:su|script|flock)\s(?:.*\s)?-\w*c"
    r")\s*$",
    re.DOTALL,
)
"""The text before a word that a program runs as code."""


@dataclass
class _Scope:
    """A quoted or nested part of a script, and where the current command and word in it start."""

    context: QuoteContext
    command: int
    word: int


def parse_template(template: str) -> ParsedTemplate:
    """Find the placeholders of a template, following the quotes around them as a shell would."""
    scopes = [_Scope(QuoteContext.PLAIN, command=0, word=0)]
    placeholders: list[Placeholder] = []
    here_documents: list[tuple[int, int]] = []
    at = 0
    while True:
        scope = scopes[-1]
        found = _TOKENS[scope.context].search(template, at)
        if found is None:
            break
        token = found[0]
        at = found.end()
        if token.startswith("{"):
            command = template[scope.command : scope.word]
            placeholder = Placeholder(
                name=token[1:-1],
                start=found.start(),
                end=at,
                context=scope.context,
                command=command.replace("\\\n", " "),
            )
            placeholders.append(placeholder)
        elif token == scope.context.value:
            if len(scopes) > 1:
                scopes.pop()
        elif token in _OPENS:
            scopes.append(_open_scope(token, scope, at))
        elif token.startswith("<<"):
            end = _end_of_here_document(template, at, token)
            here_documents.append((at, end))
        elif token == "\\\n" or not token.strip(" \t"):
            scope.word = at
        elif token in (";", "&", "|", "\n"):
            scope.command = at
            scope.word = at
    is_open = any(scope.context not in (QuoteContext.PLAIN, QuoteContext.COMMENT) for scope in scopes)
    return ParsedTemplate(tuple(placeholders), is_open, tuple(here_documents))


def _open_scope(token: str, outer: _Scope, at: int) -> _Scope:
    """Return the scope that a token opens. A subshell starts a new command, quotes belong to the outer one."""
    context = _OPENS[token]
    if context is QuoteContext.PLAIN:
        return _Scope(context, command=at, word=at)
    return _Scope(context, outer.command, outer.word)


def _end_of_here_document(template: str, at: int, token: str) -> int:
    """Return where the here-document ends that the token before `at` starts."""
    delimiter = re.sub(r"\W", "", token)
    last_line = re.compile(rf"\n\t*{delimiter}(?:\n|$)").search(template, at)
    if last_line is None:
        return len(template)
    return last_line.end()


def find_problems(
    template: str,
    known: Collection[str],
    foreign: Collection[str],
) -> Iterator[tuple[str, str]]:
    """Yield the problems of the placeholders, each with a hint; `foreign` are those with untrusted values."""
    parsed = parse_template(template)
    if parsed.is_open:
        yield "a quote is not closed", ""
    for placeholder in parsed.placeholders:
        shown = template[placeholder.start : placeholder.end]
        if placeholder.name not in known:
            if _is_mistyped(placeholder.name, known):
                names = [f"{{{name}}}" for name in known]
                yield f"unknown placeholder {shown}", nearest(shown.upper(), names)
        elif placeholder.name in foreign and _is_run_as_code(placeholder):
            yield f"{shown} would be run as code here", f"pass it as an argument: sh -c '… \"$1\"' - {shown}"
        elif placeholder.context is QuoteContext.BACKTICKS:
            yield f"{shown} is inside backticks", f"use $(… {shown} …)"
        elif _is_in_here_document(placeholder, template, parsed):
            yield f"{shown} is inside a here-document", "pass it as an argument, or use {PROMPT_FILE}"
        elif template[: placeholder.start].endswith("{") and template[placeholder.end :].startswith("}"):
            yield f"{shown} is inside double braces", f"use {shown}"


def _is_mistyped(name: str, known: Collection[str]) -> bool:
    """Return whether an unknown placeholder is probably a mistake, and not syntax of the shell.

    If all known placeholders are in upper case, one in lower case is probably the shell's own.
    """
    if name.isupper() or name.upper() in known:
        return True
    return not all(known_name.isupper() for known_name in known)


def _is_run_as_code(placeholder: Placeholder) -> bool:
    if placeholder.context is QuoteContext.ARITHMETIC:
        return True
    return _RUNS_TEXT.search(placeholder.command) is not None


def _is_in_here_document(
    placeholder: Placeholder,
    template: str,
    parsed: ParsedTemplate,
) -> bool:
    for start, end in parsed.here_documents:
        # The rest of the line that starts a here-document is not part of it.
        if start < placeholder.start < end and "\n" in template[start : placeholder.start]:
            return True
    return False


def build_script(
    template: str,
    known: Collection[str],
    expand: Callable[[str, QuoteContext], str],
) -> str:
    """Return the template with each known placeholder replaced with the result of `expand`."""
    parts: list[str] = []
    end = 0
    for placeholder in parse_template(template).placeholders:
        if placeholder.name in known:
            parts.append(template[end : placeholder.start])
            parts.append(expand(placeholder.name, placeholder.context))
            end = placeholder.end
    parts.append(template[end:])
    return "".join(parts)


def expand_variable(name: str, context: QuoteContext) -> str:
    """Return the expansion of one of our variables, quoted for its context."""
    bare = f"${{{VARIABLE_PREFIX}{name}}}"
    if context in (QuoteContext.DOUBLE, QuoteContext.ARITHMETIC):
        return bare
    if context is QuoteContext.SINGLE:
        # Closes the single quotes around the placeholder, and opens them again.
        return f"'\"{bare}\"'"
    return f'"{bare}"'
