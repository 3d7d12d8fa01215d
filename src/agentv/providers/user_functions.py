"""Loads and calls the user's own Python functions, with arguments chosen by parameter name.

A function that is not async runs in its own thread. If it does not return in time, the thread is abandoned and ends
with the process.
"""

import ast
import asyncio
import copy
import functools
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentv.errors import ConfigError, closest
from agentv.processes.threads import describe_error, run_in_thread
from agentv.providers.tracebacks import explain_error


class UserFunction:
    """A function whose parameters select from the offered values by name.

    A single parameter whose name is not offered gets the value named `first`; without `first`, it is an error. An async
    function runs in the calling event loop or, with `apart`, in a loop with its own thread, where a function that
    blocks or ignores cancellation does not delay anything else.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        offered: Sequence[str],
        first: str | None,
        *,
        apart: bool = False,
    ):
        """Raise `ConfigError` if a parameter is not among the offered values."""
        self._function = function
        self._first = first
        self._apart = apart
        self._parameters = _parameters(function, offered, takes_any=first is not None)

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
        if self._apart:
            loop = await _responsive_loop()
            future = asyncio.run_coroutine_threadsafe(_await_safely(call()), loop)
            running = asyncio.wrap_future(future)
        else:
            # A task of its own: a function that cancels its task must not cancel the worker that calls it.
            loop = asyncio.get_running_loop()
            running = loop.create_task(_call_safely(call))
        try:
            return await running
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise RuntimeError(describe_error(error)) from error
            if self._apart:
                _suspected.add(loop)
            raise

    def _bind(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the function with its arguments."""
        positional = []
        named = {}
        for parameter in self._parameters:
            name = parameter.name
            if name not in values and self._first is not None:
                name = self._first
            value = values[name]
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


async def _call_safely(call: Callable[[], Awaitable[Any]]) -> Any:
    return await _await_safely(call())


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


_suspected: set[asyncio.AbstractEventLoop] = set()
"""The loops with an abandoned call: its function may block the loop forever."""
PROBE_SECONDS = 1.0


async def _responsive_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of async functions: a new one if a function that did not return in time blocks the last one."""
    loop = _background_loop()
    if loop not in _suspected:
        return loop
    probe = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
    try:
        await asyncio.wait_for(asyncio.wrap_future(probe), PROBE_SECONDS)
    except TimeoutError:
        if _background_loop() is loop:
            _background_loop.cache_clear()
        return _background_loop()
    _suspected.discard(loop)
    return loop


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="agentv-functions")
    thread.start()
    return loop


def _parameters(
    function: Callable[..., Any],
    offered: Sequence[str],
    *,
    takes_any: bool,
) -> list[inspect.Parameter]:
    """Return the parameters that get a value; raise `ConfigError` if a required one is not offered."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        if not takes_any:
            return []
        return [inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY)]
    return _supplied(parameters, offered, takes_any=takes_any)


def _supplied(
    parameters: Sequence[inspect.Parameter],
    offered: Sequence[str],
    *,
    takes_any: bool,
) -> list[inspect.Parameter]:
    """Return the parameters that get a value; raise `ConfigError` if a required one is not offered.

    With `takes_any`, a single parameter can have any name.
    """
    candidates = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if takes_any and len(candidates) == 1:
        return candidates
    known = []
    unknown = []
    for parameter in candidates:
        if parameter.name in offered:
            known.append(parameter)
        elif parameter.default is parameter.empty:
            unknown.append(parameter)
    if takes_any and len(unknown) == 1 and not known:
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
        f"the function's parameter{plural} {names} cannot be supplied",
        hint=f"available parameters: {', '.join(offered)}",
    )


class FunctionSpec(str):
    """A function given as an object, where settings name one. The text identifies it within this process."""

    __slots__ = ("function", "version")
    function: Callable[..., Any]
    version: str
    """Its name and version, for digests."""

    @classmethod
    def of(cls, function: Callable[..., Any], text: str, version: str) -> "FunctionSpec":
        """Return a function as a setting."""
        spec = cls(text)
        spec.function = function
        spec.version = version
        return spec


def copy_mapping(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of plain values for the user's code, which may change it; empty if there are none."""
    if not values:
        return {}
    return copy.deepcopy(dict(values))


def path_or_none(path: Path | None) -> str | None:
    """Return a path as the user's code gets it."""
    if path is None:
        return None
    return str(path)


def load_function(spec: str, folders: Sequence[Path]) -> Callable[..., Any]:
    """Load the function `file.py:name` or `package.module:name`; raise `ConfigError` if that fails.

    Files and modules are searched for in these folders, in order.
    """
    if isinstance(spec, FunctionSpec):
        return spec.function
    place, name = _split(spec)
    for folder in reversed(folders):  # so that the first one ends up in front
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    module = _load_module(place, folders)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [known for known in vars(module) if callable(getattr(module, known))]
        raise _no_function(place, name, functions)
    function: Callable[..., Any] = found
    return function


def function_file(spec: str, folders: Sequence[Path]) -> Path | None:
    """Return the file of the module that has the function; None if it has none. Raise `ConfigError` if not found."""
    if isinstance(spec, FunctionSpec):
        return None  # its text identifies its version
    place, _ = _split(spec)
    file = _find_file(place, folders)
    if file is not None:
        return file
    module = Path(*place.split("."))
    for folder in folders:
        for path in (folder / module.with_name(f"{module.name}.py"), folder / module / "__init__.py"):
            if path.is_file():
                return path
    loaded = getattr(sys.modules.get(place), "__file__", None)
    if loaded and loaded.endswith(".py"):
        return Path(loaded)
    return None


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


def check_function(
    spec: str,
    folders: Sequence[Path],
    offered: Sequence[str] | None = None,
    *,
    takes_any: bool = False,
) -> None:
    """Raise `ConfigError` if a function cannot be loaded, as far as this can be checked without running its code.

    With `offered`, its parameters are checked as `UserFunction` does.
    """
    if isinstance(spec, FunctionSpec):
        return
    place, name = _split(spec)
    file = _find_file(place, folders)
    if file is None:
        _check_module(place, folders)
        return
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        raise _broken_code(place, explain_error(error).message) from error
    except (ValueError, OSError, RecursionError) as error:
        raise _broken_code(place, f"{file.name}: {describe_error(error)}") from error
    names = _top_names(tree)
    if name not in names and "*" not in names and "__getattr__" not in names:
        raise _no_function(place, name, names)
    function = _only_definition(tree, name)
    if offered is not None and function is not None:
        _supplied(_written_parameters(function.args), offered, takes_any=takes_any)


def _only_definition(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function that certainly has this name when its module is loaded, with the parameters as written."""
    found = None
    for node in ast.walk(tree):
        if name not in _names_of(node):
            continue
        if found is not None or node not in tree.body:
            return None
        found = node
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) or found.decorator_list:
        return None
    return found


def _written_parameters(arguments: ast.arguments) -> list[inspect.Parameter]:
    """Return parameters as `inspect.signature` does. A default is replaced by None."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    parameters = []
    for number, argument in enumerate(positional):
        parameters.append(_written_parameter(argument, has_default=number >= required))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parameters.append(_written_parameter(argument, has_default=default is not None))
    return parameters


def _written_parameter(argument: ast.arg, *, has_default: bool) -> inspect.Parameter:
    parameter = inspect.Parameter(argument.arg, inspect.Parameter.KEYWORD_ONLY)
    if has_default:
        return parameter.replace(default=None)
    return parameter


def _broken_code(place: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{place} cannot be loaded: {reason}",
        hint="fix the error in that code",
    )


def _split(spec: str) -> tuple[str, str]:
    """Return the file or module, and the name of the function."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{spec!r} does not name a function", hint="use path/to/file.py:name or package.module:name")
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
        hint = f"searched {', '.join(map(str, folders))}"
    problem = "no such file"
    if not place.endswith(".py"):
        problem = "no such module"
        hint += ", and among the installed packages"
    return ConfigError(f"{place} cannot be loaded: {problem}", hint=hint)


def _no_function(place: str, name: str, known: Iterable[str]) -> ConfigError:
    hint = "put the name of one of its functions after the colon"
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
        names.update(_names_of(node))
    return names


def _names_of(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node defines, if it does."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.alias):
        imported = node.asname or node.name
        yield imported.partition(".")[0]


def _load_file(path: Path) -> Any:
    """Return the module of a Python file, which is loaded once per process."""
    unique = abs(hash(path.resolve()))
    name = f"agentv_user_{path.stem}_{unique}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"not a Python file: {path}")
    module = importlib.util.module_from_spec(spec)
    # Registered before its code runs, as `import` does: dataclasses and pickle look the module up.
    sys.modules[name] = module
    try:
        # Not from Python's bytecode cache, which misses an edit of the same size within a second.
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module
