"""Compute the metrics of a run from its results files."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agentv.log import ignore, warn_about
from agentv.metrics.compute import Cases, MetricFailed, compute, count_names, unique_name
from agentv.records import CaseKey, Json
from agentv.results.read import read_results
from agentv.results.run_files import RunFiles, files_of
from agentv.results.views import ResultRow
from agentv.stats.metrics import Metric, MetricValue


class MeasuredResult(NamedTuple):
    """A result in a file, not decoded."""

    case: CaseKey
    file: str | None
    """The name of its eval file."""
    raw: bytes


def run_metrics(files: RunFiles, metrics: Mapping[str, Sequence[Metric]]) -> dict[str, MetricValue]:
    """Return the metrics of all results of a run. `metrics` are those of its eval files.

    A function that fails is a warning.
    """
    counts = count_names(metrics.values())
    values: dict[str, MetricValue] = {}
    for file, metrics_of_file in metrics.items():
        if not metrics_of_file:
            continue
        results_of_file = (result for result in stored_results(files) if result.file == file)
        cases = group_cases((result.case, result.raw) for result in results_of_file)
        for metric in metrics_of_file:
            for name, value in _computed(metric, cases).items():
                unique = unique_name(name, file, counts[metric.name])
                values[unique] = value
    return values


def stored_results(files: RunFiles) -> Iterator[MeasuredResult]:
    """Yield the results of a run, without machine failures: no figure includes those."""
    for path in files_of(files):
        for record in read_results(path, ResultRow, on_truncated=ignore):
            row = record.view
            if row.failure != "machine":
                yield MeasuredResult(
                    case=row.case_key,
                    file=row.file,
                    raw=record.raw,
                )


def group_cases(results: Iterable[tuple[Hashable, bytes]]) -> Cases:
    """Decode results, and group them by the keys of their cases."""
    cases: dict[Hashable, list[Json]] = {}
    for key, raw in results:
        trials = cases.setdefault(key, [])
        trials.append(msgspec.json.decode(raw))
    return cases


def _computed(metric: Metric, cases: Cases) -> Mapping[str, MetricValue]:
    try:
        return compute(metric, cases)
    except MetricFailed as error:
        warn_about(error)
        return {}
