"""Compare runs, and a judge with human labels."""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentv.api.arguments import result_paths, texts
from agentv.api.keywords import keyword_messages
from agentv.api.report import EvalReport
from agentv.compare.compare import compare_files
from agentv.compare.records import BY, MARGIN, CompareOptions, Comparison
from agentv.errors import ConfigError
from agentv.files.encode import to_json
from agentv.filters.match import Filter
from agentv.results.run_files import RunFiles

if TYPE_CHECKING:  # judges are examined on request only
    from agentv.trust.labels.judge import JudgeFigures

RUN_HINT = "pass a results file, a list of the files of all shards, or a report"
Run = str | Path | Sequence[str | Path] | EvalReport
"""A results file, the files of the shards of a run, or a report."""


def compare_results(  # noqa: PLR0913  # an argument for each option
    first: Run,
    second: Run,
    *,
    threshold: float = 0.1,
    margin: float = MARGIN,
    by: str | Sequence[str] | None = None,
    cluster: str | None = None,
    filter: str | Sequence[str] = (),
    labels: str | Path | None = None,
) -> Comparison:
    """Compare the results of two runs.

    A run is a results file, the files of its shards, or a report. `filter` selects the cases to compare, by their
    fields in the second run. `labels` is a file of human labels to use. Raise `AgentvError` if an option or a file is
    not valid, or if no result has one of the keys in `by`.
    """
    numbers: dict[str, object] = {
        "threshold": threshold,
        "margin": margin,
    }
    for name, value in numbers.items():
        is_number = isinstance(value, int | float) and 0 <= value < math.inf
        if not is_number:
            raise ConfigError(f"{name} must be a number of at least 0, not {value!r}")
    keys = texts("by", by)
    if "" in keys:
        fields = ", ".join(BY)
        raise ConfigError(f"by must be a metadata key, or one of {fields}, not {by!r}")
    options = CompareOptions(
        threshold=threshold,
        margin=margin,
        by=keys,
        needs_keys=True,
        cluster=cluster,
        filter=Filter.parse(texts("filter", filter), "results") or None,
    )
    label_differences = None
    if labels is not None:
        from agentv.trust.labelled_pairs import differences_by
        from agentv.trust.labels.file import read_labels
        from agentv.trust.labels.match import LabelBook

        file = _labels_file(labels)
        with keyword_messages():
            found = read_labels(file)
        book = LabelBook(found)
        label_differences = differences_by(book)
    with keyword_messages(), run_files({"first": first, "second": second}) as runs:
        (comparison,) = compare_files(runs, options, label_differences)
    return comparison


def judge_agreement(
    results: Run,
    *,
    labels: str | Path | None = None,
    evaluator: str | None = None,
) -> "JudgeFigures":
    """Return the agreement of the judge of a run with human labels, as `agentv judge` prints it.

    `labels` is the labels file, by default that of the project; `evaluator` names the evaluator whose verdicts count
    instead of those of cases. Raise `AgentvError` if no label can be used.
    """
    from agentv.results.runs import LABELS, read_runs
    from agentv.trust.labels.file import read_labels
    from agentv.trust.labels.judge import judge_figures
    from agentv.trust.labels.match import LabelBook

    if evaluator is not None and not isinstance(evaluator, str):
        raise ConfigError(f"evaluator is {evaluator!r}", hint="expected the name of an evaluator")
    file = LABELS
    if labels is not None:
        file = _labels_file(labels)
    with keyword_messages(), run_files({"results": results}) as (files,):
        book = LabelBook(read_labels(file))
        return judge_figures(files, book, evaluator, read_runs())


@contextmanager
def run_files(runs: Mapping[str, Any]) -> Iterator[list[RunFiles]]:
    """Yield the results files of runs, given by the names of arguments. A report is written to a temporary file."""
    with tempfile.TemporaryDirectory(prefix="agentv-") as folder:
        found: list[RunFiles] = []
        for name, run in runs.items():
            if isinstance(run, EvalReport):
                file = Path(folder, f"{name}.jsonl")
                with file.open("wb") as lines:
                    for result in run.results:
                        lines.write(to_json(result) + b"\n")
                found.append(file)
            elif isinstance(run, list | tuple):
                found.append(result_paths(name, run, RUN_HINT))
            else:
                found += result_paths(name, run, RUN_HINT)
        yield found


def _labels_file(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise ConfigError(f"labels is {value!r}", hint="pass the path of a labels file")
    return Path(value)
