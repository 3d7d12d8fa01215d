"""Results files -> how each compares with the first, case by case and in figures that allow a conclusion."""

import math
import os
from collections.abc import Iterator, Sequence
from itertools import repeat, zip_longest
from pathlib import Path

import msgspec

from agentv.compare.changes import find_changes
from agentv.compare.columns import RunColumns
from agentv.compare.groups import clusters_of, compare_groups
from agentv.compare.judges import distrust, find_distrust
from agentv.compare.labelled import label_differences
from agentv.compare.pairs import Pairs, in_both, pair_scores
from agentv.compare.read import Runs, read_runs
from agentv.compare.records import (
    BY,
    MARGIN,
    AnswerCosts,
    CompareOptions,
    Comparison,
    Counts,
    Grading,
    Part,
    Source,
    Statistics,
    Totals,
)
from agentv.compare.verdict import paired_statistics
from agentv.errors import ConfigError, ResultsError, nearest
from agentv.records import Problem
from agentv.results.labels.file import read_labels
from agentv.results.labels.match import LabelBook
from agentv.results.run_files import RunFiles
from agentv.results.usage import Usage
from agentv.stats.agreement import kappa
from agentv.stats.decimals import mean


def compare_results(  # noqa: PLR0913  # an argument for each option
    first: str | Path | Sequence[str | Path],
    second: str | Path | Sequence[str | Path],
    *,
    threshold: float = 0.1,
    margin: float = MARGIN,
    by: str | None = None,
    cluster: str | None = None,
    labels: str | Path | None = None,
) -> Comparison:
    """Return how the results of the second file compare with those of the first.

    Several files are those of one run: its shards. `labels` is a file of labels, if these are to be used. Raise
    `AgentvError` if an option or a file is not valid.
    """
    numbers: dict[str, object] = {"threshold": threshold, "margin": margin}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be a number from 0 on, not {value!r}")
    if by == "":
        raise ConfigError(f"by must be a key of the metadata, or one of {', '.join(BY)}, not {by!r}")
    options = CompareOptions(threshold=threshold, margin=margin, by=by, cluster=cluster)
    runs = [Path(run) if isinstance(run, str | Path) else [Path(file) for file in run] for run in (first, second)]
    book = LabelBook(read_labels(Path(labels))) if labels is not None else None
    return compare_files(runs, options, book)[0]


def compare_files(
    files: Sequence[RunFiles], options: CompareOptions, book: LabelBook | None = None
) -> list[Comparison]:
    """Return how each of the other runs compares with the first, by labels too if there are any.

    Raise `ResultsError` if any is not valid.
    """
    runs = read_runs(files, options)
    distrusted = find_distrust(files)
    found = [_compare_runs(runs.columns[0], run, runs, options) for run in runs.columns[1:]]
    if book is not None and book.is_of_any(runs.ids):
        by_labels = label_differences(files, book, options.cluster)
        found = [
            comparison if labels is None else msgspec.structs.replace(comparison, labels=labels)
            for comparison, labels in zip_longest(found, by_labels)
        ]
    return [
        _distrust(comparison, distrusted[0], why) if distrusted[0] or why else comparison
        for comparison, why in zip(found, distrusted[1:], strict=True)
    ]


def _distrust(comparison: Comparison, *reasons: str) -> Comparison:
    """Return a comparison that decides nothing; `reasons` are why the judge of each run is untrusted, if it is."""
    warnings = {
        f"{file.path}: its judge is untrusted ({why})": None
        for file, why in zip(comparison.files, reasons, strict=True)
        if why
    }
    return msgspec.structs.replace(
        comparison,
        statistics=distrust(comparison.statistics),
        unchanged=None if comparison.unchanged is None else distrust(comparison.unchanged),
        by={name: tuple(map(_distrust_part, parts)) for name, parts in comparison.by.items()},
        warnings=(*warnings, *comparison.warnings),
    )


def _distrust_part(part: Part) -> Part:
    return msgspec.structs.replace(part, statistics=distrust(part.statistics))


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
    parts, left_out = compare_groups(paired, options, runs.groups)
    statistics = paired_statistics(paired, options.margin, clusters)
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
        statistics=statistics,
        grading=_grading(first, second, statistics),
        changed=changed,
        unchanged=None if unchanged is None else paired_statistics(paired.select(unchanged), options.margin, clusters),
        by=parts,
        files=(_source(first), _source(second)),
        threshold=options.threshold,
        warnings=tuple(_warnings(first, second, len(pairs))),
        notes=tuple(_notes(first, second, options, left_out)),
    )


def _grading(first: RunColumns, second: RunColumns, statistics: Statistics) -> Grading | None:
    """Return how far two gradings of the same answers agree; None if the answers are not the same."""
    passes = statistics.passes
    is_same = first.answers_of == second.answers_of and None not in first.answers_of
    if not is_same or not (first.graded or second.graded) or passes is None:
        return None
    both = passes.passed1 - passes.lost
    neither = statistics.pairs - both - passes.lost - passes.gained
    kinds = {
        ("pass", "pass"): both,
        ("fail", "fail"): neither,
        ("pass", "fail"): passes.lost,
        ("fail", "pass"): passes.gained,
    }
    found = kappa(table for kind, times in kinds.items() for table in repeat({kind: 1}, times))
    flipped = passes.lost + passes.gained
    return Grading(
        agreed=statistics.pairs - flipped,
        flipped=flipped,
        kappa=found.value,
        ci_lower=found.ci_lower,
        ci_upper=found.ci_upper,
    )


def _warnings(first: RunColumns, second: RunColumns, pairs: int) -> Iterator[str]:
    """Yield why the figures may not mean what they seem to."""
    for run in {run.path: run for run in (first, second)}.values():
        if run.dry_run:
            results = "1 result is" if run.dry_run == 1 else f"{run.dry_run} results are"
            yield f"{run.path}: {results} of a dry run: a mock answered, not the target"
    for run, other in ((first, second), (second, first)):
        if missing := run.cases - pairs:
            cases = "1 case is" if missing == 1 else f"{missing} cases are"
            yield f"{cases} only in {run.path} and not in {other.path}: the verdict is about the {pairs} in both"


def _notes(first: RunColumns, second: RunColumns, options: CompareOptions, left_out: int) -> Iterator[str]:
    """Yield what is to be said of the groups."""
    key = options.label
    if key is not None and not first.label_names and not second.label_names:
        hint = nearest(key, {*BY, *first.known_keys, *second.known_keys})
        yield f"no result has {key!r} ({hint})"
    if left_out:
        yield f"by {options.by}: {left_out} more groups, each as large as the last or smaller, are left out"


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
        dry_run=run.dry_run,
        cut_off=run.cut_off,
        per_answer=_per_answer(run.usage),
    )


def _per_answer(usage: Usage) -> AnswerCosts:
    p50, p95 = usage.duration_quantiles or (None, None)
    return AnswerCosts(
        input_tokens=usage.input_tokens.mean,
        output_tokens=usage.output_tokens.mean,
        reasoning_tokens=usage.reasoning_tokens.mean,
        cost_usd=usage.cost_usd.mean,
        cost_known=usage.cost_usd.answers,
        answers=usage.answers,
        duration_p50_ms=p50,
        duration_p95_ms=p95,
    )
