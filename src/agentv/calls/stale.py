"""Describe what has changed in a target since the results that are stale."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.calls.target_version import TargetVersion
from agentv.files.state import state_folder
from agentv.results.runs import read_run_record
from agentv.results.views import DigestsView
from agentv.text import plural

MAX_NAMES = 5


class StaleGroup(NamedTuple):
    """Stale results that have the same run and target, and the same digests of the target."""

    run_id: str
    target: str
    digests: DigestsView


def describe_stale(stale: Mapping[StaleGroup, int], versions: Mapping[str, TargetVersion]) -> list[str]:
    """Return one line per change of a target, with the number of results that are stale because of it.

    `versions` are those of the targets of this run, by name.
    """
    counts: Counter[str] = Counter()
    for group, count in stale.items():
        counts[_describe_change(group, versions)] += count
    lines = []
    for change, count in counts.most_common():
        results = plural(count, "result is", "results are")
        lines.append(f"{results} stale: {change}")
    return lines


def _describe_change(group: StaleGroup, versions: Mapping[str, TargetVersion]) -> str:
    version = versions.get(group.target)
    if version is None:
        return f"answered by target {group.target!r}, but this run uses {_listed(versions)}"
    changed = _changed_parts(group, version)
    if not changed:
        return f"target {group.target!r} has changed since this run"
    shown = ", ".join(changed[:MAX_NAMES])
    if len(changed) > MAX_NAMES:
        shown += f" and {len(changed) - MAX_NAMES} more"
    return f"target {group.target!r} has changed since this run: {shown}"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(repr(name) for name in names)


def _changed_parts(group: StaleGroup, version: TargetVersion) -> list[str]:
    """Return the names of the settings, files and variables that are known to have changed."""
    for target in _recorded_targets(group.run_id):
        parts = target.get("parts")
        if target.get("digest") == group.digests.target and isinstance(parts, dict):
            return version.changes_since(parts)
    return _changed_kinds(group.digests, version)


def _recorded_targets(run_id: str) -> Sequence[Mapping[str, Any]]:
    """Return the targets in the record of a run, or nothing if the record cannot be read."""
    path = state_folder("runs") / f"{Path(run_id).name}.json"
    try:
        return read_run_record(path).targets
    except (OSError, ValueError, msgspec.MsgspecError):
        return ()


def _changed_kinds(digests: DigestsView, version: TargetVersion) -> list[str]:
    """Return the kinds of changes that the digests of a result show, for a run without a record."""
    changed = []
    if digests.settings and digests.settings != version.settings:
        changed.append("its settings")
    if digests.format > 1 and digests.files != version.files:
        changed.append("its files or variables")
    return changed
