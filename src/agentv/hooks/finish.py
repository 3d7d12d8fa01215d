"""Let hooks end when a run is stopped."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def is_stopping() -> bool:
    """Return whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def let_finish(call: Coroutine[Any, Any, None], seconds: float, *, is_limited: bool = False) -> None:
    """Await a call to its end. Once the current task is cancelled, the call has `seconds` left; then it is cancelled.

    With `is_limited`, this time begins immediately. If the current task was cancelled, raise `CancelledError` when the
    call has ended.
    """
    loop = asyncio.get_running_loop()
    # A separate task, which is not cancelled with this one.
    task = loop.create_task(call)
    timer = None
    if is_limited or is_stopping():
        timer = loop.call_later(seconds, task.cancel)
    interrupted = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            if interrupted is None:
                interrupted = error
            if timer is None:
                timer = loop.call_later(seconds, task.cancel)
    if timer is not None:
        timer.cancel()
    if interrupted is not None:
        if not task.cancelled():
            task.exception()  # otherwise asyncio reports that it was never retrieved
        raise interrupted
    if not task.cancelled():
        task.result()
