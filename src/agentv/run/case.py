"""The path of a case: request -> response -> scores -> result."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agentv import __version__
from agentv.calls.caller import OnRetry, Preparations
from agentv.calls.retry import FailedCall
from agentv.errors import AgentvError, ProviderError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judge_check import AnswerTaker
from agentv.evaluators.score import CaseEvaluators
from agentv.judges.deferral import CaseJudging, DeferredJudgement, current
from agentv.judges.metering import JudgeMeter, judge_meter
from agentv.notices import say
from agentv.protocols import AnswersToGrade
from agentv.providers.workspaces.case import CaseWorkspace, KeptPlace
from agentv.records import Digests, EvalResult, Exchange, ProviderRequest
from agentv.redact import clean
from agentv.run.batches.batch import Batch
from agentv.run.batches.judging import JudgeRounds, PendingCase, pending_key
from agentv.run.jobs import Job
from agentv.run.outcome import Outcome, ResultContext, Scored, outcome_of, result_of, timestamp_now
from agentv.run.plan import Plan, PlannedFile
from agentv.run.targets import OpenTarget, OpenTargets
from agentv.run.watching.dumps import CaseDumps
from agentv.run.watching.watcher import Watcher
from agentv.scoring import SCORING
from agentv.system.dumps import Dumps

if TYPE_CHECKING:
    from agentv.telemetry.collector import Collector


class _WaitingCase(NamedTuple):
    """A case whose judges may answer later, and what its target answered, if that is known already."""

    key: str
    judging: CaseJudging
    outcome: Outcome | None = None


class CaseRunner:
    """Runs cases, each by itself. Whatever goes wrong with a case is in its result, and nobody else's trouble."""

    def __init__(  # noqa: PLR0913 - each is another part of a run
        self,
        plan: Plan,
        targets: OpenTargets,
        evaluators: EvaluatorBuilder,
        watcher: Watcher,
        *,
        stored: AnswersToGrade | None = None,
        check: AnswerTaker | None = None,
        rounds: JudgeRounds | None = None,
    ):
        """`stored` are answers to score instead of calling any target.

        `check` is offered each judged answer, and `rounds` sends judge requests in batches.
        """
        options = targets.options
        self._stored = stored
        self._targets = targets
        self._names = stored.names if stored is not None else None
        self.check = check
        self.rounds = rounds
        self._judged: dict[int, _WaitingCase] = {}
        """The cases that are judged and not yet written, by the identity of their request."""
        self._run_id = options.run_id
        self._plan, self._caller, self._evaluators, self._watcher = plan, targets.caller, evaluators, watcher
        self._trials = options.trials
        self._kept = KeptPlace(plan.folder, options.run_id or "run")
        self._has_cache, self._asked_again = options.cache is not None, set[str]()
        self._context = ResultContext(options, plan, is_graded=stored is not None)
        self._dumps = CaseDumps(
            Dumps(options.dump_prompts, clean) if options.dump_prompts else None,
            Dumps(options.dump_traces, clean) if options.dump_traces else None,
            several=len(plan.files) > 1,
            trials=options.trials > 1,
        )

    async def run_case(self, job: Job, work: CaseWorkspace | None = None) -> EvalResult | None:
        """Return the result of one job, be the answer ever so odd; None if it waits for a judge.

        `work` are the workspaces of its attempts.
        """
        if work is None and job.target.workspaces is not None and job.request is not None:
            seconds = self._caller.seconds(job.target.policy)
            async with CaseWorkspace(job.target.workspaces, job.request, seconds, self._kept) as own:
                result = await self.run_case(job, own)
                return await own.end(result) if result is not None else None
        try:
            evaluators = self._evaluators.build(job.case, job.planned.name)
            digests = evaluators.digests_of(job.digest, job.planned.digest)
            if job.request is None:
                return self._result(job, Outcome(1, error=job.problem), digests)
            if job.is_first:  # the prompt is the same in all trials
                self._dumps.prompt(job.case, job.request, job.target.provider)
            waiting = self._waiting_case(job, evaluators) if self.rounds is not None else None
            outcome = self._known_outcome(job, job.request, waiting)
            if outcome is None:
                self._choose_cache(work, job, evaluators)
                target, on_retry = job.target, partial(self._on_retry, job)
                if self._targets.collector is None:
                    called = await self._caller.call(target.provider, target.policy, job.request, on_retry, work)
                    outcome = outcome_of(*called)
                else:
                    outcome = await self._call_traced(self._targets.collector, target, job.request, on_retry, work)
            if self._context.has_times and outcome.answered_at is None:
                outcome = outcome._replace(answered_at=timestamp_now())
            self._dumps.trace(job.case, job.planned.name, outcome, job.trial)
            if outcome.response is None:
                return self._result(job, outcome, digests)
            workspace = work.path if work is not None else None
            exchange = Exchange(case=job.case, request=job.request, response=outcome.response, workspace=workspace)
            scored = await self._score(evaluators, exchange, waiting)
            if scored is None:
                self._defer(job, outcome, evaluators, waiting)
                return None
            if self.check is not None:
                self.check.offer(exchange, job.planned.name, scored.results)
            return result_of(self._context, job, outcome, digests, scored)
        except AgentvError:
            raise  # what cannot be written concerns all cases
        except Exception as error:
            digests = Digests(case="", target=job.planned.digest, evaluators="", agentv=__version__, scoring=SCORING)
            odd = f"the answer cannot be used: {type(error).__name__}: {error}"
            return self._result(job, Outcome(1, error=odd), digests)

    def _known_outcome(self, job: Job, request: ProviderRequest, waiting: "_WaitingCase | None") -> Outcome | None:
        """Return what a case was answered before: in this run, in a batch, in an earlier run; None if it is asked."""
        if waiting is not None and waiting.outcome is not None:
            return waiting.outcome
        if self._stored is not None:  # there is nothing to wait for, to limit, to repeat or to cache
            return _stored_outcome(self._stored, request)
        called = job.batch.answer(request, self._caller) if job.batch is not None else None
        return outcome_of(*called) if called is not None else None

    async def _score(
        self, evaluators: CaseEvaluators, exchange: Exchange, waiting: "_WaitingCase | None" = None
    ) -> Scored | None:
        """Return the results of the evaluators, and what their judges took; None if the case waits for a judge."""
        if not evaluators.has_judges:
            return Scored(await evaluators.results(exchange, self._names))
        judging = waiting.judging if waiting is not None else None
        meter = judging.meter if judging is not None else JudgeMeter()
        tokens = judge_meter.set(meter), current.set(judging)
        try:
            results = await evaluators.results(exchange, self._names)
        except DeferredJudgement:
            return None
        finally:
            judge_meter.reset(tokens[0])
            current.reset(tokens[1])
        if waiting is not None:
            self._judged[id(exchange.request)] = waiting
        return Scored(results, meter.metrics)

    def _waiting_case(self, job: Job, evaluators: CaseEvaluators) -> "_WaitingCase | None":
        """Return what is known of a case whose judges may answer later; None if they are to answer at once."""
        workspaces, request = job.target.workspaces, job.request
        if self.rounds is None or request is None:
            return None
        if workspaces is not None and workspaces.keep != "never":
            return None  # whether a workspace is kept is decided by the verdict
        key = self._pending_key(job, request)
        known = self.rounds.pending.find(key)
        if known is None:
            return _WaitingCase(key, CaseJudging(job.case.dataset)) if evaluators.has_judges else None
        answered = Outcome(
            known.attempt,
            known.response,
            is_cached=known.is_cached,
            trace_id=known.trace_id,
            answered_at=known.answered_at,
        )
        return _WaitingCase(key, known.judging(job.case.dataset, evaluators.digests["evaluators"]), answered)

    def _defer(self, job: Job, outcome: Outcome, evaluators: CaseEvaluators, waiting: "_WaitingCase | None") -> None:
        """Let a case wait for its judges; what is known of it is on disk."""
        assert self.rounds is not None
        assert waiting is not None
        assert outcome.response is not None
        judging = waiting.judging
        known = PendingCase(
            attempt=outcome.attempt,
            response=outcome.response,
            is_cached=outcome.is_cached,
            trace_id=outcome.trace_id,
            answered_at=outcome.answered_at,
            fence=judging.fence,
            evaluators=evaluators.digests["evaluators"],
            results=judging.results,
            replies=judging.replies,
            used=tuple(judging.used),
            asked=tuple(id_ for _, id_, _ in judging.asked),
            metered=judging.meter.state(),
        )
        self.rounds.defer(job.case, job.trial, waiting.key, known, judging)

    def _pending_key(self, job: Job, request: ProviderRequest) -> str:
        digest = job.planned.digest if self._plan.stand_in is None else f"{job.planned.digest} {self._run_id}"
        return pending_key(job.planned.name, digest, job.target.policy, request)

    def is_answered(self, job: Job) -> bool:
        """Return whether the target has answered a job, which waits for its judges."""
        rounds, request = self.rounds, job.request
        return rounds is not None and request is not None and rounds.pending.has(self._pending_key(job, request))

    def forget(self, job: Job) -> None:
        """Forget what is known of a job that has its result, though a run that was killed has not noted that."""
        if self.rounds is not None and job.request is not None:
            self.rounds.forget(self._pending_key(job, job.request))

    def written(self, job: Job) -> None:
        """Take note that the result of a job is in the sink."""
        waiting = self._judged.pop(id(job.request), None) if self._judged else None
        if waiting is not None and self.rounds is not None:
            self.rounds.settle(waiting.key, waiting.judging)

    async def _call_traced(
        self,
        collector: "Collector",
        target: OpenTarget,
        request: ProviderRequest,
        on_retry: OnRetry,
        work: CaseWorkspace | None,
    ) -> Outcome:
        """Ask a target whose traces are collected. One that fails may have got somewhere, and has a trace, too."""
        with collector.case(is_late=getattr(target.provider, "sends_spans_late", False)) as traces:
            preparation = Preparations(work, traces) if work is not None else traces
            called = await self._caller.call(target.provider, target.policy, request, on_retry, preparation)
            outcome = outcome_of(*called)
            known = outcome.partial if outcome.known is not None else await traces.salvage()
            return outcome._replace(trace_id=traces.trace_id, partial=known)

    def _choose_cache(self, work: CaseWorkspace | None, job: Job, evaluators: CaseEvaluators) -> None:
        """Decide whether an answer of the cache will do: without its files, some evaluators cannot score it."""
        if work is None:
            return
        work.takes_cached = not evaluators.workspace_users
        if not work.takes_cached and self._has_cache and job.target.name not in self._asked_again:
            self._asked_again.add(job.target.name)
            names = ", ".join(map(repr, evaluators.workspace_users))
            say(f"target {job.target.name!r} is asked again despite --cache: {names} may need the workspace's files")

    def _on_retry(self, job: Job, attempt: int, failed: FailedCall) -> None:
        if not failed.is_inner:
            self._dumps.trace(job.case, job.planned.name, outcome_of(attempt, failed), job.trial)
        what = label(job, self._trials)
        self._watcher.retried(f"{what}, a request of the target" if failed.is_inner else what, attempt, failed.error)

    def dump_failed_batch(self, file: PlannedFile, batch: Batch, attempt: int, failed: FailedCall) -> None:
        """Write down how an attempt at a batch ended, for each of its cases."""
        if self._dumps.has_traces:
            for case in self._plan.cases_of(file):
                self._dumps.trace(case, batch.target.name, outcome_of(attempt, failed), batch.trial)

    def failed_result(self, job: Job, error: str) -> EvalResult:
        """Return the result of a case that cannot be run."""
        digests = self._evaluators.build(job.case, job.planned.name).digests_of(job.digest, job.planned.digest)
        return self._result(job, Outcome(1, error=error), digests)

    def _result(self, job: Job, outcome: Outcome, digests: Digests) -> EvalResult:
        return result_of(self._context, job, outcome, digests)


def _stored_outcome(stored: AnswersToGrade, request: ProviderRequest) -> Outcome:
    try:
        return Outcome(1, stored.answer(request))
    except ProviderError as error:
        return Outcome(1, error=error.message)


def label(job: Job, trials: int) -> str:
    """Return how a job is called: with its trial, if there are several."""
    return f"{job.case.id}, trial {job.trial}" if trials > 1 else job.case.id
