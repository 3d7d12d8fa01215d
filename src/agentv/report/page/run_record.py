"""Read the record of a run in `.agentv/runs`: commit, models, command, and the planned cases.

The record is optional: without it, a report shows only what the results contain.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.records import Json
from agentv.report.judge import health_facts
from agentv.results.health.record import JudgeHealth
from agentv.results.runs import RUNS, Commit, RunRecord

OF_ALL_SHARDS = ("models", "commit", "branch")
"""The figures in the record of one shard that apply to the whole run."""
_RUN_ID = re.compile(r"\d{8}-\d{6}-\w{1,16}")


def find_record(run_id: str, results: Path) -> RunRecord | None:
    """Return the record of a run, or None.

    Search the current folder first, then the folder of the results file and its parents.
    """
    if not _RUN_ID.fullmatch(run_id):
        return None  # the id comes from a file and must not lead to a path outside `.agentv/runs`
    for folder in _folders(results):
        try:
            raw = (folder / RUNS / f"{run_id}.json").read_bytes()
            return msgspec.json.decode(raw, type=RunRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _folders(results: Path) -> Iterator[Path]:
    yield Path()
    yield from results.absolute().parents


def record_figures(record: RunRecord) -> Json:
    """Return the figures of a record that a page shows. Empty ones are omitted."""
    ledger = record.ledger
    not_run = ledger.get("not_run") or 0
    not_run_budget = ledger.get("not_run_budget") or 0
    figures: Json = {
        "models": _models(record),
        **_git_figures(record.git),
        "command": " ".join(record.command),
        "started": record.started,
        "seconds": _number(record.summary.get("duration_seconds")),
        "planned": ledger.get("planned"),
        "unfinished": not ledger,
        "skipped": ledger.get("skipped"),
        "not_run": not_run + not_run_budget,
        "judge_health": _judge_health(record.judge_health or {}),
    }
    if record.shard is not None:
        figures = {name: figures[name] for name in OF_ALL_SHARDS}
    return {name: value for name, value in figures.items() if value}


def _models(record: RunRecord) -> list[str]:
    """Return the models of the targets, each once."""
    models: list[str] = []
    for target in record.targets:
        model = target.get("model")
        if model and str(model) not in models:
            models.append(str(model))
    return models


def _git_figures(git: Commit | None) -> Json:
    if not git:
        return {"commit": None, "branch": None}
    commit = git.commit[:10]
    if git.dirty:
        commit += " with changes"
    return {"commit": commit, "branch": git.branch}


def _judge_health(written: Json) -> Json:
    """Return the verdict on the judges, and the facts that it is based on."""
    if not written:
        return {}
    try:
        health = msgspec.convert(written, JudgeHealth)
    except msgspec.ValidationError:  # written by another version of agentv
        if "verdict" not in written:
            return {}
        return {"verdict": str(written["verdict"]), "facts": []}
    return {"verdict": health.verdict, "facts": list(health_facts(health))}


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return value
    return None
