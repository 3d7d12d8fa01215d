"""The id of a run -> what its record in `.agentv/runs` says: commit, models, command, what was planned.

The record is a help and no more: a report is made without it, from what the results say themselves.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

RUNS = Path(".agentv", "runs")
_RUN_ID = re.compile(r"\d{8}-\d{6}-\w{1,16}")
_MAX_BYTES = 1 << 20


def find_record(run_id: str, results: Path) -> Mapping[str, Any]:
    """Return the record of a run, looked for in this folder and around its results file; empty if there is none."""
    if not _RUN_ID.fullmatch(run_id):
        return {}  # it comes from a file: it must not lead anywhere else
    for folder in _folders(results):
        try:
            with (folder / RUNS / f"{run_id}.json").open("rb") as file:
                found = msgspec.json.decode(file.read(_MAX_BYTES))
        except (OSError, msgspec.MsgspecError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("run_id") == run_id:
            return found
    return {}


def _folders(results: Path) -> Iterator[Path]:
    yield Path()
    yield from results.absolute().parents


def record_figures(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a record, as far as it is what it should be."""
    git, ledger, summary = (_mapping(record.get(name)) for name in ("git", "ledger", "summary"))
    targets = [_mapping(each) for each in _list(record.get("targets"))]
    commit = git.get("commit")
    command = [part for part in _list(record.get("command")) if isinstance(part, str)]
    found = {
        "models": list(dict.fromkeys(str(each["model"]) for each in targets if each.get("model"))),
        "commit": f"{str(commit)[:10]}{' with changes' if git.get('dirty') else ''}" if commit else None,
        "branch": git.get("branch"),
        "command": " ".join(command) or None,
        "status": record.get("status"),
        "judge": _mapping(record.get("judge_health")).get("verdict"),
        "started": record.get("started"),
        "seconds": summary.get("duration_seconds"),
        "planned": ledger.get("planned"),
        "skipped": ledger.get("skipped"),
        "not_run": ledger.get("not_run"),
    }
    return {name: value for name, value in found.items() if _is_shown(name, value)}


def _is_shown(name: str, value: Any) -> bool:
    if name in ("seconds", "planned", "skipped", "not_run"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return bool(value) and isinstance(value, str | list)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
