"""Runs whose judges are untrusted, by their run records: what such judges say decides nothing."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentv.compare.records import Statistics
from agentv.results.run_files import RunFiles, files_of
from agentv.results.runs import RUNS, read_runs

UNTRUSTED = "untrusted"
CHUNK, LONGEST = 1 << 20, 256
NOTE = "the judge of one of the runs is untrusted: no difference of its scores tells anything"


def find_distrust(runs: Sequence[RunFiles], folder: Path = RUNS) -> list[str]:
    """Return for each run why its judge is untrusted; empty if it is not, or nobody knows."""
    known = {record.run_id: record.judge_health or {} for record in read_runs(folder)}
    bad: dict[str, Any] = {id_: health for id_, health in known.items() if health.get("verdict") == UNTRUSTED}
    return [_reason(run, bad) if bad else "" for run in runs]


def _reason(run: RunFiles, bad: dict[str, Any]) -> str:
    for path in files_of(run):
        for id_ in _run_ids(path, bad):
            return "; ".join(map(str, bad[id_].get("reasons", ()))) or "no reason is known"
    return ""


def _run_ids(path: Path, wanted: dict[str, Any]) -> Iterator[str]:
    """Yield those of the wanted runs that results of a file are of."""
    ids = b"|".join(re.escape(id_.encode()) for id_ in wanted)
    pattern = re.compile(rb'"?run_id"?:\s*["\']?(' + ids + rb")\b")
    if not path.is_file():
        return
    with path.open("rb") as file:
        before = b""
        while chunk := file.read(CHUNK):
            for found in pattern.finditer(before + chunk):
                yield found[1].decode()
            before = chunk[-LONGEST:]


def distrust(found: Statistics) -> Statistics:
    """Return figures that decide nothing, as a judge is untrusted; the figures themselves stay."""
    return msgspec.structs.replace(found, interval=None, verdict="cannot tell", notes=(*found.notes, NOTE))
