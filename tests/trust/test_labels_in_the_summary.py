"""Labels of a run's answers appear in the summary of later runs with the same answers."""

import json
from pathlib import Path

from tests.kits.judges import CASES, GOOD, judge_section, project
from tests.kits.project import Write, agentv
from tests.kits.runs import evaluate


def test_labels_are_in_the_section(write: Write) -> None:
    project(write, GOOD)
    evaluate("cases.jsonl", "--out", "out.jsonl")
    found = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    rows = [f'{each["eval_id"]},"{each["candidate_answer"]}",{each["verdict"]},random' for each in found]
    write("reviewed.csv", "\n".join(["eval_id,answer,label,sampling", *rows, ""]))
    assert agentv("labels", "import", "reviewed.csv").returncode == 0
    section = judge_section(evaluate("cases.jsonl", "--out", "again.jsonl").stdout)
    assert f"{CASES} labels for {CASES} answers" in section
    assert "kappa 1.000" in section
    assert section.startswith("verdict: trusted labels: kappa 1.00, agreement at least 0.81")
    (record,) = [
        read
        for path in Path(".agentv/runs").glob("*.json")
        if (read := json.loads(path.read_text())["judge_health"]).get("labels")
    ]
    assert record["labels"]["agreement"]["value"] == 1.0
    assert record["labels"]["labels"]["used"] == CASES
