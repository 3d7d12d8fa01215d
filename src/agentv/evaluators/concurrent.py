"""Run several calls concurrently."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from agentv.errors import MachineError

T = TypeVar("T")


async def run_together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the values of all calls, in their order. Raise the first `MachineError`, after all calls have ended."""
    try:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(call) for call in calls]
    except* MachineError as group:
        raise _first(group) from None
    return [task.result() for task in started]


def _first(group: BaseExceptionGroup[MachineError]) -> MachineError:
    error: Any = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    found: MachineError = error
    return found
