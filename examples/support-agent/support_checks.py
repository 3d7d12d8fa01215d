"""What the eval checks and counts, in Python."""

import sqlite3
from typing import Any


def status_is(state: dict[str, Any], vars: dict[str, Any], config: dict[str, Any]) -> bool:
    """Return whether the order has this status in the database after the answer."""
    connection = sqlite3.connect(state["database"])
    (status,) = connection.execute("SELECT status FROM orders WHERE id = ?", [vars["order"]]).fetchone()
    connection.close()
    is_expected: bool = status == config["status"]
    return is_expected


def escalation_rate(results: list[dict[str, Any]]) -> float:
    """Return the share of answers that hand the customer to a person."""
    escalated = 0
    for result in results:
        calls = result.get("trace_summary", {}).get("toolCallsByName", {})
        if "escalate" in calls:
            escalated += 1
    return escalated / len(results)
