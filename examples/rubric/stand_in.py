"""An offline substitute for an LLM judge: it checks criteria of the form `Contains "…"`."""

import json
import re


def judge(question: str) -> str:
    """Return the judgement as a JSON object; `question` is the judge's prompt."""
    found = re.search(r"<<<(\w+)\n(.*?)\n\1>>>", question, re.DOTALL)
    letter = found[2] if found else ""
    checks = [
        {"id": id_, "satisfied": word in letter, "reasoning": f"looked for {word!r}"}
        for id_, word in re.findall(r'^- (\S+): Contains "(.*)"$', question, re.MULTILINE)
    ]
    return json.dumps({"checks": checks, "overall_reasoning": "word by word"})
