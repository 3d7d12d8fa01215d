"""Compare runs with the first one, case by case and statistically."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat, zip_longest

import msgspec

from agentv.compare.blocks import missing_keys
from agentv.compare.changes import count_changes
from agentv.compare.columns import RunColumns
from agentv.compare.distrust import distrust, find_distrust
from agentv.compare.groups import GroupedParts, clusters_of, compare_groups
from agentv.compare.metrics import MetricDifferences, metric_differences
from agentv.compare.pairs import PairedScores, Pairs, count_errored, in_both, pair_scores
from agentv.compare.read import ComparedRuns, read_compared_runs
from agentv.compare.records import (
    BY,
    AnswerCosts,
    CompareOptions,
    Comparison,
    Counts,
    Grading,
    LabelDifference,
    PairTotals,
    Part,
    Source,
    Statistics,
)
from agentv.compare.selection import CaseSelection
from agentv.compare.verdict import paired_statistics
from agentv.errors import ResultsError, nearest
from agentv.records import Problem
from agentv.results.groups import unknown_key
from agentv.results.run_files import RunFiles
from agentv.results.usage import Usage
from agentv.stats.agreement import kappa
from agentv.stats.decimals import mean
from agentv.text import plural

LabelDifferences = Callable[
    [Sequence[RunFiles], ComparedRuns, str | None],
    Iterable[LabelDifference | None],
]
"""Called with the files of the runs, what was read of them, and the field to cluster by.

Returns the difference by human labels between each of the other runs and the first. It is empty without labels.
"""


def compare_files(
    files: Sequence[RunFiles],
    options: CompareOptions,
    label_differences: LabelDifferences | None = None,
) -> list[Comparison]:
    """Compare each of the other runs with the first, also by metrics and by human labels if there are any.

    Raise `ResultsError` if a run is not valid, and `ConfigError` if a filter selects nothing.
    """
    if options.filter is None:
        return _compare_all(files, options, label_differences)
    first, *others = files
    comparisons = []
    for other in others:
        # each run has its own selection, because its results decide
        selection = CaseSelection(first, other, options.filter)
        comparisons += _compare_all([first, other], options, label_differences, selection)
    return comparisons


def _compare_all(
    files: Sequence[RunFiles],
    options: CompareOptions,
    label_differences: LabelDifferences | None,
    selection: CaseSelection | None = None,
) -> list[Comparison]:
    runs = read_compared_runs(files, options, selection)
    reasons = find_distrust(files)
    first = runs.columns[0]
    comparisons = []
    for run in runs.columns[1:]:
        comparison = _compare_runs(first, run, runs, options)
        comparisons.append(comparison)
    if label_differences is not None:
        differences = label_differences(files, runs, options.cluster)
        comparisons = _add_labels(comparisons, differences)
    comparisons = _add_metrics(comparisons, metric_differences(files, runs))
    checked = []
    first_reason, *other_reasons = reasons
    for comparison, reason in zip(comparisons, other_reasons, strict=True):
        trusted = _distrust(comparison, first_reason, reason)
        checked.append(trusted)
    return checked


def _add_labels(
    comparisons: Iterable[Comparison],
    differences: Iterable[LabelDifference | None],
) -> list[Comparison]:
    """Add the differences by labels to the comparisons. `differences` is empty if a run is not a regular file."""
    extended = []
    for comparison, difference in zip_longest(comparisons, differences):
        if difference is None:
            extended.append(comparison)
        else:
            extended.append(msgspec.structs.replace(comparison, labels=difference))
    return extended


def _add_metrics(
    comparisons: Iterable[Comparison],
    metrics: Iterable[MetricDifferences],
) -> list[Comparison]:
    extended = []
    for comparison, found in zip(comparisons, metrics, strict=True):
        if found:
            extended.append(msgspec.structs.replace(comparison, metrics=found))
        else:
            extended.append(comparison)
    return extended


def _distrust(comparison: Comparison, *reasons: str) -> Comparison:
    """Return the comparison without decisions if a judge is untrusted.

    `reasons` says why the judge of each run is untrusted, or is empty if it is trusted.
    """
    if not any(reasons):
        return comparison
    warnings = []
    for file, reason in zip(comparison.files, reasons, strict=True):
        warning = f"{file.path}: the judge of this run is untrusted ({reason})"
        if reason and warning not in warnings:
            warnings.append(warning)
    unchanged = comparison.unchanged
    if unchanged is not None:
        unchanged = distrust(unchanged)
    parts_by = {}
    for name, parts in comparison.by.items():
        parts_by[name] = tuple(map(_distrust_part, parts))
    return msgspec.structs.replace(
        comparison,
        statistics=distrust(comparison.statistics),
        unchanged=unchanged,
        by=parts_by,
        warnings=(*warnings, *comparison.warnings),
    )


def _distrust_part(part: Part) -> Part:
    statistics = distrust(part.statistics)
    return msgspec.structs.replace(part, statistics=statistics)


def _compare_runs(
    first: RunColumns,
    second: RunColumns,
    runs: ComparedRuns,
    options: CompareOptions,
) -> Comparison:
    """Compare two runs. Raise `ResultsError` if they have no case in common."""
    numbers = in_both(first, second)
    if not numbers:
        raise _nothing_in_common(first, second, runs.ids)
    if options.needs_keys:
        missing = _missing_keys(first, second, options)
        if missing:
            raise unknown_key(missing[0], {*first.known_keys, *second.known_keys})
    pairs = Pairs(runs, numbers, (first, second), options.threshold)
    paired = pair_scores(first, second, numbers, pairs.deltas)
    clusters = clusters_of(first, second)
    statistics = paired_statistics(paired, options.margin, clusters)
    changed, comparable = count_changes(first, second, numbers)
    unchanged = None
    if comparable is not None:
        selected = paired.select(comparable)
        unchanged = paired_statistics(selected, options.margin, clusters)
    groups = compare_groups(paired, options, runs.groups)
    return Comparison(
        matched=pairs,
        unmatched=Counts(
            file1=first.cases - len(pairs),
            file2=second.cases - len(pairs),
        ),
        summary=_totals(first, second, pairs, paired),
        statistics=statistics,
        grading=_grading(first, second, statistics),
        changed=changed,
        unchanged=unchanged,
        by=groups.by,
        files=(_source(first), _source(second)),
        threshold=options.threshold,
        warnings=tuple(_warnings(first, second, len(pairs))),
        notes=tuple(_notes(first, second, options, groups)),
    )


def _nothing_in_common(
    first: RunColumns,
    second: RunColumns,
    ids: Sequence[str],
) -> ResultsError:
    first_id = _first_id(first, ids)
    second_id = _first_id(second, ids)
    problem = Problem(
        message=f"no eval_id occurs in both {first.path} and {second.path}",
        hint=f"the first ids are {first_id!r} and {second_id!r}: are these runs of the same eval?",
    )
    return ResultsError([problem])


def _totals(
    first: RunColumns,
    second: RunColumns,
    pairs: Pairs,
    paired: PairedScores,
) -> PairTotals:
    wins, losses = pairs.count_wins_and_losses()
    repeats = Counts(file1=first.repeats, file2=second.repeats)
    # `paired` caches its mean, but has other differences than `pairs` if some results have no score
    if paired.deltas is pairs.mean_deltas:
        mean_delta = paired.mean
    elif pairs.mean_deltas:
        mean_delta = mean(pairs.mean_deltas)
    else:
        mean_delta = 0.0
    return PairTotals(
        total=first.cases + second.cases - len(pairs),
        matched=len(pairs),
        wins=wins,
        losses=losses,
        ties=len(pairs) - wins - losses,
        meanDelta=mean_delta,
        errored=count_errored(paired.flags),
        repeats=repeats,
    )


def _grading(
    first: RunColumns,
    second: RunColumns,
    statistics: Statistics,
) -> Grading | None:
    """Return the agreement of two gradings of the same answers; None if the answers are not the same."""
    if first.answers_of != second.answers_of or None in first.answers_of:
        return None
    passes = statistics.passes
    if passes is None or not (first.graded or second.graded):
        return None
    both = passes.passed1 - passes.lost
    flipped = passes.lost + passes.gained
    agreed = statistics.pairs - flipped
    counts = {
        ("pass", "pass"): both,
        ("fail", "fail"): agreed - both,
        ("pass", "fail"): passes.lost,
        ("fail", "pass"): passes.gained,
    }
    tables = []
    for labels, times in counts.items():
        table = {labels: 1}
        tables.append(repeat(table, times))
    agreement = kappa(chain.from_iterable(tables))
    return Grading(
        agreed=agreed,
        flipped=flipped,
        kappa=agreement.value,
        ci_lower=agreement.ci_lower,
        ci_upper=agreement.ci_upper,
    )


def _warnings(
    first: RunColumns,
    second: RunColumns,
    pairs: int,
) -> Iterator[str]:
    """Yield the reasons why the figures may be misleading."""
    distinct = {run.path: run for run in (first, second)}  # a file may be compared with itself
    for run in distinct.values():
        if run.dry_run:
            results = plural(run.dry_run, "result is", "results are")
            yield f"{run.path}: {results} from a dry run: a mock answered instead of the target"
    for run, other in ((first, second), (second, first)):
        missing = run.cases - pairs
        if missing:
            cases = plural(missing, "case is", "cases are")
            yield f"{cases} only in {run.path} and not in {other.path}: the verdict covers the {pairs} in both"


def _notes(
    first: RunColumns,
    second: RunColumns,
    options: CompareOptions,
    groups: GroupedParts,
) -> Iterator[str]:
    """Yield remarks on the groups."""
    for key in _missing_keys(first, second, options):
        known = {*BY, *first.known_keys, *second.known_keys}
        yield f"no result has {key!r} ({nearest(key, known)})"
    if groups.omitted:
        yield f"by {', '.join(options.by)}: {groups.omitted} smaller groups are not shown"


def _missing_keys(first: RunColumns, second: RunColumns, options: CompareOptions) -> list[str]:
    """Return the keys to group by for which no result has a value."""
    names = chain(first.label_names, second.label_names)
    return missing_keys(options.labels, names)


def _first_id(run: RunColumns, ids: Sequence[str]) -> str:
    """Return the id of the first case that has a result."""
    return next(compress(ids, run.flags))


def _source(run: RunColumns) -> Source:
    targets = set()
    for setup in run.setups:
        if setup.target_name:
            targets.add(setup.target_name)
    return Source(
        path=os.fsencode(run.path).decode("utf-8", "replace"),
        results=run.results,
        cases=run.cases,
        targets=tuple(sorted(targets)),
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
    """Return the mean tokens and cost of an answer, and quantiles of its duration."""
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
