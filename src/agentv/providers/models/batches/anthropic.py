"""Anthropic's batch API.

The API has neither files nor metadata. The requests are the body of the request that creates a batch, which is streamed
from the disk. A batch is found again by its creation time, its number of requests and the `custom_id`s of its results.
Results are lines in any order, available once the whole batch has ended, each `succeeded`, `errored`, `canceled` or
`expired` (after 24 hours). With an unknown model, all requests are `errored`. Batches that would exceed the rate limits
are rejected with status 429. Results are available for 29 days; the batch is listed, as archived, for longer.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Container, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from agentv.providers.models.batches.api import BatchLimits, BatchReply, BatchState, BatchStatus
from agentv.providers.models.batches.vendor import VendorBatchApi, if_found, split_lines
from agentv.providers.models.sdk import SdkModel
from agentv.providers.network import excerpt, server_message
from agentv.records import Json

LIMITS = BatchLimits(requests=100_000, bytes=256_000_000)
PATH = "/v1/messages/batches"
BODY_START = b'{"requests":['
SEPARATOR = b","
BODY_END = b"]}"
PAGE = 1000
"""The maximum page size of the list of batches."""
UNANSWERED = {
    "expired": "the request expired before it was sent to the model",
    "canceled": "the request was canceled before it was sent to the model",
}


class AnthropicBatches(VendorBatchApi):
    """Calls the batch API through the client of a model."""

    limits = LIMITS

    def __init__(self, model: SdkModel[Any]):
        self._model = model

    def line(self, custom_id: str, body: Json) -> bytes:
        request = {"custom_id": custom_id, "params": body}
        return msgspec.json.encode(request) + b"\n"

    async def upload(self, path: Path, key: str) -> str:
        return ""

    async def create(self, path: Path, uploaded: str, key: str) -> str:
        # each line feed but the last becomes a separator of the same length
        requests_size = path.stat().st_size - len(b"\n")
        size = len(BODY_START) + requests_size + len(BODY_END)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(size),
        }
        with self._model.errors_of_sdk():
            batch = await self._model.client().post(
                PATH,
                content=_body(path),
                cast_to=self._model.module().types.messages.MessageBatch,
                options={"headers": headers},
            )
        return str(batch.id)

    async def find(
        self,
        key: str,
        custom_ids: Iterable[str],
        since: float,
        taken: Container[str],
    ) -> str | None:
        ours = frozenset(custom_ids)
        # A running batch cannot be asked for its ids. It may be ours if no batch that has ended is.
        running = None
        with self._model.errors_of_sdk():
            # the newest batches come first
            async for batch in self._batches.list(limit=PAGE):
                if batch.created_at.timestamp() < since:
                    break
                total = _total(batch.request_counts)
                if batch.id in taken or total != len(ours):
                    continue
                if not _has_ended(batch):
                    running = str(batch.id)
                elif await self._answers(batch.id, ours):
                    return str(batch.id)
        return running

    async def _answers(self, batch: str, ours: frozenset[str]) -> bool:
        """Return whether a batch that has ended has our custom ids. Its first result decides."""
        async with aclosing(self.replies(batch)) as replies:
            async for reply in replies:
                return reply.custom_id in ours
        return False

    async def ask_state(self, batch: str) -> BatchState:
        found = await self._retrieve(batch)
        status = BatchStatus.ENDED if _has_ended(found) else BatchStatus.RUNNING
        words = str(found.processing_status)
        if found.archived_at is not None:
            status = BatchStatus.GONE
            words = "archived"
        counts = found.request_counts
        return BatchState(
            status,
            answered=counts.succeeded,
            failed=_failed(counts),
            total=_total(counts),
            words=words,
        )

    async def replies(self, batch: str) -> AsyncGenerator[BatchReply, None]:
        found = await self._retrieve(batch)
        if found.results_url is None:
            return
        async for line in if_found(self._lines(batch)):
            reply = _reply(line)
            if reply is not None:
                yield reply

    async def ask_cancel(self, batch: str) -> None:
        with self._model.errors_of_sdk():
            await self._batches.cancel(batch)

    @property
    def _batches(self) -> Any:
        return self._model.client().messages.batches

    async def _retrieve(self, batch: str) -> Any:
        with self._model.errors_of_sdk():
            return await self._batches.retrieve(batch)

    async def _lines(self, batch: str) -> AsyncIterator[bytes]:
        with self._model.errors_of_sdk():
            results = await self._batches.results(batch)
            try:  # the SDK's own reader creates typed objects for every line, which is far slower
                chunks = results.http_response.aiter_bytes()
                async for line in split_lines(chunks):
                    yield line
            finally:
                await results.close()


async def _body(path: Path) -> AsyncIterator[bytes]:
    """Yield the body of the request that creates a batch: the lines of the file as a list."""
    before = BODY_START
    with path.open("rb") as file:
        for line in file:
            yield before
            yield line.removesuffix(b"\n")
            before = SEPARATOR
    yield BODY_END


def _has_ended(batch: Any) -> bool:
    return bool(batch.processing_status == "ended")


def _total(counts: Any) -> int:
    return int(counts.processing + counts.succeeded + _failed(counts))


def _failed(counts: Any) -> int:
    return int(counts.errored + counts.canceled + counts.expired)


class _Result(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    custom_id: str
    result: _Result


_decode = msgspec.json.Decoder(_Line).decode


def _reply(line: bytes) -> BatchReply | None:
    """Return the outcome of a request, or None if the line is invalid and nothing is known."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    result = found.result
    if result.type == "succeeded":
        return BatchReply(found.custom_id, bytes(result.message))
    if result.type in UNANSWERED:
        return BatchReply(
            found.custom_id,
            body=None,
            error=UNANSWERED[result.type],
            is_unanswered=True,
        )
    error = bytes(result.error)
    reason = ""
    if error != b"null":
        reason = server_message(error)
    return BatchReply(
        found.custom_id,
        body=None,
        error=reason or excerpt(result.type),
    )
