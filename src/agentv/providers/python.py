"""A Python function, called in agentv's own process.

It gets what its parameters name. A function that is not async runs in a thread of its own; one that
does not come back in time is left to itself, and ends with the process.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from agentv.errors import ConfigError, ProviderError
from agentv.protocols import Provider
from agentv.providers.settings import TargetSettings, Text
from agentv.records import ProviderRequest, ProviderResponse
from agentv.wire import response_from

OFFERED = ("question", "guidelines", "chat_prompt", "eval_id", "files", "request")


class PythonSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that takes the question and returns the answer."""

    function: Annotated[Text, Meta(description="path/to/file.py:name or package.module:name")]

    def open(self, folder: Path) -> Provider:
        return PythonFunction(load_function(self.function, folder))


class PythonFunction:
    """Answers with what a function returns: a string, a mapping, or a ProviderResponse."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._names = _parameters(function)

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        arguments = _arguments(self._names, request)
        try:
            answer = await call(self._function, arguments)
        except Exception as error:
            raise ProviderError(f"{type(error).__name__}: {error}", may_pass=True) from error
        return _response(answer)


def load_function(spec: str, folder: Path) -> Callable[..., Any]:
    """The function that `file.py:name` or `package.module:name` means; paths are relative to `folder`."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{spec!r} names no function", hint="write path/to/file.py:name or package.module:name")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = _load_file(folder / place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        hint = f"paths are relative to {folder}" if isinstance(error, OSError | ImportError) else ""
        raise ConfigError(f"{place} cannot be loaded: {type(error).__name__}: {error}", hint=hint) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{place} has no function {name!r}")
    function: Callable[..., Any] = found
    return function


async def call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What the function returns, be it async or not."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(**arguments)
    answer = await _in_thread(lambda: function(**arguments))
    return await answer if inspect.isawaitable(answer) else answer


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Like `asyncio.to_thread`, but in a daemon thread, for which nobody waits at the end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error else future.set_result(value)

    def run() -> None:
        value = None
        error: Exception | None = None
        try:
            value = function()
        except StopIteration as stop:  # cannot be set on a future
            error = RuntimeError(f"StopIteration: {stop}")
        except BaseException as raised:  # SystemExit in a user's code must not pass for silence
            error = raised if isinstance(raised, Exception) else RuntimeError(f"{type(raised).__name__}: {raised}")
        with contextlib.suppress(RuntimeError):  # the run may be over
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, daemon=True).start()
    return await future


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


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters to fill. The only one, whatever its name, gets the question."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ["question"]
    needed = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    known = [p.name for p in needed if p.name in OFFERED]
    unknown = [p.name for p in needed if p.name not in OFFERED and p.default is p.empty]
    if len(unknown) == 1 and not known:
        return unknown
    if unknown:
        hint = f"it may name {', '.join(OFFERED)}"
        raise ConfigError(f"the function's parameter {unknown[0]!r} cannot be filled", hint=hint)
    return known


def _arguments(names: list[str], request: ProviderRequest) -> dict[str, Any]:
    offered = {
        "question": request.question,
        "guidelines": request.guidelines,
        "chat_prompt": request.chat_prompt,
        "eval_id": request.eval_id,
        "files": request.input_files,
        "request": request,
    }
    return {name: offered.get(name, request.question) for name in names}


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
