"""The version of a command: the programs and scripts that it names.

A data file that a command names, such as a log, a database or an output file, may change while the command works. It
is not part of the version. A program that is found through PATH is not part of it either.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b, file_digest
from pathlib import Path

from agentv.versions.python_files import python_files

SOURCES = frozenset(
    (
        *(".py", ".r", ".jl", ".rb", ".pl", ".php", ".lua", ".tcl"),
        *(".js", ".cjs", ".mjs", ".jsx", ".ts", ".mts", ".tsx"),
        *(".sh", ".bash", ".zsh", ".fish", ".ps1"),
        *(".c", ".cs", ".clj", ".ex", ".exs", ".go", ".groovy", ".hs", ".java", ".kt", ".rs", ".scala", ".swift"),
    )
)
"""The suffixes of source files."""
_WORD = re.compile(r"[^\s'\":;|&<>(){}$`=,]+")
_WRITTEN = re.compile(
    r"(?:>>?|\btee(?:\s+-a)?|(?<!\S)-o|(?<!\S)--(?:out|output|log)[\w-]*)[\s=]*['\"]?([^\s'\":;|&<>(){}$`=,]+)"
)
"""A file that a command writes to: the target of a redirection, or the value of an option such as --output."""
_STARTS_COMMAND = re.compile(r"(?:^|[;&|(\n`])\s*(?:exec\s+)?(?:\w+=\S*\s+)*['\"]?$")
"""What comes before the first word of a command."""
_FOLDER_VARIABLE = re.compile(r"\$(?:\{(?:PWD|AGENTV_EVAL_DIR)\}|(?:PWD|AGENTV_EVAL_DIR)\b)/")
"""A variable that names the folder of the command or of the eval file, before a path in it."""
_CD = re.compile(r"(?:^|[;&|(\n])\s*cd\s+['\"]?([^\s'\";|&()$`]+)")
_INTERPRETER = re.compile(r"(?:python|node|bun|deno|ruby|perl|php|env|(?:ba|da|z|k|fi)?sh)[\d.]*")
_PROGRAM_STARTS = (b"#!", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


def command_files(command: str, folder: Path) -> Mapping[Path, str]:
    """Return the programs and scripts that a command names, relative to `folder`, each with its digest.

    For a Python script, this includes the files of the project that it imports.
    """
    command = _FOLDER_VARIABLE.sub("./", command)
    found: dict[Path, str] = {}
    for current in _working_folders(command, folder):
        for path in _named_programs(command, current):
            if path.suffix == ".py":
                found.update(python_files(path, (current,)))
            else:
                found[path.resolve()] = file_hash(path)
    return found


def _working_folders(command: str, folder: Path) -> Iterator[Path]:
    """Yield the folder that a command starts in, and those that it changes to with `cd`."""
    yield folder
    for name in _CD.findall(command):
        folder = folder / name
        yield folder


def _named_programs(command: str, folder: Path) -> Iterator[Path]:
    written = set(_WRITTEN.findall(command))
    for match in _WORD.finditer(command):
        word = match.group()
        if word in written:
            continue
        command_start = _STARTS_COMMAND.search(command, 0, match.start())
        is_first = command_start is not None
        with suppress(OSError, ValueError):  # many words are not paths
            for path in _candidates(word, folder):
                if path.is_file() and _is_program(path, is_first=is_first):
                    yield path


def _candidates(word: str, folder: Path) -> Iterator[Path]:
    """Yield the files that a word may refer to: a path, or a module as in `python -m package.module`."""
    yield folder / word
    if "/" not in word:
        module = folder.joinpath(*word.split("."))
        yield module.with_name(f"{module.name}.py")
        yield module / "__main__.py"


def _is_program(path: Path, *, is_first: bool) -> bool:
    """Return whether a file is a source file or an executable, but not an interpreter: the files that it runs count."""
    if path.suffix.lower() in SOURCES:
        return True
    if not os.access(path, os.X_OK):
        return False
    if _INTERPRETER.fullmatch(path.name):
        return False
    if is_first:
        return True
    with path.open("rb") as file:
        start = file.read(4)
    return start.startswith(_PROGRAM_STARTS)


def file_hash(path: Path) -> str:
    """Return a hash of a file's content without loading the whole file into memory; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            hashed = file_digest(file, lambda: blake2b(digest_size=16))
            return hashed.hexdigest()
    except OSError:
        return ""
