"""The id of a run -> what its record in `.agentv/runs` says: commit, models, command, what was planned.

The record is a help and no more: a report is made without it, from what the results say themselves.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.report.judge import health_facts
from agentv.results.health.record import JudgeHealth
from agentv.results.runs import RUNS, RunRecord

OF_ALL_SHARDS = ("models", "commit", "branch")
"""What the record of one shard says of the whole run."""
_RUN_ID = re.compile(r"\d{8}-\d{6}-\w{1,16}")


def find_record(run_id: str, results: Path) -> RunRecord | None:
    """Return the record of a run, looked for in this folder and around its results file; None if there is none."""
    if not _RUN_ID.fullmatch(run_id):
        return None  # it comes from a file: it must not lead anywhere else
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


def record_figures(record: RunRecord) -> dict[str, Any]:
    """Return what a page shows of a record."""
    git, ledger = record.git, record.ledger
    found = {
        "models": list(dict.fromkeys(str(each["model"]) for each in record.targets if each.get("model"))),
        "commit": f"{git.commit[:10]}{' with changes' if git.dirty else ''}" if git else None,
        "branch": git.branch if git else None,
        "command": " ".join(record.command),
        "started": record.started,
        "seconds": _number(record.summary.get("duration_seconds")),
        "planned": ledger.get("planned"),
        "unfinished": not ledger,
        "skipped": ledger.get("skipped"),
        "not_run": (ledger.get("not_run") or 0) + (ledger.get("not_run_budget") or 0),
        "judge_health": _judge_health(record.judge_health or {}),
    }
    whole = found if record.shard is None else {name: found[name] for name in OF_ALL_SHARDS}
    return {name: value for name, value in whole.items() if value}


def _judge_health(written: dict[str, Any]) -> dict[str, Any]:
    """Return what a page shows of the health of the judges: the verdict, and the facts that it rests on."""
    try:
        health = msgspec.convert(written, JudgeHealth)
    except msgspec.ValidationError:  # of another version
        return {"verdict": str(written["verdict"]), "facts": []} if "verdict" in written else {}
    return {"verdict": health.verdict, "facts": list(health_facts(health))} if written else {}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
