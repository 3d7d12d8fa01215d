"""Slots whose number can change, and shares of a limit."""

import asyncio

import pytest

from agentv.calls.slots import Share, Slots


@pytest.mark.parametrize(("limit", "parts"), [(3, 2), (10, 3), (1, 1), (7, 7)])
def test_shares_of_a_limit_add_up_to_it(limit: int, parts: int) -> None:
    assert sum(Share(number, parts).of(limit) for number in range(parts)) == limit


def test_no_share_is_empty() -> None:
    assert Share(4, 5).of(2) == 1


async def _in_at_once(slots: Slots, tasks: int, resize: int) -> tuple[int, int]:
    inside, most = 0, [0, 0]

    async def enter() -> None:
        nonlocal inside
        await slots.acquire()
        inside += 1
        most[resized] = max(most[resized], inside)
        await asyncio.sleep(0)
        inside -= 1
        slots.release()

    resized = 0
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(enter())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slots.resize(resize)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        resized = 1
    return most[0], most[1]


@pytest.mark.parametrize(("limit", "resize"), [(2, 5), (5, 2), (3, 3)])
def test_the_limit_can_change(limit: int, resize: int) -> None:
    before, after = asyncio.run(_in_at_once(Slots(limit), 60, resize))
    assert before <= max(limit, resize)
    assert after == resize


def test_a_cancelled_waiter_takes_no_slot() -> None:
    async def run() -> None:
        slots = Slots(1)
        await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        slots.release()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(60):
            await slots.acquire()

    asyncio.run(run())
