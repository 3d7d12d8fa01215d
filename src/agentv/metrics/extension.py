"""Compute the metrics of eval files when a run ends.

The results of files with metrics are held as JSON while the run lasts, because a run may have no results file. At
the end they are decoded, file by file, because the functions receive them as lists of mappings. Without metrics,
nothing is held.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from agentv.cases.metrics import load_metrics
from agentv.files.encode import to_json
from agentv.files.folders import code_folders
from agentv.log import warn_about
from agentv.metrics.compute import Cases, MetricFailed, compute, count_names, unique_name
from agentv.processes.threads import run_in_thread
from agentv.records import EvalResult, Json
from agentv.results.read import read_results
from agentv.results.views import ResultRow
from agentv.run.extensions import Extension
from agentv.run.features import Opening
from agentv.run.outcome import result_path
from agentv.run.report import RunReport
from agentv.run.run import Run
from agentv.stats.metrics import Metric, MetricValue


@dataclass(eq=False)
class _MeasuredFile:
    """An eval file with metrics."""

    metrics: list[Metric]
    results: list[bytes] = field(default_factory=list)
    """Its results so far, as JSON."""

    def hold(self, encoded: bytes, failure: str | None) -> None:
        """Keep a result, unless it is a machine failure: no figure includes those."""
        if failure != "machine":
            self.results.append(encoded)


@dataclass(eq=False)
class RunMetrics(Extension):
    """Computes the metrics of each eval file over its results."""

    files: dict[str | None, _MeasuredFile]
    """The eval files with metrics, by their names in results; None for cases without a file."""
    values: dict[str, MetricValue] = field(default_factory=dict)
    """The metrics of the run. Empty until it ends."""

    @classmethod
    async def join(cls, opening: Opening) -> "RunMetrics":
        """Load the functions. Raise `ConfigError` if one cannot be loaded."""
        files: dict[str | None, _MeasuredFile] = {}
        folder = opening.plan.folder
        for file in opening.plan.files:
            case_file = file.case_file
            if case_file is None or not case_file.metrics:
                continue
            name = result_path(case_file, folder)
            folders = code_folders(file.path.parent, file.targets_file, folder)
            metrics = load_metrics(case_file, folders)
            files[name] = _MeasuredFile(metrics)
        return cls(files)

    async def start(self, run: Run, tasks: object) -> None:
        """Hold the results that a resumed run keeps."""
        earlier = run.earlier
        if earlier is None:
            return
        for record in read_results(earlier.file.path, ResultRow):
            row = record.view
            measured = self.files.get(row.file)
            if measured is not None and row.trial_key in earlier.stands:
                measured.hold(record.raw, row.failure)

    def written(self, result: EvalResult) -> None:
        measured = self.files.get(result.file)
        if measured is not None:
            encoded = to_json(result)
            measured.hold(encoded, result.failure)

    async def end(self, run: Run) -> None:
        """Compute the metrics. A function that fails is a warning."""
        counts = count_names(measured.metrics for measured in self.files.values())
        for file, measured in self.files.items():
            cases = _group(measured.results)
            measured.results.clear()
            if not cases:
                continue
            for metric in measured.metrics:
                try:
                    values = await run_in_thread(partial(compute, metric, cases))
                except MetricFailed as error:
                    warn_about(error)
                    continue
                for name, value in values.items():
                    unique = unique_name(name, file or "cases", counts[metric.name])
                    self.values[unique] = value

    def add_to(self, report: RunReport) -> RunReport:
        return report._replace(metrics=self.values)


def _group(encoded: Iterable[bytes]) -> Cases:
    """Decode results, and group them by case."""
    cases: dict[Hashable, list[Json]] = {}
    for line in encoded:
        result = msgspec.json.decode(line)
        key = (result["dataset"], result["eval_id"])
        trials = cases.setdefault(key, [])
        trials.append(result)
    return cases
