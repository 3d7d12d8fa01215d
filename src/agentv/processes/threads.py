"""Runs blocking calls in daemon threads, so that a call that never returns does not block the exit."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from agentv.errors import MachineError

_WRAPPED = (
    "SystemExit: ",
    "KeyboardInterrupt: ",
    "CancelledError: ",
    "GeneratorExit: ",
    "StopIteration: ",
)
"""How the message of a wrapped exception starts."""


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Return the value of `function()`. Unlike `asyncio.to_thread`, use a daemon thread, which does not delay exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error:
            future.set_exception(error)
        else:
            future.set_result(value)

    def run() -> None:
        value = None
        error: Exception | None = None
        try:
            value = function()
        except StopIteration as raised:
            # A future does not accept StopIteration.
            error = _wrap(raised)
        except Exception as raised:
            error = raised
        except BaseException as raised:
            # SystemExit in the user's code must be reported, not end the thread silently.
            error = _wrap(raised)
        # The loop is closed if the run has already ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise MachineError(f"the machine has reached a limit: {error}") from error
    return await future


def _wrap(raised: BaseException) -> RuntimeError:
    """Return a `RuntimeError` with the description of an exception, which becomes its cause."""
    error = RuntimeError(describe_error(raised))
    error.__cause__ = raised
    return error


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an exception; of one that `run_in_thread` wrapped, those of the original."""
    try:
        text = str(error)
    except BaseException:
        text = "its message cannot be shown"
    if text.startswith(_WRAPPED):
        return text
    if not text:
        return type(error).__name__
    return f"{type(error).__name__}: {text}"
