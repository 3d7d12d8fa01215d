"""A run that is open: what its cases share, and the only path of its results."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from agentv.evaluators.build import EvaluatorBuilder
from agentv.protocols import AnswersToGrade, ResultSink
from agentv.records import EvalResult, JudgeMetrics
from agentv.redact import clean
from agentv.results.summary import Summary
from agentv.run.dumps import NO_DUMPS, CaseDumps
from agentv.run.extensions import Extension, StoppedBy
from agentv.run.jobs import IsDone, Job, JobStream
from agentv.run.options import RunOptions
from agentv.run.outcome import Outcome, ResultContext, result_of, unwritable_result
from agentv.run.output import mask_result, name_masked
from agentv.run.planning.plan import Plan
from agentv.run.progress import Progress
from agentv.run.resume import Resumed
from agentv.run.room import Room
from agentv.run.targets import OpenTargets


class Results:
    """The only path of a result. Local workers, a cluster's driver and its workers all use it."""

    def __init__(
        self,
        file: ResultSink | None,
        summary: Summary | None = None,
        sink: ResultSink | None = None,
        extensions: Sequence[Extension] = (),
    ):
        """`file` receives each result first; then `sink` receives it, without secrets."""
        self._file = file
        self._summary = summary
        self._sink = sink
        self._extensions = tuple(extensions)

    def take(self, result: EvalResult) -> EvalResult:
        """Write a result and count it; return it as written. One that cannot be written becomes an error result."""
        try:
            result = self._write(result)
        except (ValueError, TypeError, RecursionError) as error:
            result = self._write(unwritable_result(result, error))
        if self._summary is not None:
            self._summary.add(result)
        for extension in self._extensions:
            extension.written(result)
        return result

    def keep(self, result: EvalResult, *, is_planned: bool) -> None:
        """Write a result of an earlier run unchanged; count it as done if this run has planned its case."""
        if self._file is not None:
            self._file.write(result)
        if is_planned and self._summary is not None:
            self._summary.add_earlier(result)

    def count_cancelled(
        self,
        job: Job,
        costs: Sequence[float | None],
        judges: Mapping[str, JudgeMetrics] | None,
    ) -> None:
        """Count the cost of a case that was cancelled before it had a result. An unknown cost is None."""
        if self._summary is not None:
            self._summary.spending.add_cancelled(job.planned.name, costs, judges)
        for judge in (judges or {}).values():
            costs = [*costs, judge.cost_usd]
        for extension in self._extensions:
            extension.cancelled(job, costs)

    def add_check_costs(self, taken: Mapping[str, JudgeMetrics]) -> None:
        """Add the cost of judge checks to the summary."""
        if self._summary is not None:
            self._summary.spending.add_checks(taken)

    def count_missing(self, no_answer: int, no_case: int) -> None:
        """Count the cases without a stored answer and the answers without a case in the summary."""
        if self._summary is not None:
            self._summary.no_answer = no_answer
            self._summary.no_case = no_case

    def _write(self, result: EvalResult) -> EvalResult:
        for extension in self._extensions:
            result = extension.finish(result)
        result = name_masked(result, clean)
        if self._file is not None:
            self._file.write(result)
        if self._sink is not None:
            self._sink.write(mask_result(result, clean))
        return result


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that the cases of a run share. Complete once it is constructed."""

    plan: Plan
    targets: OpenTargets
    evaluators: EvaluatorBuilder
    progress: Progress
    results: Results
    extensions: tuple[Extension, ...] = ()
    is_done: IsDone | None = None
    stored: AnswersToGrade | None = None
    """The answers that are scored instead of calling any target."""
    earlier: Resumed | None = None
    """The results that a resumed run keeps."""
    dumps: CaseDumps = NO_DUMPS
    """Where prompts and traces are written for debugging."""

    @property
    def options(self) -> RunOptions:
        """How cases are run."""
        return self.targets.options

    @property
    def open_cases(self) -> int:
        """How many cases may be open at once; more than the workers if some of them wait for something."""
        most = self.targets.workers
        for extension in self.extensions:
            most = max(most, extension.open_cases)
        return most

    @cached_property
    def room(self) -> Room:
        """How many cases the machine has room for."""
        return Room(self.targets.workers, self.open_cases)

    @cached_property
    def jobs(self) -> JobStream:
        """The jobs that are not done yet."""
        return JobStream(self.plan, self.targets, self.is_done)

    @cached_property
    def context(self) -> ResultContext:
        """What all results share."""
        return ResultContext(self.options, self.plan, is_graded=self.stored is not None)

    @property
    def stopped_by(self) -> StoppedBy:
        """Why no further case may start; empty while cases may start."""
        for extension in self.extensions:
            if extension.stopped_by:
                return extension.stopped_by
        return ""

    @property
    def deadline(self) -> float | None:
        """The time of the event loop at which cases in flight are cancelled, if there is one."""
        earliest = None
        for extension in self.extensions:
            deadline = extension.deadline
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    async def prepare(self) -> None:
        """Let the extensions prepare for the run. Raise `AgentvError` if no case may be sent."""
        for extension in self.extensions:
            await extension.prepare(self)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Let the extensions prepare for the first case."""
        for extension in self.extensions:
            await extension.start(self, tasks)

    async def admits(self, job: Job) -> bool:
        """Return whether every extension lets a case start."""
        for extension in self.extensions:
            if not await extension.admit(job):
                return False
        return True

    def is_known(self, job: Job) -> bool:
        """Return whether an extension has the answer to a job, so that its target need not be called."""
        if job.request is None:
            return False
        for extension in self.extensions:
            outcome = extension.known_outcome(job, job.request)
            if outcome is not None:
                return True
        return False

    async def end(self) -> None:
        """Let the extensions do what comes after the last case."""
        for extension in self.extensions:
            await extension.end(self)

    def label(self, job: Job) -> str:
        """Return the name of a job in progress messages: the id of its case, with the trial if there are several."""
        if self.options.trials > 1:
            return f"{job.case.id}, trial {job.trial}"
        return job.case.id

    def failed_result(self, job: Job, error: str) -> EvalResult:
        """Return the result of a case that cannot be run."""
        evaluators = self.evaluators.build(job.case, job.planned.name)
        digests = evaluators.digests_of(job.digests, job.planned.version)
        outcome = Outcome(1, error=error)
        return result_of(self.context, job, outcome, digests)
