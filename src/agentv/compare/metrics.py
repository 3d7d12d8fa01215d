"""Compare the metrics of runs, with the functions that the eval files of each later run name now.

The feature `metrics` is imported only if an eval file has metrics, so that a comparison works without it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from agentv.cases.metrics import load_metrics
from agentv.cases.read import read_case_file
from agentv.compare.read import ComparedRuns
from agentv.errors import AgentvError
from agentv.files.folders import project_root
from agentv.log import warn, warn_about
from agentv.records import Problem
from agentv.results.run_files import RunFiles, files_of
from agentv.stats.metrics import Metric, MetricDifference

MetricDifferences = Mapping[str, MetricDifference]
"""The metrics of two runs, by name."""


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
