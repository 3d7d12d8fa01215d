"""What a vendor's batch API can do, in the same words for all vendors. One file a vendor speaks it.

Nothing here remembers anything: what was submitted is in the journal, and what became of it is at the vendor.
"""

from collections.abc import AsyncIterator, Container, Iterable
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from agentv.records import Json, ProviderRequest, ProviderResponse


class BatchLimits(NamedTuple):
    """What a vendor takes in one batch. A batch is split well below it."""

    requests: int
    bytes: int


class BatchStatus(Enum):
    """How far a batch is."""

    RUNNING = "running"
    """It may still give answers; it may be about to be cancelled."""
    ENDED = "ended"
    """It gives no more answers; those that it has can be fetched, however it ended."""
    FAILED = "failed"
    """The vendor refused it as a whole, such as for its model: it has no answers."""
    GONE = "gone"
    """The vendor does not know it, or has thrown its answers away."""


class BatchState(NamedTuple):
    """What a vendor says of a batch."""

    status: BatchStatus
    answered: int = 0
    failed: int = 0
    """How many of its requests have an error."""
    total: int = 0
    words: str = ""
    """The vendor's own words: its status, and why, if it says so."""
    may_pass: bool = False
    """Whether a batch that failed would be taken later: too many tokens of other batches were waiting."""


class BatchReply(NamedTuple):
    """What became of one request."""

    custom_id: str
    body: bytes | None
    """The reply, as it would have come to the same request alone."""
    error: str = ""
    """Why there is none, in the vendor's words."""
    is_unanswered: bool = False
    """Whether nobody has looked at the request: it expired, or was cancelled. It may be asked again."""


class BatchApi(Protocol):
    """Speaks with the batch API of one vendor. All methods raise `ProviderError`; `may_pass` says if waiting helps.

    A `custom_id` has at most 64 characters of `[a-zA-Z0-9_-]`, which is what Anthropic takes, and is unique in a batch.
    """

    @property
    def limits(self) -> BatchLimits: ...

    def line(self, custom_id: str, body: Json) -> bytes:
        """Return a request as a line of the file that is submitted, with its line end."""
        ...

    async def upload(self, path: Path, key: str) -> str:
        """Give the file to the vendor, and return its name there; "" where a vendor takes no files."""
        ...

    async def create(self, path: Path, uploaded: str, key: str) -> str:
        """Submit the requests of the file, and return the name of the batch. `key` marks it as ours.

        After an error that may pass, the batch may be there nevertheless: `find` tells.
        """
        ...

    async def find(self, key: str, custom_ids: Iterable[str], since: float, taken: Container[str]) -> str | None:
        """Return the name of the batch that was created for this key, if there is one.

        `taken` are the names that belong to other keys. Where batches carry no key (Anthropic), it is the first since
        this time, by the clock of this machine, that has as many requests and, as soon as it has ended, answers to
        ours. So one that is still running is a guess: if it ends with answers to none of ours, ask again.
        """
        ...

    async def state(self, batch: str) -> BatchState:
        """Return how far a batch is."""
        ...

    def replies(self, batch: str) -> AsyncIterator[BatchReply]:
        """Yield what became of the requests of a batch that has ended, in any order.

        Some may be missing, and all of them are once the vendor has thrown them away. After an error that may pass,
        all are to be read again.
        """
        ...

    async def cancel(self, batch: str) -> None:
        """Ask for an end; one that has ended already, or is gone, is no error."""
        ...


@runtime_checkable
class BatchModel(Protocol):
    """A target whose requests can go through a batch API, and what is put into it and taken out."""

    def batches(self) -> BatchApi:
        """Return the batch API of the target, which uses the target's own client."""
        ...

    async def body(self, request: ProviderRequest) -> Json:
        """Return what is sent for a request: the `body` of its line."""
        ...

    def response_to(self, reply: bytes) -> ProviderResponse:
        """Return the answer in the body of a reply; raise `ProviderError` if it is none. It has no duration."""
        ...
