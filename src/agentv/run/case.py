"""The path of a case: request -> response -> scores -> result."""

from functools import partial
from typing import TYPE_CHECKING

from agentv import __version__
from agentv.calls.caller import OnRetry, Preparations
from agentv.calls.retry import FailedCall
from agentv.errors import AgentvError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judge_check import JudgeCheck
from agentv.evaluators.score import CaseEvaluators
from agentv.judges.metering import JudgeMeter, judge_meter
from agentv.notices import say
from agentv.providers.workspaces.case import CaseWorkspace, KeptPlace
from agentv.records import Digests, EvalResult, Exchange, ProviderRequest
from agentv.redact import clean
from agentv.run.batches.batch import Batch
from agentv.run.dumps import CaseDumps
from agentv.run.jobs import Job
from agentv.run.outcome import Outcome, ResultContext, Scored, outcome_of, result_of, timestamp_now
from agentv.run.plan import Plan, PlannedFile
from agentv.run.targets import OpenTarget, OpenTargets
from agentv.run.watcher import Watcher
from agentv.scoring import SCORING
from agentv.system.dumps import Dumps

if TYPE_CHECKING:
    from agentv.telemetry.collector import Collector


class CaseRunner:
    """Runs cases, each by itself. Whatever goes wrong with a case is in its result, and nobody else's trouble."""

    def __init__(
        self,
        plan: Plan,
        targets: OpenTargets,
        evaluators: EvaluatorBuilder,
        watcher: Watcher,
        names: frozenset[str] | None = None,
    ):
        """`names` are the evaluators that score, if it is not all of them."""
        options, self._names, self._targets = targets.options, names, targets
        self.check: JudgeCheck | None = None
        """Is offered what was judged, if judges are checked."""
        self._plan, self._caller, self._evaluators, self._watcher = plan, targets.caller, evaluators, watcher
        self._trials = options.trials
        self._kept = KeptPlace(plan.folder, options.run_id or "run")
        self._has_cache, self._asked_again = options.cache is not None, set[str]()
        self._context = ResultContext(options, plan)
        self._dumps = CaseDumps(
            Dumps(options.dump_prompts, clean) if options.dump_prompts else None,
            Dumps(options.dump_traces, clean) if options.dump_traces else None,
            several=len(plan.files) > 1,
            trials=options.trials > 1,
        )

    async def run_case(self, job: Job, work: CaseWorkspace | None = None) -> EvalResult:
        """Return the result of one job, be the answer ever so odd. `work` are the workspaces of its attempts."""
        if work is None and job.target.workspaces is not None and job.request is not None:
            seconds = self._caller.seconds(job.target.policy)
            async with CaseWorkspace(job.target.workspaces, job.request, seconds, self._kept) as own:
                return await own.end(await self.run_case(job, own))
        try:
            evaluators = self._evaluators.build(job.case, job.planned.name)
            digests = evaluators.digests_of(job.digest, job.planned.digest)
            if job.request is None:
                return self._result(job, Outcome(1, error=job.problem), digests)
            if job.is_first:  # the prompt is the same in all trials
                self._dumps.prompt(job.case, job.request, job.target.provider)
            if job.batch is not None:
                outcome = outcome_of(*job.batch.answer(job.request, self._caller))
            else:
                self._choose_cache(work, job, evaluators)
                target, on_retry = job.target, partial(self._on_retry, job)
                if self._targets.collector is None:
                    called = await self._caller.call(target.provider, target.policy, job.request, on_retry, work)
                    outcome = outcome_of(*called)
                else:
                    outcome = await self._call_traced(self._targets.collector, target, job.request, on_retry, work)
            if self._context.has_times:
                outcome = outcome._replace(answered_at=timestamp_now())
            self._dumps.trace(job.case, job.planned.name, outcome, job.trial)
            if outcome.response is None:
                return self._result(job, outcome, digests)
            workspace = work.path if work is not None else None
            exchange = Exchange(case=job.case, request=job.request, response=outcome.response, workspace=workspace)
            scored = await self._score(evaluators, exchange)
            if self.check is not None:
                self.check.offer(exchange, job.planned.name, scored.results)
            return result_of(self._context, job, outcome, digests, scored)
        except AgentvError:
            raise  # what cannot be written concerns all cases
        except Exception as error:
            digests = Digests(case="", target=job.planned.digest, evaluators="", agentv=__version__, scoring=SCORING)
            odd = f"the answer cannot be used: {type(error).__name__}: {error}"
            return self._result(job, Outcome(1, error=odd), digests)

    async def _score(self, evaluators: CaseEvaluators, exchange: Exchange) -> Scored:
        """Return the results of the evaluators, and what their judges took."""
        if not evaluators.has_judges:
            return Scored(await evaluators.results(exchange, self._names))
        meter = JudgeMeter()
        token = judge_meter.set(meter)
        try:
            return Scored(await evaluators.results(exchange, self._names), meter.metrics)
        finally:
            judge_meter.reset(token)

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


def label(job: Job, trials: int) -> str:
    """Return how a job is called: with its trial, if there are several."""
    return f"{job.case.id}, trial {job.trial}" if trials > 1 else job.case.id
