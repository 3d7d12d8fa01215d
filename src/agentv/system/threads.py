"""A call that blocks -> one that can be awaited, and left to itself when it does not come back."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Return what `function` returns, like `asyncio.to_thread`, but in a daemon thread: nobody waits for it at exit."""
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
        except StopIteration as raised:  # cannot be set on a future
            error = _wrap(raised)
        except BaseException as raised:  # SystemExit in a user's code must not pass for silence
            error = raised if isinstance(raised, Exception) else _wrap(raised)
        with contextlib.suppress(RuntimeError):  # the run may be over
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    return await future


def _wrap(raised: BaseException) -> RuntimeError:
    error = RuntimeError(describe_error(raised))
    error.__cause__ = raised
    return error


def describe_error(error: BaseException) -> str:
    """Return the name of an exception and its message."""
    try:
        text = str(error)
    except BaseException:
        text = "its message cannot be shown"
    return f"{type(error).__name__}: {text}" if not text.startswith(_WRAPPED) else text


_WRAPPED = ("SystemExit: ", "KeyboardInterrupt: ", "CancelledError: ", "GeneratorExit: ", "StopIteration: ")
