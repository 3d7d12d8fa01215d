"""A command template -> a script for `/bin/sh` that takes its values from the environment.

A value never becomes part of the script: where `{PROMPT}` stands, the script has the expansion of a variable,
quoted for its context. The shell passes the value on byte for byte and never runs it, so no prompt and no id can
break out, in quotes or not. What the command itself would run, as `bash -c` does, is refused as far as it can be
told from the template.
"""

import enum
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from agentv.errors import nearest

VARIABLE_PREFIX = "AGENTV_"


class QuoteContext(enum.Enum):
    """How the shell reads a part of a script; the value is the token that ends the part."""

    PLAIN = ")"
    DOUBLE = '"'
    SINGLE = "'"
    COMMENT = "\n"
    BACKTICKS = "`"
    ARITHMETIC = "))"


class Placeholder(NamedTuple):
    """A `{NAME}` in a template; `command` is the command up to the word that it stands in."""

    name: str
    start: int
    end: int
    context: QuoteContext
    command: str


class ParsedTemplate(NamedTuple):
    """The placeholders, known or not, whether a quote is left open, and where here-documents begin and end."""

    placeholders: tuple[Placeholder, ...]
    is_open: bool
    here_documents: tuple[tuple[int, int], ...]


_PLACEHOLDER = r"(?<!\$)(?<!\$\{)\{[A-Za-z][A-Za-z0-9_]*\}"
"""Neither a `${VARIABLE}` of the shell's nor a `${{VARIABLE}}` of the targets file."""
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
"""What stands before a word that a program takes for code."""


def parse_template(template: str) -> ParsedTemplate:
    """Find the placeholders of a template, following the quotes around them as a shell would."""
    contexts = [QuoteContext.PLAIN]
    starts = [(0, 0)]
    """Where the command and the word begin that we are in, for each of the contexts."""
    placeholders: list[Placeholder] = []
    here: list[tuple[int, int]] = []
    at = 0
    while found := _TOKENS[contexts[-1]].search(template, at):
        token, context, at = found[0], contexts[-1], found.end()
        command, word = starts[-1]
        if token.startswith("{"):
            before = template[command:word].replace("\\\n", " ")
            placeholders.append(Placeholder(token[1:-1], found.start(), at, context, before))
        elif token == context.value:
            if len(contexts) > 1:
                contexts.pop()
                starts.pop()
        elif token in _OPENS:
            contexts.append(_OPENS[token])
            starts.append((at, at) if _OPENS[token] is QuoteContext.PLAIN else (command, word))
        elif token.startswith("<<"):
            here.append((at, _end_of_here_document(template, at, token)))
        elif token == "\\\n" or token.strip(" \t") == "":
            starts[-1] = command, at
        elif token in (";", "&", "|", "\n"):
            starts[-1] = at, at
    is_open = any(context not in (QuoteContext.PLAIN, QuoteContext.COMMENT) for context in contexts)
    return ParsedTemplate(tuple(placeholders), is_open, tuple(here))


def _end_of_here_document(template: str, at: int, token: str) -> int:
    mark = re.sub(r"\W", "", token)
    end = re.compile(rf"\n\t*{mark}(?:\n|$)").search(template, at)
    return end.end() if end else len(template)


def find_problems(template: str, known: Collection[str], foreign: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the placeholders, each with a hint; `foreign` are those whose values others write."""
    found = parse_template(template)
    if found.is_open:
        yield "a quote is not closed", ""
    in_capitals = all(name.isupper() for name in known)  # then lower case is rather the shell's own
    for placeholder in found.placeholders:
        shown = template[placeholder.start : placeholder.end]
        if placeholder.name not in known:
            if placeholder.name.isupper() or placeholder.name.upper() in known or not in_capitals:
                yield f"unknown placeholder {shown}", nearest(shown.upper(), [f"{{{name}}}" for name in known])
        elif placeholder.name in foreign and _is_run_as_code(placeholder):
            yield f"{shown} would be run as code here", f"hand it over as an argument: sh -c '… \"$1\"' - {shown}"
        elif placeholder.context is QuoteContext.BACKTICKS:
            yield f"{shown} stands in backticks", f"write $(… {shown} …)"
        elif any(
            begin < placeholder.start < end and "\n" in template[begin : placeholder.start]
            for begin, end in found.here_documents
        ):
            yield f"{shown} stands in a here-document", "hand it over as an argument, or use {PROMPT_FILE}"
        elif template[: placeholder.start].endswith("{") and template[placeholder.end :].startswith("}"):
            yield f"{shown} stands in double braces", f"write {shown}"


def _is_run_as_code(placeholder: Placeholder) -> bool:
    return placeholder.context is QuoteContext.ARITHMETIC or _RUNS_TEXT.search(placeholder.command) is not None


def build_script(template: str, known: Collection[str], expand: Callable[[str, QuoteContext], str]) -> str:
    """Return the template with each known placeholder replaced by what `expand` returns for it."""
    parts: list[str] = []
    end = 0
    for placeholder in parse_template(template).placeholders:
        if placeholder.name in known:
            parts += [template[end : placeholder.start], expand(placeholder.name, placeholder.context)]
            end = placeholder.end
    return "".join([*parts, template[end:]])


def expand_variable(name: str, context: QuoteContext) -> str:
    """Return the expansion of one of our variables, quoted for its context."""
    bare = f"${{{VARIABLE_PREFIX}{name}}}"
    if context in (QuoteContext.DOUBLE, QuoteContext.ARITHMETIC):
        return bare
    return f"'\"{bare}\"'" if context is QuoteContext.SINGLE else f'"{bare}"'
