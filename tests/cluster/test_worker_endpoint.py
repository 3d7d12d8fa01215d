"""The responses of a cluster worker to its driver."""

import asyncio
import pickle
from pathlib import Path

import pytest

from agentv.cluster.session import Session
from agentv.cluster.setup import Manifest, PickledSetup, Setup
from agentv.cluster.worker import WorkerEndpoint
from agentv.run.options import RunOptions
from agentv.run.planning.plan import Selection
from agentv.run.planning.planner import PlanOptions


def test_a_run_that_fails_before_the_first_poll_reports_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The thread that gets ready may be faster than the answer that it has begun to."""
    start = Session.start

    def start_and_end(session: Session) -> None:
        start(session)
        session.wait()

    monkeypatch.setattr(Session, "start", start_and_end)
    selection = Selection()
    options = PlanOptions(selection)
    setup = Setup((), tmp_path / "nowhere", options, RunOptions(), Manifest({}, ()))
    answer = asyncio.run(WorkerEndpoint().handle("run", "start", setup=PickledSetup(pickle.dumps(setup))))
    assert answer["state"] == "failed"
    assert "nowhere: cannot change to this folder: No such file or directory" in answer["problem"]
