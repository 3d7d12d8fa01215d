"""The settings of the plugin, and the keys under which a session stores its state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentv.pytest_plugin.runs import Runs

FILES = "agentv_files"
"""The ini setting with the eval files."""
UNDECIDED = ("fail", "warn", "pass")
"""The possible outcomes of a check that is undecided."""
WANTED = pytest.StashKey[frozenset[Path]]()
"""The eval files whose cases are tests."""
RUNS: pytest.StashKey[Runs] = pytest.StashKey()
"""The runs of these eval files; not set if there are none."""
