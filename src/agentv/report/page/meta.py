"""Collect the data that a page shows first: the figures of its runs and of their comparison."""

import os
from pathlib import Path
from typing import Protocol

from agentv.compare.records import Comparison
from agentv.records import Json
from agentv.redact import clean
from agentv.report.page.figures import Figures, Totals
from agentv.report.page.index import ResultColumns
from agentv.report.page.run_record import find_record, record_figures
from agentv.report.page.words import comparison_notes, run_facts, run_headline, run_troubles, seconds_between


class ReadRun(Protocol):
    """A results file that was read."""

    @property
    def path(self) -> Path: ...
    @property
    def totals(self) -> Totals: ...
    @property
    def index(self) -> ResultColumns: ...


def with_record(figures: Figures, run: ReadRun) -> Figures:
    """Return the figures together with those of the run's record, if there is one."""
    figures["seconds"] = seconds_between(figures["started"], figures["ended"])
    run_ids = list(run.totals.run_ids)
    figures["run_ids"] = run_ids
    if not run_ids:
        return figures
    record = find_record(run_ids[-1], run.path)
    if record is None:
        return figures
    figures.update(clean.values(record_figures(record)))
    return figures


def run_meta(run: ReadRun, figures: Figures, letter: str) -> Json:
    """Return the data that a page shows about a run."""
    names = run.index.names
    return {
        "letter": letter,
        "file": os.fsencode(run.path).decode("utf-8", "replace"),
        "headline": run_headline(figures),
        "facts": run_facts(figures),
        "troubles": run_troubles(figures),
        "figures": figures,
        "datasets": list(names.datasets),
        "targets": list(names.targets),
        "evaluators": list(names.evaluators),
    }


def comparison_meta(comparison: Comparison, flips: tuple[int, int]) -> Json:
    """Return the data that a page shows about a comparison. `flips` are the numbers of fixed and broken cases."""
    statistics = comparison.statistics
    fixed, broken = flips
    return {
        "verdict": statistics.verdict,
        "notes": list(comparison_notes(comparison)),
        "delta": statistics.delta,
        "interval": statistics.interval,
        "margin": statistics.margin,
        "mean1": statistics.mean1,
        "mean2": statistics.mean2,
        "passes": statistics.passes,
        "tests": statistics.tests,
        "mde": statistics.mde,
        "pairs": statistics.pairs,
        "changed": comparison.changed,
        "unchanged": comparison.unchanged,
        "summary": comparison.summary,
        "fixed": fixed,
        "broken": broken,
    }
