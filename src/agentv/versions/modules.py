"""Reload the user's modules whose source has changed since they were imported.

A process may evaluate several times, and the user may edit an agent in between. A module is reloaded in place, so that
references to it stay valid, together with the modules that import it.
"""

import importlib
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from agentv.errors import ConfigError
from agentv.log import debug
from agentv.versions.python_files import imported_files, is_installed, parse_source

_BYTECODE_HEADER = struct.Struct("<4xLLL")
"""The flags of a file with bytecode, and the modification time and size of its source."""
_32_BITS = 0xFFFFFFFF
_sources: "WeakKeyDictionary[ModuleType, str]" = WeakKeyDictionary()
"""The digest of the source of each module of the user at the time when it was imported."""


def remember_modules() -> None:
    """Remember the sources of the user's modules that were imported since the last call."""
    for name, path in _user_modules().items():
        module = sys.modules[name]
        if module not in _sources:
            _sources[module] = parse_source(path).digest


def reload_changed_modules() -> None:
    """Import the user's modules again whose source has changed, and those that import them.

    A module that can no longer be imported is forgotten, so that the next import of it raises the error.
    """
    files = _user_modules()
    changed = set()
    for name, path in files.items():
        if _has_changed(sys.modules[name], path):
            changed.add(name)
    if not changed:
        remember_modules()
        return
    importlib.invalidate_caches()
    for name in _in_import_order(_with_importers(changed, files), files):
        debug(f"reloading {files[name]}, which has changed")
        _reload(sys.modules[name], files[name])
    remember_modules()


def _has_changed(module: ModuleType, path: Path) -> bool:
    """Return whether the source of a module is known to have changed since it was imported."""
    source = _sources.get(module)
    if source is not None:
        return source != parse_source(path).digest
    # It was imported before the first evaluation. Python then wrote its bytecode, with the time and size of the source.
    if type(module.__loader__) is not SourceFileLoader:
        return False
    try:
        with open(cache_from_source(str(path)), "rb") as file:
            header = file.read(_BYTECODE_HEADER.size)
        flags, modified, size = _BYTECODE_HEADER.unpack(header)
        status = path.stat()
    except (OSError, NotImplementedError, struct.error):
        return False
    is_by_time = flags == 0
    if not is_by_time:
        return False
    modified_now = int(status.st_mtime) & _32_BITS
    size_now = status.st_size & _32_BITS
    is_unchanged: bool = (modified, size) == (modified_now, size_now)
    return not is_unchanged


def _user_modules() -> dict[str, Path]:
    """Return the files of all modules that are imported and are neither installed nor of agentv."""
    found = {}
    for name, module in list(sys.modules.items()):
        if type(module) is not ModuleType:
            continue
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        top, _, _ = name.partition(".")
        if top in ("__main__", "agentv"):
            continue
        path = _user_file(file)
        if path is not None:
            found[name] = path
    return found


@cache
def _user_file(file: str) -> Path | None:
    """Return the path of a module's file, or None if it is installed."""
    path = Path(file)
    if is_installed(path):
        return None
    return path


def _imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return for each of these modules the names of those that it imports itself."""
    names: dict[Path, set[str]] = {}
    for name, path in files.items():
        names_of_file = names.setdefault(path.resolve(), set())
        names_of_file.add(name)
    everywhere = (Path("/"),)
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        parsed = parse_source(path)
        imports = imported_files(
            path,
            parsed.imports,
            folders=(path.parent,),
            roots=everywhere,
        )
        found[name] = set()
        for imported in imports:
            found[name] |= names.get(imported, set())
    return found


def _with_importers(changed: Iterable[str], files: Mapping[str, Path]) -> set[str]:
    """Return modules, and all modules that import them, directly or indirectly."""
    imports = _imports(files)
    found = set(changed)
    while True:
        importers = set()
        for name in files:
            if name not in found and imports[name] & found:
                importers.add(name)
        if not importers:
            return found
        found |= importers


def _in_import_order(names: set[str], files: Mapping[str, Path]) -> list[str]:
    """Return modules in import order: a module comes after those that it imports."""
    imports = _imports(files)
    ordered: list[str] = []
    visited: set[str] = set()

    def visit(name: str) -> None:
        if name in visited:
            return
        visited.add(name)
        for imported in sorted(imports[name] & names):
            visit(imported)
        ordered.append(name)

    for name in sorted(names):
        visit(name)
    return ordered


def _reload(module: ModuleType, path: Path) -> None:
    """Run the source of a module again, without Python's bytecode cache, which misses quick edits."""
    _sources.pop(module, None)
    try:
        source = path.read_bytes()
        code = compile(source, str(path), "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException:  # the next import reports it
        sys.modules.pop(module.__name__, None)


def current_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that its module defines now under the name of `function`, if the module was reloaded.

    Raise `ConfigError` if the module can no longer be imported.
    """
    if not isinstance(function, FunctionType):
        return function
    name = function.__module__
    if not name or name == "__main__" or "<" in function.__qualname__:
        return function
    try:
        module = importlib.import_module(name)
    except ImportError:
        return function  # a module that was created without an import
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be loaded: {type(error).__name__}: {error}",
            hint="the error is in that code",
        ) from error
    found: Any = module
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, FunctionType):
        found = getattr(found, "__wrapped__", found)  # an evaluator that was made with a decorator
    if isinstance(found, FunctionType):
        return found
    return function
