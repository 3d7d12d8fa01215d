"""Read the record of a run in `.agentv/runs`: commit, models, command, and the planned cases.

The record is optional: without it, a report shows only what the results contain.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentv.files.state import state_folder
from agentv.records import Json
from agentv.redact import clean
from agentv.report.metrics import format_value, interval_of_metric
from agentv.report.page.figures import JudgeHealthFigures, MetricRow, RunFigures
from agentv.results.git_state import Commit, short_commit
from agentv.results.runs import RunRecord, read_run_record
from agentv.stats.metrics import MetricValue

_RUN_ID = re.compile(r"\d{8}-\d{6}-\w{1,16}")


def last_record(figures: RunFigures, results: Path) -> RunRecord | None:
    """Return the record of the last run that wrote these results, or None."""
    if not figures.run_ids:
        return None
    return find_record(figures.run_ids[-1], results)


def find_record(run_id: str, results: Path) -> RunRecord | None:
    """Return the record of a run, or None.

    Search the current folder first, then the folder of the results file and its parents.
    """
    if not _RUN_ID.fullmatch(run_id):
        return None  # the id comes from a file and must not lead to a path outside `.agentv/runs`
    for folder in _folders(results):
        try:
            return read_run_record(folder / state_folder("runs") / f"{run_id}.json")
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _folders(results: Path) -> Iterator[Path]:
    yield Path()
    yield from results.absolute().parents


def add_record(figures: RunFigures, record: RunRecord) -> RunFigures:
    """Return the figures updated from the record. Values that the record lacks are not changed."""
    figures = msgspec.structs.replace(
        figures,
        models=_models(record),
        commit=_commit_text(record.git) or figures.commit,
        branch=_branch(record.git),
    )
    if record.shard is not None:
        return figures  # the other values of the record apply to one shard only
    ledger = record.ledger
    not_run = ledger.get("not_run") or 0
    not_run_budget = ledger.get("not_run_budget") or 0
    invalid = ledger.get("invalid") or 0
    skipped = ledger.get("skipped") or 0
    if "invalid" not in ledger:  # an earlier version, in which invalid cases were "skipped"
        invalid = skipped
        skipped = 0
    return msgspec.structs.replace(
        figures,
        command=clean(" ".join(record.command)),
        started=clean(record.started) or figures.started,
        seconds=_number(record.summary.get("duration_seconds")) or figures.seconds,
        planned=ledger.get("planned") or None,
        unfinished=not ledger,
        invalid=invalid,
        skipped=skipped,
        not_run=not_run + not_run_budget,
        unplanned_results=ledger.get("unplanned_results") or 0,
        metrics=shown_metrics(record.metrics),
        judge_health=_judge_health(record.judge_health or {}),
    )


def _models(record: RunRecord) -> tuple[str, ...]:
    """Return the models of the targets, each once."""
    models: list[str] = []
    for target in record.targets:
        model = clean(str(target.get("model") or ""))
        if model and model not in models:
            models.append(model)
    return tuple(models)


def _commit_text(git: Commit | None) -> str:
    if git is None or not git.commit:
        return ""
    commit = short_commit(git.commit)
    if git.dirty:
        commit += " with changes"
    return clean(commit)


def _branch(git: Commit | None) -> str:
    if git is None or git.branch is None:
        return ""
    return clean(git.branch)


def _judge_health(written: Json) -> JudgeHealthFigures | None:
    """Return the verdict on the judges and its facts, or None if the record does not contain them."""
    if not written:
        return None
    from agentv.report.judge import health_facts
    from agentv.trust.health.record import JudgeHealth

    try:
        health = msgspec.convert(written, JudgeHealth)
    except msgspec.ValidationError:  # written by another version of agentv
        if "verdict" not in written:
            return None
        return JudgeHealthFigures(verdict=clean(str(written["verdict"])))
    facts = [(name, clean(text)) for name, text in health_facts(health)]
    return JudgeHealthFigures(
        verdict=clean(health.verdict),
        facts=tuple(facts),
    )


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return value
    return None


def shown_metrics(metrics: Mapping[str, MetricValue]) -> tuple[MetricRow, ...]:
    """Return the metrics of a run as a page shows them."""
    rows = []
    for name, metric in metrics.items():
        row = MetricRow(
            name=clean(name),
            value=format_value(metric.value),
            interval=interval_of_metric(metric),
        )
        rows.append(row)
    return tuple(rows)
