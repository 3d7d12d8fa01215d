"""The common interface to the vendors' batch APIs, which each vendor has a module for.

Implementations keep no state: the journal knows what was submitted, and the vendor knows what became of it.
"""

from collections.abc import AsyncIterator, Container, Iterable
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from agentv.records import Json, ProviderRequest, ProviderResponse


class BatchLimits(NamedTuple):
    """A vendor's limits for one batch. Batches are split well below them."""

    requests: int
    bytes: int


class BatchStatus(Enum):
    """The status of a batch."""

    RUNNING = "running"
    """It may still get answers, even if its cancellation was requested."""
    ENDED = "ended"
    """It gets no more answers. Those that it has can be fetched, however it ended."""
    FAILED = "failed"
    """The vendor rejected it as a whole, for example because of its model. It has no answers."""
    GONE = "gone"
    """The vendor does not recognize it, or has deleted its answers."""


class BatchState(NamedTuple):
    """The state of a batch, as the vendor reports it."""

    status: BatchStatus
    answered: int = 0
    failed: int = 0
    """The number of requests that ended in an error."""
    total: int = 0
    words: str = ""
    """The status and its reason, in the vendor's terms."""
    may_pass: bool = False
    """Whether a failed batch may be accepted later: too many tokens of other batches were queued."""


class BatchReply(NamedTuple):
    """The outcome of one request."""

    custom_id: str
    body: bytes | None
    """The body of the reply, the same as for a single request."""
    error: str = ""
    """Why the reply is missing, in the vendor's terms."""
    is_unanswered: bool = False
    """Whether the request expired or was cancelled before it was processed. It may be sent again."""


class BatchApi(Protocol):
    """The batch API of one vendor. All methods raise `ProviderError`; its `may_pass` is true if waiting may help.

    A `custom_id` has at most 64 characters of `[a-zA-Z0-9_-]`, as Anthropic requires, and is unique in a batch.
    """

    @property
    def limits(self) -> BatchLimits: ...

    def line(self, custom_id: str, body: Json) -> bytes:
        """Return a request as a line of the file that is submitted, including the line feed."""
        ...

    async def upload(self, path: Path, key: str) -> str:
        """Upload the file and return the vendor's name for it, or "" if the vendor has no files."""
        ...

    async def create(self, path: Path, uploaded: str, key: str) -> str:
        """Submit the requests in the file and return the name of the batch. `key` is stored with the batch.

        After a temporary error, the batch may exist nevertheless: use `find`.
        """
        ...

    async def find(
        self,
        key: str,
        custom_ids: Iterable[str],
        since: float,
        taken: Container[str],
    ) -> str | None:
        """Return the name of the batch that was created for this key, or None.

        `taken` are the names of batches that belong to other keys. Where batches have no key (Anthropic), it is the
        first batch since this time, by the local clock, that has as many requests and, if it has ended, answers to
        ours. A batch that is still running is thus a guess: if it ends without answers to ours, call this again.
        """
        ...

    async def state(self, batch: str) -> BatchState:
        """Return the state of a batch."""
        ...

    def replies(self, batch: str) -> AsyncIterator[BatchReply]:
        """Yield the outcomes of the requests of a batch that has ended, in any order.

        Some may be missing, and all of them are once the vendor has deleted them. After a temporary error, start
        over.
        """
        ...

    async def cancel(self, batch: str) -> None:
        """Request cancellation. Do nothing if the batch has already ended or no longer exists."""
        ...


@runtime_checkable
class BatchModel(Protocol):
    """A target whose requests can be sent through a batch API."""

    def batches(self) -> BatchApi:
        """Return the batch API, which uses the target's client."""
        ...

    async def body(self, request: ProviderRequest) -> Json:
        """Return the body of a request, for `BatchApi.line`."""
        ...

    def response_to(self, reply: bytes) -> ProviderResponse:
        """Return the answer in the body of a reply, without a duration. Raise `ProviderError` if it has none."""
        ...
