"""Check the metrics of an eval file, and load their functions."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentv.cases.read import read_object, sidecar_of
from agentv.errors import AgentvError, ConfigError
from agentv.files.folders import code_folders
from agentv.providers.user_functions import check_function, load_function
from agentv.records import CaseFile, Problem
from agentv.stats.metrics import Metric


def metric_problems(file: CaseFile, folders: Sequence[Path] = ()) -> Iterator[Problem]:
    """Yield the problems of an eval file's metrics that can be found without running their code."""
    names: set[str] = set()
    for place, spec in enumerate(file.metrics):
        if spec.name in names:
            yield _problem(file, place, "name", f"duplicate metric {spec.name!r}", "use unique names")
        names.add(spec.name)
        try:
            check_function(spec.function, folders or code_folders(file.path.parent, None))
        except ConfigError as error:
            yield _problem(file, place, "function", f"metric {spec.name!r}: {error.message}", error.hint)


def load_metrics(file: CaseFile, folders: Sequence[Path] = ()) -> list[Metric]:
    """Return the metrics of an eval file with their functions. Raise `ConfigError` if one cannot be loaded."""
    metrics = []
    for place, spec in enumerate(file.metrics):
        try:
            function = load_function(spec.function, folders or code_folders(file.path.parent, None))
        except ConfigError as error:
            problem = _problem(file, place, "function", f"metric {spec.name!r}: {error.message}", error.hint)
            raise ConfigError.of(problem) from error
        metrics.append(Metric(name=spec.name, function=function, interval=spec.interval))
    return metrics


def _problem(file: CaseFile, place: int, field: str, message: str, hint: str) -> Problem:
    """Return a problem with a metric, located in the eval file or in its sidecar."""
    path = file.path
    if path.suffix.lower() == ".jsonl":
        path = sidecar_of(path)
    line = None
    column = None
    try:
        found = read_object(path, or_nothing=True).place(("metrics", place, field))
    except AgentvError:
        pass  # the file has changed since it was read
    else:
        line = found.line
        column = found.column
    return Problem(
        message=message,
        file=path,
        line=line,
        column=column,
        hint=hint,
    )
