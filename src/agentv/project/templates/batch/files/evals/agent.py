"""A sample agent that answers many questions at once: 'python3 agent.py REQUESTS ANSWERS', two JSONL files.

A request has the fields id, question, guidelines, input_files and chat_prompt; an answer has id and text.
"""

import json
import re
import sys

CAPITALS = {"France": "Paris", "Norway": "Oslo", "Japan": "Tokyo"}


def answer(question: str) -> str:
    """Answer a question."""
    for country, capital in CAPITALS.items():
        if country in question:
            return capital if "one word" in question else f"The capital of {country} is {capital}."
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    return f"That is {sum(numbers)}." if numbers else "I do not know."


with open(sys.argv[1], encoding="utf-8") as requests, open(sys.argv[2], "w", encoding="utf-8") as answers:
    for line in requests:
        request = json.loads(line)
        print(json.dumps({"id": request["id"], "text": answer(request["question"])}), file=answers)
