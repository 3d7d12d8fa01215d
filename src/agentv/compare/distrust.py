"""Find runs whose judge is untrusted according to their run records: their scores are not meaningful."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentv.compare.records import Statistics
from agentv.results.run_files import RunFiles, files_of
from agentv.results.runs import known_runs

UNTRUSTED = "untrusted"
CHUNK = 1 << 20
LONGEST = 256
"""Bytes of a chunk that are searched again with the next one: a `run_id` field may be split between them."""
NOTE = "the judge of at least one run is untrusted, so the difference in scores is not meaningful"
Health = Mapping[str, Any]
"""The judge health of a run, as its record has it."""


def find_distrust(
    runs: Sequence[RunFiles],
    folder: Path | None = None,
) -> list[str]:
    """Return for each run why its judge is untrusted; an empty string if it is trusted or unknown."""
    known: dict[str, Health] = {}
    for record in known_runs(folder):
        known[record.run_id] = record.judge_health or {}
    untrusted: dict[str, Health] = {}
    for run_id, health in known.items():
        if health.get("verdict") == UNTRUSTED:
            untrusted[run_id] = health
    return [_reason(run, untrusted) for run in runs]


def _reason(run: RunFiles, untrusted: Mapping[str, Health]) -> str:
    """Return why the judge of a run is untrusted, or an empty string."""
    if not untrusted:
        return ""
    for path in files_of(run):
        found = _run_ids(path, untrusted)
        run_id = next(found, None)
        if run_id is not None:
            reasons = untrusted[run_id].get("reasons", ())
            listed = "; ".join(map(str, reasons))
            return listed or "reason unknown"
    return ""


def _run_ids(path: Path, wanted: Mapping[str, Health]) -> Iterator[str]:
    """Yield the wanted run ids that occur in a results file."""
    if not path.is_file():
        return
    escaped = [re.escape(run_id.encode()) for run_id in wanted]
    ids = b"|".join(escaped)
    pattern = re.compile(rb'"?run_id"?:\s*["\']?(' + ids + rb")\b")
    with path.open("rb") as file:
        before = b""
        while chunk := file.read(CHUNK):
            for match in pattern.finditer(before + chunk):
                yield match[1].decode()
            before = chunk[-LONGEST:]


def distrust(statistics: Statistics) -> Statistics:
    """Return the same figures without a decision, because a judge is untrusted."""
    return msgspec.structs.replace(
        statistics,
        interval=None,
        verdict="cannot tell",
        notes=(*statistics.notes, NOTE),
    )
