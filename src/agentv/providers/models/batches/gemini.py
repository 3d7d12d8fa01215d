"""Gemini's batch API.

A file of requests (at most 2 GB) is uploaded, and a batch is created for it, with a display name by which it is found
again. Inline requests (at most 20 MB) are not used. Results are lines in any order, each with the `key` of its request
and a `response` or an `error`. A batch that has not ended after 48 hours is expired and has no results at all. Uploaded
files are kept for 48 hours. Batches that would exceed the limit of queued tokens are rejected with status 429, and
batches with an unknown model with 404.

If a chunk of the file is rejected during the upload, the SDK tries again and blocks the event loop for 7 seconds.
The SDK's `batches.get` omits why a batch failed and how many of its requests are answered, so the raw reply is read.
"""

import tempfile
from collections.abc import AsyncIterator, Container, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agentv.providers.models.batches.api import BatchLimits, BatchReply, BatchState, BatchStatus
from agentv.providers.models.batches.vendor import VendorBatchApi, if_found
from agentv.providers.models.conversation import decode
from agentv.providers.network import excerpt
from agentv.records import Json

LIMITS = BatchLimits(requests=100_000, bytes=2_000_000_000)
"""The vendor has no limit for the number of requests; this one is ours."""
PAGE = 100
STATES = {
    "SUCCEEDED": BatchStatus.ENDED,
    "PARTIALLY_SUCCEEDED": BatchStatus.ENDED,
    "CANCELLED": BatchStatus.ENDED,
    "EXPIRED": BatchStatus.ENDED,
    "FAILED": BatchStatus.FAILED,
}
"""Any other state is that of a running batch, such as `PENDING`, `RUNNING` and `CANCELLING`."""
# errors in results have the codes of `google.rpc.Status`
CANCELLED = 1
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8
UNANSWERED = (CANCELLED, DEADLINE_EXCEEDED)
QUEUE_IS_FULL = (RESOURCE_EXHAUSTED, 429)
PLAIN: Json = {"extra_body": {}}
"""HTTP options for calls of the batch API: the target's `options` are part of the requests in the batch."""


class GeminiModel(Protocol):
    """The parts of a target that the batch API uses."""

    @property
    def model(self) -> str: ...

    def client(self) -> Any: ...

    def errors_of_sdk(self) -> AbstractContextManager[None]: ...


class GeminiBatches(VendorBatchApi):
    """Calls the batch API through the client of a model."""

    limits = LIMITS

    def __init__(self, model: GeminiModel):
        self._model = model

    def line(self, custom_id: str, body: Json) -> bytes:
        request = {"key": custom_id, "request": body}
        return msgspec.json.encode(request) + b"\n"

    async def upload(self, path: Path, key: str) -> str:
        config = {
            "display_name": key,
            "mime_type": "application/jsonl",
            "http_options": PLAIN,
        }
        with path.open("rb") as file, self._model.errors_of_sdk():
            uploaded = await self._aio.files.upload(file=file, config=config)
        return str(uploaded.name)

    async def create(self, path: Path, uploaded: str, key: str) -> str:
        config = {"display_name": key, "http_options": PLAIN}
        with self._model.errors_of_sdk():
            batch = await self._aio.batches.create(
                model=self._model.model,
                src=uploaded,
                config=config,
            )
        return str(batch.name)

    async def find(
        self,
        key: str,
        custom_ids: Iterable[str],
        since: float,
        taken: Container[str],
    ) -> str | None:
        newest = None
        newest_created = None
        config = {"page_size": PAGE, "http_options": PLAIN}
        with self._model.errors_of_sdk():
            # the API does not promise any order
            async for batch in await self._aio.batches.list(config=config):
                if batch.display_name != key or batch.name in taken:
                    continue
                if newest_created is None or batch.create_time > newest_created:
                    newest = str(batch.name)
                    newest_created = batch.create_time
        return newest

    async def ask_state(self, batch: str) -> BatchState:
        found = await self._get(batch)
        state = found.metadata.state_name
        stats = found.metadata.batch_stats
        error = found.error or _Error()
        reason = excerpt(error.message)
        words = filter(None, (state.lower(), reason))
        return BatchState(
            STATES.get(state, BatchStatus.RUNNING),
            answered=int(stats.successful_request_count),
            failed=int(stats.failed_request_count),
            total=int(stats.request_count),
            words=": ".join(words),
            may_pass=error.code in QUEUE_IS_FULL,
        )

    async def replies(self, batch: str) -> AsyncIterator[BatchReply]:
        found = await self._get(batch)
        output = found.metadata.output or found.response or _Output()
        if output.responses_file is None:
            return
        async for line in if_found(self._lines(output.responses_file)):
            reply = _reply(line)
            if reply is not None:
                yield reply

    async def _lines(self, name: str) -> AsyncIterator[bytes]:
        with tempfile.TemporaryFile() as file:  # the SDK can only download to a file
            with self._model.errors_of_sdk():
                await self._aio.files.download(
                    file=name,
                    destination=file,
                    config={"http_options": PLAIN},
                )
            file.seek(0)
            for line in file:
                yield line

    async def ask_cancel(self, batch: str) -> None:
        with self._model.errors_of_sdk():
            await self._aio.batches.cancel(
                name=batch,
                config={"http_options": PLAIN},
            )

    async def _get(self, batch: str) -> "_Operation":
        with self._model.errors_of_sdk():
            api = self._aio._api_client
            reply = await api.async_request("get", batch, {}, PLAIN)
        body = (reply.body or "").encode()
        return decode(body, _Operation)

    @property
    def _aio(self) -> Any:
        """The asynchronous part of the SDK's client."""
        return self._model.client().sdk.aio


class _Error(msgspec.Struct):
    code: int | None = None
    message: str = ""


class _Stats(msgspec.Struct, rename="camel"):
    """Counts, which Google writes as strings."""

    request_count: int | str = 0
    successful_request_count: int | str = 0
    failed_request_count: int | str = 0


class _Output(msgspec.Struct, rename="camel"):
    responses_file: str | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    state: str = ""
    batch_stats: _Stats = msgspec.field(default_factory=_Stats)
    output: _Output | None = None

    @property
    def state_name(self) -> str:
        name = self.state.removeprefix("BATCH_STATE_")
        return name.removeprefix("JOB_STATE_")


class _Operation(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    error: _Error | None = None
    response: _Output | None = None


class _Line(msgspec.Struct):
    key: str
    response: msgspec.Raw = msgspec.Raw(b"null")
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Line).decode


def _reply(line: bytes) -> BatchReply | None:
    """Return the outcome of a request, or None if the line is invalid and nothing is known."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    response = bytes(found.response)
    if found.error is None and response != b"null":
        return BatchReply(found.key, response)
    error = found.error or _Error()
    return BatchReply(
        found.key,
        body=None,
        error=excerpt(error.message) or "no reason given",
        is_unanswered=error.code in UNANSWERED,
    )
