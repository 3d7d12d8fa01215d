"""Join modules and stylesheets in `assets` into one script and one style.

A page opened from disk cannot import files, and the viewer loads faster with few requests. Each module is wrapped in a
function, so that its top-level names are local, and its exports are passed to the modules that import it. Comments and
indentation are removed, which is safe only because no string spans several lines.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files

ENTRY = "report.js"
STYLES = (
    "base.css",
    "layout.css",
    "summary.css",
    "plots.css",
    "compare.css",
    "filter.css",
    "table.css",
    "marks.css",
    "case.css",
    "judgements.css",
    "texts.css",
    "trace.css",
    "help.css",
    "print.css",
)
"""The stylesheets in `assets`, in the order of the cascade."""
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_MODULE_SYNTAX = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_BLOCK_COMMENT = re.compile(r"^[ ]*/\*(?:[^*]|\*(?!/))*\*/\n", re.MULTILINE)
_TYPE_OF_VALUE = re.compile(r"/\*\* @(?:type|param|returns) \{[^*]*\*/ ?")
"""A comment inside of a line, which gives a value or a parameter its type."""
_LINE_COMMENT = re.compile(r"^[ ]*//.*\n|(?<=[;,{(]) //.*", re.MULTILINE)
"""A comment on a line of its own, or after what ends a line of code."""
_INDENTATION = re.compile(r"^[ ]+|^\n", re.MULTILINE)
_LINE_BREAK = re.compile(r"(?<=[;{,(])\n")
"""A line break that neither JavaScript nor CSS needs. After other characters, it may end a statement."""
ReadAsset = Callable[[str], str]
"""Return the content of a file by its name."""


def asset(name: str) -> str:
    """Return the content of a file in `assets`."""
    folder = files("agentv.report.page")
    file = folder.joinpath("assets", name)
    return file.read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the script of a report."""
    return join_modules(ENTRY, asset)


@cache
def style() -> str:
    """Return the style of a report."""
    return join_styles(STYLES, asset)


def join_styles(names: Iterable[str], read: ReadAsset) -> str:
    """Return stylesheets joined into one, in this order."""
    parts = [without_comments(read(name)) for name in names]
    return "".join(parts)


def join_modules(entry: str, read: ReadAsset) -> str:
    """Return a module, and those that it imports, joined into one script."""
    parts = ["const modules = {};"]
    for name in module_names(entry, read):
        code = read(name)
        parts.append(_wrapped(name, code))
    return "\n".join(parts)


def module_names(entry: str, read: ReadAsset) -> tuple[str, ...]:
    """Return the names of a module and of those that it imports, each after its own imports."""
    found: dict[str, None] = {}
    _collect_modules(entry, read, (), found)
    return tuple(found)


def _collect_modules(
    name: str,
    read: ReadAsset,
    importers: tuple[str, ...],
    found: dict[str, None],
) -> None:
    path = (*importers, name)
    if name in importers:
        cycle = " -> ".join(path)
        raise ValueError(f"modules import each other: {cycle}")
    if name in found:
        return
    code = read(name)
    for _, imported in _IMPORT.findall(code):
        _collect_modules(imported, read, path, found)
    found[name] = None


def _wrapped(name: str, source: str) -> str:
    """Return a module as a function that is called immediately and returns the exports of the module."""
    exported = ", ".join(found[1] for found in _EXPORT.findall(source))
    code = _IMPORT.sub(_import_statement, source)
    code = _EXPORT.sub(r"\1", code)
    unsupported = _MODULE_SYNTAX.search(code)
    if unsupported is not None:
        raise ValueError(f"{name}: cannot bundle {unsupported[0]!r}")
    code = without_comments(code)
    return f'modules["{name}"] = (() => {{\n{code}return {{ {exported} }};\n}})();\n'


def _import_statement(found: re.Match[str]) -> str:
    names = " ".join(found[1].split()).replace(" as ", ": ")
    return f'const {{ {names} }} = modules["{found[2]}"];\n'


def without_comments(code: str) -> str:
    """Return a module or stylesheet for serving, without comments, indentation and unnecessary line breaks."""
    code = _BLOCK_COMMENT.sub("", code)
    code = _TYPE_OF_VALUE.sub("", code)
    code = _LINE_COMMENT.sub("", code)
    code = _INDENTATION.sub("", code)
    return _LINE_BREAK.sub("", code)
