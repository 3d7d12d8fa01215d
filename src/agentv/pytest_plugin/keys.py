"""Where a session keeps what the plugin needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentv.pytest_plugin.runs import Runs

FILES = "agentv_files"
"""The setting of the ini file."""
UNDECIDED = ("fail", "warn", "pass")
"""What a check that cannot tell may do."""
WANTED = pytest.StashKey[frozenset[Path]]()
"""The eval files whose cases are tests."""
RUNS: pytest.StashKey[Runs] = pytest.StashKey()
"""What was run for them; only where there are any."""
