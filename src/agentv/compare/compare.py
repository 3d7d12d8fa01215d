"""Results files -> how each compares with the first, case by case and in figures that allow a conclusion."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from agentv.compare.changes import find_changes
from agentv.compare.columns import RunColumns
from agentv.compare.groups import clusters_of, compare_groups
from agentv.compare.pairs import Pairs, in_both, pair_scores
from agentv.compare.read import Runs, read_runs
from agentv.compare.records import MARGIN, By, CompareOptions, Comparison, Counts, Source, Totals
from agentv.compare.verdict import paired_statistics
from agentv.errors import ConfigError, ResultsError, nearest
from agentv.records import Problem
from agentv.stats.decimals import mean


def compare_results(  # noqa: PLR0913  # an argument for each option
    first: str | Path,
    second: str | Path,
    *,
    threshold: float = 0.1,
    margin: float = MARGIN,
    by: By | None = None,
    cluster: str | None = None,
) -> Comparison:
    """Return how the results of the second file compare with those of the first.

    Raise `AgentvError` if an option or a file is not valid.
    """
    numbers: dict[str, object] = {"threshold": threshold, "margin": margin}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be a number from 0 on, not {value!r}")
    if by is not None and by not in get_args(By):
        raise ConfigError(f"by: unknown {by!r}", hint=nearest(str(by), get_args(By)))
    options = CompareOptions(threshold=threshold, margin=margin, by=by, cluster=cluster)
    return compare_files([Path(first), Path(second)], options)[0]


def compare_files(paths: Sequence[Path], options: CompareOptions) -> list[Comparison]:
    """Return how each of the other files compares with the first; raise `ResultsError` if any is not valid."""
    runs = read_runs(paths, options)
    return [_compare_runs(runs.columns[0], run, runs, options) for run in runs.columns[1:]]


def _compare_runs(first: RunColumns, second: RunColumns, runs: Runs, options: CompareOptions) -> Comparison:
    numbers = in_both(first, second)
    if not numbers:
        message = f"no eval_id is in both {first.path} and {second.path}"
        ids = f"{_first_id(first, runs.ids)} and {_first_id(second, runs.ids)}"
        hint = f"they begin with {ids}: are they runs of the same eval?"
        raise ResultsError([Problem(message=message, hint=hint)])
    pairs = Pairs(runs.ids, numbers, (first, second), options.threshold)
    wins, losses = pairs.count_wins_and_losses()
    unmatched = Counts(file1=first.cases - len(pairs), file2=second.cases - len(pairs))
    changed, unchanged = find_changes(first, second, numbers)
    paired, clusters = pair_scores(first, second, numbers, pairs.deltas), clusters_of(first, second)
    return Comparison(
        matched=pairs,
        unmatched=unmatched,
        summary=Totals(
            total=len(pairs) + unmatched.file1 + unmatched.file2,
            matched=len(pairs),
            wins=wins,
            losses=losses,
            ties=len(pairs) - wins - losses,
            meanDelta=paired.mean if paired.deltas is pairs.deltas else mean(pairs.deltas),
            repeats=Counts(file1=first.repeats, file2=second.repeats),
        ),
        statistics=paired_statistics(paired, options.margin, clusters),
        changed=changed,
        unchanged=None if unchanged is None else paired_statistics(paired.select(unchanged), options.margin, clusters),
        by=compare_groups(paired, options, runs.groups),
        files=(_source(first), _source(second)),
        threshold=options.threshold,
    )


def _first_id(run: RunColumns, ids: Sequence[str]) -> str:
    return repr(next(id_ for id_, flags in zip(ids, run.flags, strict=True) if flags))


def _source(run: RunColumns) -> Source:
    return Source(
        path=os.fsencode(run.path).decode("utf-8", "replace"),
        results=run.results,
        cases=run.cases,
        targets=tuple(sorted({setup.target_name for setup in run.setups if setup.target_name})),
        timestamp=run.timestamp,
        errors=run.errors,
        judge_failures=run.judge_failures,
        retried=run.retried,
        ambiguous=run.ambiguous,
    )
