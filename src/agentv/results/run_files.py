"""The results files of a run: one, or several that are merged as they are read."""

from collections.abc import Sequence
from pathlib import Path

RunFiles = Path | Sequence[Path]
"""The results file of a run, or several that are merged."""


def files_of(run: RunFiles) -> Sequence[Path]:
    """Return all the results files of a run."""
    return [run] if isinstance(run, Path) else run


def name_of(run: RunFiles) -> Path:
    """Return what a run is called: by its file, or by the first of them."""
    first, *others = files_of(run)
    return first.with_name(f"{first.name} and {len(others)} more") if others else first
