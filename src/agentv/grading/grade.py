"""Re-score stored answers with the current evaluators. The target is never called."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.cases.read import read_eval_file
from agentv.errors import ConfigError, nearest
from agentv.evaluators.build import evaluator_names
from agentv.grading.stored import Only, StoredRun
from agentv.notices import warn
from agentv.project.discovery import eval_files
from agentv.records import Problem
from agentv.run.evaluate import EvalOptions, RunReport, evaluate
from agentv.run.watching.watcher import Watcher


class GradeOptions(NamedTuple):
    """The options of grading that a run does not have."""

    results: Path
    only: Only | None = None
    evaluators: tuple[str, ...] = ()


async def grade(
    options: GradeOptions,
    run: EvalOptions,
    watcher: Watcher,
) -> tuple[RunReport, StoredRun]:
    """Score the answers in a results file with the current evaluators of the eval files.

    `run` has the same options as for `evaluate`. Raise `AgentvError` if grading cannot start.
    """
    if options.evaluators:
        _check_names(options.evaluators, run.paths)
    stored = StoredRun(
        options.results,
        only=options.only,
        names=options.evaluators,
        target=run.target,
        is_part=bool(run.ids),
    )
    try:
        target = run.target
        if not target and len(stored.targets) == 1:
            (target,) = stored.targets
        grading = msgspec.structs.replace(
            run,
            stored=stored,
            trials=stored.trials,
            target=target or None,
        )
        report = await evaluate(grading, None, watcher)
    finally:
        stored.close()
    _warn(stored)
    return report, stored


def _check_names(names: tuple[str, ...], paths: tuple[str, ...]) -> None:
    """Raise `ConfigError` for an evaluator that no case has."""
    known: set[str] = set()
    for path in eval_files(paths):
        for case in read_eval_file(path, lambda _: None):
            known.update(evaluator_names(case))
    for name in names:
        if name not in known:
            raise ConfigError(f"no case has an evaluator {name!r}", hint=nearest(name, known))


def _warn(stored: StoredRun) -> None:
    """Warn about what affects the new scores: questions that have changed, and answers without a trace."""
    count = stored.changed_questions
    if count:
        answers = "1 answer is to a question" if count == 1 else f"{count} answers are to questions"
        changed = Problem(
            message=f"{answers} that the case does not ask any more: they were graded all the same",
            severity="warning",
            file=stored.path,
        )
        warn(changed)
    count = stored.without_trace
    if count:
        answers = "1 answer was" if count == 1 else f"{count} answers were"
        without_trace = Problem(
            message=f"{answers} stored without the trace: evaluators that look at tool calls cannot judge them",
            severity="warning",
            file=stored.path,
            hint="run with --include-trace, so that traces can be graded later",
        )
        warn(without_trace)
