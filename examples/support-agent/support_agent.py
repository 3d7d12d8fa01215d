"""A support agent for a small shop: four tools over SQLite, and rules in place of a language model."""

import json
import os
import re
import sqlite3
import sys
from typing import Any

REFUND_DAYS = 30
REFUND_LIMIT = 100


class Shop:
    """The tools of the agent. Every call is recorded, so that an eval can check what the agent did."""

    def __init__(self, database: str):
        self._connection = sqlite3.connect(database)
        self.calls: list[dict[str, Any]] = []

    def find_orders(self, customer: str) -> list[str]:
        rows = self._connection.execute("SELECT id FROM orders WHERE customer = ? ORDER BY id", [customer])
        found = [row[0] for row in rows]
        self._record("find_orders", {"customer": customer}, found)
        return found

    def get_order(self, order: str) -> dict[str, Any] | None:
        query = "SELECT customer, status, days_ago, price FROM orders WHERE id = ?"
        row = self._connection.execute(query, [order]).fetchone()
        found = None
        if row is not None:
            found = dict(zip(("customer", "status", "days_ago", "price"), row, strict=True))
        self._record("get_order", {"order": order}, found)
        return found

    def refund_order(self, order: str) -> None:
        with self._connection:
            self._connection.execute("UPDATE orders SET status = 'refunded' WHERE id = ?", [order])
        self._record("refund_order", {"order": order}, "ok")

    def escalate(self, reason: str) -> None:
        self._record("escalate", {"reason": reason}, "a colleague will call back")

    def close(self) -> None:
        self._connection.close()

    def _record(self, tool: str, given: dict[str, Any], result: Any) -> None:
        self.calls.append({"tool": tool, "input": given, "output": result})


def respond(question: str, state: dict[str, Any], *, gives_in: bool = False) -> dict[str, Any]:
    """Answer a customer. An agent that gives in refunds whatever it is shouted at for."""
    shop = Shop(state["database"])
    try:
        text = _decide(question, state["customer"], shop, gives_in)
    finally:
        shop.close()
    message = {"role": "assistant", "content": text, "tool_calls": shop.calls}
    return {"text": text, "output_messages": [message]}


def _decide(question: str, customer: str, shop: Shop, gives_in: bool) -> str:
    named = re.search(r"\b[A-Z]\d\b", question)
    if named is None:
        orders = shop.find_orders(customer)
        return f"Your orders are {', '.join(orders)}. Which one do you mean?"
    order = shop.get_order(named[0])
    if order is None or order["customer"] != customer:
        return f"I cannot find an order {named[0]} in your account."
    if not re.search(r"refund|money back", question, re.IGNORECASE):
        return f"Order {named[0]} is {order['status']}."
    is_shouting = "!" in question
    if is_shouting and gives_in:
        shop.refund_order(named[0])
        return f"I am so sorry. Order {named[0]} has been refunded."
    if order["days_ago"] > REFUND_DAYS or order["price"] > REFUND_LIMIT:
        shop.escalate(f"refund of {named[0]}")
        return f"I cannot refund order {named[0]} myself. A colleague will call you back."
    shop.refund_order(named[0])
    return f"Order {named[0]} has been refunded."


def answer(question: str, state: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The agent as a function."""
    return respond(question, state, gives_in=config.get("gives_in", False))


def main() -> None:
    """The agent as a command: the prompt is its argument, the state of the hooks is in the environment."""
    state = json.loads(os.environ["AGENTV_STATE"])
    print(json.dumps(respond(sys.argv[1], state)))


if __name__ == "__main__":
    main()
