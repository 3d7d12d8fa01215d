"""The figures of runs, or of a comparison -> what their page shows at once."""

import os
from pathlib import Path
from typing import Any, Protocol

from agentv.compare.records import Comparison
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
    """Return the figures with what the record of the run says besides."""
    figures["seconds"] = seconds_between(figures["started"], figures["ended"])
    run_ids = list(run.totals.run_ids)
    figures["run_ids"] = run_ids
    record = find_record(run_ids[-1], run.path) if run_ids else None
    return figures if record is None else figures | clean.values(record_figures(record))


def run_meta(run: ReadRun, figures: Figures, letter: str) -> dict[str, Any]:
    """Return what a page shows of a run."""
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


def comparison_meta(comparison: Comparison, flips: tuple[int, int]) -> dict[str, Any]:
    """Return what a page shows of a comparison."""
    found = comparison.statistics
    return {
        "verdict": found.verdict,
        "notes": list(comparison_notes(comparison)),
        "delta": found.delta,
        "interval": found.interval,
        "margin": found.margin,
        "mean1": found.mean1,
        "mean2": found.mean2,
        "passes": found.passes,
        "tests": found.tests,
        "mde": found.mde,
        "pairs": found.pairs,
        "changed": comparison.changed,
        "unchanged": comparison.unchanged,
        "summary": comparison.summary,
        "fixed": flips[0],
        "broken": flips[1],
    }
