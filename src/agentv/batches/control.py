"""`agentv batch`: show the status of a project's batches, fetch their answers, and cancel them."""

import os
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from agentv.batches.journal import CancelRequested, Journal, JournaledBatch
from agentv.batches.submission import BatchTimes, Submission
from agentv.errors import AgentvError, ConfigError
from agentv.providers.models.batches.api import BatchApi, BatchModel, BatchState
from agentv.redact import clean
from agentv.run.planning.run_targets import open_provider
from agentv.targets.dotenv import load_env
from agentv.targets.find import find_targets
from agentv.targets.read import read_targets

LOCKED = "in use by another agentv process"


class BatchReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a batch."""

    batch: str
    target: str
    role: str
    status: str
    """One of `not submitted`, `running`, `ended`, `failed`, `gone`, `collected` and `unknown`."""
    requests: int
    answered: int | None = None
    failed: int | None = None
    words: str | None = None
    """The vendor's description of the status."""
    submitted: str | None = None
    command: str | None = None
    """The command that turns its answers into results."""
    error: str | None = None
    """Why the status is unknown."""


Act = Callable[[BatchApi, JournaledBatch, Journal], Awaitable[BatchState | None]]
"""An action on a batch. Returns the state of the batch at the vendor, or None if the vendor does not have it."""


async def batch_status(journal: Journal) -> AsyncIterator[BatchReport]:
    """Yield the status of each batch. Ask the vendors about those that are not collected."""
    async for report in _act_on_each(journal, (), _get_state, needs_lock=False):
        yield report


async def collect_batches(journal: Journal, names: Collection[str] = ()) -> AsyncIterator[BatchReport]:
    """Fetch the answers of the batches that have ended, and yield the status of each."""
    async for report in _act_on_each(journal, names, _collect):
        yield report


async def cancel_batches(journal: Journal, names: Collection[str] = ()) -> AsyncIterator[BatchReport]:
    """Ask the vendors to cancel batches, and yield the status of each."""
    async for report in _act_on_each(journal, names, _cancel):
        yield report


async def _get_state(
    api: BatchApi,
    batch: JournaledBatch,
    _journal: Journal,
) -> BatchState | None:
    if batch.created is None:
        return None
    return await api.state(batch.created.batch)


async def _collect(
    api: BatchApi,
    batch: JournaledBatch,
    journal: Journal,
) -> BatchState | None:
    submission = Submission(api, batch, BatchTimes())
    return await submission.collect_if_ended(journal)


async def _cancel(
    api: BatchApi,
    batch: JournaledBatch,
    journal: Journal,
) -> BatchState | None:
    submission = Submission(api, batch, BatchTimes())
    if batch.created is None and not await submission.find(journal):
        batch.remove()  # it was never submitted
        return None
    assert batch.created is not None
    batch.record(CancelRequested(at=time.time()))
    await api.cancel(batch.created.batch)
    return await api.state(batch.created.batch)


async def _act_on_each(
    journal: Journal,
    names: Collection[str],
    act: Act,
    *,
    needs_lock: bool = True,
) -> AsyncIterator[BatchReport]:
    """Act on each batch, or on those with these names. An error is reported for its batch only."""
    batches = journal.batches()
    known = {batch.name for batch in batches}
    for name in names:
        if name not in known:
            raise ConfigError(f"no batch {name!r} in {journal.folder}", hint="see 'agentv batch status'")
    for batch in batches:
        if names and batch.name not in names:
            continue
        try:
            if batch.collected is not None:
                yield _report(batch)
            elif needs_lock and not batch.lock():
                yield _report(batch, error=LOCKED)
            elif batch.collected is not None:  # `lock` reads the journal again
                yield _report(batch)
            else:
                async with _open_api(batch) as api:
                    state = await act(api, batch, journal)
                    yield _report(batch, state)
        except AgentvError as error:
            yield _report(batch, error=error.message)
        finally:
            batch.release()


@asynccontextmanager
async def _open_api(batch: JournaledBatch) -> AsyncIterator[BatchApi]:
    """Open the batch API of a batch's target; raise `ConfigError` if the target no longer exists."""
    intent = batch.intent
    assert intent is not None
    if intent.targets_file:
        file = Path(intent.targets_file)
    else:
        file = find_targets(Path.cwd())
    load_env([file.parent])
    read = read_targets(file, os.environ, {intent.target})
    clean.learn(read.secrets)
    settings = read.targets.get(intent.target)
    if settings is None:
        raise ConfigError(f"target {intent.target!r} cannot be opened: see 'agentv validate {file}'", file=file)
    provider: Any = open_provider(intent.target, settings, Path.cwd(), file)
    if not isinstance(provider, BatchModel):
        raise ConfigError(f"target {intent.target!r} no longer has a batch API", file=file)
    async with provider:  # type: ignore[attr-defined]
        yield provider.batches()


def _report(
    batch: JournaledBatch,
    state: BatchState | None = None,
    error: str | None = None,
) -> BatchReport:
    intent = batch.intent
    assert intent is not None
    submitted_at = intent.at
    if batch.created is not None:
        submitted_at = batch.created.at
    counts = batch.collected or state
    shown_error = None
    if error:
        shown_error = clean(error)
    answered = None
    failed = None
    words = None
    if counts is not None:
        answered = counts.answered
        failed = counts.failed
        words = clean(counts.words)
    return BatchReport(
        batch=batch.name,
        target=intent.target,
        role=intent.role,
        status=_status(batch, state, error),
        requests=intent.requests,
        answered=answered,
        failed=failed,
        words=words or None,
        submitted=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(submitted_at)),
        command=resume_command(intent.command) or None,
        error=shown_error,
    )


def _status(
    batch: JournaledBatch,
    state: BatchState | None,
    error: str | None,
) -> str:
    if batch.collected is not None:
        return "collected"
    if state is not None:
        return state.status.value
    if error:
        return "unknown"
    if batch.created is None:
        return "not submitted"
    return "running"


def resume_command(command: tuple[str, ...]) -> str:
    """Return the command that resumes a run."""
    if not command:
        return ""
    if "--resume" not in command:
        command = (*command, "--resume")
    return shlex.join(command)
