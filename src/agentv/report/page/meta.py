"""Collect the data that a page shows first: the figures of its runs and of their comparison.

These structs are the contract between Python and the page. `scripts/page_contract.py` writes them to `contract.d.ts`,
which the JavaScript of the page is type-checked against.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from agentv.compare.records import Comparison, Delta, Passes, Statistics, Test
from agentv.redact import clean
from agentv.report.metrics import format_difference, format_value, interval_of_metric
from agentv.report.page.figures import RunFigures, Totals
from agentv.report.page.index import ResultColumns
from agentv.report.page.run_record import add_record, last_record
from agentv.report.page.words import comparison_notes, run_facts, run_headline, run_troubles, seconds_between


class RunMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a page shows about a run, and the names that its columns refer to by number."""

    letter: str
    """`A` or `B`, in a comparison."""
    file: str
    headline: str
    facts: str
    troubles: str
    figures: RunFigures
    datasets: tuple[str, ...]
    targets: tuple[str, ...]
    evaluators: tuple[str, ...]


class LineBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """The number of the first line of each block of results, of snippets, and of fields for filters."""

    results: tuple[int, ...]
    snippets: tuple[int, ...]
    fields: tuple[int, ...]
    """Empty if no result has tags, metadata or variables."""


class EmbeddedRunMeta(RunMeta, frozen=True, kw_only=True):
    """A run whose results are part of the page."""

    results: int
    blocks: LineBlocks


class MetricChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of two runs as `agentv compare` shows it. The interval of the change is empty if there is none."""

    name: str
    value1: str
    value2: str
    delta: str
    interval: str


class ComparisonMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a page shows about a comparison."""

    verdict: str
    notes: tuple[str, ...]
    delta: Delta | None
    interval: tuple[float, float] | None
    margin: float
    mean1: float | None
    mean2: float | None
    passes: Passes | None
    tests: tuple[Test, ...]
    mde: float | None
    pairs: int
    unchanged: Statistics | None
    metrics: tuple[MetricChangeRow, ...]


class PageMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a page about one run, or two, shows before it has read any results."""

    runs: tuple[RunMeta, ...]
    headline: str
    failed_only: bool = False
    traces: bool = True
    """False if the traces were omitted."""
    comparison: ComparisonMeta | None = None


class EmbeddedPageMeta(PageMeta, frozen=True, kw_only=True):
    """A page that contains its results: a report."""

    rows: int
    runs: tuple[EmbeddedRunMeta, ...]


class ReadRun(Protocol):
    """A results file that was read."""

    @property
    def path(self) -> Path: ...
    @property
    def totals(self) -> Totals: ...
    @property
    def index(self) -> ResultColumns: ...


def with_record(figures: RunFigures, run: ReadRun) -> RunFigures:
    """Return the figures with the duration of the run, and with those of its record, if there is one."""
    seconds = seconds_between(figures.started, figures.ended)
    figures = msgspec.structs.replace(figures, seconds=seconds)
    record = last_record(figures, run.path)
    if record is None:
        return figures
    return add_record(figures, record)


def run_meta(run: ReadRun, figures: RunFigures, letter: str, file: str = "") -> RunMeta:
    """Return the data that a page shows about a run. `file` is the name of its file, by default its path."""
    if not file:
        file = os.fsencode(run.path).decode("utf-8", "replace")
    names = run.index.names
    return RunMeta(
        letter=letter,
        file=file,
        headline=run_headline(figures),
        facts=run_facts(figures),
        troubles=run_troubles(figures),
        figures=figures,
        datasets=tuple(names.datasets),
        targets=tuple(names.targets),
        evaluators=tuple(names.evaluators),
    )


def comparison_meta(comparison: Comparison) -> ComparisonMeta:
    """Return the data that a page shows about a comparison."""
    statistics = comparison.statistics
    return ComparisonMeta(
        verdict=statistics.verdict,
        notes=tuple(comparison_notes(comparison)),
        delta=statistics.delta,
        interval=statistics.interval,
        margin=statistics.margin,
        mean1=statistics.mean1,
        mean2=statistics.mean2,
        passes=statistics.passes,
        tests=statistics.tests,
        mde=statistics.mde,
        pairs=statistics.pairs,
        unchanged=comparison.unchanged,
        metrics=tuple(_metric_changes(comparison)),
    )


def _metric_changes(comparison: Comparison) -> Iterator[MetricChangeRow]:
    if not comparison.metrics:
        return
    for name, metric in comparison.metrics.items():
        yield MetricChangeRow(
            name=clean(name),
            value1=format_value(metric.value1),
            value2=format_value(metric.value2),
            delta=format_difference(metric.delta.value),
            interval=interval_of_metric(metric.delta, format_difference),
        )
