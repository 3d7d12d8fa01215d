"""Reads all requests from one JSONL file and writes all answers to another, as a model that loads slowly would."""

import json
import sys
from pathlib import Path


def answer(question: str) -> str:
    """What a sentence feels like."""
    return "positive" if "love" in question else "negative"


requests = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
records = [{"id": request["id"], "text": answer(request["question"])} for request in requests]
Path(sys.argv[2]).write_text("".join(json.dumps(record) + "\n" for record in records))
