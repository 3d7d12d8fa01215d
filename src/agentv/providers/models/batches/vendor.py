"""What the batch APIs of all vendors are asked in the same way."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator

from agentv.errors import ProviderError
from agentv.providers.models.batches.api import BatchState, BatchStatus

NOT_FOUND = 404
CANNOT_BE_CANCELLED = (400, NOT_FOUND, 409)


class VendorBatches(ABC):
    """A batch API, with what is no error at any vendor."""

    @abstractmethod
    async def ask_state(self, batch: str) -> BatchState:
        """Return how far a batch is; raise `ProviderError` with the status 404 if it is not known."""

    @abstractmethod
    async def ask_cancel(self, batch: str) -> None:
        """Ask for an end; raise `ProviderError` if it is too late for that."""

    async def state(self, batch: str) -> BatchState:
        try:
            return await self.ask_state(batch)
        except ProviderError as error:
            if error.status != NOT_FOUND:
                raise
            return BatchState(BatchStatus.GONE, words=error.message)

    async def cancel(self, batch: str) -> None:
        try:
            await self.ask_cancel(batch)
        except ProviderError as error:
            if error.status not in CANNOT_BE_CANCELLED or (await self.state(batch)).status is BatchStatus.RUNNING:
                raise


async def if_found(lines: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a file; none if the vendor has thrown it away."""
    try:
        async for line in lines:
            yield line
    except ProviderError as error:
        if error.status != NOT_FOUND:
            raise


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a file that comes in pieces, without their ends and without empty ones.

    Only a line feed ends a line: JSON may have other line ends, such as U+2028, in its strings.
    """
    rest = bytearray()
    async for chunk in chunks:
        head, *lines = chunk.split(b"\n")
        rest += head
        for line in lines:
            if rest.strip():
                yield bytes(rest)
            rest = bytearray(line)
    if rest.strip():
        yield bytes(rest)
