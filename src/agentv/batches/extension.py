"""Targets and judges that answer through their vendors' batch APIs.

All requests to a target are submitted when the run starts, since answers may take a day. Its cases start once the
answers have arrived. For judges in batches, see `batches.judging`.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from agentv.batches.judging import JudgeBatches
from agentv.batches.vendor import (
    BatchTarget,
    RequestsWithIds,
    VendorBatch,
    batch_target_of,
    custom_id,
    forget_leftovers,
    max_requests,
)
from agentv.errors import ConfigError
from agentv.evaluators.score import CaseEvaluators
from agentv.providers.models.batches.api import BatchModel
from agentv.providers.settings import TargetSettings
from agentv.records import EvalResult, ProviderRequest, ProviderResponse, ResultKey
from agentv.run.extensions import Ask, Extension, Scope
from agentv.run.features import Opening
from agentv.run.jobs import Job, JobStream
from agentv.run.outcome import Outcome, outcome_of
from agentv.run.planning.plan import Plan
from agentv.run.planning.run_targets import open_provider
from agentv.run.run import Run
from agentv.run.targets import OpenTarget


class VendorBatches(Extension):
    """Submits requests to vendors' batch APIs, and supplies the answers."""

    def __init__(self, opening: Opening):
        targets = opening.targets
        self._plan = opening.plan
        self._options = targets.options.batches
        self._caller = targets.caller
        self._stack = ExitStack()
        opening.stack.callback(self._stack.close)
        self._batches: dict[OpenTarget, VendorBatch] = {}
        self._answered: dict[OpenTarget, asyncio.Task[None]] = {}
        self._delivering: dict[ResultKey, tuple[VendorBatch, str]] = {}
        """The batch and the custom id of each case that is being scored."""
        self._run: Run | None = None
        self._judging: JudgeBatches | None = None
        if targets.batched_judges:
            self._judging = JudgeBatches(opening, self._stack)
            self.open_cases = self._judging.open_cases

    @classmethod
    async def join(cls, opening: Opening) -> Extension | None:
        check_counts(opening.plan, opening.targets.options.trials)
        return cls(opening)

    async def start(self, run: Run, tasks: asyncio.TaskGroup) -> None:
        """Submit the requests of all targets."""
        self._run = run
        if self._judging is not None:
            self._judging.start(tasks)
        for target, batch_target in self._targets(run):
            on_progress = partial(run.progress.batch_changed, target.name)
            batch = VendorBatch(batch_target, self._options, self._stack, on_progress)
            self._batches[target] = batch
            requests = self._requests(run, target, batch_target)
            asking = batch.ask(requests)
            self._answered[target] = tasks.create_task(asking)

    def _targets(self, run: Run) -> Iterator[tuple[OpenTarget, BatchTarget]]:
        """Yield the targets of cases that use a batch API."""
        if self._plan.stand_in is not None:
            return
        found: dict[OpenTarget, None] = {}
        for file in self._plan.files:
            for planned in file.targets.values():
                found[run.targets.target(file, planned)] = None
        for target in found:
            if target.uses_batch_api:
                yield target, batch_target_of(target)

    async def _requests(
        self,
        run: Run,
        target: OpenTarget,
        batch_target: BatchTarget,
    ) -> RequestsWithIds:
        """Yield the requests that have no answer yet, with their custom ids."""
        jobs = run.jobs.all_jobs(target)
        for number, job in enumerate(jobs):
            if number % 100 == 0:
                await asyncio.sleep(0)
            request = job.request
            if request is None:
                continue
            if self._caller.is_cached(target.policy, request):
                continue
            if self._is_answered(job, request):
                continue
            id_ = custom_id(batch_target, request)
            yield id_, request

    def _is_answered(self, job: Job, request: ProviderRequest) -> bool:
        """Return whether the answer of a case is stored, because the case was waiting for its judges."""
        if self._judging is None:
            return False
        return self._judging.is_answered(job, request)

    def answers_later(self, target: OpenTarget) -> Awaitable[object] | None:
        return self._answered.get(target)

    async def admit(self, job: Job) -> bool:
        if self._judging is None:
            return True
        await self._judging.take_turn()
        # Another extension may have stopped the run in the meantime.
        if self._run is not None and self._run.stopped_by:
            self._judging.give_turn_back()
            return False
        return True

    async def ask_judge(
        self,
        target: OpenTarget,
        request: ProviderRequest,
        ask: Ask,
    ) -> ProviderResponse:
        if self._judging is None:
            return await ask(request)
        return await self._judging.ask(target, request, ask)

    def known_outcome(self, job: Job, request: ProviderRequest) -> Outcome | None:
        """Return the stored answer of a case that was waiting for its judges, or the answer from a batch."""
        if self._judging is not None:
            outcome = self._judging.known_outcome(job, request)
            if outcome is not None:
                return outcome
        batch = self._batches.get(job.target)
        if batch is None:
            return None
        id_ = custom_id(batch.target, request)
        self._delivering[job.key] = (batch, id_)
        found = batch.answer(request, self._caller)
        if found is None:
            return None  # the target is called live
        return outcome_of(job, found.attempt, found.answer, is_cached=found.is_cached)

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        if self._judging is None or not evaluators.has_judges:
            return None
        return self._judging.scope(job)

    def written(self, result: EvalResult) -> None:
        """Mark the replies of a case as delivered. A batch is removed once all of its replies are delivered."""
        found = self._delivering.pop(result.key, None)
        if found is not None:
            batch, id_ = found
            batch.deliver(id_)
        if self._judging is not None:
            self._judging.written(result.key)

    async def end(self, run: Run) -> None:
        """Remove what earlier runs have left in the journal, since all jobs of the plan have results now.

        A killed run may have written a result without marking its replies as delivered.
        """
        if run.stopped_by:
            return
        stream = JobStream(self._plan, run.targets, None)
        for target, batch in self._batches.items():
            ids = partial(_custom_ids, stream, target, batch.target)
            forget_leftovers(batch.target, ids)
        if self._judging is not None:
            jobs = stream.all_jobs()
            self._judging.forget_leftovers(jobs)


def _custom_ids(
    stream: JobStream,
    target: OpenTarget,
    batch_target: BatchTarget,
) -> Iterator[str]:
    """Yield the ids of all requests of a plan to a target."""
    for job in stream.all_jobs(target):
        if job.request is not None:
            yield custom_id(batch_target, job.request)


_TargetKey = tuple[Path | None, str]
"""The targets file and the name of a target."""


def check_counts(plan: Plan, trials: int) -> None:
    """Raise `ConfigError` if a target has more requests than fit into the batches of a run."""
    if plan.stand_in is not None:
        return
    settings: dict[_TargetKey, TargetSettings] = {}
    counts: dict[_TargetKey, int] = {}
    for file in plan.files:
        for target in file.targets.values():
            if target.settings is None or target.settings.batch_api is not True:
                continue
            key = (file.targets_file, target.name)
            requests = file.cases * trials
            settings[key] = target.settings
            counts[key] = counts.get(key, 0) + requests
    for key, count in counts.items():
        targets_file, name = key
        model = open_provider(name, settings[key], plan.folder, targets_file)
        if not isinstance(model, BatchModel):
            continue
        most = max_requests(model.batches())
        if count > most:
            raise ConfigError(
                f"target {name!r} would get {count:,} requests, but batches hold at most {most:,}",
                hint="use fewer --trials, or split the run with --shard",
            )
