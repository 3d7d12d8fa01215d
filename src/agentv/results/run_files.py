"""The results files of a run: a single file, or several that are merged while they are read."""

from collections.abc import Sequence
from pathlib import Path

RunFiles = Path | Sequence[Path]
"""The results file of a run, or several files to merge."""


def files_of(run: RunFiles) -> Sequence[Path]:
    """Return all results files of a run."""
    if isinstance(run, Path):
        return [run]
    return run


def name_of(run: RunFiles) -> Path:
    """Return the name of a run for messages: its file, or its first file and the number of others."""
    first, *others = files_of(run)
    if not others:
        return first
    return first.with_name(f"{first.name} and {len(others)} more")
