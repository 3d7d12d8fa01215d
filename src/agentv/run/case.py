"""The path of a case: request -> response -> scores -> result."""

from functools import partial
from typing import NamedTuple

from agentv import __version__
from agentv.calls.retry import FailedCall
from agentv.errors import AgentvError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judge_check import JudgeCheck
from agentv.evaluators.score import CaseEvaluators
from agentv.judges.deferral import CaseJudging, DeferredJudgement, current
from agentv.notices import say
from agentv.providers.workspaces.case import CaseWorkspace, KeptPlace
from agentv.records import Digests, EvalResult, EvaluatorResult, Exchange, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.run.batches.batch import Batch
from agentv.run.batches.judging import JudgeRounds, PendingCase, pending_key
from agentv.run.dumps import CaseDumps
from agentv.run.jobs import Job
from agentv.run.outcome import Outcome, ResultContext, outcome_of, result_of
from agentv.run.plan import Plan, PlannedFile
from agentv.run.targets import OpenTargets
from agentv.run.watcher import Watcher
from agentv.scoring import SCORING
from agentv.system.dumps import Dumps

Called = tuple[int, ProviderResponse | FailedCall]
"""The number of the last attempt, and what it gave."""


class _WaitingCase(NamedTuple):
    """A case whose judges may answer later, and what its target answered, if that is known already."""

    key: str
    judging: CaseJudging
    called: Called | None = None


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
        options, self._names = targets.options, names
        self.check: JudgeCheck | None = None
        """Is offered what was judged, if judges are checked."""
        self.rounds: JudgeRounds | None = None
        """Asks judges in batches, if there are such."""
        self._judged: dict[int, _WaitingCase] = {}
        """The cases that are judged and not yet written, by the identity of their request."""
        self._run_id = options.run_id
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
            waiting = self._waiting_case(job, digests.evaluators) if self.rounds is not None else None
            called = self._known_answer(job, job.request, waiting)
            if called is None:
                target, on_retry = job.target, partial(self._on_retry, job)
                if work is not None:
                    self._choose_cache(work, job, evaluators)
                called = await self._caller.call(target.provider, target.policy, job.request, on_retry, work)
            outcome = outcome_of(*called)
            self._dumps.trace(job.case, job.planned.name, outcome, job.trial)
            if outcome.response is None:
                return self._result(job, outcome, digests)
            workspace = work.path if work is not None else None
            exchange = Exchange(case=job.case, request=job.request, response=outcome.response, workspace=workspace)
            results = await self._scored(waiting, outcome.attempt, job, evaluators, exchange)
            if results is None:
                return None
            if self.check is not None:
                self.check.offer(exchange, job.planned.name, results)
            return self._result(job, outcome, digests, results)
        except AgentvError:
            raise  # what cannot be written concerns all cases
        except Exception as error:
            digests = Digests(case="", target=job.planned.digest, evaluators="", agentv=__version__, scoring=SCORING)
            odd = f"the answer cannot be used: {type(error).__name__}: {error}"
            return self._result(job, Outcome(1, error=odd), digests)

    def _waiting_case(self, job: Job, evaluators: str) -> "_WaitingCase | None":
        """Return what is known of a case whose judges may answer later; None if they are to answer at once."""
        workspaces, request = job.target.workspaces, job.request
        if self.rounds is None or request is None or (workspaces is not None and workspaces.keep != "never"):
            return None  # whether a workspace is kept is decided by the verdict
        digest = job.planned.digest if self._plan.stand_in is None else f"{job.planned.digest} {self._run_id}"
        key = pending_key(job.planned.name, digest, job.target.policy, request)
        known = self.rounds.pending.find(key)
        if known is None:
            return _WaitingCase(key, CaseJudging(job.case.dataset))
        return _WaitingCase(key, known.judging(job.case.dataset, evaluators), (known.attempt, known.response))

    def _known_answer(self, job: Job, request: ProviderRequest, waiting: "_WaitingCase | None") -> Called | None:
        """Return what a case was answered before it waited for its judges, or in a batch; None if it is asked now."""
        if waiting is not None and waiting.called is not None:
            return waiting.called
        return job.batch.answer(request, self._caller) if job.batch is not None else None

    async def _scored(
        self, waiting: "_WaitingCase | None", attempt: int, job: Job, evaluators: CaseEvaluators, exchange: Exchange
    ) -> tuple[EvaluatorResult, ...] | None:
        """Return what the evaluators find; None if the case is to wait for its judges."""
        if waiting is None or self.rounds is None:
            return await evaluators.results(exchange, self._names)
        judging = waiting.judging
        token = current.set(judging)
        try:
            results = await evaluators.results(exchange, self._names)
        except DeferredJudgement:
            known = PendingCase(
                attempt=attempt,
                response=exchange.response,
                fence=judging.fence,
                evaluators=evaluators.digests["evaluators"],
                results=judging.results,
                replies=judging.replies,
                used=tuple(judging.used),
            )
            self.rounds.defer(job.case, job.trial, waiting.key, known, judging)
            return None
        finally:
            current.reset(token)
        self._judged[id(job.request)] = waiting
        return results

    def written(self, job: Job) -> None:
        """Take note that the result of a job is in the sink."""
        waiting = self._judged.pop(id(job.request), None) if self._judged else None
        if waiting is not None and self.rounds is not None:
            self.rounds.settle(waiting.key, waiting.judging)

    def _choose_cache(self, work: CaseWorkspace, job: Job, evaluators: CaseEvaluators) -> None:
        """Decide whether an answer of the cache will do: without its files, some evaluators cannot score it."""
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

    def _result(
        self, job: Job, outcome: Outcome, digests: Digests, scores: tuple[EvaluatorResult, ...] = ()
    ) -> EvalResult:
        return result_of(self._context, job, outcome, digests, scores)


def label(job: Job, trials: int) -> str:
    """Return how a job is called: with its trial, if there are several."""
    return f"{job.case.id}, trial {job.trial}" if trials > 1 else job.case.id
