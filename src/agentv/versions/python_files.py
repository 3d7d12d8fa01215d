"""The version of Python code: the syntax trees of a file and of the project's files that it imports.

Comments and formatting do not change a version; everything else does, docstrings included, because a prompt may be in
one. Imports are followed wherever they are written, also inside functions, to files below the roots. Virtual
environments and installed packages are excluded.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from agentv.files.folders import top_folder

_INSTALLED = frozenset(("site-packages", "dist-packages"))
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_STANDARD_LIBRARY = Path(ast.__file__).resolve().parent
_IGNORED_FIELDS = frozenset(("ctx", "kind", "type_comment"))
"""Fields of syntax trees that do not affect what the code does."""
_IMPORTERS = frozenset(("import_module", "__import__"))
"""Functions that import the module that their first argument names."""


Stamp = tuple[int, int]
"""The modification time and the size of a file."""
_FilesKey = tuple[Path, tuple[Path, ...], Path]
"""A file, the folders that are searched for modules first, and the current folder."""


class ParsedSource(NamedTuple):
    """A digest of Python source code, and the names of the modules that it imports."""

    digest: str
    imports: tuple[str, ...]
    """Absolute names, or relative ones with leading dots."""


def parse_source(path: Path) -> ParsedSource:
    """Return the digest and the imports of a Python file; of a file that cannot be parsed, the digest of its bytes."""
    try:
        content = path.read_bytes()
    except OSError:
        return ParsedSource("unreadable", ())
    return _parse(content)


@lru_cache(maxsize=4096)
def _parse(content: bytes) -> ParsedSource:
    hashed = blake2b(digest_size=16)
    try:
        tree = ast.parse(content)
        for piece in _pieces(tree):
            hashed.update(piece.encode("utf-8", "surrogatepass"))
            hashed.update(b"\0")
        imports = tuple(dict.fromkeys(_imported_names(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        hashed = blake2b(content, digest_size=16)
        imports = ()
    return ParsedSource(hashed.hexdigest(), imports)


def _pieces(value: Any) -> Iterator[str]:
    """Yield the parts of a syntax tree as text, the same in every version of Python that parses it."""
    if isinstance(value, ast.AST):
        yield type(value).__name__
        is_constant = isinstance(value, ast.Constant)
        for name, inner in ast.iter_fields(value):
            # Newer versions of Python have more fields, which are empty in older code.
            is_empty = inner is None or inner == []
            if name in _IGNORED_FIELDS or (is_empty and not is_constant):
                continue
            yield name
            yield from _pieces(inner)
        yield ")"
    elif isinstance(value, list):
        for inner in value:
            yield from _pieces(inner)
        yield "]"
    else:
        yield f"{type(value).__name__} {value!r}"


def _imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            yield from _names_of_import_from(node)
        elif isinstance(node, ast.Call):
            yield from _names_of_call(node)


def _names_of_import_from(node: ast.ImportFrom) -> Iterator[str]:
    base = "." * node.level + (node.module or "")
    yield base
    for alias in node.names:
        # Each name may be a module of the package.
        if base.endswith("."):
            yield f"{base}{alias.name}"
        else:
            yield f"{base}.{alias.name}"


def _names_of_call(node: ast.Call) -> Iterator[str]:
    """Yield the module that a call such as `importlib.import_module("helpers")` imports."""
    name = ""
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
    elif isinstance(node.func, ast.Name):
        name = node.func.id
    if name not in _IMPORTERS or not node.args:
        return
    match node.args[0]:
        case ast.Constant(value=str(module)):
            yield module


def python_files(start: Path, folders: Sequence[Path] = ()) -> Mapping[Path, str]:
    """Return a Python file and the files that it imports, directly or indirectly, each with its digest.

    Modules are searched for as Python does, in `folders` first. Only files below the project's root, or below that of
    one of the folders, are followed.
    """
    key = (start.absolute(), tuple(folders), Path.cwd())
    known = _known_files.get(key)
    if known is None or known.stamps != _stamps(known.files):
        files = _find_files(start, folders)
        known = _KnownFiles(files, _stamps(files))
        _known_files[key] = known
    return known.files


class _KnownFiles(NamedTuple):
    """The files found for a file, and their state at that time."""

    files: Mapping[Path, str]
    stamps: list[Stamp | None]


_known_files: dict[_FilesKey, _KnownFiles] = {}
"""Thousands of cases may have evaluators of their own that call the same function."""


def _stamps(files: Iterable[Path]) -> list[Stamp | None]:
    """Return the stamp of each file; None if it does not exist."""
    stamps: list[Stamp | None] = []
    for path in files:
        try:
            status = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_size))
    return stamps


def _find_files(start: Path, folders: Sequence[Path]) -> Mapping[Path, str]:
    first = start.resolve()
    searched = [first.parent]
    for folder in folders:
        searched.append(folder.resolve())
    tops = {top_folder(folder).resolve() for folder in searched}
    roots = tuple(tops)
    found: dict[Path, str] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        parsed = parse_source(path)
        found[path] = parsed.digest
        if path == first and is_installed(path):
            continue
        imported = imported_files(path, parsed.imports, searched, roots)
        waiting.extend(imported)
    return found


def imported_files(
    path: Path,
    names: Iterable[str],
    folders: Sequence[Path],
    roots: Sequence[Path],
) -> Iterator[Path]:
    """Yield the files below the roots that the imports of a file refer to."""
    for name in names:
        for found in _files_of_module(path, name, folders):
            resolved = found.resolve()
            if _is_followed(resolved, roots):
                yield resolved


def _is_followed(path: Path, roots: Sequence[Path]) -> bool:
    if is_installed(path):
        return False
    for root in roots:
        if not path.is_relative_to(root):
            continue
        if not _is_in_environment(path.parent, root):
            return True
    return False


def _files_of_module(path: Path, name: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the file of a module, and those of the packages that it is in."""
    if name.startswith("."):
        level = len(name) - len(name.lstrip("."))
        base = path.parent
        for _ in range(level - 1):
            base = base.parent
        parts = name.lstrip(".").split(".")
        yield from _files_in(base, parts)
        yield from _existing(base / "__init__.py")
        return
    parts = name.split(".")
    top = parts[0]
    if top in sys.stdlib_module_names or top == "agentv":
        return
    for folder in _search_path(folders):
        files = list(_files_in(folder, parts))
        if files:
            yield from files
            return
    yield from _files_by_finder(top, parts)


def _files_in(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files of a dotted name in a folder: the `__init__.py` of each package, and the module."""
    for number, part in enumerate(parts):
        if not part:
            return
        here = folder.joinpath(*parts[:number], part)
        yield from _existing(here / "__init__.py")
        if number == len(parts) - 1:
            yield from _existing(here.with_name(f"{part}.py"))
            yield from _existing(here / "__main__.py")
        elif not here.is_dir():
            yield from _existing(here.with_name(f"{part}.py"))
            return


def _existing(path: Path) -> Iterator[Path]:
    with suppress(OSError, ValueError):
        if path.is_file():
            yield path


def _search_path(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders in which Python looks for modules of the user."""
    yield from folders
    for entry in sys.path:
        folder = Path(entry or ".")
        if not is_installed(folder / "x.py"):
            yield folder


def _files_by_finder(top: str, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files of a module that only an import hook finds, as of a package that is installed as editable."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    if origin.suffix != ".py" or is_installed(origin):
        return
    if origin.name == "__init__.py":
        yield from _files_in(origin.parent.parent, parts)
    else:
        yield origin


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to the standard library or to an installed package."""
    if path.is_relative_to(_STANDARD_LIBRARY):
        return True
    return not _INSTALLED.isdisjoint(path.parts)


@lru_cache(maxsize=4096)
def _is_in_environment(folder: Path, root: Path) -> bool:
    """Return whether a folder below a root is part of a virtual environment below that root."""
    here = folder
    while here != root:
        for mark in _ENVIRONMENT_MARKS:
            if (here / mark).exists():
                return True
        here = here.parent
    return False
