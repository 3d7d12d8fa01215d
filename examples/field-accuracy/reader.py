"""Reads invoices with regular expressions, and overlooks all lines but the first."""

import json
import re


def read(question: str) -> str:
    """Return the fields of the invoice in a question as JSON."""
    number, date, amount, total = (
        re.findall(pattern, question, re.MULTILINE)[0]
        for pattern in (r"INVOICE (\d+)", r"Date: (\S+)", r"^\d+ .* (\S+) EUR", r"Total\s+(\S+) EUR")
    )
    return json.dumps({"number": number, "date": date, "total": total, "lines": [{"amount": amount}]})
