"""Compare runs with the first one, case by case and statistically."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, repeat, zip_longest
from pathlib import Path

import msgspec

from agentv.compare.changes import find_changes
from agentv.compare.columns import RunColumns
from agentv.compare.groups import clusters_of, compare_groups
from agentv.compare.judges import distrust, find_distrust
from agentv.compare.labelled import label_differences
from agentv.compare.pairs import PairedScores, Pairs, in_both, pair_scores
from agentv.compare.read import Runs, read_runs
from agentv.compare.records import (
    BY,
    MARGIN,
    AnswerCosts,
    CompareOptions,
    Comparison,
    Counts,
    Grading,
    LabelDifference,
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
    """Compare the results of two runs.

    Several files are the shards of one run. `labels` is a file of human labels to use. Raise `AgentvError` if an
    option or a file is not valid.
    """
    numbers: dict[str, object] = {"threshold": threshold, "margin": margin}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be a number from 0 on, not {value!r}")
    if by == "":
        raise ConfigError(f"by must be a key of the metadata, or one of {', '.join(BY)}, not {by!r}")
    options = CompareOptions(
        threshold=threshold,
        margin=margin,
        by=by,
        cluster=cluster,
    )
    runs = [_run_files(first), _run_files(second)]
    book = None
    if labels is not None:
        book = LabelBook(read_labels(Path(labels)))
    return compare_files(runs, options, book)[0]


def _run_files(run: str | Path | Sequence[str | Path]) -> RunFiles:
    if isinstance(run, str | Path):
        return Path(run)
    return [Path(file) for file in run]


def compare_files(
    files: Sequence[RunFiles],
    options: CompareOptions,
    book: LabelBook | None = None,
) -> list[Comparison]:
    """Compare each of the other runs with the first, also by human labels if there are any.

    Raise `ResultsError` if a run is not valid.
    """
    runs = read_runs(files, options)
    reasons = find_distrust(files)
    first = runs.columns[0]
    comparisons = [_compare_runs(first, run, runs, options) for run in runs.columns[1:]]
    if book is not None and book.is_of_any(runs.ids):
        differences = label_differences(files, book, options.cluster)
        comparisons = _add_labels(comparisons, differences)
    checked = []
    for comparison, reason in zip(comparisons, reasons[1:], strict=True):
        checked.append(_distrust(comparison, reasons[0], reason))
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


def _distrust(comparison: Comparison, *reasons: str) -> Comparison:
    """Return the comparison without decisions if a judge is untrusted.

    `reasons` says why the judge of each run is untrusted, or is empty if it is trusted.
    """
    if not any(reasons):
        return comparison
    warnings = []
    for file, reason in zip(comparison.files, reasons, strict=True):
        warning = f"{file.path}: its judge is untrusted ({reason})"
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
    return msgspec.structs.replace(part, statistics=distrust(part.statistics))


def _compare_runs(
    first: RunColumns,
    second: RunColumns,
    runs: Runs,
    options: CompareOptions,
) -> Comparison:
    """Compare two runs. Raise `ResultsError` if they have no case in common."""
    numbers = in_both(first, second)
    if not numbers:
        raise _nothing_in_common(first, second, runs.ids)
    pairs = Pairs(runs.ids, numbers, (first, second), options.threshold)
    paired = pair_scores(first, second, numbers, pairs.deltas)
    clusters = clusters_of(first, second)
    statistics = paired_statistics(paired, options.margin, clusters)
    changed, comparable = find_changes(first, second, numbers)
    unchanged = None
    if comparable is not None:
        unchanged = paired_statistics(paired.select(comparable), options.margin, clusters)
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
        notes=tuple(_notes(first, second, options, groups.omitted)),
    )


def _nothing_in_common(
    first: RunColumns,
    second: RunColumns,
    ids: Sequence[str],
) -> ResultsError:
    first_id = _first_id(first, ids)
    second_id = _first_id(second, ids)
    problem = Problem(
        message=f"no eval_id is in both {first.path} and {second.path}",
        hint=f"they begin with {first_id!r} and {second_id!r}: are they runs of the same eval?",
    )
    return ResultsError([problem])


def _totals(
    first: RunColumns,
    second: RunColumns,
    pairs: Pairs,
    paired: PairedScores,
) -> Totals:
    wins, losses = pairs.count_wins_and_losses()
    # `paired` caches its mean, but has other differences than `pairs` if some results have no score
    mean_delta = paired.mean if paired.deltas is pairs.deltas else mean(pairs.deltas)
    return Totals(
        total=first.cases + second.cases - len(pairs),
        matched=len(pairs),
        wins=wins,
        losses=losses,
        ties=len(pairs) - wins - losses,
        meanDelta=mean_delta,
        repeats=Counts(file1=first.repeats, file2=second.repeats),
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
    tables = [repeat({labels: 1}, times) for labels, times in counts.items()]
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
    by_path = {run.path: run for run in (first, second)}
    for run in by_path.values():
        if run.dry_run:
            results = "1 result is" if run.dry_run == 1 else f"{run.dry_run} results are"
            yield f"{run.path}: {results} of a dry run: a mock answered, not the target"
    for run, other in ((first, second), (second, first)):
        missing = run.cases - pairs
        if missing:
            cases = "1 case is" if missing == 1 else f"{missing} cases are"
            yield f"{cases} only in {run.path} and not in {other.path}: the verdict is about the {pairs} in both"


def _notes(
    first: RunColumns,
    second: RunColumns,
    options: CompareOptions,
    omitted: int,
) -> Iterator[str]:
    """Yield remarks on the groups."""
    key = options.label
    if key is not None and not first.label_names and not second.label_names:
        known = {*BY, *first.known_keys, *second.known_keys}
        yield f"no result has {key!r} ({nearest(key, known)})"
    if omitted:
        yield f"by {options.by}: {omitted} more groups, each as large as the last or smaller, are left out"


def _first_id(run: RunColumns, ids: Sequence[str]) -> str:
    """Return the id of the first case that has a result."""
    return next(compress(ids, run.flags))


def _source(run: RunColumns) -> Source:
    targets = {setup.target_name for setup in run.setups if setup.target_name}
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
