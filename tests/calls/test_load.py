"""Fifty workers send two thousand requests to a faulty server: every case has one result, and the right one."""

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kits.model_servers import Answer, Reply, Says, model_server
from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import PRINT_PEAK_KB, Write, a_case

WORKERS, CASES = 50, 2_000
SOON = {"initial_delay_ms": 1, "max_delay_ms": 4}
RETRIES = 3
LONG = "fine " * 2_000
"""Of such answers a thousand are ten megabytes."""
RUN = f"""
import sys
from agentv.__main__ import main
try:
    main()
finally:
    {PRINT_PEAK_KB}
"""


class Fault(NamedTuple):
    """A fault of a server, and the error message for it."""

    answer: Answer
    words: str


PASSING = (
    Fault(Reply(429, {"error": {"message": "too many"}}, {"Retry-After": "0.002"}), "status 429: too many"),
    Fault(Reply(429, {"error": {"message": "too fast"}}), "status 429: too fast"),
    Fault(Reply(500, b"<html>oh no</html>"), "status 500: <html>oh no</html>"),
    Fault(503, "status 503: no luck"),
    Fault(Reply(body=b'{"choices": [', cut=True), "the connection failed: "),
)
WEIGHTS = (1, 1, 5, 5, 5)
"""Each 429 slows everybody down, as it should; with many of them nothing else would be seen."""
LASTING = (
    Fault(Reply(body=b'{"choices": ['), "the model's answer is not valid JSON: "),
    Fault(Reply(body={"choices": []}), "its list of choices is empty"),
    Fault(Says(refusal="I will not."), "the model refused: I will not."),
    Fault(Says(text=""), "the model returned an empty answer"),
    Fault(401, "status 401: no luck"),
)


class Fate(NamedTuple):
    """The fate of a case: temporary faults followed by an answer, or a permanent fault."""

    faults: tuple[Fault, ...]
    end: Fault | None
    seconds: float

    @property
    def error(self) -> str | None:
        """The words for how it ends, if that is not well."""
        if len(self.faults) > RETRIES:
            return self.faults[RETRIES].words
        return self.end.words if self.end else None

    @property
    def attempts(self) -> int:
        return min(len(self.faults), RETRIES) + 1


def fates(count: int) -> list[Fate]:
    chance = random.Random(7)
    return [
        Fate(
            faults=tuple(chance.choices(PASSING, WEIGHTS, k=chance.choices((0, 1, 2, 3, 4), (75, 15, 5, 3, 2))[0])),
            end=chance.choice(LASTING) if chance.random() < 0.05 else None,
            seconds=0.05 if chance.random() < 0.05 else 0.0,
        )
        for _ in range(count)
    ]


class Server:
    """Gives each case its fate, in any order of requests."""

    def __init__(self, count: int):
        self.fates = fates(count)
        self.asked: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._first = threading.Barrier(WORKERS)

    def answer(self, body: dict[str, Any]) -> Answer:
        found = re.search(r"number (\d+)", body["messages"][-1]["content"])
        assert found
        number = int(found[1])
        with self._lock:
            self.asked[number] += 1
            attempt = self.asked[number]
            is_first = self.asked.total() <= WORKERS
        if is_first:
            self._first.wait(PATIENCE_SECONDS)  # until every worker has asked
        fate = self.fates[number]
        time.sleep(fate.seconds)
        if attempt <= len(fate.faults):
            return fate.faults[attempt - 1].answer
        return fate.end.answer if fate.end else f"{LONG}{number}"


def run(write: Write, count: int) -> tuple[Server, int, list[dict[str, Any]], float]:
    """The requests, the maximum number of concurrent ones, the results, and their memory in megabytes."""
    write(
        "cases.jsonl",
        [a_case(f"c{n}", input_messages=[{"role": "user", "content": f"number {n}"}]) for n in range(count)],
    )
    write("cases.yaml", "evaluators: [{type: contains, value: fine}]\n")
    faulty = Server(count)
    with model_server(faulty.answer, seconds=0.02) as server:
        write("targets.yaml", json.dumps({"targets": [server.target("openai", max_retries=RETRIES, **SOON)]}))
        args = ["eval", "cases.jsonl", "--workers", str(WORKERS), "--out", "out.jsonl", "--quiet"]
        ran = subprocess.run(
            [sys.executable, "-c", RUN, *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * PATIENCE_SECONDS,
        )
        most = server.most
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    results = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    return faulty, most, results, int(ran.stdout.split()[-1]) / 1024


@pytest.mark.slow
def test_fifty_workers_and_two_thousand_requests_with_random_faults(write: Write) -> None:
    _, _, few, little = run(write, 200)
    assert len(few) == 200
    server, most, results, much = run(write, CASES)

    assert sorted(result["eval_id"] for result in results) == sorted(f"c{number}" for number in range(CASES))
    for result in results:
        number = int(result["eval_id"][1:])
        fate = server.fates[number]
        assert (result["attempt"], server.asked[number]) == (fate.attempts, fate.attempts), fate
        if fate.error is None:
            assert result["candidate_answer"] == f"{LONG}{number}"
            assert (result["score"], result.get("error")) == (1.0, None)
        else:
            assert fate.error in result["error"]
            assert result["score"] == 0
    kinds = Counter(fate.error for fate in server.fates)
    assert len(kinds) > len(LASTING)  # of every kind that lasts, and some that were to pass and did not
    assert most == WORKERS
    assert much - little < 15, "memory grows with the number of cases"
