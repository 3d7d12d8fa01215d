"""A Python function, called in agentv's own process.

It gets what its parameters name. A function that is not async runs in a thread of its own; one that
does not come back in time is left to itself, and ends with the process.
"""

import asyncio
import functools
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from agentv.errors import ConfigError, ProviderError
from agentv.protocols import Provider
from agentv.providers.settings import TargetSettings, Text
from agentv.records import ProviderRequest, ProviderResponse
from agentv.threads import in_thread, words
from agentv.wire import response_from

OFFERED = ("question", "guidelines", "chat_prompt", "eval_id", "files", "request")


class PythonSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that takes the question and returns the answer."""

    function: Annotated[Text, Meta(description="path/to/file.py:name or package.module:name")]

    def open(self, folder: Path) -> Provider:
        return PythonFunction(load_function(self.function, folder), apart=True)


class PythonFunction:
    """Answers with what a function returns: a string, a mapping, or a ProviderResponse.

    An async function runs in the loop that asks it, or `apart`, in a loop that has a thread of its own: one
    that blocks, or will not be cancelled, then keeps nobody else waiting.
    """

    def __init__(self, function: Callable[..., Any], *, apart: bool = False):
        self._function, self._apart = function, apart
        self._parameters = _parameters(function)

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        positional, named = _arguments(self._parameters, request)
        call = functools.partial(self._function, *positional, **named)
        try:
            answer = await self._call(call)
        except Exception as error:
            raise ProviderError(words(error), may_pass=True) from error
        return _response(answer)

    async def _call(self, call: Callable[[], Any]) -> Any:
        if not _is_async(self._function):
            answer = await in_thread(call)
            return await _guarded(answer) if inspect.isawaitable(answer) else answer
        if not self._apart:
            return await _guarded(call())
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_guarded(call()), _loop_apart()))


def _is_async(function: Callable[..., Any]) -> bool:
    inner = function.func if isinstance(function, functools.partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


async def _guarded(answer: Awaitable[Any]) -> Any:
    """The answer. What is raised besides exceptions, and is not ours, becomes one: it must not end the run."""
    try:
        return await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError(words(error)) from error
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(words(error)) from error


@cache
def _loop_apart() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="agentv-targets").start()
    return loop


def load_function(spec: str, folder: Path) -> Callable[..., Any]:
    """The function that `file.py:name` or `package.module:name` means; paths are relative to `folder`."""
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
        hint = f"paths are relative to {folder}" if isinstance(error, OSError | ImportError) else ""
        raise ConfigError(f"{place} cannot be loaded: {words(error)}", hint=hint) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{place} has no function {name!r}")
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


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters to fill. The only one, whatever its name, gets the question."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("question", inspect.Parameter.POSITIONAL_ONLY)]
    fillable = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(fillable) == 1:
        return fillable
    unknown = [p.name for p in fillable if p.name not in OFFERED and p.default is p.empty]
    known = [p for p in fillable if p.name in OFFERED]
    if len(unknown) == 1 and not known:
        return [p for p in fillable if p.name == unknown[0]]
    if unknown:
        hint = f"it may name {', '.join(OFFERED)}"
        raise ConfigError(f"the function's parameter {unknown[0]!r} cannot be filled", hint=hint)
    return known


def _arguments(parameters: list[inspect.Parameter], request: ProviderRequest) -> tuple[list[Any], dict[str, Any]]:
    """What the parameters get: those without a usable name by their place, the others by their name."""
    offered = {
        "question": request.question,
        "guidelines": request.guidelines,
        "chat_prompt": request.chat_prompt,
        "eval_id": request.eval_id,
        "files": request.input_files,
        "request": request,
    }
    values = [(parameter, offered.get(parameter.name, request.question)) for parameter in parameters]
    positional = [value for parameter, value in values if parameter.kind is parameter.POSITIONAL_ONLY]
    return positional, {p.name: value for p, value in values if p.kind is not p.POSITIONAL_ONLY}


def _response(answer: Any) -> ProviderResponse:
    if isinstance(answer, ProviderResponse):
        return answer
    if isinstance(answer, str):
        return ProviderResponse(text=answer)
    if isinstance(answer, Mapping):
        return response_from(answer)
    raise ProviderError(
        f"the function returned {type(answer).__name__}", hint="return a string, a mapping or a ProviderResponse"
    )
