"""Stored answers and eval files -> results with the scores of today. The target is never asked."""

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
    """What is graded, besides how a run goes."""

    results: Path
    only: Only | None = None
    evaluators: tuple[str, ...] = ()


async def grade(options: GradeOptions, run: EvalOptions, watcher: Watcher) -> tuple[RunReport, StoredRun]:
    """Score the answers in a results file with the evaluators that eval files have now.

    `run` is what to do with them, as for `evaluate`. Raise `AgentvError` if the grading cannot start.
    """
    if options.evaluators:
        _check_names(options.evaluators, run.paths)
    stored = StoredRun(options.results, options.only, options.evaluators, run.target)
    stored.is_part = bool(run.ids)
    try:
        target = run.target or (next(iter(stored.targets)) if len(stored.targets) == 1 else None)
        changed = msgspec.structs.replace(run, stored=stored, trials=stored.trials, target=target or None)
        report = await evaluate(changed, None, watcher)
    finally:
        stored.close()
    _warn(stored)
    return report, stored


def _check_names(names: tuple[str, ...], paths: tuple[str, ...]) -> None:
    """Raise `ConfigError` for an evaluator that no case has."""
    known: dict[str, None] = {}
    for path in eval_files(paths):
        for case in read_eval_file(path, lambda _: None):
            known.update(dict.fromkeys(evaluator_names(case)))
    for name in names:
        if name not in known:
            raise ConfigError(f"no case has an evaluator {name!r}", hint=nearest(name, known))


def _warn(stored: StoredRun) -> None:
    """Tell what a reader of the new scores must know."""
    if count := stored.changed_questions:
        cases = "1 answer is to a question" if count == 1 else f"{count} answers are to questions"
        message = f"{cases} that the case does not ask any more: they were graded all the same"
        warn(Problem(message=message, severity="warning", file=stored.path))
    if count := stored.without_trace:
        answers = "1 answer was" if count == 1 else f"{count} answers were"
        hint = "run with --include-trace, so that traces can be graded later"
        message = f"{answers} stored without the trace: evaluators that look at tool calls cannot judge them"
        warn(Problem(message=message, severity="warning", file=stored.path, hint=hint))
