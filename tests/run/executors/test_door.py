"""What a worker of a cluster answers its driver."""

import asyncio
import pickle
from pathlib import Path

import pytest

from agentv.run.executors.session import Session
from agentv.run.executors.setup import Manifest, Setup
from agentv.run.executors.worker import Door
from agentv.run.plan import RunOptions, Selection
from agentv.run.planner import PlanOptions


def test_a_run_that_fails_before_it_is_asked_for_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The thread that gets ready may be faster than the answer that it has begun to."""
    start = Session.start

    def start_and_end(session: Session) -> None:
        start(session)
        session.wait()

    monkeypatch.setattr(Session, "start", start_and_end)
    selection = Selection(None, (), None, None, None)
    options = PlanOptions(selection, None, None, False, 1)
    setup = Setup((), tmp_path / "nowhere", options, RunOptions(), Manifest({}, ()))
    answer = asyncio.run(Door().handle("run", "start", setup=pickle.dumps(setup)))
    assert answer["state"] == "failed"
    assert "nowhere: cannot be entered: No such file or directory" in answer["problem"]
