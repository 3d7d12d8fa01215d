"""The version of a callable: its code, and the values that it depends on.

These are default arguments, closure values, the module-level values that it reads and, of an object, its attributes.
What the callable itself changes, such as a counter, is its state and not part of its version.
"""

import ast
import asyncio
import contextvars
import dis
import enum
import functools
import inspect
import logging
import re
import textwrap
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from agentv.files.fingerprint import digest
from agentv.versions.python_files import is_installed, python_files

_MUTATORS = frozenset(
    (
        *("append", "extend", "insert", "pop", "remove", "clear", "appendleft", "popleft"),
        *("add", "discard", "update", "setdefault", "popitem"),
        *("put", "put_nowait"),
    )
)
"""Methods that change the object that they are called on."""
_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    PurePath,
)
"""Types whose values contain no others."""
_MEMBERS = (
    types.FunctionType,
    list,
    tuple,
    dict,
    *_PLAIN,
)
"""Types of the members of a class that are part of its version."""
_STATELESS = (
    logging.Logger,
    contextvars.ContextVar,
    asyncio.Lock,
    asyncio.Semaphore,
    asyncio.Event,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.local,
    threading.Event,
    threading.Semaphore,
)
"""Objects that do not affect answers. Only their type counts."""
_SHOWN_WHOLE = frozenset(
    (
        *("datetime.date", "datetime.datetime", "datetime.time", "datetime.timedelta"),
        *("decimal.Decimal", "fractions.Fraction", "uuid.UUID", "builtins.range"),
    )
)
"""Classes of the standard library whose `repr` shows the whole value."""
_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")
"""Classes of the standard library whose objects consist only of attributes."""
_CONSTRUCTORS = frozenset(("__init__", "__new__", "__post_init__"))


class UnknownVersion(Exception):
    """The version of a callable cannot be determined. The message says why."""


def function_version(function: Callable[..., Any], *, is_strict: bool = True) -> str:
    """Return the version of a callable; raise `UnknownVersion` if it depends on values that have no version.

    Of such values, only the class counts if not `is_strict`.
    """
    describer = _Describer(is_strict=is_strict)
    return digest(describer.describe(function, "the target"))


def value_version(value: Any, where: str) -> str:
    """Return the version of a value; raise `UnknownVersion`, which says `where` it is, if it has none."""
    return digest(_Describer().describe(value, where))


class _Describer:
    """Describes values as JSON. A value that occurs again, as in a recursive function, is described once."""

    def __init__(self, *, is_strict: bool = True) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._is_strict = is_strict
        """Whether a value without a version raises `UnknownVersion`. Otherwise only its class counts."""

    def describe(self, value: Any, where: str) -> Any:
        """Return a description of a value; raise `UnknownVersion`, which says where it is, if there is none."""
        plain = _plain_value(value)
        if plain is not None:
            return plain
        if id(value) in self._numbers:
            return ["again", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._kept)
        self._kept.append(value)  # so that its id is not used again
        try:
            if isinstance(value, list | tuple | set | frozenset):
                return self._sequence(value, where)
            if isinstance(value, Mapping):
                return self._mapping(value, where)
            return self._code(value, where)
        except UnknownVersion:
            del self._numbers[id(value)]
            raise

    def _sequence(self, values: Any, where: str) -> Any:
        described = [self.describe(inner, where) for inner in values]
        if isinstance(values, set | frozenset):
            described.sort(key=repr)
        return [type(values).__name__, described]

    def _mapping(self, values: Mapping[Any, Any], where: str) -> Any:
        described = []
        for key, inner in values.items():
            described_key = self.describe(key, where)
            described_value = self.describe(inner, where)
            described.append([described_key, described_value])
        return [type(values).__name__, described]

    def _code(self, value: Any, where: str) -> Any:
        """Return a description of a function, a class, a module or an object."""
        match value:
            case types.FunctionType():
                return self._function(value, where)
            case types.ModuleType():
                return _module(value)
            case type():
                return self._class(value, where)
        parts = _inner_values(value)
        if parts is not None:
            described = [self.describe(part, where) for part in parts]
            return [_name_of(type(value)), *described]
        if inspect.isroutine(value) or _is_type_annotation(value):
            return ["builtin", _name_of(value)]
        return self._object(value, where)

    def _function(self, function: types.FunctionType, where: str) -> Any:
        path = _source_file(function.__code__)
        name = function.__qualname__
        if path is not None and is_installed(path):
            return self._library_function(function, where)
        inner = f"{where}: {name}()"
        if where == "the target":
            inner = f"{name}()"
        changed = _changed_names(function)
        closure = self._closure(function, changed, inner)
        defaults = self.describe(
            [function.__defaults__, function.__kwdefaults__],
            f"a default argument of {inner}",
        )
        described = ["function", name, defaults, closure]
        if path is None:
            described.append(_code_digest(function.__code__))
            described.append(self._globals(function, changed, inner))
            return described
        described.append(_file_digests(path))
        if not _is_described_by(function.__code__, path):
            described.append(_code_digest(function.__code__))
        # The source of the module defines its values; those that can be described may have been changed since.
        was_strict = self._is_strict
        self._is_strict = False
        described.append(self._globals(function, changed, inner))
        self._is_strict = was_strict
        return described

    def _library_function(self, function: types.FunctionType, where: str) -> Any:
        """Return a description of a function of an installed package, which may wrap a function of the user."""
        described = ["library", _name_of(function)]
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            inner = self.describe(wrapped, where)
        else:
            inner = self._closure(function, frozenset(), where)
        return [*described, inner]

    def _closure(
        self,
        function: types.FunctionType,
        changed: frozenset[str],
        where: str,
    ) -> Any:
        """Return descriptions of the outer variables that a function uses and does not change."""
        names = function.__code__.co_freevars
        cells = function.__closure__ or ()
        described = []
        for name, cell in zip(names, cells, strict=True):
            if name in changed:
                continue
            try:
                value = cell.cell_contents
            except ValueError:  # it is not assigned yet
                continue
            inner = self.describe(value, f"{where} uses {name!r}")
            described.append([name, inner])
        return described

    def _globals(self, function: types.FunctionType, changed: frozenset[str], where: str) -> Any:
        """Return descriptions of the module-level values that a function reads, in its module and in others."""
        described = []
        for path in sorted(_read_globals(function.__code__)):
            name, *attributes = path
            if name in changed or name not in function.__globals__:
                continue
            value = function.__globals__[name]
            if attributes:
                if not _is_user_module(value) or not hasattr(value, attributes[0]):
                    continue
                value = getattr(value, attributes[0])
            used = ".".join(path)
            described.append([used, self.describe(value, f"{where} uses {used!r}")])
        return described

    def _class(self, class_: type, where: str) -> Any:
        class_name = _name_of(class_)
        path = _class_file(class_)
        if path is not None and is_installed(path):
            return ["class", class_name]
        if path is not None:
            methods = _undescribed_methods(class_)
            return ["class", class_name, _file_digests(path), methods]
        if class_.__module__ != "__main__":
            return ["class", class_name]  # a class in C
        members = []
        for name, value in sorted(vars(class_).items()):
            member = getattr(value, "__func__", value)
            if isinstance(member, property):
                member = member.fget
            elif name.startswith("__") and not isinstance(member, types.FunctionType):
                continue  # what Python and decorators add, such as `__dataclass_fields__`
            if isinstance(member, _MEMBERS):
                inner = self.describe(member, f"{where}.{name}")
                members.append([name, inner])
        bases = [self.describe(base, where) for base in class_.__bases__]
        return ["class", class_name, members, bases]

    def _object(self, value: Any, where: str) -> Any:
        """Return a description of an object of a class of the user: its class and its attributes."""
        class_ = type(value)
        if not _is_of_user(class_) and _name_of(class_) not in _NAMESPACES:
            if self._is_strict:
                raise UnknownVersion(f"{where}, an object of the class {class_.__name__}")
            return ["object", _name_of(class_)]
        changed = _changed_attributes(class_)
        attributes = []
        for name, attribute in _attributes(value):
            if name in changed:
                continue
            inner = self.describe(attribute, f"{where} has the attribute {name!r}")
            attributes.append([name, inner])
        described_class = self.describe(class_, where)
        return ["object", described_class, attributes]


def _file_digests(path: Path) -> list[str]:
    """Return the digests of a Python file and of the files that it imports."""
    files = python_files(path)
    return sorted(files.values())


def _is_of_user(class_: type) -> bool:
    """Return whether a class is defined in the user's own code."""
    if class_.__module__ == "__main__":
        return True
    path = _class_file(class_)
    return path is not None and not is_installed(path)


def _plain_value(value: Any) -> list[Any] | None:
    """Return a description of a value that contains no others; None for any other value."""
    if isinstance(value, enum.Enum):
        return ["enum", _name_of(type(value)), value.name]
    if isinstance(value, _PLAIN) or _name_of(type(value)) in _SHOWN_WHOLE:
        return [type(value).__name__, repr(value)]
    if isinstance(value, re.Pattern):
        return ["pattern", repr(value.pattern), value.flags]
    if isinstance(value, _STATELESS):
        return ["object", _name_of(type(value))]
    return None


def _inner_values(value: Any) -> list[Any] | None:
    """Return the parts of a callable that combines others, such as a bound method, or None for any other callable."""
    if isinstance(value, functools.partial):
        return [value.func, value.args, dict(value.keywords)]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.BuiltinFunctionType):
        owner = value.__self__
        # A function of a module has the module as its owner.
        if not isinstance(owner, types.ModuleType | None):
            return [value.__name__, owner]
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None:
        return [wrapped]
    return None


def _name_of(value: Any) -> str:
    module = getattr(value, "__module__", None) or ""
    name = getattr(value, "__qualname__", None) or repr(value)
    return f"{module}.{name}"


def _is_type_annotation(value: Any) -> bool:
    if isinstance(value, types.GenericAlias | types.UnionType):
        return True
    return type(value).__module__ == "typing"


def _module(module: types.ModuleType) -> Any:
    if _is_user_module(module):
        return ["module", module.__name__, sorted(python_files(Path(str(module.__file__))).values())]
    return ["module", module.__name__]


def _is_user_module(value: Any) -> bool:
    """Return whether a value is a module with a source file that does not belong to an installed package."""
    if not isinstance(value, types.ModuleType):
        return False
    file = getattr(value, "__file__", None)
    return bool(file) and str(file).endswith(".py") and not is_installed(Path(str(file)))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    names = dict.fromkeys(getattr(value, "__dict__", ()))
    for class_ in type(value).__mro__:
        slots = class_.__dict__.get("__slots__", ())
        if isinstance(slots, str):
            slots = (slots,)
        names.update(dict.fromkeys(slots))
    for name in sorted(names):
        if name not in ("__dict__", "__weakref__") and hasattr(value, name):
            yield name, getattr(value, name)


def _source_file(code: types.CodeType) -> Path | None:
    """Return the file that a function is defined in; None if there is none, as in a notebook."""
    path = Path(code.co_filename)
    if path.suffix == ".py" and path.is_file():
        return path
    return None


def _class_file(class_: type) -> Path | None:
    """Return the file that a class is defined in; None if there is none, as in a notebook."""
    if class_.__module__ == "__main__":
        # The file of `__main__` may be that of a program that runs the user's code.
        for member in vars(class_).values():
            if isinstance(member, types.FunctionType):
                return _source_file(member.__code__)
        return None
    try:
        path = Path(inspect.getfile(class_))
    except (TypeError, OSError):
        return None
    if path.suffix == ".py" and path.is_file():
        return path
    return None


# ---- code objects ----


def _code_digest(code: types.CodeType) -> str:
    """Return a digest of bytecode and constants. Line numbers and names of files are not part of it."""
    constants = []
    for constant in code.co_consts:
        constants.append(_constant(constant))
    return digest(
        code.co_code.hex(),
        constants,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_flags,
    )


def _constant(constant: Any) -> str:
    if isinstance(constant, types.CodeType):
        return _code_digest(constant)
    if isinstance(constant, frozenset):
        return repr(sorted(map(repr, constant)))
    return f"{type(constant).__name__} {constant!r}"


def _is_described_by(code: types.CodeType, path: Path) -> bool:
    """Return whether the current file defines exactly one function with this name, with this code."""
    try:
        defined = _defined_codes(path.read_bytes())
    except OSError:
        return False
    return defined.get(code.co_qualname) == [_code_digest(code)]


@functools.lru_cache(maxsize=256)
def _defined_codes(source: bytes) -> Mapping[str, list[str]]:
    """Return the digests of the code of all functions of a module, by name."""
    try:
        compiled = compile(source, "module", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    defined: dict[str, list[str]] = {}
    for inner in _nested_codes(compiled):
        digests = defined.setdefault(inner.co_qualname, [])
        digests.append(_code_digest(inner))
    return defined


def _undescribed_methods(class_: type) -> list[str]:
    """Return the digests of the methods of a class that its current file does not define."""
    digests = []
    for _, member in sorted(vars(class_).items()):
        function = getattr(member, "__func__", member)
        if not isinstance(function, types.FunctionType):
            continue
        path = _source_file(function.__code__)
        if path is not None and not _is_described_by(function.__code__, path):
            digests.append(_code_digest(function.__code__))
    return digests


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)


def _read_globals(code: types.CodeType) -> set[tuple[str, ...]]:
    """Return the module-level values that a function, or a function inside it, reads.

    `("config",)` is the name of one, and `("config", "MODEL")` an attribute of it.
    """
    read: set[tuple[str, ...]] = set()
    for inner in _nested_codes(code):
        name = None
        for instruction in dis.get_instructions(inner):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                name = str(instruction.argval)
                read.add((name,))
                continue
            if name is not None and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                read.add((name, str(instruction.argval)))
            if instruction.opname != "EXTENDED_ARG":
                name = None
    return read


# ---- state ----


def _changed_names(function: types.FunctionType) -> frozenset[str]:
    """Return the names of outer variables that a function changes: it assigns them, or changes their value in place."""
    names = set()
    for inner in _nested_codes(function.__code__):
        for instruction in dis.get_instructions(inner):
            if instruction.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                names.add(str(instruction.argval))
    tree = _tree_of(function)
    if tree is not None:
        for target in _changed_expressions(tree):
            if isinstance(target, ast.Name):
                names.add(target.id)
    return frozenset(names)


def _changed_attributes(class_: type) -> frozenset[str]:
    """Return the names of the attributes that methods of a class change, constructors excepted."""
    names = set()
    for parent in class_.__mro__:
        for name, member in vars(parent).items():
            function = getattr(member, "__func__", member)
            if not isinstance(function, types.FunctionType) or name in _CONSTRUCTORS:
                continue
            tree = _tree_of(function)
            if tree is None:
                continue
            for target in _changed_expressions(tree):
                if isinstance(target, ast.Attribute):
                    names.add(target.attr)
    return frozenset(names)


def _tree_of(function: types.FunctionType) -> ast.AST | None:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        return ast.parse(source)
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None


def _changed_expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the variables and attributes whose values the code changes: `x` in `x.append(1)` and in `x[0] = 1`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=changed, attr=method)) if method in _MUTATORS:
                yield changed
            case ast.Subscript(value=changed, ctx=ast.Store() | ast.Del()):
                yield changed
            case ast.Attribute(value=changed, ctx=ast.Store() | ast.Del()):
                yield changed
                yield node
