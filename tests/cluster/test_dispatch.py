"""Dispatching cases: each is assigned, counted once, and recovered when a worker is lost."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agentv.cluster.dispatch import ASSIGNED, CHUNK_SECONDS, ISOLATED_DEATHS, MAX_CHUNKS, Dispatch, Load


def workers(dispatch: Dispatch, count: int) -> list[Load]:
    dispatch.loads.extend(Load() for _ in range(count))
    return dispatch.loads


def numbers(load: Load) -> list[int]:
    return [number for chunk in load.chunks for number in chunk.numbers()]


def test_a_worker_has_at_most_two_chunks_and_the_first_are_small() -> None:
    dispatch = Dispatch(1000, (), slots=4)
    one, _ = workers(dispatch, 2)
    chunks = [dispatch.next_chunk(one, 2) for _ in range(3)]
    assert [chunk.unfinished if chunk else None for chunk in chunks] == [4, 4, None]
    assert MAX_CHUNKS == 2


def test_the_size_of_a_chunk_is_a_minute_of_measured_work() -> None:
    dispatch = Dispatch(1_000_000, (), slots=4)
    one, _ = workers(dispatch, 2)
    one.done, one.busy_seconds = 50, 10.0
    chunk = dispatch.next_chunk(one, 2)
    assert chunk is not None
    assert chunk.unfinished == 5 * CHUNK_SECONDS
    assert 30 <= CHUNK_SECONDS <= 120


def test_the_last_cases_are_divided_among_all_workers() -> None:
    dispatch = Dispatch(40, (), slots=4)
    one, two = workers(dispatch, 2)
    one.done, one.busy_seconds = 10, 100.0
    first, other = dispatch.next_chunk(one, 2), dispatch.next_chunk(two, 2)
    assert first is not None
    assert other is not None
    assert (first.unfinished, other.unfinished) == (6, 6)  # a minute's work


def test_an_idle_worker_takes_from_the_busiest_one() -> None:
    dispatch = Dispatch(8, (), slots=2)
    one, two = workers(dispatch, 2)
    while dispatch.next_chunk(one, 1):
        pass
    while dispatch.unassigned:
        assert dispatch.next_chunk(two, 1) is not None
        for number in numbers(two):
            assert dispatch.record_result(two, number)
    one.waiting, two.waiting = 2, 0
    assert dispatch.busiest_other(two) is one
    dispatch.take_back(one, [(3, 4)])
    chunk = dispatch.next_chunk(two, 2)
    assert chunk is not None
    assert [*chunk.numbers()] == [3]


def test_the_first_result_counts_regardless_of_the_worker() -> None:
    dispatch = Dispatch(4, (), slots=4)
    one, two = workers(dispatch, 2)
    dispatch.next_chunk(one, 1)
    assert dispatch.lose(one, died=False) == 2
    dispatch.next_chunk(two, 1)
    dispatch.next_chunk(two, 1)
    assert dispatch.record_result(one, 0)  # it was only silent
    assert not dispatch.record_result(two, 0)
    assert dispatch.unfinished == 3
    assert numbers(two) == [0, 1, 2]
    assert two.outstanding == 2


def test_finished_cases_are_not_assigned() -> None:
    dispatch = Dispatch(6, [0, 2, 5], slots=10)
    (one,) = workers(dispatch, 1)
    dispatch.next_chunk(one, 1)
    dispatch.next_chunk(one, 1)
    assert numbers(one) == [1, 3, 4]
    assert dispatch.unfinished == 3


@given(
    total=st.integers(1, 60),
    slots=st.integers(1, 8),
    count=st.integers(1, 4),
    killers=st.sets(st.integers(0, 59), max_size=3),
    seed=st.integers(0, 10_000),
)
def test_every_case_is_finished_exactly_once(total: int, slots: int, count: int, killers: set[int], seed: int) -> None:
    """Workers die at random and by the cases that kill; each case ends once, and only killers are reported as deadly.

    A case that was alone on as many workers as die by it cannot be told from one that kills; so fewer die at random.
    """
    dice = random.Random(seed)
    dispatch = Dispatch(total, (), slots)
    loads = workers(dispatch, count)
    ended: Counter[int] = Counter()
    random_deaths = ISOLATED_DEATHS - 1
    for _ in range(50 * total + 1000):
        if not dispatch.unfinished:
            break
        load = dice.choice(loads)
        while dispatch.next_chunk(load, count):
            pass
        held = [number for number in numbers(load) if dispatch._state[number] == ASSIGNED]
        running = held[:slots]
        load.running = [number for number in running if dice.random() < 0.7]  # what it said last is not the latest
        if any(number in killers for number in running):
            dispatch.lose(load, died=True)
        elif random_deaths and dice.random() < 0.1:
            random_deaths -= 1
            dispatch.lose(load, died=True)
        elif running:
            number = dice.choice(running)
            ended[number] += dispatch.record_result(load, number)
        for number in dispatch.deadly:
            assert number in killers
            ended[number] += dispatch.record_result(Load(), number)
        dispatch.deadly.clear()
    assert ended == Counter(range(total))
    assert dispatch.unassigned == 0
    assert all(not load.chunks for load in loads)
