"""Stands in for a language model that judges: it can check criteria of the form `Contains "…"`, and costs nothing."""

import json
import re


def judge(question: str) -> str:
    """What the judge is asked, in; one JSON object, out."""
    found = re.search(r"<<<(\w+)\n(.*?)\n\1>>>", question, re.DOTALL)
    letter = found[2] if found else ""
    checks = [
        {"id": id_, "satisfied": word in letter, "reasoning": f"looked for {word!r}"}
        for id_, word in re.findall(r'^- (\S+): Contains "(.*)"$', question, re.MULTILINE)
    ]
    return json.dumps({"checks": checks, "overall_reasoning": "word by word"})
