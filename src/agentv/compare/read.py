"""Results files -> their columns, or everything that is wrong with them."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from agentv.compare.blocks import make_block
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
"""Stands between a group and an id where the cases of each group are kept apart."""


class Runs(NamedTuple):
    """The results of several files, with one numbering of their cases."""

    columns: Sequence[RunColumns]
    ids: Sequence[str]
    """The id of each case."""
    groups: Sequence[str]
    """The dataset or the target of each case, where those with the same id are kept apart."""


def read_runs(files: Sequence[RunFiles], options: CompareOptions) -> Runs:
    """Return the results of all the runs; raise `ResultsError` with all the problems of all of them."""
    index, grouped = Index(), Index()
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
    ids, groups = list(index), [sys.intern(name.partition(_SEPARATOR)[0]) for name in grouped]
    index.clear()  # most of what is held
    for run in runs:
        run.grow(len(ids))
        if run.grouped is not None:
            run.grouped.grow(len(groups))
    return Runs(runs, ids, groups)


def _read_run(files: RunFiles, options: CompareOptions, index: Index, grouped: Index) -> RunColumns:
    """Return the results of a run; raise `ResultsError` with everything that is wrong with it.

    `grouped` is the index of cases that are kept apart by dataset or target.
    """
    path = name_of(files)
    run = RunColumns(path, index)
    run.grouped = RunColumns(path, grouped) if options.by in ("dataset", "target") else None
    problems: list[Problem] = []
    needs_parts = options.by == "evaluator" or options.label is not None or options.cluster is not None
    view = PartsView if needs_parts else ResultView
    try:
        with open_results(files_of(files)) as file:
            for rows in filter(None, read_blocks(file, path, problems, view)):
                block = make_block(rows, options)
                run.add_block(block)
                if run.grouped is not None and block.groups is not None:
                    named = zip(block.groups, block.ids, strict=True)
                    run.grouped.add_block(block._replace(ids=[f"{name}{_SEPARATOR}{id_}" for name, id_ in named]))
    except OSError as error:
        problems.append(Problem.of(unreadable(error, path)))
    if options.skip_torn:
        problems = [problem for problem in problems if problem.hint != TORN_HINT]
    if not problems and not run.results:
        problems.append(Problem(message="there are no results in this file", file=path, hint=NO_RESULTS))
    if problems:
        raise ResultsError(problems)
    for each in (run, run.grouped):
        if each is not None:
            each.merge_repeats()
    return run


def _check_clusters(runs: Sequence[RunColumns], cluster: str | None) -> list[Problem]:
    """Return a problem if no result has what cases are to be clustered by."""
    if cluster is None or not runs or any(run.clusters is not None for run in runs):
        return []
    message = f"no result in {' or '.join(dict.fromkeys(str(run.path) for run in runs))} has {cluster!r}"
    hint = "--cluster is a key of the results' metadata, or one of conversation_id, dataset, target"
    return [Problem(message=message, hint=hint)]
