"""OpenAI's batch API, and that of Azure, which differs in the paths of requests and in its limits.

A file of requests is uploaded, and a batch is created for it, with metadata by which it is found again. Answers are in
an output file and failures in an error file. Either or both may be missing, even if the batch is `completed`, and their
lines are in any order. Requests that were not processed before the batch expired (after 24 hours; never on Azure) or
was cancelled are in the error file. OpenAI deletes the files of a batch after 30 days.

A batch that would exceed the limit of queued tokens is rejected with status 429 or, more often, accepted and then
`failed` with the code `token_limit_exceeded`. A batch with an unknown model is `failed` with `model_not_found`.
"""

from collections.abc import AsyncIterator, Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.providers.models.batches.api import BatchLimits, BatchReply, BatchState, BatchStatus
from agentv.providers.models.batches.vendor import VendorBatchApi, if_found, split_lines
from agentv.providers.models.sdk import SdkModel
from agentv.providers.network import excerpt, server_message
from agentv.records import Json

LIMITS = BatchLimits(requests=50_000, bytes=200_000_000)
AZURE_LIMITS = BatchLimits(requests=100_000, bytes=200_000_000)
KEY = "agentv"
"""The metadata key by which a batch is found."""
PAGE = 100
"""The maximum page size of the list of batches."""
STATUSES = {
    "completed": BatchStatus.ENDED,
    "expired": BatchStatus.ENDED,
    "cancelled": BatchStatus.ENDED,
    "failed": BatchStatus.FAILED,
}
"""Any other status is that of a running batch: `validating`, `in_progress`, `finalizing`, `cancelling`."""
PROCESSED = ("processed", "succeeded", None)
UNUSABLE = ("error", "failed", "canceled", "deleting", "deleted")
"""The statuses of a file; any other status, such as `pending`, is that of one which is being processed."""
QUEUE_IS_FULL = "token_limit_exceeded"
UNANSWERED = ("batch_expired", "batch_cancelled")
MAX_ERRORS = 3


@dataclass(frozen=True, eq=False)
class OpenAIBatches(VendorBatchApi):
    """Calls the batch API through the client of a model. `endpoint` is the path of the requests."""

    _model: SdkModel[Any]
    _endpoint: str
    limits: BatchLimits = LIMITS
    _processes_files: bool = False
    """Whether an uploaded file can be used only after the vendor has processed it, as on Azure."""

    def line(self, custom_id: str, body: Json) -> bytes:
        request = {
            "custom_id": custom_id,
            "method": "POST",
            "url": self._endpoint,
            "body": body,
        }
        return msgspec.json.encode(request) + b"\n"

    async def upload(self, path: Path, key: str) -> str:
        with path.open("rb") as file, self._model.errors_of_sdk():
            uploaded = await self._client.files.create(
                file=(f"{key}.jsonl", file),
                purpose="batch",
            )
        return str(uploaded.id)

    async def create(self, path: Path, uploaded: str, key: str) -> str:
        if self._processes_files:
            await self._check_file(uploaded)
        with self._model.errors_of_sdk():
            batch = await self._client.batches.create(
                input_file_id=uploaded,
                endpoint=self._endpoint,
                completion_window="24h",
                metadata={KEY: key},
            )
        return str(batch.id)

    async def _check_file(self, file: str) -> None:
        """Raise `ProviderError` unless the vendor has processed a file; it may pass as long as the file may be."""
        with self._model.errors_of_sdk():
            found = await self._client.files.retrieve(file)
        if found.status in PROCESSED:
            return
        if found.status in UNUSABLE:
            reason = excerpt(str(found.status_details or "no reason given"))
            raise ProviderError(f"the uploaded file cannot be used ({found.status}): {reason}")
        raise ProviderError(f"the uploaded file is not processed yet ({found.status})", may_pass=True)

    async def find(
        self,
        key: str,
        custom_ids: Iterable[str],
        since: float,
        taken: Container[str],
    ) -> str | None:
        newest = None
        newest_created = -1
        with self._model.errors_of_sdk():
            # the API does not promise any order
            async for batch in self._client.batches.list(limit=PAGE):
                metadata = batch.metadata or {}
                is_ours = metadata.get(KEY) == key and batch.id not in taken
                if is_ours and batch.created_at > newest_created:
                    newest = str(batch.id)
                    newest_created = batch.created_at
        return newest

    async def ask_state(self, batch: str) -> BatchState:
        found = await self._retrieve(batch)
        answered = 0
        failed = 0
        total = 0
        counts = found.request_counts
        if counts:
            answered = counts.completed or 0
            failed = counts.failed or 0
            total = counts.total or 0
        errors: Sequence[Any] = ()
        if found.errors:
            errors = found.errors.data or ()
        codes = [error.code for error in errors]
        return BatchState(
            STATUSES.get(found.status, BatchStatus.RUNNING),
            answered=answered,
            failed=failed,
            total=total,
            words=_describe_state(found.status, errors),
            may_pass=QUEUE_IS_FULL in codes,
        )

    async def replies(self, batch: str) -> AsyncIterator[BatchReply]:
        found = await self._retrieve(batch)
        for file in (found.output_file_id, found.error_file_id):
            if not file:
                continue
            async for line in if_found(self._lines(file)):
                reply = _reply(line)
                if reply is not None:
                    yield reply

    async def ask_cancel(self, batch: str) -> None:
        with self._model.errors_of_sdk():
            await self._client.batches.cancel(batch)

    @property
    def _client(self) -> Any:
        return self._model.client()

    async def _retrieve(self, batch: str) -> Any:
        with self._model.errors_of_sdk():
            return await self._client.batches.retrieve(batch)

    async def _lines(self, file: str) -> AsyncIterator[bytes]:
        with self._model.errors_of_sdk():
            streaming = self._client.files.with_streaming_response
            async with streaming.content(file) as content:
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
    """Return the outcome of a request, or None if the line is invalid and nothing is known."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    response = found.response
    if response is not None and response.status_code:
        return _response_outcome(found.custom_id, response)
    error = found.error or _Error()
    reason = error.message or str(error.code or "no reason given")
    return BatchReply(
        found.custom_id,
        body=None,
        error=excerpt(reason),
        is_unanswered=error.code in UNANSWERED,
    )


def _response_outcome(custom_id: str, response: _Response) -> BatchReply:
    body = bytes(response.body)
    if 200 <= response.status_code < 300:
        return BatchReply(custom_id, body)
    reason = server_message(body) or "no reason given"
    return BatchReply(custom_id, None, f"status {response.status_code}: {reason}")


def _describe_state(status: Any, errors: Iterable[Any]) -> str:
    """Return the status of a batch, and why it was rejected. The same reason may be given for each of its lines."""
    reasons: dict[str, None] = {}  # an ordered set
    for error in errors:
        words = filter(None, (error.code, error.message))
        reason = excerpt(": ".join(words))
        reasons[reason] = None
    if not reasons:
        return str(status)
    shown = list(reasons)[:MAX_ERRORS]
    return f"{status}: {'; '.join(shown)}"
