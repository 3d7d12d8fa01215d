"""Anthropic's batch API.

There are no files and no metadata: the requests are the body of the request that creates a batch, which is sent from
the disk as it is read, and a batch is found again by when it was created and how many requests it has, and by the
`custom_id`s of its results. Those come as lines in any order, once all of the batch has ended, each `succeeded`,
`errored`, `canceled` or `expired` (after 24 hours). A model that is not there makes all requests `errored`. Batches
that would exceed the rate limits are refused with the status 429. Results are there for 29 days; the batch is listed,
as archived, for longer.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Container, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from agentv.providers.models.batches.api import BatchLimits, BatchReply, BatchState, BatchStatus
from agentv.providers.models.batches.vendor import VendorBatches, if_found, split_lines
from agentv.providers.models.sdk import SdkModel
from agentv.providers.network import excerpt, server_message
from agentv.records import Json

LIMITS = BatchLimits(requests=100_000, bytes=256_000_000)
PATH = "/v1/messages/batches"
START, BETWEEN, END = b'{"requests":[', b",", b"]}"
PAGE = 1000
"""How many batches a page of their list has at most."""
UNANSWERED = {
    "expired": "the request expired before it was sent to the model",
    "canceled": "the request was canceled before it was sent to the model",
}


class AnthropicBatches(VendorBatches):
    """Speaks with the batch API through the client of a model."""

    limits = LIMITS

    def __init__(self, model: SdkModel[Any]):
        self._model = model

    def line(self, custom_id: str, body: Json) -> bytes:
        return msgspec.json.encode({"custom_id": custom_id, "params": body}) + b"\n"

    async def upload(self, path: Path, key: str) -> str:
        return ""

    async def create(self, path: Path, uploaded: str, key: str) -> str:
        size = len(START) + path.stat().st_size - len(b"\n") + len(END)
        headers = {"Content-Type": "application/json", "Content-Length": str(size)}
        with self._model.errors_of_sdk():
            batch = await self._model.client().post(
                PATH,
                content=_body(path),
                cast_to=self._model.module().types.messages.MessageBatch,
                options={"headers": headers},
            )
        return str(batch.id)

    async def find(self, key: str, custom_ids: Iterable[str], since: float, taken: Container[str]) -> str | None:
        ours, found = frozenset(custom_ids), None
        with self._model.errors_of_sdk():
            async for batch in self._model.client().messages.batches.list(limit=PAGE):  # the newest first
                if batch.created_at.timestamp() < since:
                    break
                if batch.id not in taken and _total(batch.request_counts) == len(ours):
                    if not _has_ended(batch):
                        found = str(batch.id)
                    elif await self._answers(batch.id, ours):
                        return str(batch.id)
        return found

    async def _answers(self, batch: str, ours: frozenset[str]) -> bool:
        """Return whether a batch that has ended is ours: its requests have the ids that ours have."""
        async with aclosing(self.replies(batch)) as replies:
            async for reply in replies:
                return reply.custom_id in ours
        return False

    async def ask_state(self, batch: str) -> BatchState:
        found = await self._retrieve(batch)
        counts = found.request_counts
        status = BatchStatus.RUNNING if not _has_ended(found) else BatchStatus.ENDED
        if found.archived_at is not None:
            status = BatchStatus.GONE
        return BatchState(
            status,
            answered=counts.succeeded,
            failed=counts.errored + counts.canceled + counts.expired,
            total=_total(counts),
            words="archived" if found.archived_at is not None else str(found.processing_status),
        )

    async def replies(self, batch: str) -> AsyncGenerator[BatchReply, None]:
        found = await self._retrieve(batch)
        if found.results_url is None:
            return
        async for line in if_found(self._lines(batch)):
            if (reply := _reply(line)) is not None:
                yield reply

    async def ask_cancel(self, batch: str) -> None:
        with self._model.errors_of_sdk():
            await self._model.client().messages.batches.cancel(batch)

    async def _retrieve(self, batch: str) -> Any:
        with self._model.errors_of_sdk():
            return await self._model.client().messages.batches.retrieve(batch)

    async def _lines(self, batch: str) -> AsyncIterator[bytes]:
        with self._model.errors_of_sdk():
            results = await self._model.client().messages.batches.results(batch)
            try:  # the SDK's own reader makes objects of all that is in a line, which takes far longer
                async for line in split_lines(results.http_response.aiter_bytes()):
                    yield line
            finally:
                await results.close()


async def _body(path: Path) -> AsyncIterator[bytes]:
    """Yield the request that creates a batch: the lines of the file as a list."""
    start = START
    with path.open("rb") as file:
        for line in file:
            yield start
            yield line.removesuffix(b"\n")
            start = BETWEEN
    yield END


def _has_ended(batch: Any) -> bool:
    return bool(batch.processing_status == "ended")


def _total(counts: Any) -> int:
    return int(counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired)


class _Result(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    custom_id: str
    result: _Result


_decode = msgspec.json.Decoder(_Line).decode


def _reply(line: bytes) -> BatchReply | None:
    """Return what became of a request; None if the line cannot be read: then nothing is known of the request."""
    try:
        custom_id, result = (found := _decode(line)).custom_id, found.result
    except (msgspec.DecodeError, RecursionError):
        return None
    if result.type == "succeeded":
        return BatchReply(custom_id, bytes(result.message))
    if result.type in UNANSWERED:
        return BatchReply(custom_id, None, UNANSWERED[result.type], is_unanswered=True)
    words = server_message(bytes(result.error)) if bytes(result.error) != b"null" else ""
    return BatchReply(custom_id, None, words or excerpt(result.type))
