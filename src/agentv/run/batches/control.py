"""The batches of a project, looked at from outside of a run: how far they are, fetching their answers, ending them."""

import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import AgentvError, ConfigError
from agentv.providers.models.batches.api import BatchApi, BatchModel, BatchState
from agentv.redact import clean, secrets_in
from agentv.run.batches.journal import CancelAsked, Journal, JournaledBatch
from agentv.run.batches.submission import BatchTimes, Submission
from agentv.run.planner import open_provider
from agentv.system.dotenv import load_env
from agentv.targets.read import find_targets, read_targets

BUSY = "in the hands of another agentv process"


class BatchReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a batch."""

    batch: str
    target: str
    role: str
    status: str
    """How far it is: `not submitted`, `running`, `ended`, `failed`, `gone` or `collected`."""
    requests: int
    answered: int | None = None
    failed: int | None = None
    words: str | None = None
    """What the vendor says."""
    submitted: str | None = None
    command: str | None = None
    """What is typed to make results of its answers."""
    error: str | None = None
    """Why nothing more can be told."""


Act = Callable[[BatchApi, JournaledBatch, Journal], Any]


async def batch_status(journal: Journal) -> AsyncIterator[BatchReport]:
    """Yield how far each batch is; the vendors are asked about those that are not collected."""
    async for report in _each(journal, (), _look, needs_lock=False):
        yield report


async def collect_batches(journal: Journal, names: Collection[str] = ()) -> AsyncIterator[BatchReport]:
    """Fetch the answers of the batches that have ended, and yield what became of each."""
    async for report in _each(journal, names, _collect):
        yield report


async def cancel_batches(journal: Journal, names: Collection[str] = ()) -> AsyncIterator[BatchReport]:
    """Ask the vendors to end batches, and yield what became of each."""
    async for report in _each(journal, names, _cancel):
        yield report


async def _look(api: BatchApi, batch: JournaledBatch, _journal: Journal) -> BatchState | None:
    if batch.created is None:
        return None
    return await api.state(batch.created.batch)


async def _collect(api: BatchApi, batch: JournaledBatch, journal: Journal) -> BatchState | None:
    return await Submission(api, batch, BatchTimes()).look(journal)


async def _cancel(api: BatchApi, batch: JournaledBatch, journal: Journal) -> BatchState | None:
    submission = Submission(api, batch, BatchTimes())
    if batch.created is None and not await submission.find(journal):
        batch.remove()  # nobody has it, and nobody shall
        return None
    assert batch.created is not None
    batch.record(CancelAsked(at=time.time()))
    await api.cancel(batch.created.batch)
    return await api.state(batch.created.batch)


async def _each(
    journal: Journal, names: Collection[str], act: Act, *, needs_lock: bool = True
) -> AsyncIterator[BatchReport]:
    """Do something with each batch, or with those of these names; whatever goes wrong with one is told of it."""
    batches = journal.batches()
    unknown = [name for name in names if name not in {batch.name for batch in batches}]
    if unknown:
        raise ConfigError(f"no batch {unknown[0]!r} in {journal.folder}", hint="see 'agentv batch status'")
    for batch in batches:
        if names and batch.name not in names:
            continue
        try:
            is_busy = batch.collected is None and needs_lock and not batch.lock()
            if is_busy or batch.collected is not None:
                yield _report(batch, None, error=BUSY if is_busy else None)
                continue
            async with _opened(batch) as api:
                yield _report(batch, await act(api, batch, journal))
        except AgentvError as error:
            yield _report(batch, None, error=error.message)
        finally:
            batch.release()


@asynccontextmanager
async def _opened(batch: JournaledBatch) -> AsyncIterator[BatchApi]:
    """Give the batch API of a batch's target; raise `ConfigError` if the target is not there any more."""
    intent = batch.intent
    assert intent is not None
    file = Path(intent.targets_file) if intent.targets_file else find_targets(Path.cwd())
    for variables in load_env([file.parent]).values():
        clean.learn(secrets_in(variables))
    read = read_targets(file, os.environ, {intent.target})
    clean.learn(read.secrets)
    settings = read.targets.get(intent.target)
    if settings is None:
        raise ConfigError(f"target {intent.target!r} cannot be opened: see 'agentv validate {file}'", file=file)
    provider: Any = open_provider(intent.target, settings, Path.cwd(), file)
    if not isinstance(provider, BatchModel):
        raise ConfigError(f"target {intent.target!r} has no batch API any more", file=file)
    async with provider:  # type: ignore[attr-defined]
        yield provider.batches()


def _report(batch: JournaledBatch, state: BatchState | None, error: str | None = None) -> BatchReport:
    intent, collected = batch.intent, batch.collected
    assert intent is not None
    status = "unknown" if error else "not submitted" if batch.created is None else "running"
    words = ""
    if collected is not None:
        status, words = "collected", collected.words
    elif state is not None:
        status, words = state.status.value, state.words
    began, counts = batch.created or intent, collected or state
    return BatchReport(
        batch=batch.name,
        target=intent.target,
        role=intent.role,
        status=status,
        requests=intent.requests,
        answered=counts.answered if counts is not None else None,
        failed=counts.failed if counts is not None else None,
        words=clean(words) or None,
        submitted=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began.at)),
        command=resume_command(intent.command) or None,
        error=clean(error) if error else None,
    )


def resume_command(command: tuple[str, ...]) -> str:
    """Return what is typed to go on with a run."""
    if not command:
        return ""
    return shlex.join(command if "--resume" in command else (*command, "--resume"))
