"""A plan -> the stream of jobs: the one place that decides what runs, how often, and in which order.

Workers are divided among the files: those of a lane take jobs of one file after another. A case is read, and its
request and digest are built, when a worker asks for it. Only cases in flight are held in memory.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from agentv.calls.caller import Caller
from agentv.calls.retry import FailedCall
from agentv.cases.digest import CaseDigests, case_digests
from agentv.cases.objects import NO_FILE
from agentv.cases.request import build_request, prepend_guidelines, with_case_data
from agentv.errors import AttachmentError
from agentv.records import EvalCase, ProviderRequest, ProviderResponse, ResultKey
from agentv.run.planning.plan import Plan, PlannedFile, PlannedTarget
from agentv.run.targets import OpenTarget, OpenTargets

IsDone = Callable[[EvalCase, int], bool]
"""Returns whether this trial of a case has a result already."""


class Job(NamedTuple):
    """One trial of a case, and the request that is sent for it."""

    case: EvalCase
    trial: int
    planned: PlannedTarget
    target: OpenTarget
    request: ProviderRequest | None
    """What is sent; None if a file of the case cannot be read."""
    problem: str
    """Why `request` is None."""
    digests: CaseDigests
    is_first: bool = True
    """Whether no other trial of the case runs before this one."""
    batch: "BatchAnswers | None" = None
    """The answers of a batch program that was started for many cases at once."""

    @property
    def key(self) -> ResultKey:
        """The identity of its result."""
        return ResultKey(self.case.dataset, self.case.id, self.planned.name, self.trial)


class BatchAnswer(NamedTuple):
    """The answer to one request in a batch."""

    answer: ProviderResponse | FailedCall
    """The answer, or why there is none."""
    attempt: int
    is_cached: bool = False


class BatchAnswers(Protocol):
    """The answers of a batch program to one trial of the cases of a file."""

    target: OpenTarget
    trial: int

    def answer(self, request: ProviderRequest, caller: Caller) -> BatchAnswer:
        """Return the answer to a request, or why there is none."""
        ...

    def job_done(self, request: ProviderRequest | None) -> None:
        """Record that one of the jobs has its result."""
        ...


def divide(workers: int, files: int) -> list[int]:
    """Distribute workers evenly among lanes and return the number per lane. Each lane has a worker and a file."""
    lanes = min(workers, files)
    shares = []
    for lane in range(lanes):
        share = workers // lanes
        if lane < workers % lanes:
            share += 1
        shares.append(share)
    return shares


class Lane:
    """The jobs of some workers: those of one file after another."""

    def __init__(
        self,
        files: Iterator[PlannedFile],
        open_file: "Callable[[PlannedFile, Lane], None]",
        workers: Sequence[int],
    ):
        self._files = files
        self._open_file = open_file
        self.workers = workers
        """The numbers of its workers."""
        self._sources: deque[Iterator[Job]] = deque()
        self._expected = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    def add(self, jobs: Iterator[Job]) -> None:
        """Append jobs to the remaining ones."""
        self._sources.append(jobs)
        self._changed.set()

    def expect(self, count: int) -> None:
        """Expect this many more sources of jobs before the next file is opened; a negative number means fewer."""
        self._expected += count
        self._changed.set()

    def close(self) -> None:
        """Return no more jobs."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> Job | None:
        """Return the next job, or None at the end."""
        while not self._is_closed:
            while self._sources:
                job = next(self._sources[0], None)
                if job is not None:
                    return job
                self._sources.popleft()
            if self._expected:
                self._changed.clear()
                await self._changed.wait()
                continue
            file = next(self._files, None)
            if file is None:
                return None
            self._open_file(file, self)
        return None


class JobStream:
    """Makes the jobs of a run."""

    def __init__(self, plan: Plan, targets: OpenTargets, is_done: IsDone | None):
        self._plan = plan
        self._targets = targets
        self._is_done = is_done
        self._trials = range(1, targets.options.trials + 1)

    def jobs(
        self,
        file: PlannedFile,
        targets: Collection[PlannedTarget],
    ) -> Iterator[Job]:
        """Yield the jobs of the cases of a file that these targets answer, all trials of a case in a row."""
        return self._jobs(file, targets, self._trials)

    def all_jobs(self, target: OpenTarget | None = None) -> Iterator[Job]:
        """Yield the jobs of all files, or those that one target answers."""
        for file in self._plan.files:
            planned = []
            for each in file.targets.values():
                if target is None or self._targets.target(file, each) is target:
                    planned.append(each)
            if planned:
                yield from self._jobs(file, planned, self._trials)

    def batch_jobs(
        self,
        file: PlannedFile,
        planned: PlannedTarget,
        batch: BatchAnswers,
    ) -> Iterator[Job]:
        """Yield the jobs of a file that a batch program answers."""
        return self._jobs(file, [planned], [batch.trial], batch)

    def job(self, file: PlannedFile, case: EvalCase, trial: int) -> Job:
        """Return the job of one trial of a case."""
        planned = file.targets[self._plan.selection.target_of(case)]
        request, problem = build_or_explain(case, file, planned)
        return Job(
            case=case,
            trial=trial,
            planned=planned,
            target=self._targets.target(file, planned),
            request=_for_trial(request, trial),
            problem=problem,
            digests=case_digests(case, request),
            is_first=trial == 1,
        )

    def _jobs(
        self,
        file: PlannedFile,
        targets: Collection[PlannedTarget],
        trials: Sequence[int],
        batch: BatchAnswers | None = None,
    ) -> Iterator[Job]:
        open_targets = {}
        for planned in targets:
            open_targets[planned.name] = (planned, self._targets.target(file, planned))
        target_of = self._plan.selection.target_of
        for case in self._plan.cases_of(file):
            name = target_of(case)
            if name not in open_targets:
                continue
            left = self._trials_left(case, trials)
            if not left:
                continue
            planned, target = open_targets[name]
            request, problem = build_or_explain(case, file, planned)
            digests = case_digests(case, request)
            for trial in left:
                yield Job(
                    case=case,
                    trial=trial,
                    planned=planned,
                    target=target,
                    request=_for_trial(request, trial),
                    problem=problem,
                    digests=digests,
                    is_first=trial == left[0],
                    batch=batch,
                )

    def _trials_left(self, case: EvalCase, trials: Sequence[int]) -> Sequence[int]:
        """Return the trials of a case that have no result yet."""
        if self._is_done is None:
            return trials
        return [trial for trial in trials if not self._is_done(case, trial)]


def build_or_explain(
    case: EvalCase,
    file: PlannedFile,
    planned: PlannedTarget,
) -> tuple[ProviderRequest | None, str]:
    """Return the request of a case; or None, and why a file of the case cannot be read."""
    try:
        request = build_request(case, file.patterns, planned.files)
    except AttachmentError as error:
        hint = ""
        if error.hint:
            hint = f" ({error.hint})"
        message = f"{error.message}{hint}"
        if file.path == NO_FILE:
            return None, message
        return None, f"{file.path}:{case.line}: {message}"
    if not planned.takes_guidelines:
        request = prepend_guidelines(request)
    if planned.uses:
        request = with_case_data(request, case, planned.uses)
    return request, ""


def _for_trial(request: ProviderRequest | None, trial: int) -> ProviderRequest | None:
    if request is None or trial == 1:
        return request
    return msgspec.structs.replace(request, trial=trial)
