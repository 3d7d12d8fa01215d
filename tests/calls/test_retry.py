"""Retries, delays and rate limits: what is retried, when, and how it is reported."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agentv.calls.rate_limit import RateLimiter
from agentv.calls.retry import Backoff
from tests.kits.model_servers import Answer, Reply, model_server
from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import results, start

QUICK = {"initial_delay_ms": 1, "max_delay_ms": 2}


def project(write: Write, target: dict[str, Any], cases: int = 1) -> None:
    write("targets.yaml", json.dumps({"targets": [target]}))
    write("cases.jsonl", [a_case(f"c{number}") for number in range(cases)])
    write("cases.yaml", "evaluators: [{type: contains, value: fine}]\n")


def outcome(*args: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    ran = agentv("eval", "cases.jsonl", "--out", "out.jsonl", *args)
    assert ran.returncode == code, ran.stderr
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()], ran.stderr


def first(*faults: Answer) -> Callable[[dict[str, Any]], Answer]:
    """Answers with these first, and then well."""
    left = list(faults)
    return lambda _: left.pop(0) if left else "fine"


class FirstOfCase:
    """Answers each case with its own faults first, then correctly. The questions are `Query 0`, `Query 1` and so on."""

    def __init__(self, *faults: tuple[Answer, ...]):
        self._left = [list(each) for each in faults]
        self.asked = [0] * len(faults)

    def __call__(self, body: dict[str, Any]) -> Answer:
        number = int(re.findall(r"Query (\d+)", json.dumps(body))[-1])
        self.asked[number] += 1
        left = self._left[number]
        return left.pop(0) if left else "fine"

    def write_cases(self, write: Write, *, own_targets: bool = False) -> None:
        """Write the cases `c0`, `c1` and so on, optionally with a target of the same name for each."""
        cases = []
        for number in range(len(self._left)):
            fields: dict[str, Any] = {"input_messages": [{"role": "user", "content": f"Query {number}"}]}
            if own_targets:
                fields["execution"] = {"target": f"c{number}"}
            cases.append(a_case(f"c{number}", **fields))
        write("cases.jsonl", cases)


@pytest.mark.parametrize("vendor", ["openai", "azure", "anthropic", "gemini"])
def test_temporary_errors_are_retried_and_reported(write: Write, vendor: str) -> None:
    faults = (429, 500, 529, Reply(cut=True, body=b'{"a"'))
    answer = FirstOfCase(*((fault, fault) for fault in faults))
    with model_server(answer) as server:
        project(write, server.target(vendor, **QUICK))
        answer.write_cases(write)
        found, said = outcome()
    assert answer.asked == [3] * len(faults)
    assert [(result["score"], result["attempt"]) for result in found] == [(1.0, 3)] * len(faults)
    assert said.count("failed, retrying") == 2 * len(faults)
    for number in range(len(faults)):
        assert f"c{number}: attempt 1 failed, retrying: " in said
        assert f"c{number}: attempt 2 failed, retrying: " in said


def test_language_models_have_three_retries_by_default(write: Write) -> None:
    settings: list[dict[str, int]] = [{}, {"max_retries": 1}, {"retry_max_retries": 0}]
    for args, expected in (((), [4, 2, 1]), (("--max-retries", "2"), [3, 3, 3]), (("--max-retries", "0"), [1, 1, 1])):
        answer = FirstOfCase(*((503,) * 9 for _ in settings))
        with model_server(answer) as server:
            targets = [server.target("openai", **QUICK, **own) | {"name": f"c{n}"} for n, own in enumerate(settings)]
            write("targets.yaml", json.dumps({"targets": targets}))
            answer.write_cases(write, own_targets=True)
            write("cases.yaml", "evaluators: [{type: contains, value: fine}]\n")
            found, _ = outcome(*args, code=1)
        assert answer.asked == expected
        assert [result["attempt"] for result in sorted(found, key=lambda result: result["eval_id"])] == expected
        assert all("status 503" in result["error"] for result in found)


def test_http_targets_have_no_retries_by_default(write: Write) -> None:
    for settings, asked in (({}, 1), ({"max_retries": 2, **QUICK}, 3)):
        with model_server(lambda _: 500) as server:
            project(write, server.target("http", **settings))
            outcome(code=1)
            assert len(server.asked) == asked


def test_permanent_errors_are_not_retried(write: Write) -> None:
    statuses = (400, 401, 403, 404)
    answer = FirstOfCase(*((status,) for status in statuses))
    with model_server(answer) as server:
        project(write, server.target("openai"))
        answer.write_cases(write)
        found, said = outcome(code=1)
    assert answer.asked == [1] * len(statuses)
    errors = {result["eval_id"]: result["error"] for result in found}
    for number, status in enumerate(statuses):
        assert f"status {status}" in errors[f"c{number}"]
    assert "retrying" not in said


def test_the_retried_statuses_are_configurable(write: Write) -> None:
    with model_server(first(418)) as server:
        project(write, server.target("http", max_retries=1, retryable_status_codes=[418], **QUICK))
        (result,), _ = outcome()
    assert result["attempt"] == 2


def test_retry_after_is_respected(write: Write) -> None:
    times: list[float] = []

    def answer(_: dict[str, Any]) -> Answer:
        times.append(time.monotonic())
        return Reply(429, {"error": {"message": "slowly"}}, {"Retry-After": "0.7"}) if len(times) == 1 else "fine"

    with model_server(answer) as server:
        project(write, server.target("http", max_retries=3, **QUICK))
        outcome()
    assert times[1] - times[0] >= 0.7


def test_a_retry_after_that_the_time_limit_does_not_allow_ends_the_case(write: Write) -> None:
    with model_server(lambda _: Reply(429, b"{}", {"Retry-After": "3600"})) as server:
        project(write, server.target("http", max_retries=3))
        (result,), _ = outcome("--agent-timeout", "100", code=1)
        assert len(server.asked) == 1
    assert "waiting 3600 s more would exceed the time limit of 100 s" in result["error"]


def test_a_429_slows_the_whole_target(write: Write) -> None:
    """When one worker is told to wait, the others send no requests during that time."""
    times: list[float] = []
    lock, told = threading.Lock(), threading.Event()

    def answer(_: dict[str, Any]) -> Answer:
        with lock:
            times.append(time.monotonic())
            number = len(times)
        if number == 5:
            return Reply(429, b"{}", {"Retry-After": "1"})
        if number > 5:
            told.wait(PATIENCE_SECONDS)  # others go on asking until that has arrived
        return "fine"

    with model_server(answer) as server:
        project(write, server.target("http", max_retries=3), cases=30)
        run = start("cases.jsonl", "--out", "out.jsonl", "--workers", "4")
        for line in run.stderr or ():
            if "retrying" in line:
                told.set()
        run.communicate()
    assert (run.returncode, len(results("out.jsonl"))) == (0, 30)
    refused, later = times[4], times[5:]
    assert len(later) == 26
    assert sum(moment < refused + 1 for moment in later) <= 3  # of the other workers, before they knew


def test_judge_calls_are_retried_and_reported(write: Write) -> None:
    with model_server(first(500, '{"score": 0.9, "reasoning": "good"}')) as server:
        judge = server.target("openai", **QUICK) | {"name": "judge"}
        mock = {"name": "default", "provider": "mock", "response": "fine", "judge_target": "judge"}
        write("targets.yaml", json.dumps({"targets": [mock, judge]}))
        write("cases.jsonl", [a_case()])
        (result,), said = outcome()
    assert result["score"] == 0.9
    assert "judge judge: attempt 1 failed, retrying: status 500" in said


def test_delays_grow_up_to_a_limit_with_jitter() -> None:
    backoff = Backoff(retries=9, initial=1, most=60, factor=2)
    for attempt, longest in ((1, 1), (2, 2), (3, 4), (7, 60), (5000, 60)):
        waits = {backoff.delay(attempt, None) for _ in range(50)}
        assert longest / 2 <= min(waits) < max(waits) <= longest
    assert backoff.delay(1, 33.0) == 33
    assert Backoff().delay(1, None) == 0


class Clock:
    """A clock that advances only during sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 100.0
        monkeypatch.setattr("agentv.calls.rate_limit.time.monotonic", lambda: self.now)
        monkeypatch.setattr("agentv.calls.rate_limit.asyncio.sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_requests_per_minute_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), RateLimiter(requests_per_minute=30)
    times = []
    for _ in range(4):
        asyncio.run(pace.wait())
        times.append(clock.now - 100)
    assert times == pytest.approx([0, 2, 4, 6])


def test_tokens_per_minute_count_actual_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), RateLimiter(tokens_per_minute=600)
    asyncio.run(pace.wait(10))
    pace.answered(10, 10)
    asyncio.run(pace.wait(10))
    assert clock.now - 100 == pytest.approx(1)
    pace.answered(40, 10)
    asyncio.run(pace.wait(10))
    assert clock.now - 100 == pytest.approx(1 + 1 + 3)


def test_after_a_pause_requests_start_one_by_one_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), RateLimiter()
    pace.hold(5)
    times = []
    for _ in range(3):
        asyncio.run(pace.wait())
        times.append(clock.now - 100)
    assert times == pytest.approx([5, 5.01, 5.02])
    for _ in range(30):
        pace.answered(0, 0)
    asyncio.run(pace.wait())
    here = clock.now
    asyncio.run(pace.wait())
    assert clock.now == here


def test_configured_rate_limits_apply_to_a_run(write: Write) -> None:
    times: list[float] = []

    def answer(_: dict[str, Any]) -> Answer:
        times.append(time.time())
        return "fine"

    with model_server(answer) as server:
        project(write, server.target("http", requests_per_minute=600), cases=12)
        outcome("--workers", "12")
    assert len(times) == 12
    (record,) = Path(".agentv/runs").glob("*.json")
    started = datetime.fromisoformat(json.loads(record.read_text())["started"]).timestamp()
    assert times[-1] - started >= 11 * 0.1 - 0.05  # however late the first of them arrived


def test_a_burst_of_refusals_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), RateLimiter()
    for _ in range(30):
        pace.hold(1)
    asyncio.run(pace.wait())
    asyncio.run(pace.wait())
    assert clock.now - 100 == pytest.approx(1.01)


def test_a_request_that_is_rejected_without_retries_slows_the_others(write: Write) -> None:
    times: list[float] = []

    def answer(_: dict[str, Any]) -> Answer:
        times.append(time.monotonic())
        return Reply(429, b"{}", {"Retry-After": "1"}) if len(times) == 1 else "fine"

    with model_server(answer) as server:
        project(write, server.target("http"), cases=3)
        outcome("--max-retries", "0", code=1)
    assert times[1] - times[0] >= 1


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "requestsPerMinute"])
def test_a_limit_of_zero_is_an_error(write: Write, name: str) -> None:
    with model_server(lambda _: "fine") as server:
        project(write, server.target("openai", **{name: 0}))
    ran = agentv("eval", "cases.jsonl", "--out", "out.jsonl")
    assert ran.returncode == 2
    assert "_per_minute: must be greater than 0, got 0" in ran.stderr


def test_invalid_retry_after_headers_are_ignored(write: Write) -> None:
    odd = ("Mon, 01 Jan 2024 00:00:00 +99999999999999999", "soon", "-5", "1e999")
    answer = FirstOfCase(*((Reply(503, b"{}", {"Retry-After": each}),) for each in odd))
    with model_server(answer) as server:
        project(write, server.target("openai", **QUICK))
        answer.write_cases(write)
        found, _ = outcome()
    assert [result["attempt"] for result in found] == [2] * len(odd)


def test_the_workers_of_a_judge_limit_its_concurrent_calls(write: Write) -> None:
    together, four = threading.Event(), threading.Barrier(4)

    def answer(_: dict[str, Any]) -> Answer:
        if together.is_set():
            four.wait(PATIENCE_SECONDS)
        return '{"score": 1}'

    with model_server(answer, seconds=0.05) as server:
        judge = server.target("openai", workers=1) | {"name": "judge"}
        mock = {"name": "default", "provider": "mock", "response": "fine", "judge_target": "judge", "workers": 6}
        write("targets.yaml", json.dumps({"targets": [mock, judge]}))
        write("cases.jsonl", [a_case(f"c{number}") for number in range(8)])
        outcome()
        assert server.most == 1
        together.set()
        outcome("--workers", "4")
        assert server.most == 4
