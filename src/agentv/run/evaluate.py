"""The one use case: eval files in, results out.

The command line, `agentv.evaluate` and all that runs evaluations go through `evaluate`, so that a promise that is
kept here is kept everywhere: `.env`, folders and globs, masking, resuming, and nothing lost when a run is stopped.
"""

import asyncio
import enum
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentv.calls.cache import CACHE
from agentv.cases.shard import Shard
from agentv.errors import AgentvError, OutputError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.notices import note
from agentv.processes.interrupts import stop_on_signal
from agentv.project.discovery import eval_files
from agentv.protocols import AnswersToGrade, Provider, ResultSink
from agentv.providers.mock import Mock, MockSettings
from agentv.providers.python import PythonFunction
from agentv.records import EvalResult, Problem
from agentv.redact import clean, secrets_in
from agentv.results.forecast import Forecast
from agentv.results.health.record import JudgeHealth
from agentv.results.runs import RUNS, RunLog, new_run_id
from agentv.results.summary import Summary
from agentv.run.batches.submission import DEADLINE_SECONDS
from agentv.run.batches.vendor import BatchOptions
from agentv.run.case import CaseRunner
from agentv.run.executors.address import Address, parse_address
from agentv.run.executors.executor import Executor
from agentv.run.executors.local import LocalExecutor
from agentv.run.extensions import Extension, MaxErrors, Results
from agentv.run.forecast.budget import Budget, Limits, budget_of
from agentv.run.forecast.demand import ForecastOptions, NamedJudges
from agentv.run.forecast.forecast import make_forecast
from agentv.run.jobs import IsDone
from agentv.run.judging import Judging
from agentv.run.output import STDOUT, Output, OutputOptions, earlier_results, open_output
from agentv.run.plan import Plan, RunOptions, Selection
from agentv.run.planner import PlanOptions, make_plan
from agentv.run.record import start_record
from agentv.run.resume import ResumeOptions, failed_cases
from agentv.run.targets import OpenTargets, RunJudges, check_batches
from agentv.run.watching.exported import SpanExport, open_exporter
from agentv.run.watching.watcher import Watcher
from agentv.system.compact_sets import HashSet
from agentv.system.dotenv import load_env
from agentv.telemetry.options import CollectOptions

if TYPE_CHECKING:  # the SDK is an extra, and slow to import
    from agentv.telemetry.export import Exporter


class DryRun(NamedTuple):
    """A mock answers in the place of every target, after a fixed or a random delay."""

    delay_ms: float = 0
    delay_min_ms: float | None = None
    delay_max_ms: float | None = None

    def provider(self) -> Provider:
        """Return the mock."""
        delays = self._asdict()
        return Mock(MockSettings(name="dry-run", provider="mock", response="Mock dry-run response", **delays))


class EvalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All that can be asked of an evaluation."""

    paths: tuple[str, ...]
    target: str | None = None
    function: Callable[..., Any] | None = None
    """A Python function that answers in the place of every target."""
    targets: Path | None = None
    """The targets file, or a folder that has one."""
    prices: Path | None = None
    """The price list, in the place of the one that the config names."""
    ids: tuple[str, ...] = ()
    limit: int | None = None
    trials: int = 1
    shard: str | None = None
    """Which part of the cases runs: `2/4`, or `auto` to ask the scheduler."""
    dry_run: DryRun | None = None
    workers: int | None = None
    timeout_seconds: float | None = None
    max_retries: int | None = None
    cache: bool = False
    resume: bool = False
    keep_stale: bool = False
    """When resuming, keep what another version of the target answered."""
    rerun_failed: bool = False
    """When resuming, run again what did not pass."""
    failed_in: Path | None = None
    """Run only the cases that did not pass in this results file."""
    stored: AnswersToGrade | None = None
    """Answers that are scored in the place of asking any target."""
    only: tuple[tuple[str, str], ...] | None = None
    """Run only these cases, by dataset and id."""
    include_inputs: bool = True
    """Whether results hold what was asked and what is expected."""
    command: tuple[str, ...] = ()
    """What was typed, for the record of the run."""
    runs_folder: Path | None = None
    """Where the record of the run is kept, if it is."""
    strict: bool = False
    max_errors: int | None = None
    batch_deadline: float = DEADLINE_SECONDS
    """Seconds after which what a vendor's batch has not answered is given up."""
    batch_fallback: bool = True
    """Whether requests that no batch has answered are asked live."""
    max_cost: float | None = None
    """How many US dollars this run may spend: no case is started that would take it beyond."""
    max_duration: float | None = None
    """How many seconds cases may be started for, as long as they end in time."""
    cluster: str | None = None
    """The cluster that cases run on; this process runs them if there is none."""
    out: Path | None = None
    """Where results are written; a new file in `results_folder` if that is given instead, else nowhere."""
    results_folder: Path | None = None
    on_open: Callable[[Path], None] | None = None
    """Is told the results file when it is open and nothing is in it yet."""
    output_format: str | None = None
    include_trace: bool = False
    dump_prompts: Path | None = None
    dump_traces: Path | None = None
    otel: bool = False
    """Whether results are sent as OpenTelemetry traces."""
    collect_traces: bool = False
    """Whether the OpenTelemetry spans of targets are collected, and become their traces."""
    collect_port: int | None = None
    """The port on loopback where they are; any free one if this is not given."""
    collect_grace: float | None = None
    """Seconds without a span after which a trace is taken as it is."""
    by: str | None = None
    """What the summary groups cases by: a field, or a key of their metadata."""
    check_judge: bool = False
    """Whether planted answers are judged besides the run, and some of its answers once more."""

    @property
    def output(self) -> OutputOptions:
        """Where results go."""
        resume = ResumeOptions(self.trials, self.keep_stale, self.rerun_failed) if self.resume else None
        return OutputOptions(self.out, self.results_folder, self.output_format, resume)

    @property
    def limits(self) -> Limits:
        """What the run may take."""
        return Limits(self.max_cost, self.max_duration)

    @property
    def forecast_options(self) -> ForecastOptions:
        """What is asked when it is reckoned what a run will take."""
        cache = CACHE if self.cache and self.dry_run is None else None
        runs = self.runs_folder or RUNS
        return ForecastOptions(self.trials, self.workers, self.targets, cache, self.check_judge, self.max_retries, runs)

    def run_options(self, run_id: str) -> RunOptions:
        """Return how cases are run."""
        return RunOptions(
            run_id=run_id,
            include_inputs=self.include_inputs,
            workers=self.workers,
            timeout_seconds=self.timeout_seconds,
            max_retries=self.max_retries,
            cache=CACHE if self.cache and self.dry_run is None else None,
            include_trace=self.include_trace or self.otel,
            has_times=self.otel,
            dump_prompts=self.dump_prompts,
            dump_traces=self.dump_traces,
            trials=self.trials,
            max_errors=self.max_errors,
            batches=BatchOptions(self.batch_deadline, self.batch_fallback, self.command),
            collect=self._collect_options(),
        )

    def _collect_options(self) -> CollectOptions | None:
        if not self.collect_traces or self.dry_run is not None or self.stored is not None:
            return None
        return CollectOptions(self.collect_port, self.collect_grace)


class RunEnd(enum.Enum):
    """How a run ended."""

    COMPLETED = "completed"
    TOO_MANY_ERRORS = "too many errors"
    """Cases were left to run when `max_errors` was reached."""
    BUDGET = "budget"
    """Cases were left to run when `max_cost` or `max_duration` was reached."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    """Results could not be written, say."""


class RunReport(NamedTuple):
    """What became of a run."""

    plan: Plan
    summary: Summary
    end: RunEnd
    path: Path | None = None
    """The results file."""
    error: AgentvError | None = None
    """Why the run failed."""
    log: RunLog | None = None
    """The record of the run, to be ended by whoever knows the exit code."""
    judge_health: JudgeHealth | None = None
    """What is known of its judges, if it has any."""
    budget: Budget | None = None


async def evaluate(options: EvalOptions, sink: ResultSink | None, watcher: Watcher) -> RunReport:
    """Run the cases of eval files. Raise `AgentvError` if the run cannot start; then nothing was run or written.

    Each result is written to the results file, if there is one, and then given to the sink, without secrets.
    """
    cluster = parse_address(options.cluster) if options.cluster is not None else None
    plan, run_id = plan_evaluation(options), new_run_id()
    budget = budget_of(options.limits, plan, options.forecast_options, on_cluster=cluster is not None)
    watcher.announce(plan.describe(options.workers) + (f" each, on the cluster {options.cluster}" if cluster else ""))
    async with (
        OpenTargets(plan, options.run_options(run_id)) as targets,
        open_exporter(plan, is_wanted=options.otel) as exporter,
        _executor(cluster, options, plan, targets) as executor,
    ):
        judges = RunJudges(plan, targets, watcher)
        # warnings were already reported during planning
        evaluators = EvaluatorBuilder(judges, dry_run=plan.dry_run, warn=_ignore, targets=options.targets)
        judging = Judging(plan, targets, watcher, options.targets, checks=options.check_judge)
        cases = CaseRunner(
            plan,
            targets,
            evaluators,
            watcher,
            stored=options.stored,
            check=judging.check,
            rounds=judges.open_rounds(),
        )
        summary = Summary(plan.cases, plan.invalid, options.trials, clean, options.by)
        with open_output(options.output, plan, evaluators, summary) as output:
            judging.count_earlier(output)
            results = Results(output.file, summary, sink, _extensions(options, exporter, judging, budget))
            log = _start_record(options, plan, run_id, output.path)
            watcher.begin(plan.cases * options.trials, summary.already_done)
            is_done = _is_done(output, options.stored)
            error = None
            task = _current_task()
            try:
                with stop_on_signal(task) as stop:
                    await executor.run_jobs(cases, results=results, watcher=watcher, is_done=is_done)
                    await results.end()
            except asyncio.CancelledError:
                if not stop.is_requested:
                    raise
                task.uncancel()
            except BaseExceptionGroup as group:
                error = _only_error(group)
            finally:
                watcher.end()
            end = _how_it_ended(results, summary, error, is_interrupted=stop.is_requested)
    return RunReport(plan, summary, end, output.path, error, log, judging.health(output.path), budget)


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


def _how_it_ended(results: Results, summary: Summary, error: AgentvError | None, *, is_interrupted: bool) -> RunEnd:
    """Return how a run ended; tell the summary why cases were not run."""
    if error is not None:
        return RunEnd.FAILED
    if is_interrupted:
        return RunEnd.INTERRUPTED
    if summary.not_run <= 0:
        return RunEnd.COMPLETED
    end = _STOPPED[results.stopped_by]
    if end is RunEnd.BUDGET:
        summary.why_not_run = "budget"
    return end


def _start_record(options: EvalOptions, plan: Plan, run_id: str, results: Path | None) -> RunLog | None:
    """Return the record of the run, if it has one; tell who wants to know that the results file is open."""
    folder = options.runs_folder
    log = start_record(plan, run_id, options.command, results, folder) if folder is not None else None
    if options.on_open is not None and results is not None:
        options.on_open(results)
    return log


def forecast_evaluation(options: EvalOptions) -> Forecast:
    """Return what an evaluation would do and take. Nobody is asked, and nothing is written.

    Raise `AgentvError` if it could not start.
    """
    plan = plan_evaluation(options)
    budget_of(options.limits, plan, options.forecast_options, on_cluster=options.cluster is not None)
    builder = EvaluatorBuilder(NamedJudges(plan), dry_run=plan.dry_run, warn=_ignore, targets=options.targets)
    return make_forecast(plan, options.forecast_options, earlier_results(options.output, plan, builder))


_STOPPED = {"": RunEnd.COMPLETED, "budget": RunEnd.BUDGET, "errors": RunEnd.TOO_MANY_ERRORS}


def _extensions(
    options: EvalOptions, exporter: "Exporter | None", judging: Judging, budget: Budget | None
) -> list[Extension]:
    """Return the features that join a run. Each completes a result before the next one sees it."""
    found: list[Extension] = []
    if exporter is not None:
        found.append(SpanExport(exporter, include_trace=options.include_trace))
    found.append(judging)
    if options.stored is not None:
        found.append(_Grading(options.stored))
    if budget is not None:
        found.append(budget)
    if options.max_errors is not None:
        found.append(MaxErrors(options.max_errors))
    return found


def _executor(cluster: Address | None, options: EvalOptions, plan: Plan, targets: OpenTargets) -> Executor:
    """Return what runs the jobs."""
    if cluster is None:
        return LocalExecutor(plan, targets)
    from agentv.run.executors.cluster import ClusterExecutor, ClusterJob

    paths = tuple(eval_files(options.paths))
    job = ClusterJob(cluster, paths, options.targets, options.prices, options.check_judge)
    return ClusterExecutor(job, plan, targets)


def _ignore(_warning: Problem) -> None:
    pass


def _only_error(group: BaseExceptionGroup[BaseException]) -> AgentvError:
    """Return the first of our errors in a group; raise the group if it holds anything else."""
    ours, others = group.split(AgentvError)
    if ours is None or others is not None:
        raise group
    error: Any = ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    found: AgentvError = error
    return found


def plan_evaluation(options: EvalOptions) -> Plan:
    """Return what an evaluation will do. From here on the secrets of the project are masked."""
    shard = Shard.parse(options.shard, os.environ) if options.shard is not None else None
    paths = eval_files(options.paths)
    for path, variables in load_env([path.parent for path in paths]).items():
        note(f"variables are read from {path}")
        clean.learn(secrets_in(variables))
    _check_out(options.out, paths)
    only = failed_cases(options.failed_in) if options.failed_in is not None else None
    if options.only is not None:
        only = HashSet()
        for dataset, eval_id in options.only:
            only.add((clean(dataset), clean(eval_id)))
    selection = Selection(options.target, options.ids, options.limit, only, shard)
    dry_run, own = options.dry_run is not None, _stand_in(options)
    asked = PlanOptions(selection, options.targets, own, dry_run, options.trials, options.strict, options.prices)
    plan, secrets = make_plan(paths, asked)
    clean.learn(secrets)
    check_batches(plan, options.trials)
    return plan


def _check_out(out: Path | None, paths: Sequence[Path]) -> None:
    """Raise `OutputError` if results would be written over an eval file."""
    if out is not None and out != STDOUT and any(os.path.realpath(path) == os.path.realpath(out) for path in paths):
        raise OutputError("--out is one of the eval files", file=out, hint="results go into a file of their own")


def _stand_in(options: EvalOptions) -> Provider | None:
    """Return what answers in the place of every target, if anything does."""
    if options.dry_run is not None:
        return options.dry_run.provider()
    if options.stored is not None:
        return options.stored
    return PythonFunction(options.function) if options.function is not None else None


def _is_done(output: Output, stored: AnswersToGrade | None) -> IsDone | None:
    """Return what tells whether a trial of a case need not be run: it has a result, or no answer to score."""
    if stored is None:
        return output.is_done
    return lambda case, trial: not stored.wants(case, trial)


class _Grading(Extension):
    """Completes the results of graded answers, and keeps the stored results that were not graded."""

    def __init__(self, stored: AnswersToGrade):
        self._stored = stored

    def finish(self, result: EvalResult) -> EvalResult:
        return self._stored.finish(result)

    async def end(self, results: Results) -> None:
        for result, is_planned in self._stored.untouched():
            results.keep(result, is_planned=is_planned)
        results.count_missing(self._stored.missing, self._stored.without_case)
