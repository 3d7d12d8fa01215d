"""Calls whose time is up when a target says that it has come to where it is to be stopped."""

import os
from pathlib import Path

import pytest

from tests.kits.limits.sitecustomize import REACHED

FOLDER = Path(__file__).parent / "limits"


def end_limits_when_reached(monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the time limits of calls not go by the clock, and return how a target says in a shell that its is over."""
    path = Path("reached").absolute()
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(FOLDER), before))))
    monkeypatch.setenv(REACHED, str(path))
    return f'echo >> "${REACHED}"'
