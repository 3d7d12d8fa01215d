"""Re-score stored answers with the current evaluators. The target is never called."""

from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentv.cases.discovery import eval_files
from agentv.cases.read import read_eval_file
from agentv.errors import ConfigError, nearest
from agentv.evaluators.configs import evaluator_names
from agentv.filters.match import Filter
from agentv.grading.stored import Only, StoredRun
from agentv.log import ignore, warn
from agentv.records import Problem
from agentv.results.run_files import read_views
from agentv.results.select import nothing_matches
from agentv.results.views import FilterRow
from agentv.run.evaluate import evaluate
from agentv.run.options import EvalOptions, SelectionOptions
from agentv.run.progress import Progress
from agentv.run.report import RunReport
from agentv.text import plural


class GradeOptions(NamedTuple):
    """The options of grading that a run does not have."""

    results: Path
    only: Only | None = None
    evaluators: tuple[str, ...] = ()
    allow_masked: bool = False


async def grade(
    options: GradeOptions,
    run: EvalOptions,
    progress: Progress,
) -> tuple[RunReport, StoredRun]:
    """Score the answers in a results file with the current evaluators of the eval files.

    `run` has the same options as for `evaluate`. Raise `AgentvError` if grading cannot start.
    """
    is_part = bool(run.selection.ids or run.selection.filter)
    run = replace(run, selection=_select_by_results(options.results, run.selection))
    if options.evaluators:
        _check_names(options.evaluators, run.paths)
    stored = StoredRun(
        options.results,
        only=options.only,
        names=options.evaluators,
        target=run.selection.target,
        is_part=is_part,
    )
    stored.allow_masked = options.allow_masked
    try:
        target = run.selection.target
        if not target and len(stored.targets) == 1:
            (target,) = stored.targets
        grading = replace(
            run,
            stored=stored,
            selection=replace(run.selection, target=target or None),
            run=replace(run.run, trials=stored.trials),
        )
        report = await evaluate(grading, None, progress)
    finally:
        stored.close()
    _warn(stored)
    return report, stored


def _select_by_results(path: Path, selection: SelectionOptions) -> SelectionOptions:
    """Return the selection, with the filter terms about results applied to the results in the file.

    A case with several results is selected if one of them matches. Raise `ConfigError` if none does.
    """
    about_cases, about_results = Filter.parse(selection.filter, "results").split()
    if not about_results:
        return selection
    matching: dict[tuple[str, str, int], None] = {}
    for row in read_views(path, FilterRow, ignore):
        if about_results.matches(row):
            matching[row.dataset, row.eval_id, 1] = None
    if not matching:
        raise nothing_matches(about_results, path)
    texts: tuple[str, ...] = ()
    if about_cases:
        texts = (str(about_cases),)
    return replace(selection, filter=texts, only=tuple(matching))


def _check_names(names: tuple[str, ...], paths: tuple[str, ...]) -> None:
    """Raise `ConfigError` for an evaluator that no case has."""
    known: set[str] = set()
    for path in eval_files(paths):
        for case in read_eval_file(path, lambda _: None):
            known.update(evaluator_names(case))
    for name in names:
        if name not in known:
            raise ConfigError(f"no case has an evaluator named {name!r}", hint=nearest(name, known))


def _warn(stored: StoredRun) -> None:
    """Warn about changed questions, changed metadata and missing traces, which affect the new scores."""
    count = stored.changed_questions
    if count:
        answers = plural(count, "answer belongs", "answers belong")
        changed = Problem(
            message=f"{answers} to an earlier version of the question; graded anyway",
            severity="warning",
            file=stored.path,
        )
        warn(changed)
    count = stored.changed_metadata
    if count:
        answers = plural(count, "answer was", "answers were")
        other_metadata = Problem(
            message=f"{answers} graded with the stored metadata, which differs from that of the case",
            severity="warning",
            file=stored.path,
            hint="expected_outcome, expected_output and the settings of evaluators are taken from the case",
        )
        warn(other_metadata)
    count = stored.without_trace
    if count:
        answers = plural(count, "answer was", "answers were")
        without_trace = Problem(
            message=f"{answers} stored without a trace: evaluators of tool calls cannot judge them",
            severity="warning",
            file=stored.path,
            hint="run with --include-trace to make traces available for grading",
        )
        warn(without_trace)
