"""Read all requests from one JSONL file and write all answers to another, like a model that takes long to load."""

import json
import sys
from pathlib import Path


def answer(question: str) -> str:
    """Return the sentiment of a sentence."""
    return "positive" if "love" in question else "negative"


requests = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
records = [{"id": request["id"], "text": answer(request["question"])} for request in requests]
Path(sys.argv[2]).write_text("".join(json.dumps(record) + "\n" for record in records))
