"""What cases cost that are objects in memory, compared with the same cases in a file; and what importing costs."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure, best_of, process

CASES = 20_000
CODE = """
import asyncio, json, sys, time
import agentv

with open("cases.jsonl") as file:
    cases = [json.loads(line) for line in file]

async def answer(question):
    return question

hello = {"type": "contains", "value": "hello"}
given = {"paths": "cases.jsonl"}
if sys.argv[1] == "list":
    given = {"cases": cases}
elif sys.argv[1] == "generator":
    given = {"cases": (case for case in cases)}
started = time.perf_counter()
report = asyncio.run(agentv.evaluate(**given, target=answer, evaluators=[hello], workers=8))
print(time.perf_counter() - started)
assert len(report.results) == len(cases)
"""


def figures() -> Iterator[Figure]:
    turns = [[_seconds("file"), _seconds("list"), _seconds("generator")] for _ in range(3)]
    file, listed, generated = (min(times) for times in zip(*turns, strict=True))
    detail = f"{file / CASES * 1e6:.0f} us per case from a file"
    yield Figure("evaluate(cases=list) / the same cases in a file", listed / file, "x", 1.2, detail)
    yield Figure("evaluate(cases=generator) / the same cases in a file", generated / file, "x", 1.4, detail)
    nothing, imported = best_of(
        20,
        process(sys.executable, "-c", "pass"),
        process(sys.executable, "-c", "import agentv"),
    )
    yield Figure("import agentv / python -c pass", imported / nothing, "x", 1.5, f"{imported * 1000:.0f} ms")


def _seconds(source: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        with Path(name, "cases.jsonl").open("w") as file:
            for number in range(CASES):
                case = {"id": f"c{number}", "input": f"hello {number}", "expected_outcome": "greets"}
                file.write(json.dumps(case) + "\n")
        command = [sys.executable, "-c", CODE, source]
        done = subprocess.run(command, cwd=name, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout.split()[-1])
