"""Read results files into columns, or report all their problems."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from agentv.compare.blocks import Block, make_block
from agentv.compare.columns import Index, RunColumns
from agentv.compare.records import CompareOptions
from agentv.errors import ResultsError
from agentv.records import Problem
from agentv.results.merging.merge import open_results
from agentv.results.read import TORN_HINT, read_blocks, unreadable
from agentv.results.run_files import RunFiles, files_of, name_of
from agentv.results.views import PartsView, ResultView

NO_RESULTS = "name a file that 'agentv eval' has written"
_SEPARATOR = "\x1f"
"""Separates the group from the id in the keys of a grouped index."""


class Runs(NamedTuple):
    """The results of several runs, with one numbering of their cases."""

    columns: Sequence[RunColumns]
    ids: Sequence[str]
    """The id of each case."""
    groups: Sequence[str]
    """The dataset or the target of each case in `RunColumns.grouped`."""


def read_runs(files: Sequence[RunFiles], options: CompareOptions) -> Runs:
    """Return the results of all runs. Raise `ResultsError` with the problems of all of them."""
    index = Index()
    grouped = Index()
    runs: list[RunColumns] = []
    problems: list[Problem] = []
    for run_files in files:
        try:
            runs.append(_read_run(run_files, options, index, grouped))
        except ResultsError as error:
            problems += error.problems
    problems += _check_clusters(runs, options.cluster)
    if problems:
        raise ResultsError(problems)
    ids = list(index)
    groups = [sys.intern(name.partition(_SEPARATOR)[0]) for name in grouped]
    index.clear()  # it holds most of the memory
    for run in runs:
        run.grow(len(ids))
        if run.grouped is not None:
            run.grouped.grow(len(groups))
    return Runs(runs, ids, groups)


def _read_run(
    files: RunFiles,
    options: CompareOptions,
    index: Index,
    grouped: Index,
) -> RunColumns:
    """Return the results of a run. Raise `ResultsError` with all its problems.

    `grouped` is the index of cases by dataset or target in addition to their id.
    """
    path = name_of(files)
    run = RunColumns(path, index)
    if options.by in ("dataset", "target"):
        run.grouped = RunColumns(path, grouped)
    view = ResultView
    if options.by == "evaluator" or options.label is not None or options.cluster is not None:
        view = PartsView
    problems: list[Problem] = []
    try:
        with open_results(files_of(files)) as file:
            for rows in read_blocks(file, path, problems, view):
                if rows:
                    block = make_block(rows, options)
                    _add_block(run, block)
    except OSError as error:
        problems.append(Problem.of(unreadable(error, path)))
    if options.skip_torn:
        problems = [problem for problem in problems if problem.hint != TORN_HINT]
    if not problems and not run.results:
        problem = Problem(
            message="there are no results in this file",
            file=path,
            hint=NO_RESULTS,
        )
        problems.append(problem)
    if problems:
        raise ResultsError(problems)
    run.merge_repeats()
    if run.grouped is not None:
        run.grouped.merge_repeats()
    return run


def _add_block(run: RunColumns, block: Block) -> None:
    """Add the results of a block to a run, and to its grouped columns if it has any."""
    run.add_block(block)
    if run.grouped is None or block.groups is None:
        return
    keys = []
    for group, eval_id in zip(block.groups, block.ids, strict=True):
        keys.append(f"{group}{_SEPARATOR}{eval_id}")
    run.grouped.add_block(block._replace(ids=keys))


def _check_clusters(runs: Sequence[RunColumns], cluster: str | None) -> list[Problem]:
    """Return a problem if no result has the field or key that cases are clustered by."""
    if cluster is None or not runs:
        return []
    if any(run.clusters is not None for run in runs):
        return []
    paths = dict.fromkeys(str(run.path) for run in runs)
    problem = Problem(
        message=f"no result in {' or '.join(paths)} has {cluster!r}",
        hint="--cluster is a key of the results' metadata, or one of conversation_id, dataset, target",
    )
    return [problem]
