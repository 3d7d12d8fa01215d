"""A batch of one target, submitted and collected as in a run."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agentv.errors import ProviderError
from agentv.files.conversion import convert
from agentv.providers import settings_type
from agentv.providers.models.batches.api import BatchApi, BatchModel, BatchReply, BatchState, BatchStatus
from tests.kits.model_servers import a_request

T = TypeVar("T")
KEY = "a-key-of-a-journal"


class Collected(NamedTuple):
    """The outcome of a batch: answers, errors and unprocessed requests, by custom id."""

    state: BatchState
    texts: dict[str, str]
    errors: dict[str, str]
    unanswered: dict[str, str]


def with_model(target: dict[str, Any], use: Callable[[BatchModel], Awaitable[T]]) -> T:
    """Call a function with a target whose client stays open for the duration."""

    async def opened() -> T:
        settings: Any = convert(target, settings_type(target["provider"]))
        async with settings.open(Path()) as provider:
            assert isinstance(provider, BatchModel)
            return await use(provider)

    return asyncio.run(opened())


def custom_ids(count: int) -> list[str]:
    return [f"{number:064x}" for number in range(count)]


async def write_requests(model: BatchModel, path: Path, ids: list[str]) -> None:
    """A file in which each request asks for its number."""
    api = model.batches()
    with path.open("wb") as file:
        for number, custom_id in enumerate(ids):
            file.write(api.line(custom_id, await model.body(a_request(f"question {number}"))))


async def submit(model: BatchModel, path: Path, count: int = 4, key: str = KEY) -> str:
    await write_requests(model, path, custom_ids(count))
    api = model.batches()
    return await api.create(path, await api.upload(path, key), key)


async def wait(api: BatchApi, batch: str) -> BatchState:
    """Poll until the batch is not running any more, however often that fails."""
    while True:
        try:
            state = await api.state(batch)
        except ProviderError as error:
            if not error.may_pass:
                raise
        else:
            if state.status is not BatchStatus.RUNNING:
                return state
        await asyncio.sleep(0.001)


async def collect(model: BatchModel, batch: str) -> Collected:
    api = model.batches()
    state = await wait(api, batch)
    replies = [reply async for reply in api.replies(batch)] if state.status is BatchStatus.ENDED else []
    return collected(model, state, replies)


def collected(model: BatchModel, state: BatchState, replies: list[BatchReply]) -> Collected:
    texts = {r.custom_id: model.response_to(r.body).text for r in replies if r.body is not None}
    errors = {r.custom_id: r.error for r in replies if r.body is None and not r.is_unanswered}
    unanswered = {r.custom_id: r.error for r in replies if r.is_unanswered}
    return Collected(state, texts, errors, unanswered)


def run_batch(target: dict[str, Any], path: Path, count: int = 4) -> Collected:
    """The outcome of a batch with this number of requests."""

    async def run(model: BatchModel) -> Collected:
        return await collect(model, await submit(model, path, count))

    return with_model(target, run)
