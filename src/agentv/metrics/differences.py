"""Compare the metrics of runs, with the functions that the eval files of each later run name now."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.cases.metrics import load_metrics
from agentv.cases.read import read_case_file
from agentv.compare.compare import MetricDifferences
from agentv.compare.read import ComparedRuns
from agentv.errors import AgentvError
from agentv.files.folders import project_root
from agentv.log import ignore
from agentv.metrics.compute import Cases, MetricFailed, compute_difference, count_names, unique_name, warn_about
from agentv.records import Json
from agentv.results.read import read_results
from agentv.results.run_files import RunFiles, files_of
from agentv.results.views import ResultRow
from agentv.stats.metrics import Metric


class _StoredResult(NamedTuple):
    """A result of a run, not decoded."""

    key: Hashable
    """By this key, the comparison matches cases of two runs."""
    file: str | None
    """The name of its eval file."""
    raw: bytes


def metric_differences(files: Sequence[RunFiles], runs: ComparedRuns) -> Iterator[MetricDifferences]:
    """Yield the metrics of each of the other runs, compared with the first.

    Runs that cannot be read twice, such as pipes, have none. A function that fails is a warning.
    """
    first, *others = files
    for number, other in enumerate(others, 1):
        if _are_regular(first) and _are_regular(other):
            eval_files = runs.columns[number].eval_files
            yield _run_differences(first, other, runs, eval_files)
        else:
            yield {}


def _are_regular(files: RunFiles) -> bool:
    return all(path.is_file() for path in files_of(files))


def _run_differences(
    first: RunFiles,
    second: RunFiles,
    runs: ComparedRuns,
    eval_files: Iterable[str | None],
) -> MetricDifferences:
    """Return the differences in the metrics of these eval files, which are those of the second run."""
    metrics: dict[str, list[Metric]] = {}
    for file in sorted(filter(None, eval_files)):
        metrics[file] = _metrics_of(file)
    counts = count_names(metrics.values())
    differences: MetricDifferences = {}
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


def _metrics_of(file: str) -> list[Metric]:
    """Return the metrics of an eval file, relative to the project root. A file that was removed has none."""
    start = Path.cwd()
    root = project_root(start) or start
    path = root / file
    if not path.is_file():
        return []
    try:
        case_file = read_case_file(path)
        return load_metrics(case_file)
    except AgentvError as error:
        warn_about(error)
        return []


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


def _metric_differences(metric: Metric, before: Cases, after: Cases) -> MetricDifferences:
    if not before:
        return {}
    try:
        return compute_difference(metric, before, after)
    except MetricFailed as error:
        warn_about(error)
        return {}
