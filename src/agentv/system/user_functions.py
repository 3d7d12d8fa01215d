"""The user's own Python functions -> found, given what their parameters name, and called.

A function that is not async runs in a thread of its own; one that does not come back in time is left to itself,
and ends with the process.
"""

import asyncio
import functools
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentv.errors import ConfigError, closest
from agentv.system.threads import describe_error, run_in_thread


class UserFunction:
    """A function that gets what its parameters name, of what is offered; a single one of another name gets `first`.

    An async function runs in the loop that calls it, or `apart`, in a loop that has a thread of its own: one
    that blocks, or will not be cancelled, then keeps nobody else waiting.
    """

    def __init__(self, function: Callable[..., Any], offered: Sequence[str], first: str, *, apart: bool = False):
        self._function, self._first, self._apart = function, first, apart
        self._parameters = _parameters(function, offered)

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
        raise ConfigError(f"the function's parameter {unknown[0]!r} cannot be filled", hint=hint)
    return known


def load_function(spec: str, folder: Path) -> Callable[..., Any]:
    """Return the function that `file.py:name` or `package.module:name` means; paths are relative to `folder`."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{spec!r} names no function", hint="write path/to/file.py:name or package.module:name")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    beside = folder / (place if place.endswith(".py") else f"{place}.py")
    try:
        is_file = place.endswith(".py") or beside.is_file()  # `agent` in two folders is two modules
        module = _load_file(beside) if is_file else importlib.import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that exits is no reason to
        hint = (
            f"paths are relative to {folder}"
            if isinstance(error, OSError | ImportError)
            else "the error is in that file"
        )
        raise ConfigError(f"{place} cannot be loaded: {describe_error(error)}", hint=hint) from error
    found = getattr(module, name, None)
    if not callable(found):
        close = closest(name, [known for known in vars(module) if callable(getattr(module, known))])
        hint = f"did you mean {close!r}?" if close else "write the name of one that it has, behind the colon"
        raise ConfigError(f"{place} has no function {name!r}", hint=hint)
    function: Callable[..., Any] = found
    return function


def _load_file(path: Path) -> Any:
    name = f"agentv_user_{path.stem}_{abs(hash(path.resolve()))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
