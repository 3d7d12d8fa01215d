"""OpenAI's batch API, and that of Azure, which differs in the addresses of requests and in its limits.

A file of requests is uploaded, and a batch created for it, with metadata by which it is found again. What a batch
answers is in an output file, and what went wrong in an error file: either or both may be missing, also when a batch is
`completed`, and their lines are in any order. Requests that were not looked at before the batch expired (after 24
hours; never on Azure) or was cancelled are in the error file. OpenAI deletes the files of a batch after 30 days.
A batch whose requests would exceed the tokens that may wait is refused with the status 429 or, mostly, taken and then
`failed` with the code `token_limit_exceeded`; one for a model that is not there `failed` with `model_not_found`.
"""

from collections.abc import AsyncIterator, Container, Iterable
from pathlib import Path
from typing import Any

import msgspec

from agentv.providers.models.batches.api import BatchLimits, BatchReply, BatchState, BatchStatus
from agentv.providers.models.batches.vendor import VendorBatches, if_found, split_lines
from agentv.providers.models.sdk import SdkModel
from agentv.providers.network import excerpt, server_message
from agentv.records import Json

LIMITS = BatchLimits(requests=50_000, bytes=200_000_000)
AZURE_LIMITS = BatchLimits(requests=100_000, bytes=200_000_000)
KEY = "agentv"
"""The name of the metadata that a batch is found by."""
PAGE = 100
"""How many batches a page of their list has at most."""
STATUSES = {
    "completed": BatchStatus.ENDED,
    "expired": BatchStatus.ENDED,
    "cancelled": BatchStatus.ENDED,
    "failed": BatchStatus.FAILED,
}
"""Any other is on its way: `validating`, `in_progress`, `finalizing`, `cancelling`."""
QUEUE_IS_FULL = "token_limit_exceeded"
UNANSWERED = ("batch_expired", "batch_cancelled")
MAX_ERRORS = 3


class OpenAIBatches(VendorBatches):
    """Speaks with the batch API through the client of a model; `endpoint` is what its requests are sent to."""

    def __init__(self, model: SdkModel[Any], endpoint: str, limits: BatchLimits = LIMITS):
        self._model, self._endpoint, self.limits = model, endpoint, limits

    def line(self, custom_id: str, body: Json) -> bytes:
        request = {"custom_id": custom_id, "method": "POST", "url": self._endpoint, "body": body}
        return msgspec.json.encode(request) + b"\n"

    async def upload(self, path: Path, key: str) -> str:
        with path.open("rb") as file, self._model.errors_of_sdk():
            uploaded = await self._model.client().files.create(file=(f"{key}.jsonl", file), purpose="batch")
        return str(uploaded.id)

    async def create(self, path: Path, uploaded: str, key: str) -> str:
        with self._model.errors_of_sdk():
            batch = await self._model.client().batches.create(
                input_file_id=uploaded, endpoint=self._endpoint, completion_window="24h", metadata={KEY: key}
            )
        return str(batch.id)

    async def find(self, key: str, custom_ids: Iterable[str], since: float, taken: Container[str]) -> str | None:
        found, created = None, -1
        with self._model.errors_of_sdk():
            async for batch in self._model.client().batches.list(limit=PAGE):  # in no order that is promised
                is_ours = (batch.metadata or {}).get(KEY) == key and batch.id not in taken
                if is_ours and batch.created_at > created:
                    found, created = str(batch.id), batch.created_at
        return found

    async def ask_state(self, batch: str) -> BatchState:
        found = await self._retrieve(batch)
        counts, errors = found.request_counts, (found.errors and found.errors.data) or ()
        return BatchState(
            STATUSES.get(found.status, BatchStatus.RUNNING),
            answered=(counts and counts.completed) or 0,
            failed=(counts and counts.failed) or 0,
            total=(counts and counts.total) or 0,
            words=": ".join([str(found.status), *_reasons(errors)]),
            may_pass=any(error.code == QUEUE_IS_FULL for error in errors),
        )

    async def replies(self, batch: str) -> AsyncIterator[BatchReply]:
        found = await self._retrieve(batch)
        for file in filter(None, (found.output_file_id, found.error_file_id)):
            async for line in if_found(self._lines(file)):
                if (reply := _reply(line)) is not None:
                    yield reply

    async def ask_cancel(self, batch: str) -> None:
        with self._model.errors_of_sdk():
            await self._model.client().batches.cancel(batch)

    async def _retrieve(self, batch: str) -> Any:
        with self._model.errors_of_sdk():
            return await self._model.client().batches.retrieve(batch)

    async def _lines(self, file: str) -> AsyncIterator[bytes]:
        with self._model.errors_of_sdk():
            async with self._model.client().files.with_streaming_response.content(file) as content:
                async for line in split_lines(content.iter_bytes()):
                    yield line


class _Response(msgspec.Struct):
    status_code: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct):
    code: str | int | None = None
    message: str | None = None


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Line).decode


def _reply(line: bytes) -> BatchReply | None:
    """Return what became of a request; None if the line cannot be read: then nothing is known of the request."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    response, error = found.response, found.error or _Error()
    if response is not None and 200 <= response.status_code < 300:
        return BatchReply(found.custom_id, bytes(response.body))
    if response is not None and response.status_code:
        words = f"status {response.status_code}: {server_message(bytes(response.body)) or 'no reason given'}"
        return BatchReply(found.custom_id, None, words)
    words = excerpt(error.message or str(error.code or "no reason given"))
    return BatchReply(found.custom_id, None, words, is_unanswered=error.code in UNANSWERED)


def _reasons(errors: Iterable[Any]) -> list[str]:
    """Return why a batch was refused; the same reason may be given for each line of it."""
    reasons = dict.fromkeys(excerpt(": ".join(filter(None, (error.code, error.message)))) for error in errors)
    return ["; ".join(list(reasons)[:MAX_ERRORS])] if reasons else []
