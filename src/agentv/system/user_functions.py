"""Loads and calls the user's own Python functions, with arguments chosen by parameter name.

A function that is not async runs in its own thread. If it does not return in time, the thread is abandoned and ends
with the process.
"""

import ast
import asyncio
import functools
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentv.errors import ConfigError, closest
from agentv.system.threads import describe_error, run_in_thread
from agentv.system.tracebacks import explain_error


class UserFunction:
    """A function whose parameters select from the offered values by name.

    If it has a single parameter, of any other name, it gets the value named `first`. An async function runs in the
    calling event loop or, with `apart`, in a loop with its own thread: there, a function that blocks or ignores
    cancellation does not delay anything else.
    """

    def __init__(self, function: Callable[..., Any], offered: Sequence[str], first: str, *, apart: bool = False):
        """Raise `ConfigError` if a parameter is not among the offered values."""
        self._function = function
        self._first = first
        self._apart = apart
        self._parameters = _parameters(function, offered)

    @property
    def names(self) -> frozenset[str]:
        """The names of the parameters that get a value."""
        return frozenset(parameter.name for parameter in self._parameters)

    async def __call__(self, values: Mapping[str, Any]) -> Any:
        """Call the function and return its value."""
        call = self._bind(values)
        if not _is_async(self._function):
            answer = await run_in_thread(call)
            # A plain function may return a coroutine.
            if inspect.isawaitable(answer):
                return await _await_safely(answer)
            return answer
        if not self._apart:
            return await _await_safely(call())
        future = asyncio.run_coroutine_threadsafe(_await_safely(call()), _background_loop())
        return await asyncio.wrap_future(future)

    def _bind(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the function with its arguments."""
        positional = []
        named = {}
        for parameter in self._parameters:
            value = values.get(parameter.name, values[self._first])
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return functools.partial(self._function, *positional, **named)


def _is_async(function: Callable[..., Any]) -> bool:
    if isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    # An object can have an async `__call__`.
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(call)


async def _await_safely(answer: Awaitable[Any]) -> Any:
    """Return the value. Exceptions that are not an `Exception` are wrapped, so that they do not end the run."""
    try:
        return await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError(describe_error(error)) from error
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(describe_error(error)) from error


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="agentv-functions")
    thread.start()
    return loop


def _parameters(function: Callable[..., Any], offered: Sequence[str]) -> list[inspect.Parameter]:
    """Return the parameters that get a value; raise `ConfigError` if a required one is not offered.

    A single parameter can have any name.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return [inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY)]
    candidates = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(candidates) == 1:
        return candidates
    known = []
    unknown = []
    for parameter in candidates:
        if parameter.name in offered:
            known.append(parameter)
        elif parameter.default is parameter.empty:
            unknown.append(parameter)
    if len(unknown) == 1 and not known:
        return unknown
    if unknown:
        raise _unfillable(unknown, offered)
    return known


def _unfillable(parameters: Sequence[inspect.Parameter], offered: Sequence[str]) -> ConfigError:
    names = ", ".join(repr(parameter.name) for parameter in parameters)
    plural = ""
    if len(parameters) > 1:
        plural = "s"
    return ConfigError(
        f"the function's parameter{plural} {names} cannot be filled",
        hint=f"it may name {', '.join(offered)}",
    )


def load_function(spec: str, folders: Sequence[Path]) -> Callable[..., Any]:
    """Load the function `file.py:name` or `package.module:name`; raise `ConfigError` if that fails.

    Files and modules are searched for in these folders, in order.
    """
    place, name = _split(spec)
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    module = _load_module(place, folders)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [known for known in vars(module) if callable(getattr(module, known))]
        raise _no_function(place, name, functions)
    function: Callable[..., Any] = found
    return function


def _load_module(place: str, folders: Sequence[Path]) -> Any:
    file = _find_file(place, folders)
    try:
        if file is not None:
            return _load_file(file)
        return importlib.import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Includes SystemExit: a module that exits must not end agentv.
        if file is None and isinstance(error, ModuleNotFoundError) and _is_part(error.name, place):
            raise _not_found(place, folders) from error
        raise _broken_code(place, explain_error(error).message) from error


def check_function(spec: str, folders: Sequence[Path]) -> None:
    """Raise `ConfigError` if a function cannot be loaded, as far as that is known without running its code."""
    place, name = _split(spec)
    file = _find_file(place, folders)
    if file is None:
        _check_module(place, folders)
        return
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError, OSError, RecursionError) as error:
        line = ""
        if isinstance(error, SyntaxError) and error.lineno:
            line = f":{error.lineno}"
        raise _broken_code(place, f"{file.name}{line}: {describe_error(error)}") from error
    names = _top_names(tree)
    if name not in names and "*" not in names and "__getattr__" not in names:
        raise _no_function(place, name, names)


def _broken_code(place: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{place} cannot be loaded: {reason}",
        hint="the error is in that code",
    )


def _split(spec: str) -> tuple[str, str]:
    """Return the file or module, and the name of the function."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{spec!r} names no function", hint="write path/to/file.py:name or package.module:name")
    return place, name


def _find_file(place: str, folders: Sequence[Path]) -> Path | None:
    """Return the file of `file.py` or of a top-level module; None for any other module.

    Raise `ConfigError` if `file.py` does not exist.
    """
    is_path = place.endswith(".py")
    name = place
    if not is_path:
        # Load a top-level module from its file: modules of the same name in two folders are different modules.
        name = f"{place}.py"
    for folder in folders:
        path = Path(folder, name)
        if path.is_file():
            return path
    if is_path:
        raise _not_found(place, folders)
    return None


def _not_found(place: str, folders: Sequence[Path]) -> ConfigError:
    hint = ""
    if not Path(place).is_absolute():
        hint = f"looked in {', '.join(map(str, folders))}"
    problem = "no such file"
    if not place.endswith(".py"):
        problem = "no such module"
        hint += ", and among the installed packages"
    return ConfigError(f"{place} cannot be loaded: {problem}", hint=hint)


def _no_function(place: str, name: str, known: Iterable[str]) -> ConfigError:
    hint = "write the name of one that it has, behind the colon"
    close = closest(name, known)
    if close:
        hint = f"did you mean {close!r}?"
    return ConfigError(f"{place} has no function {name!r}", hint=hint)


def _is_part(name: str | None, module: str) -> bool:
    """Return whether the module that was not found is the requested module, or one of its parent packages."""
    return name is not None and f"{module}.".startswith(f"{name}.")


def _check_module(place: str, folders: Sequence[Path]) -> None:
    """Raise `ConfigError` if the top-level package of a module does not exist. Runs none of its code."""
    top = place.partition(".")[0]
    for folder in folders:
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            return
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return
    if found is None:
        raise _not_found(place, folders)


def _top_names(tree: ast.Module) -> set[str]:
    """Return the names that a module may define; they include `*` if it has a wildcard import."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            imported = node.asname or node.name
            names.add(imported.partition(".")[0])
    return names


def _load_file(path: Path) -> Any:
    """Return the module of a Python file, which is loaded once per process."""
    unique = abs(hash(path.resolve()))
    name = f"agentv_user_{path.stem}_{unique}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no Python file: {path}")
    module = importlib.util.module_from_spec(spec)
    # Registered before its code runs, as `import` does: dataclasses and pickle look the module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
