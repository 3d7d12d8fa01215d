"""Compute the metrics of two runs, over the cases that both have."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agentv.compare.read import ComparedRuns
from agentv.log import ignore, warn_about
from agentv.metrics.compute import Cases, MetricFailed, compute_difference, count_names, unique_name
from agentv.records import Json
from agentv.results.read import read_results
from agentv.results.run_files import RunFiles, files_of
from agentv.results.views import ResultRow
from agentv.stats.metrics import Metric, MetricDifference

Differences = dict[str, MetricDifference]
"""The metrics of two runs, by name."""


class _StoredResult(NamedTuple):
    """A result of a run, not decoded."""

    key: Hashable
    """By this key, the comparison matches cases of two runs."""
    file: str | None
    """The name of its eval file."""
    raw: bytes


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
        after = _cases_of_file(file, _stored_results(second, runs))
        before = _same_cases(after, _stored_results(first, runs))
        for metric in found:
            for name, difference in _metric_differences(metric, before, after).items():
                unique = unique_name(name, file, counts[metric.name])
                differences[unique] = difference
    return differences


def _stored_results(files: RunFiles, runs: ComparedRuns) -> Iterator[_StoredResult]:
    """Yield the results of a run that are compared, without machine failures: no figure includes those."""
    selection = runs.selection
    for path in files_of(files):
        for record in read_results(path, ResultRow, on_torn=ignore):
            row = record.view
            if row.failure == "machine":
                continue
            if selection is not None and not selection.includes(row.dataset, row.eval_id):
                continue
            key: Hashable = row.eval_id
            if row.eval_id in runs.shared_ids:
                key = row.case_key
            yield _StoredResult(
                key=key,
                file=row.file,
                raw=record.raw,
            )


def _cases_of_file(file: str, results: Iterable[_StoredResult]) -> Cases:
    """Return the results of each case of an eval file."""
    return _group(result for result in results if result.file == file)


def _same_cases(cases: Cases, results: Iterable[_StoredResult]) -> Cases:
    """Return the results of the same cases in another run, regardless of the name of their eval file there."""
    return _group(result for result in results if result.key in cases)


def _group(results: Iterable[_StoredResult]) -> Cases:
    """Decode results, and group them by case."""
    cases: dict[Hashable, list[Json]] = {}
    for result in results:
        trials = cases.setdefault(result.key, [])
        trials.append(msgspec.json.decode(result.raw))
    return cases


def _metric_differences(metric: Metric, before: Cases, after: Cases) -> Differences:
    if not before:
        return {}
    try:
        return compute_difference(metric, before, after)
    except MetricFailed as error:
        warn_about(error)
        return {}
