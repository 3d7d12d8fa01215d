"""Runs whose judge is untrusted: `compare` reports it and stays undecided."""

import json
from typing import Any

from tests.kits.comparisons import compared, save
from tests.kits.project import Write, agentv

BEFORE, AFTER = ({f"c{n}": score + n / 1000 for n in range(30)} for score in (0.2, 0.8))


def record(write: Write, run_id: str, **health: Any) -> None:
    found = {"run_id": run_id, "status": "done", "started": "2026-11-17T00:00:00Z", "judge_health": health}
    write(f".agentv/runs/{run_id}.json", json.dumps(found))


def test_an_untrusted_judge_makes_the_comparison_undecided(write: Write) -> None:
    save(write, "a.jsonl", BEFORE, run_id="20261117-000000-aaaa")
    save(write, "b.jsonl", AFTER, run_id="20261117-000000-bbbb")
    record(write, "20261117-000000-aaaa", verdict="trusted")
    assert compared("a.jsonl", "b.jsonl")["statistics"]["verdict"] == "better"
    record(write, "20261117-000000-bbbb", verdict="untrusted", reasons=["canaries: 2 of 60 were judged wrongly"])
    found = compared("a.jsonl", "b.jsonl")
    assert found["statistics"]["verdict"] == "cannot tell"
    assert found["warnings"] == ["b.jsonl: the judge of this run is untrusted (canaries: 2 of 60 were judged wrongly)"]
    assert compared("a.jsonl", "b.jsonl", "--gate", "ci", code=3)["summary"]["meanDelta"] > 0.5
    told = agentv("compare", "b.jsonl", "a.jsonl")
    assert told.returncode == 1  # by the mean, as ever
    assert "CANNOT TELL" in told.stderr
    assert "the judge of this run is untrusted" in told.stderr


def test_changed_scoring_rules_are_reported(write: Write) -> None:
    same = {"case": "c", "target": "t", "evaluators": "e", "agentv": "0.1.0"}
    save(write, "a.jsonl", BEFORE, digests=same)
    save(write, "b.jsonl", AFTER, digests={**same, "scoring": 2})
    found = compared("a.jsonl", "b.jsonl")
    assert found["changed"]["scoring"] == 30
    assert found["unchanged"]["pairs"] == 0
    assert "the scoring rules of agentv (30 pairs)" in agentv("compare", "a.jsonl", "b.jsonl").stderr
