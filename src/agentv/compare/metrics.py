"""Compute the metrics of results files, or compare those of runs, with the functions that eval files name now.

The feature `metrics` is imported only if an eval file has metrics, so that commands work without it.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from agentv.cases.metrics import load_metrics
from agentv.cases.read import read_case_file
from agentv.compare.read import ComparedRuns
from agentv.errors import AgentvError
from agentv.files.folders import project_root
from agentv.log import ignore, info, warn, warn_about
from agentv.records import Problem
from agentv.results.run_files import RunFiles, files_of
from agentv.results.runs import RunRecord
from agentv.stats.metrics import Metric, MetricDifference, MetricValue
from agentv.text import join_names

_SHOWN_FILES = 3
"""The maximum number of eval files in a message."""
MetricDifferences = Mapping[str, MetricDifference]
"""The metrics of two runs, by name."""


def metrics_of_run(
    files: RunFiles,
    eval_files: Iterable[str | None],
    shards: Collection[str | None],
    record: RunRecord | None,
) -> Mapping[str, MetricValue]:
    """Return the metrics of a run: those of its record or, if that is missing or of one of several shards, computed.

    `eval_files` and `shards` are the names in its results.
    """
    if record is not None and set(shards) == {record.shard}:
        return record.metrics
    explain: Callable[[str], None] = info
    if record is None and len(files_of(files)) == 1:
        explain = ignore  # it may be the file of any run
    return stored_metrics(files, eval_files, explain)


def stored_metrics(
    files: RunFiles,
    eval_files: Iterable[str | None],
    explain: Callable[[str], None],
) -> Mapping[str, MetricValue]:
    """Return the metrics of a run, computed from its results.

    `eval_files` are the names in its results. If some do not exist, `explain` is called with a text that says so.
    """
    names = sorted(filter(None, eval_files))
    metrics = _metrics_of(names)
    missing = [name for name in names if name not in metrics]
    if missing:
        shown = join_names(missing, _SHOWN_FILES, " and ")
        explain(f"metrics of {shown} are not computed: no such eval file in this project")
    if not any(metrics.values()):
        return {}
    feature = import_module("agentv.metrics.stored")
    found: Mapping[str, MetricValue] = feature.run_metrics(files, metrics)
    return found


def metric_differences(files: Sequence[RunFiles], runs: ComparedRuns) -> Iterator[MetricDifferences]:
    """Yield the metrics of each of the other runs, compared with the first.

    Runs that cannot be read twice, such as pipes, have none. A function that cannot be loaded is a warning.
    """
    first, *others = files
    for number, other in enumerate(others, 1):
        if not (_are_regular(first) and _are_regular(other)):
            yield {}
            continue
        metrics = _metrics_of(runs.columns[number].eval_files)
        if not any(metrics.values()):
            yield {}
            continue
        feature = import_module("agentv.metrics.differences")
        differences: MetricDifferences = feature.run_differences(first, other, runs, metrics)
        yield differences


def _are_regular(files: RunFiles) -> bool:
    return all(path.is_file() for path in files_of(files))


def _metrics_of(eval_files: Iterable[str | None]) -> dict[str, list[Metric]]:
    """Return the metrics of eval files by name, relative to the project root. A file that was removed has none."""
    start = Path.cwd()
    root = project_root(start) or start
    metrics = {}
    for name in sorted(filter(None, eval_files)):
        path = Path(os.path.abspath(root / name))
        if path.is_file():
            metrics[name] = _load(path, name, root)
    return metrics


def _load(path: Path, name: str, root: Path) -> list[Metric]:
    """Return the metrics of an eval file, or none if it is outside of the project root."""
    try:
        if _has_no_metrics(path):
            return []
        case_file = read_case_file(path)
        # Results may come from anywhere: they must not choose the code that is called.
        if case_file.metrics and not path.is_relative_to(os.path.abspath(root)):
            message = f"the metrics of {name} are not computed: this file is outside of the project"
            warn(Problem(message=message, severity="warning"))
            return []
        return load_metrics(case_file)
    except AgentvError as error:
        warn_about(error)
        return []


def _has_no_metrics(path: Path) -> bool:
    """Return whether it is clear without parsing an eval file, which may take seconds, that it has no metrics."""
    if path.suffix.lower() == ".jsonl":
        return False  # only its sidecar is parsed
    try:
        return b"metrics" not in path.read_bytes()
    except OSError:
        return False  # an error of the parser
