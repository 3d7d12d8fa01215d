"""Results files and their comparison."""

import json
from pathlib import Path
from typing import Any

from tests.kits.project import Write, agentv

Scores = dict[str, float] | list[tuple[str, float]]


def line(eval_id: str, score: Any, **more: Any) -> str:
    return json.dumps({"eval_id": eval_id, "score": score, **more}) + "\n"


def save(write: Write, name: str, scores: Scores, **more: Any) -> Path:
    pairs = scores.items() if isinstance(scores, dict) else scores
    return write(name, "".join(line(eval_id, score, **more) for eval_id, score in pairs))


def compared(*args: str, code: int = 0) -> dict[str, Any]:
    ran = agentv("compare", *args)
    assert ran.returncode == code, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def refused(*args: str) -> str:
    """The error messages for invalid input. Nothing is written to stdout, and no traceback is printed."""
    ran = agentv("compare", *args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    return ran.stderr
