"""Projects whose judge is a Python function, and the JUDGE section of their summaries."""

import json
from pathlib import Path
from typing import Any

from tests.kits.project import Write

CASES = 16
START = """
import hashlib, json, threading

one_at_a_time = threading.Lock()

def answer_in(question):
    return question.rsplit("<<<", 1)[-1].partition("\\n")[2].rpartition("\\n")[0]

def reference_in(question):
    return question.partition("if one is known:\\n")[2].partition("\\n")[0]

def count():
    with one_at_a_time, open("calls.log", "a+") as file:
        file.write("x")
        file.flush()
        return file.tell()

def say(score, hits=(), misses=(), reasoning="so it is"):
    return json.dumps({"reasoning": reasoning, "hits": hits, "misses": misses, "score": score})

def fair(question):
    return 1 if answer_in(question).startswith(reference_in(question) or "?") else 0

def grade(question):
    number = count()
"""
TARGET = """
def answer(question):
    number = int(question.rsplit(" ", 1)[-1])
    right = f"it is {number}"
    return right + " " + "really " * number if number % 2 == 0 else "no idea" + " at all" * (number % 5)
"""
GOOD = "return say(fair(question))"


def project(write: Write, code: str, grader: dict[str, Any] | None = None) -> None:
    write("grader.py", f"{START}    {code}\n")
    write("agent.py", TARGET)
    targets = [
        {"name": "default", "provider": "python", "function": "agent.py:answer", "judge_target": "grader"},
        grader or {"name": "grader", "provider": "python", "function": "grader.py:grade"},
    ]
    write("targets.yaml", json.dumps({"targets": targets}))
    cases = [
        {"id": f"c{n}", "expected_outcome": "the number", "input": f"Number {n}", "expected_output": f"it is {n}"}
        for n in range(CASES)
    ]
    write("cases.jsonl", cases)


def judge_section(stdout: str) -> str:
    """The section JUDGE of a summary, with line breaks taken out."""
    return " ".join(stdout.partition("\nJUDGE\n")[2].partition("\nResults:")[0].split())


def calls() -> int:
    return len(Path("calls.log").read_text())
