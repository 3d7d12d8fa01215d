"""What the batch APIs of all vendors have in common."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator

from agentv.errors import ProviderError
from agentv.providers.models.batches.api import BatchState, BatchStatus

NOT_FOUND = 404
CANNOT_BE_CANCELLED = (400, NOT_FOUND, 409)


class VendorBatchApi(ABC):
    """Base class for batch APIs. A batch that has ended or no longer exists is not an error."""

    @abstractmethod
    async def ask_state(self, batch: str) -> BatchState:
        """Return the state of a batch. Raise `ProviderError` with status 404 if the vendor does not know it."""

    @abstractmethod
    async def ask_cancel(self, batch: str) -> None:
        """Request cancellation. Raise `ProviderError` if the batch can no longer be cancelled."""

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
            if error.status not in CANNOT_BE_CANCELLED:
                raise
            state = await self.state(batch)
            if state.status is BatchStatus.RUNNING:
                raise


async def if_found(lines: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a file, and nothing if the vendor has deleted it."""
    try:
        async for line in lines:
            yield line
    except ProviderError as error:
        if error.status != NOT_FOUND:
            raise


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a file that comes in chunks, without line feeds and without empty lines.

    Only a line feed ends a line: strings in JSON may contain other line separators, such as U+2028.
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
