"""The journal of batches: its files after each step, and after a kill in the middle of a step."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentv.batches.journal import (
    Collected,
    Created,
    Intent,
    Journal,
    JournaledBatch,
    NewBatch,
    Uploaded,
)
from agentv.batches.reply_index import ReplyIndex
from agentv.errors import OutputError
from agentv.providers.models.batches.api import BatchReply

ONE, TWO, THREE = (f"{number:040x}" for number in (1, 2, 3))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "batches").mkdir()
    return Journal(tmp_path / "batches")


def a_batch(journal: Journal, *ids: str, key: str = "key-1", at: float | None = None) -> JournaledBatch:
    part = NewBatch(journal, key)
    for id_ in ids or (ONE, TWO):
        part.add(id_, b"{}\n")
    batch = part.seal(Intent(at=at or time.time(), key=key, target="default", requests=part.count))
    batch.release()
    return batch


async def store(batch: JournaledBatch, *replies: BatchReply) -> None:
    async def each() -> AsyncIterator[BatchReply]:
        for reply in replies:
            yield reply

    batch.record(Collected(at=time.time(), status="ended", replies=await batch.store_replies(each())))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_steps_are_known_to_the_next_process(journal: Journal) -> None:
    batch = a_batch(journal)
    batch.record(Uploaded(at=1, file="file-1"))
    batch.record(Created(at=2, batch="batch-1"))
    (found,) = journal.batches()
    assert found.intent is not None
    assert (found.intent.key, found.intent.requests) == ("key-1", 2)
    assert found.uploaded == Uploaded(at=1, file="file-1")
    assert found.created == Created(at=2, batch="batch-1")
    assert found.collected is None
    assert [*found.ids()] == [ONE, TWO]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_truncated_step_is_ignored_and_the_next_one_is_read(journal: Journal, cut: int) -> None:
    batch = a_batch(journal)
    batch.record(Uploaded(at=1, file="file-1"))
    path = batch.folder / "journal.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    found = JournaledBatch(batch.folder)
    assert found.uploaded is None
    found.record(Created(at=2, batch="batch-1"))
    again = JournaledBatch(batch.folder)
    assert (again.intent, again.uploaded, again.created) == (batch.intent, None, Created(at=2, batch="batch-1"))


def test_unsealed_requests_are_removed(journal: Journal) -> None:
    begun = journal.folder / "new-key-1"
    begun.mkdir()
    (begun / "requests.jsonl").write_bytes(b"{}\n")
    assert not journal.batches()
    part = NewBatch(journal, "key-2")
    part.add(ONE, b"{}\n")
    part.discard()

    async def claim() -> None:
        async with journal.claim():
            pass

    asyncio.run(claim())
    assert [path.name for path in journal.folder.iterdir()] == [".lock"]


def test_batches_unknown_to_the_vendor_are_removed(journal: Journal) -> None:
    a_batch(journal, key="old", at=time.time() - 36 * 86_400)
    a_batch(journal, key="new")

    async def claim() -> list[str]:
        async with journal.claim():
            return [batch.name for batch in journal.batches()]

    assert asyncio.run(claim()) == ["new"]


def test_only_the_owner_can_read_it(journal: Journal) -> None:
    batch = a_batch(journal)
    asyncio.run(store(batch, BatchReply(ONE, b'{"a": 1}')))
    batch.mark_delivered(ONE)
    assert batch.folder.stat().st_mode & 0o077 == 0
    assert {
        path.name: path.stat().st_mode & 0o077 for path in batch.folder.iterdir() if path.stat().st_mode & 0o077
    } == {}


def test_a_batch_has_one_owner_at_a_time(journal: Journal) -> None:
    a_batch(journal)
    (first,), (second,) = journal.batches(), journal.batches()
    assert first.lock()
    assert first.lock()
    assert not second.lock()
    first.release()
    assert second.lock()


def test_the_owner_of_a_batch_sees_the_steps_of_earlier_owners(journal: Journal) -> None:
    """Otherwise it would not recognize the batch at the vendor as its own, and submit it again."""
    a_batch(journal)
    (early,) = journal.batches()
    (other,) = journal.batches()
    assert other.lock()
    other.record(Uploaded(at=1, file="file-1"))
    other.record(Created(at=2, batch="batch-1"))
    other.release()
    assert early.created is None
    assert early.lock()
    assert early.name == "batch-1"
    early.release()


def test_a_batch_that_another_process_removed_cannot_be_acquired(journal: Journal, stack: ExitStack) -> None:
    a_batch(journal)
    (early,) = journal.batches()
    (other,) = journal.batches()
    assert other.lock()
    other.remove()
    assert not early.lock()
    places = ReplyIndex(stack)
    places.add(early)
    assert not places.use(ONE)


def test_replies_are_found_by_the_ids_of_their_requests_in_any_order(journal: Journal, stack: ExitStack) -> None:
    batch = a_batch(journal, ONE, TWO, THREE)
    strange = BatchReply(f"{9:040x}", b"{}")
    multiline = BatchReply(ONE, b'{\n "a": 1}')
    asyncio.run(store(batch, BatchReply(TWO, None, "it expired", True), strange, multiline, BatchReply(ONE, b"2")))
    places = ReplyIndex(stack)
    places.add(batch)
    assert all(map(places.use, (ONE, TWO, THREE)))
    assert not places.use(strange.custom_id)
    places.open_replies()
    first, second, third = (places.find(id_)[1] for id_ in (ONE, TWO, THREE))
    assert first is not None
    assert bytes(first.body) == b'{"a":1}'  # of two replies the first counts
    assert second is not None
    assert (second.error, second.unanswered) == ("it expired", True)
    assert third is None


def test_a_batch_is_removed_when_all_its_requests_have_results(journal: Journal, stack: ExitStack) -> None:
    batch = a_batch(journal, ONE, TWO)
    asyncio.run(store(batch, BatchReply(ONE, b"1"), BatchReply(TWO, b"2")))
    first = ReplyIndex(stack)
    first.add(batch)
    assert first.use(ONE)
    first.deliver(ONE)
    (left,) = journal.batches()
    second = ReplyIndex(stack)
    second.add(left)
    assert not second.use(ONE)  # it is in the results: whoever asks for it again wants another answer
    assert second.use(TWO)
    second.deliver(TWO)
    assert not journal.batches()


def test_a_reply_that_is_not_json_is_an_error_for_its_request(journal: Journal, stack: ExitStack) -> None:
    batch = a_batch(journal, ONE)
    asyncio.run(store(batch, BatchReply(ONE, b"\nnothing")))
    places = ReplyIndex(stack)
    places.add(batch)
    assert places.use(ONE)
    places.open_replies()
    _, reply = places.find(ONE)
    assert reply is not None
    assert reply.error == "the reply is not valid JSON"


def test_an_unwritable_journal_is_an_error(journal: Journal) -> None:
    batch = a_batch(journal)
    batch.remove()
    with pytest.raises(OutputError, match="the batch journal cannot be written"):
        batch.record(Uploaded(at=1, file="file-1"))
