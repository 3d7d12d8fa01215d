"""Where the answer to each request is: in which batch, and where in the file of its replies. A few bytes a request."""

from array import array
from contextlib import ExitStack, suppress
from typing import BinaryIO

from agentv.run.batches.journal import REPLIES, JournaledBatch, StoredReply, decode_reply
from agentv.system.compact_sets import HashIndex, HashSet

NOT_THERE = -1


class ReplyPlaces:
    """The requests of some batches, by their custom ids. What `stack` closes is open as long as replies are read."""

    def __init__(self, stack: ExitStack):
        self._stack = stack
        self._numbers = HashIndex()
        self._batch_of, self._offsets, self._is_delivered = array("H"), array("q"), bytearray()
        self._batches: list[JournaledBatch | None] = []
        self._files: dict[int, BinaryIO] = {}
        self._left: list[int] = []
        self._used: set[int] = set()

    def add(self, batch: JournaledBatch) -> None:
        """Take note of a batch of the journal: of all its requests that have no result yet."""
        delivered, number = HashSet(), self.begin()
        for id_ in batch.delivered():
            delivered.add(id_)
        with suppress(FileNotFoundError):  # another process is done with it just now
            for id_ in batch.ids():
                if id_ not in delivered:
                    self.add_request(id_)
        self._batches[number] = batch

    def begin(self) -> int:
        """Begin another batch, which is written just now; return its number."""
        self._batches.append(None)
        self._left.append(0)
        return len(self._batches) - 1

    def add_request(self, custom_id: str) -> None:
        """Take note of a request of the last batch."""
        self._numbers.add(custom_id, len(self._offsets))
        self._batch_of.append(len(self._batches) - 1)
        self._offsets.append(NOT_THERE)
        self._is_delivered.append(0)
        self._left[-1] += 1

    def end(self, batch: JournaledBatch) -> None:
        """Take note that the last batch is in the journal."""
        self._batches[-1] = batch
        self._used.add(len(self._batches) - 1)

    def use(self, custom_id: str) -> bool:
        """Return whether a batch has the request; then it is waited for."""
        number = self._numbers.get(custom_id)
        if number < 0:
            return False
        self._used.add(self._batch_of[number])
        return True

    def is_used(self, custom_id: str) -> bool:
        """Return whether a batch that is waited for has the request."""
        number = self._numbers.get(custom_id)
        return number >= 0 and self._batch_of[number] in self._used

    def used(self) -> list[JournaledBatch]:
        """Return the batches that have requests of this run."""
        return [batch for number in sorted(self._used) if (batch := self._batches[number]) is not None]

    def open_replies(self) -> None:
        """Find where the replies of the batches in use are."""
        for at in self._used:
            batch = self._batches[at]
            if batch is None or not (path := batch.folder / REPLIES).exists():
                continue
            self._files[at] = self._stack.enter_context(path.open("rb"))
            for id_, offset in batch.reply_places():
                number = self._numbers.get(id_)
                if number >= 0 and self._batch_of[number] == at and self._offsets[number] == NOT_THERE:
                    self._offsets[number] = offset

    def find(self, custom_id: str) -> tuple[JournaledBatch | None, StoredReply | None]:
        """Return the batch that has a request, if one has, and the reply, if there is one."""
        number = self._numbers.get(custom_id)
        if number < 0 or self._batch_of[number] not in self._used:
            return None, None
        at, offset = self._batch_of[number], self._offsets[number]
        if offset == NOT_THERE:
            return self._batches[at], None
        file = self._files[at]
        file.seek(offset)
        return self._batches[at], decode_reply(file.readline())

    def deliver(self, custom_id: str) -> None:
        """Take note that a request has its result; a batch all of whose requests have one is forgotten."""
        number = self._numbers.get(custom_id)
        if number < 0 or self._is_delivered[number] or self._batch_of[number] not in self._used:
            return
        self._is_delivered[number] = 1
        at = self._batch_of[number]
        batch = self._batches[at]
        assert batch is not None
        self._left[at] -= 1
        if self._left[at]:
            batch.mark_delivered(custom_id)
        else:
            batch.remove()

    def release(self) -> None:
        """Let others have the batches that are left."""
        for batch in self._batches:
            if batch is not None:
                batch.release()
