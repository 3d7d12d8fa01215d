"""Run the cases of eval files.

The command line, `agentv.evaluate` and everything else that runs evaluations call `evaluate`. It handles `.env` files,
folders and globs, masking, resuming, and keeping all results when a run is stopped.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentv.calls.target_version import TargetVersion
from agentv.cases.discovery import eval_files
from agentv.cases.objects import NO_FILE, without_file
from agentv.cases.sample import CaseSample
from agentv.cases.shard import Shard, case_hash
from agentv.cases.unknown_fields import as_ignored
from agentv.config import configured_secrets
from agentv.errors import AgentvError, ConfigError, InternalError, OutputError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.files.compact_sets import HashSet
from agentv.files.fingerprint import digest
from agentv.filters.match import Filter
from agentv.log import debug, ignore, reworded, warn
from agentv.processes.interrupts import stop_on_signal
from agentv.protocols import Provider, ResultSink
from agentv.providers.python import PythonFunction
from agentv.records import EvalCase
from agentv.redact import clean
from agentv.results.runs import RunLog, new_run_id
from agentv.results.summary import Summary
from agentv.run.dumps import CaseDumps
from agentv.run.executor import Executor
from agentv.run.exit_code import requirements_of
from agentv.run.features import Opening, join_driver, join_worker, uses_batch_api
from agentv.run.jobs import IsDone
from agentv.run.judges import RunJudges
from agentv.run.local import LocalExecutor
from agentv.run.options import STDOUT, BatchOptions, EvalOptions, SelectionOptions
from agentv.run.output import RunOutput, open_output
from agentv.run.planning.plan import STAND_IN, Plan, PlanSource, Selection
from agentv.run.planning.planner import PlanOptions, make_plan
from agentv.run.progress import Progress
from agentv.run.record import commit_of, complete_record, read_git, start_record
from agentv.run.report import RunEnd, RunReport
from agentv.run.resume import failed_cases
from agentv.run.run import Results, Run
from agentv.run.targets import OpenTargets
from agentv.targets.dotenv import load_env
from agentv.versions.functions import UnknownVersion, function_version, value_version
from agentv.versions.modules import current_function, reload_changed_modules, remember_modules


async def evaluate(options: EvalOptions, sink: ResultSink | None, progress: Progress) -> RunReport:
    """Run the cases of eval files. Raise `AgentvError` before anything is run or written if the run cannot start.

    Each result is written to the results file, if there is one, and then passed to the sink. Secrets are masked.
    """
    cluster = _Cluster.parse(options.cluster)
    plan = plan_evaluation(options)
    run_id = new_run_id()
    git = read_git(options, plan)
    async with AsyncExitStack() as stack:
        if options.reloads_modules:
            stack.callback(remember_modules)
        run_options = options.run_options(run_id, commit_of(git))
        targets = await stack.enter_async_context(OpenTargets(plan, run_options))
        opening = Opening(
            plan=plan,
            targets=targets,
            progress=progress,
            stack=stack,
            options=options,
        )
        extensions = await join_driver(opening, options)
        description = plan.describe(options.run.workers)
        progress.announce(reworded(description + cluster.text))
        if not cluster.is_used:
            extensions += await join_worker(opening)
        executor = await stack.enter_async_context(cluster.executor(options, plan, targets))
        judges = RunJudges(plan, targets, progress, extensions=extensions)
        evaluators = EvaluatorBuilder(
            judges,
            dry_run=plan.dry_run,
            warn=ignore,  # warnings were already reported during planning
            targets=options.project.targets,
        )
        dumps = CaseDumps.open(targets.options, plan)
        summary = _new_summary(options, plan)
        opened = open_output(options.output, plan, evaluators, summary)
        output = stack.enter_context(opened)
        if options.on_open is not None and output.path is not None:
            options.on_open(output.path)
        stack.callback(progress.end)
        progress.begin(plan.cases * plan.trials, summary.already_done)
        results = Results(output.file, summary, sink, extensions)
        run = Run(
            plan=plan,
            targets=targets,
            evaluators=evaluators,
            progress=progress,
            results=results,
            extensions=tuple(extensions),
            is_done=_is_done(output, options),
            stored=options.stored,
            earlier=output.earlier,
            dumps=dumps,
        )
        ending = await _prepare(run, summary, output)
        log = start_record(options, plan, output, run_id, git)
        if ending.how in (RunEnd.COMPLETED, RunEnd.CASES_FAILED):  # the cases before the failure are run
            with _mark_cancelled(log, summary), _catch_end(run, summary) as ending:
                await executor.run_jobs(run)
                await run.end()
            _report_arrivals(plan, summary)
        progress.end()
        dumps.report_replaced()
    report = RunReport(
        plan=plan,
        summary=summary,
        end=ending.how,
        path=output.path,
        error=ending.error,
        earlier=output.earlier,
        log=log,
    )
    for extension in extensions:
        report = extension.add_to(report)
    return report


def _new_summary(options: EvalOptions, plan: Plan) -> Summary:
    """Return the summary of a run that has no results yet."""
    summary = Summary(plan.cases, plan.invalid, plan.trials, clean, options.by)
    summary.skipped = plan.skipped
    summary.requirements = requirements_of(plan)
    return summary


def _report_arrivals(plan: Plan, summary: Summary) -> None:
    """Report what planning could not know of cases that arrived while the run was under way."""
    objects = plan.source.objects
    if objects is None or not objects.is_streamed:
        return
    summary.skipped = objects.skipped
    for problem in objects.unknown_fields():
        ignored = as_ignored(problem)
        warn(without_file(ignored))


@dataclass
class _Ending:
    """How a run ended."""

    how: RunEnd = RunEnd.COMPLETED
    error: AgentvError | None = None


async def _prepare(run: Run, summary: Summary, output: RunOutput) -> _Ending:
    """Prepare a run, and return how that ended. Restore the results file and raise the error if no case can be sent."""
    with _catch_end(run, summary) as ending:
        await run.prepare()
    if ending.error is not None:
        output.undo()
        raise ending.error
    output.keep()
    return ending


@contextmanager
def _catch_end(run: Run, summary: Summary) -> Iterator[_Ending]:
    """Catch signals and errors that end a run early, and record how it ended."""
    ending = _Ending()
    task = _current_task()
    try:
        with stop_on_signal(task) as stop:
            yield ending
    except asyncio.CancelledError:
        if not stop.is_requested:
            raise
        task.uncancel()
    except BaseExceptionGroup as group:
        ending.error = _first_error(group)
    except AgentvError as error:
        ending.error = error
    except Exception as error:
        ending.error = InternalError(error)
    finally:
        summary.cases = run.plan.cases  # of an iterable, more may have arrived
    ending.how = _how_ended(run, summary, ending.error, is_interrupted=stop.is_requested)
    if ending.how is RunEnd.INTERRUPTED:
        for extension in run.extensions:
            extension.interrupted()
    if ending.how is RunEnd.BUDGET:
        summary.why_not_run = "budget"


def _how_ended(run: Run, summary: Summary, error: AgentvError | None, *, is_interrupted: bool) -> RunEnd:
    """Return how a run ended."""
    if isinstance(error, InternalError):
        return RunEnd.INTERNAL_ERROR
    if error is not None:
        return RunEnd.FAILED
    if is_interrupted:
        return RunEnd.INTERRUPTED
    if run.plan.failure is not None:
        return RunEnd.CASES_FAILED
    if summary.not_run > 0 or (run.stopped_by and run.plan.source.is_streamed):
        return _STOPPED.get(run.stopped_by, RunEnd.COMPLETED)
    return RunEnd.COMPLETED


@contextmanager
def _mark_cancelled(log: RunLog | None, summary: Summary) -> Iterator[None]:
    """Complete the record of a run that the program around it cancels, as Ctrl-C does in a notebook."""
    started = time.monotonic()
    try:
        yield
    except (asyncio.CancelledError, KeyboardInterrupt):
        complete_record(log, summary, "interrupted", time.monotonic() - started)
        raise


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


_STOPPED = {
    "budget": RunEnd.BUDGET,
    "errors": RunEnd.TOO_MANY_ERRORS,
}
"""How a run ended, by the reason of the built-in extension that stopped it. Other extensions have other reasons."""


class _Cluster(NamedTuple):
    """Where the cases of a run are executed: on a cluster, or in this process if there is no address."""

    address: Any = None
    name: str = ""

    @classmethod
    def parse(cls, name: str | None) -> Self:
        """Parse the value of `--cluster`. Raise `ConfigError` if it is invalid."""
        if name is None:
            return cls()
        module = import_module("agentv.cluster.address")
        return cls(module.parse_address(name), name)

    @property
    def is_used(self) -> bool:
        return self.address is not None

    @property
    def text(self) -> str:
        """The end of the line that describes the run before it starts."""
        if not self.is_used:
            return ""
        return f" each, on the cluster {self.name}"

    def executor(self, options: EvalOptions, plan: Plan, targets: OpenTargets) -> Executor:
        """Return the executor of the jobs."""
        if not self.is_used:
            return LocalExecutor(targets)
        module = import_module("agentv.cluster.executor")
        cluster_options = module.ClusterOptions(
            self.address,
            tuple(eval_files(options.paths)),
            options.project,
            options.check_judge,
        )
        executor: Executor = module.ClusterExecutor(cluster_options, plan, targets)
        return executor


def _first_error(group: BaseExceptionGroup[BaseException]) -> AgentvError:
    """Return the error that ended a run: the first unexpected exception of a group, else the first `AgentvError`.

    Raise the group if it contains an exception that is not an error, such as `KeyboardInterrupt`.
    """
    errors, others = group.split(Exception)
    if errors is None or others is not None:
        raise group
    ours, unexpected = errors.split(AgentvError)
    error: Any = unexpected or ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, AgentvError):
        return error
    return InternalError(error)


def plan_evaluation(options: EvalOptions) -> Plan:
    """Plan an evaluation. From here on, the secrets of the project are masked.

    With `reloads_modules`, user modules that have changed since an earlier evaluation in this process are reloaded.
    """
    if not options.reloads_modules:
        return _plan(options)
    reload_changed_modules()
    try:
        return _plan(options)
    finally:
        remember_modules()


def _plan(options: EvalOptions) -> Plan:
    asked = options.selection
    shard = None
    if asked.shard is not None:
        shard = Shard.parse(asked.shard, os.environ)
    if options.cases is not None:
        paths = [NO_FILE]
        options.cases.is_streamed = not options.cases.is_list and not _needs_all_cases(options)
    else:
        paths = eval_files(options.paths)
    folders = [path.parent for path in paths]
    for path in load_env(folders):
        debug(f"variables are read from {path}")
    for folder in dict.fromkeys(folders):
        clean.learn(configured_secrets(folder, os.environ))
    _check_out(options.output.out, paths)
    selection = Selection(
        target=asked.target,
        ids=asked.ids,
        limit=asked.limit,
        only=_only(asked),
        shard=shard,
        filter=_filter(asked.filter),
        sample=_sample(asked),
    )
    stand_in = _stand_in(options)
    plan_options = PlanOptions(
        selection=selection,
        project=options.project,
        stand_in=stand_in,
        stand_in_version=_stand_in_version(options, stand_in),
        dry_run=options.mock.dry_run,
        trials=options.run.trials,
        source=PlanSource(options.cases, options.defaults),
        require=tuple(Filter.parse([text], "cases") for text in options.gates.require),
        needs_attachments=options.stored is None,
    )
    plan, secrets = make_plan(paths, plan_options)
    if options.cases is not None and options.cases.is_streamed and _has_batches(plan):
        options.cases.is_streamed = False  # a batch has all cases
        plan, secrets = make_plan(paths, plan_options)
    clean.learn(secrets)
    _check_batch_options(options.run.batches, plan)
    return plan


def _needs_all_cases(options: EvalOptions) -> bool:
    """Return whether a run must know all its cases before the first one starts."""
    selection = options.selection
    return (
        options.output.resume
        or options.check_judge
        or bool(selection.ids or options.gates.require)
        or selection.sample is not None
        or selection.shard is not None
    )


def _has_batches(plan: Plan) -> bool:
    """Return whether a target answers many cases at once."""
    if uses_batch_api(plan):
        return True
    if plan.stand_in is not None:
        return False
    for target in plan.targets:
        settings = target.settings
        if settings is not None and settings.answers_batches and settings.provider_batching is True:
            return True
    return False


def _check_batch_options(batches: BatchOptions, plan: Plan) -> None:
    """Raise `ConfigError` for batch API options in a run that uses no batch API.

    Batch targets are unknown in a dry run, and in a shard that has no case for them.
    """
    if plan.dry_run or plan.shard_plan is not None or uses_batch_api(plan):
        return
    option = ""
    if not batches.batch_fallback:
        option = "--no-batch-fallback"
    elif batches.batch_deadline is not None:
        option = "--batch-deadline"
    if option:
        raise ConfigError(
            f"{option}: no target or judge of this run uses a batch API",
            hint="set 'batch_api: true' on a target, or run without this option",
        )


def _filter(texts: tuple[str, ...]) -> Filter | None:
    """Return the filter of the cases that may run, or None for all cases."""
    if not texts:
        return None
    return Filter.parse(texts, "cases")


def _sample(asked: SelectionOptions) -> CaseSample | None:
    if asked.sample is None:
        return None
    return CaseSample(asked.sample, asked.seed or 0)


def _only(asked: SelectionOptions) -> HashSet | None:
    """Return the hashes of the cases that may run, or None for all cases."""
    if asked.only is not None:
        only = HashSet()
        for dataset, eval_id, _trial in asked.only:
            only.add(case_hash(clean(dataset), clean(eval_id)))
        return only
    if asked.failed_in is not None:
        return failed_cases(asked.failed_in)
    return None


def _check_out(out: Path | None, paths: Sequence[Path]) -> None:
    """Raise `OutputError` if the results would overwrite an eval file."""
    if out is None or out == STDOUT:
        return
    real_out = os.path.realpath(out)
    for path in paths:
        if os.path.realpath(path) == real_out:
            raise OutputError(
                "--out is one of the eval files",
                file=out,
                hint="choose another file for the results",
            )


def _stand_in(options: EvalOptions) -> Provider | None:
    """Return the provider that answers instead of every target, if there is one."""
    if options.mock.dry_run:
        return options.mock.provider()
    if options.stored is not None:
        return options.stored
    if options.function is not None:
        return PythonFunction(current_function(options.function), config=options.config)
    return None


def _stand_in_version(options: EvalOptions, stand_in: Provider | None) -> TargetVersion:
    """Return the version of a function that answers instead of every target.

    Raise `ConfigError` if it cannot be determined and answers of other versions could be mixed with its own.
    """
    if not isinstance(stand_in, PythonFunction):
        return STAND_IN
    try:
        version = options.version or function_version(stand_in.function)
        if options.config is not None:
            version = f"{version} {value_version(options.config, 'config')}"
    except UnknownVersion as error:
        for name, is_used in (("cache", options.run.cache), ("resume", options.output.resume)):
            if is_used:
                raise ConfigError(
                    f"{name}=True: the version of the function cannot be determined: {error}",
                    hint="set version='1', and change it whenever the function changes",
                ) from error
        return STAND_IN
    return TargetVersion(digest("function", version))


def _is_done(output: RunOutput, options: EvalOptions) -> IsDone | None:
    """Return the function that decides whether a trial is skipped.

    A trial is skipped if it has a result, if it has no stored answer to score, or if it was not selected.
    """
    stored = options.stored
    if stored is not None:
        return lambda case, trial: not stored.wants(case, trial)
    has_result = output.is_done
    if options.selection.only is None:
        return has_result
    selected = {(clean(dataset), clean(eval_id), trial) for dataset, eval_id, trial in options.selection.only}

    def is_skipped(case: EvalCase, trial: int) -> bool:
        if (clean(case.dataset), clean(case.id), trial) not in selected:
            return True
        return has_result is not None and has_result(case, trial)

    return is_skipped
