"""Compute the metrics of two runs, over the cases that both have."""

from collections.abc import Hashable, Iterator, Mapping, Sequence

from agentv.compare.read import ComparedRuns
from agentv.log import warn_about
from agentv.metrics.compute import Cases, MetricFailed, compute_difference, count_names, unique_name
from agentv.metrics.stored import MeasuredResult, group_cases, stored_results
from agentv.results.run_files import RunFiles
from agentv.stats.metrics import Metric, MetricDifference

Differences = dict[str, MetricDifference]
"""The metrics of two runs, by name."""


def run_differences(
    first: RunFiles,
    second: RunFiles,
    runs: ComparedRuns,
    metrics: Mapping[str, Sequence[Metric]],
) -> Differences:
    """Return the differences in the metrics of two runs. `metrics` are those of the eval files of the second run.

    A function that fails is a warning.
    """
    counts = count_names(metrics.values())
    differences: Differences = {}
    for file, found in metrics.items():
        if not found:
            continue
        after = _cases_of_file(file, second, runs)
        before = _same_cases(after, first, runs)
        for metric in found:
            for name, difference in _metric_differences(metric, before, after).items():
                unique = unique_name(name, file, counts[metric.name])
                differences[unique] = difference
    return differences


def _compared_results(files: RunFiles, runs: ComparedRuns) -> Iterator[MeasuredResult]:
    """Yield the results of a run that are compared."""
    selection = runs.selection
    for result in stored_results(files):
        if selection is None or selection.includes(*result.case):
            yield result


def _cases_of_file(file: str, files: RunFiles, runs: ComparedRuns) -> Cases:
    """Return the results of each case of an eval file."""
    found = []
    for result in _compared_results(files, runs):
        if result.file == file:
            key = _key(result, runs)
            found.append((key, result.raw))
    return group_cases(found)


def _same_cases(cases: Cases, files: RunFiles, runs: ComparedRuns) -> Cases:
    """Return the results of the same cases in another run, regardless of the name of their eval file there."""
    found = []
    for result in _compared_results(files, runs):
        key = _key(result, runs)
        if key in cases:
            found.append((key, result.raw))
    return group_cases(found)


def _key(result: MeasuredResult, runs: ComparedRuns) -> Hashable:
    """Return the key by which the comparison matches the case of a result."""
    if result.case.eval_id in runs.shared_ids:
        return result.case
    return result.case.eval_id


def _metric_differences(metric: Metric, before: Cases, after: Cases) -> Differences:
    if not before:
        return {}
    try:
        return compute_difference(metric, before, after)
    except MetricFailed as error:
        warn_about(error)
        return {}
