"""A judge that runs the query in the answer and compares the rows. It reads and writes JSON."""

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any


def score(case: dict[str, Any]) -> dict[str, Any]:
    """Score 1 if the query returns the expected rows, in any order."""
    expected = case["expected_messages"][-1]["content"]["rows"]
    shop = sqlite3.connect(":memory:")
    shop.executescript(Path(case["config"]["database"]).read_text())
    try:
        rows = [list(row) for row in shop.execute(case["candidate_answer"])]
    except sqlite3.Error as error:
        return {"score": 0, "misses": [f"the query fails: {error}"]}
    if sorted(rows) == sorted(expected):
        return {"score": 1, "hits": [f"gives {rows}"]}
    return {"score": 0, "misses": [f"gives {rows}, not {expected}"]}


print(json.dumps(score(json.load(sys.stdin))))
