"""Run the cases of eval files.

The command line, `agentv.evaluate` and everything else that runs evaluations call `evaluate`. It handles `.env` files,
folders and globs, masking, resuming, and keeping all results when a run is stopped.
"""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from agentv.calls.target_version import TargetVersion
from agentv.cases.discovery import eval_files
from agentv.cases.id_patterns import IdPatterns
from agentv.cases.objects import NO_FILE, without_file
from agentv.cases.sample import CaseSample
from agentv.cases.shard import Shard, case_hash
from agentv.cases.unknown_fields import as_ignored
from agentv.config import configured_secrets
from agentv.errors import ConfigError, OutputError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.files.compact_sets import HashSet
from agentv.files.fingerprint import digest
from agentv.filters.match import Filter
from agentv.log import debug, ignore, reworded, warn
from agentv.protocols import Provider, ResultSink
from agentv.providers.python import PythonFunction
from agentv.records import EvalCase
from agentv.redact import clean
from agentv.results.runs import new_run_id
from agentv.results.summary import Summary
from agentv.run.dumps import CaseDumps
from agentv.run.end import Ending, catch_end, mark_cancelled
from agentv.run.executor import ExecutorChoice
from agentv.run.exit_code import requirements_of
from agentv.run.extensions import Extension
from agentv.run.features import Opening, join_driver, join_worker, uses_batch_api
from agentv.run.jobs import IsDone
from agentv.run.judges import RunJudges
from agentv.run.options import BatchOptions, EvalOptions, SelectionOptions
from agentv.run.output import RunOutput, open_output
from agentv.run.planning.plan import STAND_IN, Plan, PlanSource, Selection
from agentv.run.planning.planner import PlanOptions, make_plan
from agentv.run.progress import Progress
from agentv.run.record import commit_of, read_git, start_record
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
    choice = ExecutorChoice.parse(options.cluster)
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
        progress.announce(reworded(description + choice.text))
        if not choice.is_cluster:
            extensions += await join_worker(opening)
        executor = await stack.enter_async_context(choice.executor(options, plan, targets))
        run, summary, output = _open_run(opening, options, extensions, sink)
        ending = await _prepare(run, summary, output)
        log = start_record(options, plan, output, run_id, git)
        if ending.how in (RunEnd.COMPLETED, RunEnd.CASES_FAILED):  # the cases before the failure are run
            with mark_cancelled(log, run.plan, summary), catch_end(run, summary) as ending:
                await executor.run_jobs(run)
                await run.end()
            _report_arrivals(plan, summary)
        progress.end()
        run.dumps.report_replaced()
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


class _OpenRun(NamedTuple):
    """A run that is about to start."""

    run: Run
    summary: Summary
    output: RunOutput


def _open_run(
    opening: Opening,
    options: EvalOptions,
    extensions: Sequence[Extension],
    sink: ResultSink | None,
) -> _OpenRun:
    """Open the results file, and return the run. Whatever is opened is closed at the end of the run."""
    plan = opening.plan
    targets = opening.targets
    progress = opening.progress
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
    output = opening.stack.enter_context(opened)
    if options.on_open is not None and output.path is not None:
        options.on_open(output.path)
    opening.stack.callback(progress.end)
    progress.begin(plan.jobs, summary.already_done)
    run = Run(
        plan=plan,
        targets=targets,
        evaluators=evaluators,
        progress=progress,
        results=Results(output.file, summary, sink, extensions),
        extensions=tuple(extensions),
        is_done=_is_done(output, options),
        stored=options.stored,
        earlier=output.earlier,
        dumps=dumps,
    )
    return _OpenRun(run, summary, output)


def _new_summary(options: EvalOptions, plan: Plan) -> Summary:
    """Return the summary of a run that has no results yet."""
    summary = Summary(plan.cases, plan.invalid, plan.trials, clean, options.by)
    summary.skipped = plan.skipped
    summary.requirements = requirements_of(plan)
    return summary


async def _prepare(run: Run, summary: Summary, output: RunOutput) -> Ending:
    """Prepare a run, and return how that ended. Restore the results file and raise the error if no case can be sent."""
    with catch_end(run, summary) as ending:
        await run.prepare()
    if ending.error is not None:
        output.undo()
        raise ending.error
    output.keep()
    return ending


def _report_arrivals(plan: Plan, summary: Summary) -> None:
    """Report what planning could not know of cases that arrived while the run was under way."""
    objects = plan.source.objects
    if objects is None or not objects.is_streamed:
        return
    summary.skipped = objects.skipped
    for problem in objects.unknown_fields():
        ignored = as_ignored(problem)
        warn(without_file(ignored))


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
    _check_outputs(options, paths)
    selection = Selection(
        target=asked.target,
        ids=IdPatterns(asked.ids),
        limit=asked.limit,
        only=_only(asked),
        shard=shard,
        filter=_filter(asked.filter),
        sample=_sample(asked),
    )
    stand_in = _stand_in(options)
    keys: tuple[str, ...] = ()
    if options.needs_keys:
        keys = options.by
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
        keys=keys,
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


def _check_outputs(options: EvalOptions, paths: Sequence[Path]) -> None:
    """Raise `OutputError` if a file that the run writes would overwrite an eval file."""
    evals = {os.path.realpath(path) for path in paths}
    for flag, path in options.written_files().items():
        if os.path.realpath(path) in evals:
            raise OutputError(f"{flag} is one of the eval files", file=path, hint="name another file")


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
