"""The user's own Python functions -> found, given what their parameters name, and called.

A function that is not async runs in a thread of its own; one that does not come back in time is left to itself,
and ends with the process.
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
    """A function that gets what its parameters name, of what is offered; a single one of another name gets `first`.

    An async function runs in the loop that calls it, or `apart`, in a loop that has a thread of its own: one
    that blocks, or will not be cancelled, then keeps nobody else waiting.
    """

    def __init__(self, function: Callable[..., Any], offered: Sequence[str], first: str, *, apart: bool = False):
        self._function, self._first, self._apart = function, first, apart
        self._parameters = _parameters(function, offered)

    @property
    def names(self) -> frozenset[str]:
        """The names of the parameters that are filled."""
        return frozenset(parameter.name for parameter in self._parameters)

    async def __call__(self, values: Mapping[str, Any]) -> Any:
        """Return what the function returns."""
        given = [(parameter, values.get(parameter.name, values[self._first])) for parameter in self._parameters]
        positional = [value for parameter, value in given if parameter.kind is parameter.POSITIONAL_ONLY]
        named = {p.name: value for p, value in given if p.kind is not p.POSITIONAL_ONLY}
        call = functools.partial(self._function, *positional, **named)
        if not _is_async(self._function):
            answer = await run_in_thread(call)
            return await _await_safely(answer) if inspect.isawaitable(answer) else answer
        if not self._apart:
            return await _await_safely(call())
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_await_safely(call()), _background_loop()))


def _is_async(function: Callable[..., Any]) -> bool:
    inner = function.func if isinstance(function, functools.partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


async def _await_safely(answer: Awaitable[Any]) -> Any:
    """Return the answer. What is raised and is no `Exception` becomes one: it must not end the run."""
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
    threading.Thread(target=loop.run_forever, daemon=True, name="agentv-functions").start()
    return loop


def _parameters(function: Callable[..., Any], offered: Sequence[str]) -> list[inspect.Parameter]:
    """Return the parameters to fill; raise `ConfigError` if one cannot be. A single one can have any name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY)]
    fillable = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(fillable) == 1:
        return fillable
    unknown = [p.name for p in fillable if p.name not in offered and p.default is p.empty]
    known = [p for p in fillable if p.name in offered]
    if len(unknown) == 1 and not known:
        return [p for p in fillable if p.name == unknown[0]]
    if unknown:
        hint = f"it may name {', '.join(offered)}"
        many = "s" if len(unknown) > 1 else ""
        raise ConfigError(f"the function's parameter{many} {', '.join(map(repr, unknown))} cannot be filled", hint=hint)
    return known


def load_function(spec: str, folders: Sequence[Path]) -> Callable[..., Any]:
    """Return the function that `file.py:name` or `package.module:name` means; raise `ConfigError` if there is none.

    Files and modules are looked for in these folders, in their order.
    """
    place, name = _split(spec)
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    file = _find_file(place, folders)
    try:
        module = _load_file(file) if file is not None else importlib.import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that exits is no reason to
        if isinstance(error, ModuleNotFoundError) and file is None and _is_part(error.name, place):
            raise _not_found(place, folders) from error
        explained = explain_error(error)
        raise ConfigError(f"{place} cannot be loaded: {explained.message}", hint="the error is in that code") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise _no_function(place, name, [known for known in vars(module) if callable(getattr(module, known))])
    function: Callable[..., Any] = found
    return function


def check_function(spec: str, folders: Sequence[Path]) -> None:
    """Raise `ConfigError` if a function cannot be loaded, as far as that can be told without running any code."""
    place, name = _split(spec)
    file = _find_file(place, folders)
    if file is None:
        _check_module(place, folders)
        return
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError, OSError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        message = f"{place} cannot be loaded: {file.name}{line}: {describe_error(error)}"
        raise ConfigError(message, hint="the error is in that code") from error
    names = _top_names(tree)
    if name not in names and "*" not in names and "__getattr__" not in names:
        raise _no_function(place, name, names)


def _split(spec: str) -> tuple[str, str]:
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{spec!r} names no function", hint="write path/to/file.py:name or package.module:name")
    return place, name


def _find_file(place: str, folders: Sequence[Path]) -> Path | None:
    """Return the file that is meant; None if it is a module. Raise `ConfigError` if there is no such file."""
    is_path = place.endswith(".py")
    candidates = (Path(folder, place if is_path else f"{place}.py") for folder in folders)
    found = next((path for path in candidates if path.is_file()), None)  # `agent` in two folders is two modules
    if found is None and is_path:
        raise _not_found(place, folders)
    return found


def _not_found(place: str, folders: Sequence[Path]) -> ConfigError:
    what = "no such file" if place.endswith(".py") else "no such module"
    where = "" if Path(place).is_absolute() else f"looked in {', '.join(map(str, folders))}"
    others = "" if place.endswith(".py") else ", and among the installed packages"
    return ConfigError(f"{place} cannot be loaded: {what}", hint=f"{where}{others}")


def _no_function(place: str, name: str, known: Iterable[str]) -> ConfigError:
    close = closest(name, known)
    hint = f"did you mean {close!r}?" if close else "write the name of one that it has, behind the colon"
    return ConfigError(f"{place} has no function {name!r}", hint=hint)


def _is_part(name: str | None, module: str) -> bool:
    """Return whether a module that was not found is the one that was asked for, or a package around it."""
    return name is not None and f"{module}.".startswith(f"{name}.")


def _check_module(place: str, folders: Sequence[Path]) -> None:
    """Raise `ConfigError` if the package that a module is in is nowhere: only to find it, no code has to run."""
    top = place.partition(".")[0]
    if any((folder / top).is_dir() or (folder / f"{top}.py").is_file() for folder in folders):
        return
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return
    if found is None:
        raise _not_found(place, folders)


def _top_names(tree: ast.Module) -> set[str]:
    """Return the names that a module's code may give to something, `*` among them if that cannot be told."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def _load_file(path: Path) -> Any:
    name = f"agentv_user_{path.stem}_{abs(hash(path.resolve()))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no Python file: {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
