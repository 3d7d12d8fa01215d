"""Results with answers, their labels, and the commands that read both."""

import json
import subprocess
from typing import Any

from agentv.results.answer_digest import text_digest
from tests.kits.project import Write, agentv


def a_result(eval_id: str = "a", verdict: str = "pass", answer: str | None = "Paris", **more: Any) -> dict[str, Any]:
    """A result as written to a file, without an answer if that is None."""
    score = {"pass": 1.0, "fail": 0.0}[verdict]
    part = {"name": "correct", "type": "llm_judge", "score": score, "weight": 1.0, "verdict": verdict}
    found = {"timestamp": "2026-11-17T08:00:00Z", "eval_id": eval_id, "dataset": "geo", "target": "t", "attempt": 1}
    found |= {"score": score, "verdict": verdict, "evaluator_results": [part]}
    return found | ({"candidate_answer": answer} if answer is not None else {}) | more


def a_label(eval_id: str = "a", label: str = "pass", answer: str = "Paris", **more: Any) -> dict[str, Any]:
    found = {"eval_id": eval_id, "dataset": "geo", "trial": 1, "answer_digest": text_digest(answer), "label": label}
    return found | more


def a_judged_run(write: Write, cells: dict[tuple[str, str], int], unlabelled: dict[str, int], **label: Any) -> None:
    """Results and labels with so many answers of each verdict and label, and so many with a verdict alone."""
    pairs = [pair for pair, count in cells.items() for _ in range(count)]
    others = [verdict for verdict, count in unlabelled.items() for _ in range(count)]
    results = [a_result(f"c{number}", verdict) for number, (verdict, _) in enumerate(pairs)]
    write("results.jsonl", results + [a_result(f"d{number}", verdict) for number, verdict in enumerate(others)])
    label = {"sampling": "random", "reviewer": "ann"} | label
    write(".agentv/labels.jsonl", [a_label(f"c{number}", word, **label) for number, (_, word) in enumerate(pairs)])


def judged(*args: str, expect: int = 0) -> dict[str, Any]:
    """The JSON of `agentv judge`."""
    ran = run("judge", *args, "--format", "json", expect=expect)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def run(*args: str, expect: int = 0) -> "subprocess.CompletedProcess[str]":
    ran = agentv(*args)
    assert ran.returncode == expect, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran


def refused(*args: str) -> str:
    """The error messages for invalid input. Nothing is written to stdout."""
    ran = run(*args, expect=2)
    assert ran.stdout == ""
    return ran.stderr
