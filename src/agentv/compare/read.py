"""Read results files into columns, or report all their problems."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agentv.compare.blocks import ColumnBlock, make_block
from agentv.compare.case_index import Index
from agentv.compare.columns import RunColumns
from agentv.compare.records import CompareOptions
from agentv.compare.selection import ANY_DATASET, CaseSelection
from agentv.errors import ResultsError
from agentv.records import Problem
from agentv.results.read import TRUNCATED_HINT, read_blocks, unreadable
from agentv.results.run_files import RunFiles, files_of, name_of, open_results
from agentv.results.views import PartsRow, ResultRow, ScoreRow

NO_RESULTS = "pass a results file written by 'agentv eval'"
_SEPARATOR = "\x1f"
"""Separates the group from the id in the keys of a grouped index."""


class ComparedRuns(NamedTuple):
    """The results of several runs, with one numbering of their cases."""

    columns: Sequence[RunColumns]
    ids: Sequence[str]
    """The id of each case."""
    groups: Sequence[str]
    """The target of each case in `RunColumns.grouped`."""
    datasets: Mapping[int, str]
    """The datasets of the cases that are matched by dataset and id, by their numbers."""
    selection: CaseSelection | None = None
    """The cases that were read. None means all of them."""

    @property
    def shared_ids(self) -> frozenset[str]:
        """The ids of the cases that are matched by dataset and id."""
        return frozenset(map(self.ids.__getitem__, self.datasets))


def read_compared_runs(
    files: Sequence[RunFiles],
    options: CompareOptions,
    selection: CaseSelection | None = None,
) -> ComparedRuns:
    """Return the results of all runs, or those of the selected cases.

    Raise `ResultsError` with the problems of all runs.
    """
    index = Index()
    grouped = Index()
    runs: list[RunColumns] = []
    problems: list[Problem] = []
    for run_files in files:
        try:
            runs.append(_read_run(run_files, options, index, grouped, selection))
        except ResultsError as error:
            problems += error.problems
    problems += _check_clusters(runs, options.cluster)
    if problems:
        raise ResultsError(problems)
    datasets = _merge_results(runs, index)
    grouped_runs = [run.grouped for run in runs if run.grouped is not None]
    _merge_results(grouped_runs, grouped)
    ids = index.ids()
    groups = [sys.intern(name.partition(_SEPARATOR)[0]) for name in grouped.ids()]
    index.clear()  # it uses most of the memory
    return ComparedRuns(runs, ids, groups, datasets, selection)


def _merge_results(runs: Sequence[RunColumns], index: Index) -> Mapping[int, str]:
    """Combine the results of each case, after all runs were read.

    Return the datasets of the cases whose id occurs in more than one dataset of a run, by the numbers of the cases.
    """
    for run in runs:
        run.grow(len(index))
    shared_ids = dict.fromkeys(case.eval_id for case in index.apart.values())
    datasets = _separate_datasets(runs, index, shared_ids)
    for run in runs:
        run.merge_repeats()
    return datasets


def _separate_datasets(
    runs: Sequence[RunColumns],
    index: Index,
    shared_ids: Iterable[str],
) -> Mapping[int, str]:
    """Give the cases of these ids the same numbers in all runs, and return their datasets by number.

    The number of an id belongs to the first dataset in which a run has it, which may differ between runs. It is
    assigned to the dataset of the first run, and the cases of all other datasets get new numbers.
    """
    datasets: dict[int, str] = {}
    moves: list[dict[int, int]] = [{} for _ in runs]
    for eval_id in shared_ids:
        number = index[eval_id]
        found = [run.dataset_of(number) for run in runs]
        owner = next(dataset for dataset in found if dataset is not None)
        datasets[number] = owner
        for dataset, own_moves in zip(found, moves, strict=True):
            if dataset is None or dataset == owner:
                continue
            own_moves[number] = index.number_apart(dataset, eval_id)
            own_moves[index.number_apart(owner, eval_id)] = number
    for number, case in index.apart.items():
        datasets.setdefault(number, case.dataset)
    for run, own_moves in zip(runs, moves, strict=True):
        run.grow(len(index))
        if own_moves:
            run.move(own_moves)
    return datasets


def _read_run(
    files: RunFiles,
    options: CompareOptions,
    index: Index,
    grouped: Index,
    selection: CaseSelection | None,
) -> RunColumns:
    """Return the results of a run. Raise `ResultsError` with all its problems.

    `grouped` is the index of cases by target in addition to their id.
    """
    path = name_of(files)
    by_target = None
    if options.by_target:
        by_target = RunColumns(path, grouped)
    run = RunColumns(path, index, by_target)
    view = ResultRow
    if options.labels or options.by_evaluator or options.cluster is not None:
        view = PartsRow
    problems: list[Problem] = []
    try:
        with open_results(files_of(files)) as file:
            for found in read_blocks(file, path, problems, view):
                rows = found
                if selection is not None:
                    rows = _selected(found, selection)
                if rows:
                    block = make_block(rows, options)
                    _add_block(run, block)
    except OSError as error:
        problems.append(Problem.of(unreadable(error, path)))
    if options.skip_truncated:
        problems = [problem for problem in problems if problem.hint != TRUNCATED_HINT]
    if not problems and not run.results:
        problem = Problem(
            message="the file contains no results",
            file=path,
            hint=NO_RESULTS,
        )
        if selection is not None:
            problem = Problem(
                message="the file has no result of the selected cases",
                file=path,
                hint="cases are selected by the fields that they have in B",
            )
        problems.append(problem)
    if problems:
        raise ResultsError(problems)
    return run


def _selected(rows: Sequence[ScoreRow], selection: CaseSelection) -> list[ScoreRow]:
    """Return the results of the selected cases."""
    found = []
    for row in rows:
        dataset = getattr(row, "dataset", ANY_DATASET)
        if selection.includes(dataset, row.eval_id):
            found.append(row)
    return found


def _add_block(run: RunColumns, block: ColumnBlock) -> None:
    """Add the results of a block to a run, and to its grouped columns if it has any."""
    run.add_block(block)
    if run.grouped is None or block.groups is None:
        return
    keys = []
    for group, eval_id in zip(block.groups, block.ids, strict=True):
        keys.append(f"{group}{_SEPARATOR}{eval_id}")
    run.grouped.add_block(block._replace(ids=keys))


def _check_clusters(
    runs: Sequence[RunColumns],
    cluster: str | None,
) -> list[Problem]:
    """Return a problem if no result has the field or key that cases are clustered by."""
    if cluster is None or not runs:
        return []
    if any(run.clusters is not None for run in runs):
        return []
    paths = dict.fromkeys(str(run.path) for run in runs)
    problem = Problem(
        message=f"no result in {' or '.join(paths)} has {cluster!r}",
        hint="--cluster takes a metadata key of the results, or conversation_id, dataset or target",
    )
    return [problem]
