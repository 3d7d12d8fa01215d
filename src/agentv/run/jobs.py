"""A plan -> the stream of jobs: the one place that decides what runs, how often, and in which order.

Workers are divided among the files: those of a lane take jobs of one file after another. A case is read, and its
request and digest are built, when a worker asks for it; only what is in flight is held.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from agentv.calls.caller import Caller
from agentv.cases.digest import case_digest
from agentv.cases.request import build_request
from agentv.errors import AttachmentError
from agentv.records import EvalCase, ProviderRequest, ResultKey
from agentv.run.batches.batch import Batch
from agentv.run.batches.vendor import BatchTarget, VendorBatch, custom_id
from agentv.run.plan import Plan, PlannedFile, PlannedTarget
from agentv.run.targets import OpenTarget, OpenTargets

IsDone = Callable[[EvalCase, int], bool]
"""Tells whether this trial of a case has a result already."""


class Job(NamedTuple):
    """One trial of a case, and what is sent for it."""

    case: EvalCase
    trial: int
    planned: PlannedTarget
    target: OpenTarget
    request: ProviderRequest | None
    """What is sent; None if a file of the case cannot be read."""
    problem: str
    """Why there is no request."""
    digest: str
    is_first: bool = True
    """Whether no other trial of the case runs before this one."""
    batch: Batch | VendorBatch | None = None
    """The batch that has the answer, if it was asked in one."""

    @property
    def key(self) -> ResultKey:
        """What identifies the result that it will have."""
        return ResultKey(self.case.dataset, self.case.id, self.planned.name, self.trial)


def divide(workers: int, files: int) -> list[int]:
    """Return how many workers each lane of files gets: at least one, up to `workers`, the rest dealt out evenly."""
    lanes = min(workers, files)
    return [workers // lanes + (lane < workers % lanes) for lane in range(lanes)]


class Lane:
    """The jobs of some workers: those of one file after another."""

    def __init__(
        self, files: Iterator[PlannedFile], open_file: "Callable[[PlannedFile, Lane], None]", workers: Sequence[int]
    ):
        self._files, self._open_file = files, open_file
        self.workers = workers
        """The numbers of its workers."""
        self._sources: deque[Iterator[Job]] = deque()
        self._waiting = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    def add(self, jobs: Iterator[Job]) -> None:
        """Deal out these jobs after those that are there."""
        self._sources.append(jobs)
        self._changed.set()

    def expect(self, count: int) -> None:
        """Wait for so many more sources of jobs before the next file; a negative number is fewer."""
        self._waiting += count
        self._changed.set()

    def close(self) -> None:
        """Deal out no more jobs."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> Job | None:
        """Return the next job; None when there are no more."""
        while not self._is_closed:
            while self._sources:
                for job in self._sources[0]:
                    return job
                self._sources.popleft()
            if self._waiting:
                self._changed.clear()
                await self._changed.wait()
            elif (file := next(self._files, None)) is not None:
                self._open_file(file, self)
            else:
                return None
        return None


class JobStream:
    """Makes the jobs of a run."""

    def __init__(self, plan: Plan, targets: OpenTargets, is_done: IsDone | None):
        self._plan, self._targets, self._is_done = plan, targets, is_done
        self._trials = range(1, targets.options.trials + 1)

    def _jobs(
        self,
        file: PlannedFile,
        names: Collection[str],
        trials: Sequence[int],
        batch: Batch | VendorBatch | None = None,
    ) -> Iterator[Job]:
        """Yield the jobs of the cases that these targets answer, all trials of a case in a row."""
        targets = {name: (file.targets[name], self._targets.target(file, file.targets[name])) for name in names}
        target_of, is_done = self._plan.selection.target_of, self._is_done
        for case in self._plan.cases_of(file):
            name = target_of(case)
            if name not in targets:
                continue
            left = trials if is_done is None else [trial for trial in trials if not is_done(case, trial)]
            if not left:
                continue
            planned, target = targets[name]
            request, problem = build_or_explain(case, file, planned)
            digest = case_digest(case, request)
            for trial in left:
                is_first = trial == left[0]
                yield Job(case, trial, planned, target, _for_trial(request, trial), problem, digest, is_first, batch)

    def job(self, file: PlannedFile, case: EvalCase, trial: int) -> Job:
        """Return the job of one trial of a case."""
        planned = file.targets[self._plan.selection.target_of(case)]
        request, problem = build_or_explain(case, file, planned)
        target, digest = self._targets.target(file, planned), case_digest(case, request)
        return Job(case, trial, planned, target, _for_trial(request, trial), problem, digest, trial == 1)

    def single_jobs(self, file: PlannedFile) -> Iterator[Job]:
        """Yield the jobs of a file whose targets are asked case by case."""
        targets = [target for target in file.targets.values() if not self._is_batched(file, target)]
        return self._jobs(file, [target.name for target in targets], self._trials) if targets else iter(())

    def _is_batched(self, file: PlannedFile, planned: PlannedTarget) -> bool:
        target = self._targets.target(file, planned)
        return target.is_batch or target.vendor_batch is not None

    def vendor_jobs(self, file: PlannedFile, name: str, batch: VendorBatch | None) -> Iterator[Job]:
        """Yield the jobs of a file that the vendor of a target answers in batches."""
        return self._jobs(file, [name], self._trials, batch)

    def custom_ids(self, files: Sequence[PlannedFile], target: BatchTarget) -> Iterator[str]:
        """Yield the names of the requests to a target that is asked in batches."""
        for file in files:
            for job in self.vendor_jobs(file, target.name, None):
                if job.request is not None:
                    yield custom_id(target, job.request)

    def settled_jobs(self, file: PlannedFile) -> Iterator[Job]:
        """Yield the jobs of a file whose targets have been asked: those that wait for their judges."""
        return self._jobs(file, file.targets.keys(), self._trials)

    def vendor_targets_of(self, file: PlannedFile) -> list[OpenTarget]:
        """Return the targets of a file that are asked in batches at their vendors."""
        targets = [self._targets.target(file, planned) for planned in file.targets.values()]
        return [target for target in targets if target.vendor_batch is not None]

    def vendor_targets(self) -> dict[OpenTarget, list[PlannedFile]]:
        """Return the targets that are asked in batches at their vendors, each with the files that use it."""
        found: dict[OpenTarget, list[PlannedFile]] = {}
        for file in self._plan.files:
            for target in self.vendor_targets_of(file):
                found.setdefault(target, []).append(file)
        return found

    async def vendor_requests(
        self, files: Sequence[PlannedFile], batch: VendorBatch, caller: Caller, is_answered: Callable[[Job], bool]
    ) -> AsyncIterator[tuple[str, ProviderRequest]]:
        """Yield what the vendor of a target is to be asked, with its custom ids: all that has no answer yet."""
        name, policy = batch.target.name, batch.target.policy
        for file in files:
            for number, job in enumerate(self.vendor_jobs(file, name, batch)):
                if number % 100 == 0:
                    await asyncio.sleep(0)
                if job.request is None or caller.is_cached(policy, job.request) or is_answered(job):
                    continue
                yield custom_id(batch.target, job.request), job.request

    def batch_jobs(self, file: PlannedFile, batch: Batch) -> Iterator[Job]:
        """Yield the jobs of a file that a batch answers."""
        return self._jobs(file, [batch.target.name], [batch.trial], batch)

    def batch_targets(self, file: PlannedFile) -> list[tuple[PlannedTarget, OpenTarget]]:
        """Return the targets of a file that answer all its cases at once."""
        targets = [(target, self._targets.target(file, target)) for target in file.targets.values()]
        return [(planned, target) for planned, target in targets if target.is_batch]

    async def requests(
        self, file: PlannedFile, batch: Batch, is_answered: Callable[[Job], bool]
    ) -> AsyncIterator[ProviderRequest]:
        """Yield what a batch is to be asked. A case that cannot be sent becomes an error of its own, later."""
        for number, job in enumerate(self.batch_jobs(file, batch)):
            if number % 100 == 0:
                await asyncio.sleep(0)
            if job.request is not None and not is_answered(job):
                yield job.request


def build_or_explain(case: EvalCase, file: PlannedFile, planned: PlannedTarget) -> tuple[ProviderRequest | None, str]:
    """Return the request of a case, or None and why a file of the case cannot be read."""
    try:
        return build_request(case, file.patterns, planned.files), ""
    except AttachmentError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return None, f"{file.path}:{case.line}: {error.message}{hint}"


def _for_trial(request: ProviderRequest | None, trial: int) -> ProviderRequest | None:
    return request if request is None or trial == 1 else msgspec.structs.replace(request, trial=trial)
