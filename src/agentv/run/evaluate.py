"""Run the cases of eval files.

The command line, `agentv.evaluate` and everything else that runs evaluations call `evaluate`. It plans a run, opens
what the run needs, and keeps all results when the run is stopped.
"""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import NamedTuple

from agentv.cases.objects import without_file
from agentv.cases.unknown_fields import as_ignored
from agentv.errors import AgentvError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.log import ignore, reworded, warn
from agentv.protocols import ResultSink
from agentv.records import EvalCase
from agentv.redact import clean
from agentv.results.runs import new_run_id
from agentv.results.summary import Summary
from agentv.run.dumps import CaseDumps
from agentv.run.end import Ending, catch_end, mark_cancelled
from agentv.run.executor import ExecutorChoice
from agentv.run.exit_code import requirements_of
from agentv.run.extensions import Extension
from agentv.run.features import Opening, join_driver, join_worker
from agentv.run.jobs import IsDone
from agentv.run.judges import RunJudges
from agentv.run.options import EvalOptions
from agentv.run.output import RunOutput, open_output
from agentv.run.planning.evaluation import plan_evaluation
from agentv.run.planning.plan import Plan
from agentv.run.progress import Progress
from agentv.run.record import commit_of, read_git, start_record
from agentv.run.report import RunEnd, RunReport
from agentv.run.run import Results, Run
from agentv.run.targets import OpenTargets
from agentv.versions.modules import remember_modules


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
        with _restored_on_failure(output):
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
    return ending


@contextmanager
def _restored_on_failure(output: RunOutput) -> Iterator[None]:
    """Restore the results file if the block raises: the run has not started. Keep the new one otherwise."""
    try:
        yield
    except AgentvError:
        output.undo()
        raise
    output.keep()


def _report_arrivals(plan: Plan, summary: Summary) -> None:
    """Report what planning could not know of cases that arrived while the run was under way."""
    objects = plan.source.objects
    if objects is None or not objects.is_streamed:
        return
    summary.skipped = objects.skipped
    for problem in objects.unknown_fields():
        ignored = as_ignored(problem)
        warn(without_file(ignored))


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
