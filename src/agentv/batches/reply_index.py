"""Find replies by custom id: the batch of a request, and the offset of its reply. Takes a few bytes per request."""

from array import array
from contextlib import ExitStack, suppress
from typing import BinaryIO

from agentv.batches.journal import REPLIES, JournaledBatch, StoredReply, decode_reply
from agentv.files.compact_sets import HashIndex, HashSet

NO_REPLY = -1


class ReplyIndex:
    """Index of the requests of several batches, by custom id. `stack` closes the files of replies."""

    def __init__(self, stack: ExitStack):
        self._stack = stack
        self._numbers = HashIndex()
        """The number of each request, by its custom id. It is the position of the request in the arrays."""
        self._batch_of = array("H")
        self._offsets = array("q")
        self._is_delivered = bytearray()
        self._batches: list[JournaledBatch | None] = []
        """The batches by number. None stands for a batch that is being written."""
        self._undelivered: list[int] = []
        """The number of requests without a result, for each batch."""
        self._files: dict[int, BinaryIO] = {}
        self._used: set[int] = set()
        """The numbers of the batches that contain requests of this run."""

    def add(self, batch: JournaledBatch) -> None:
        """Add the requests of a batch that have no result yet."""
        delivered = HashSet()
        for custom_id in batch.delivered():
            delivered.add(custom_id)
        number = self.begin()
        with suppress(FileNotFoundError):  # another process has just removed the batch
            for custom_id in batch.ids():
                if custom_id not in delivered:
                    self.add_request(custom_id)
        self._batches[number] = batch

    def begin(self) -> int:
        """Add a batch that is about to be written; return its number."""
        self._batches.append(None)
        self._undelivered.append(0)
        return len(self._batches) - 1

    def add_request(self, custom_id: str) -> None:
        """Add a request to the last batch."""
        self._numbers.add(custom_id, len(self._offsets))
        self._batch_of.append(len(self._batches) - 1)
        self._offsets.append(NO_REPLY)
        self._is_delivered.append(0)
        self._undelivered[-1] += 1

    def end(self, batch: JournaledBatch) -> None:
        """Record that the last batch is complete and in the journal."""
        self._batches[-1] = batch
        self._used.add(len(self._batches) - 1)

    def use(self, custom_id: str) -> bool:
        """Return whether a batch contains the request. If so, mark that batch as used by this run."""
        number = self._numbers.get(custom_id)
        if number < 0:
            return False
        self._used.add(self._batch_of[number])
        return True

    def is_used(self, custom_id: str) -> bool:
        """Return whether a batch in use contains the request."""
        number = self._numbers.get(custom_id)
        if number < 0:
            return False
        return self._batch_of[number] in self._used

    def used(self) -> list[JournaledBatch]:
        """Return the batches that contain requests of this run."""
        found = []
        for number in sorted(self._used):
            batch = self._batches[number]
            if batch is not None:
                found.append(batch)
        return found

    def open_replies(self) -> None:
        """Open the replies of the batches in use and index them. The first reply to a request counts."""
        for batch_number in self._used:
            batch = self._batches[batch_number]
            if batch is None:
                continue
            path = batch.folder / REPLIES
            if not path.exists():
                continue
            file = path.open("rb")
            self._files[batch_number] = self._stack.enter_context(file)
            self._index_replies(batch, batch_number)

    def _index_replies(self, batch: JournaledBatch, batch_number: int) -> None:
        for custom_id, offset in batch.reply_offsets():
            number = self._numbers.get(custom_id)
            if number < 0 or self._batch_of[number] != batch_number:
                continue
            if self._offsets[number] == NO_REPLY:
                self._offsets[number] = offset

    def find(self, custom_id: str) -> tuple[JournaledBatch | None, StoredReply | None]:
        """Return the batch in use that contains a request, and the reply. Either may be None."""
        number = self._numbers.get(custom_id)
        if number < 0:
            return None, None
        batch_number = self._batch_of[number]
        if batch_number not in self._used:
            return None, None
        batch = self._batches[batch_number]
        offset = self._offsets[number]
        if offset == NO_REPLY:
            return batch, None
        file = self._files[batch_number]
        file.seek(offset)
        return batch, decode_reply(file.readline())

    def deliver(self, custom_id: str) -> None:
        """Record that a request has a result. Remove its batch once all of its requests have one."""
        number = self._numbers.get(custom_id)
        if number < 0 or self._is_delivered[number]:
            return
        batch_number = self._batch_of[number]
        if batch_number not in self._used:
            return
        self._is_delivered[number] = 1
        batch = self._batches[batch_number]
        assert batch is not None
        self._undelivered[batch_number] -= 1
        if self._undelivered[batch_number]:
            batch.mark_delivered(custom_id)
        else:
            batch.remove()

    def release(self) -> None:
        """Unlock the remaining batches."""
        for batch in self._batches:
            if batch is not None:
                batch.release()
