"""Features join a run through extensions, without the run knowing them."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.docs import ROOT
from tests.kits.processes import wait_until
from tests.kits.project import Write, a_case
from tests.kits.runs import HELLO, MOCK, evaluate, results, start

FEATURES = ("budget", "batches", "cluster", "trust", "telemetry", "metrics", "hooks")
WITHOUT = """
import sys
sys.modules["agentv." + sys.argv.pop(1)] = None  # importing it, or a part of it, raises ImportError
from agentv.__main__ import main
sys.exit(main())
"""


def without(feature: str, *args: str) -> str:
    """The output of agentv, which cannot import a feature."""
    command = [sys.executable, "-c", WITHOUT, feature, *args]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("feature", FEATURES)
def test_a_plain_project_runs_without_a_feature(write: Write, feature: str) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(str(number), evaluators=[HELLO]) for number in range(12)])
    assert "12 cases: 0 errors" in without(feature, "validate", "a.jsonl")
    assert "12 planned = 12 scored" in without(feature, "eval", "a.jsonl", "--out", "out.jsonl")
    assert "out.jsonl" in without(feature, "compare", "out.jsonl", "out.jsonl", "--format", "table")
    assert "report.html" in without(feature, "report", "out.jsonl", "--out", "report.html")


def test_the_path_of_a_case_imports_no_feature() -> None:
    for module in ("case", "jobs", "attempts", "runner", "run"):
        tree = ast.parse((ROOT / "src" / "agentv" / "run" / f"{module}.py").read_text())
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        packages = {name.split(".")[1] for name in modules if name.startswith("agentv.")}
        assert packages.isdisjoint(FEATURES)


STRANGER = """
from pathlib import Path
import msgspec
from agentv.extend import Extension, Scope

class Quota(Extension):
    def __init__(self):
        self._left = 3

    async def admit(self, job):
        self._left -= 1
        return self._left >= 0

    def finish(self, result):
        return msgspec.structs.replace(result, note=f"seen by the quota: {result.eval_id}")

    def written(self, result):
        with Path("written").open("a") as file:
            file.write(result.eval_id + " ")
        if self._left <= 0:
            self.stopped_by = "quota"

    async def end(self, run):
        Path("ended").write_text(run.plan.files[0].path.name)

class Surroundings(Extension):
    runs_on = "worker"

    @classmethod
    async def join(cls, opening):
        return cls() if opening.plan.cases > 1 else None

    def scope(self, job, evaluators):
        return Questions()

class Questions(Scope):
    async def enter(self, request):
        return msgspec.structs.replace(request, question=request.question + ", please")

    async def answered(self, exchange):
        longer = exchange.response.text + ", thank you"
        return msgspec.structs.replace(exchange, response=msgspec.structs.replace(exchange.response, text=longer))

    async def leave(self, result):
        with Path("left").open("a") as file:
            file.write(f"{result and result.eval_id} ")
        return result
"""
ENTRY_POINTS = "[agentv.extensions]\nquota = stranger:Quota\nsurroundings = stranger:Surroundings\n"
AGENT = "def answer(question):\n    return 'hello ' + question\n"


@pytest.fixture
def stranger(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package with two extensions is installed."""
    write("site/stranger.py", STRANGER)
    write("site/stranger-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    write("site/stranger-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "stranger", raising=False)


@pytest.mark.usefixtures("stranger")
def test_an_extension_of_another_package_joins_the_run(write: Write) -> None:
    write("agent.py", AGENT)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    write("a.jsonl", [a_case(str(number), evaluators=[HELLO]) for number in range(5)])
    ran = evaluate("a.jsonl", "--out", "out.jsonl", expect=1)
    found = results("out.jsonl")
    assert [result["candidate_answer"] for result in found] == ["hello Query, please, thank you"] * 3
    assert [result["note"] for result in found] == [f"seen by the quota: {number}" for number in range(3)]
    assert "5 planned = 3 scored + 2 not run" in ran.stdout
    assert Path("written").read_text() == "0 1 2 "
    assert Path("left").read_text() == "0 1 2 "
    assert Path("ended").read_text() == "a.jsonl"


SCOPES = """
from pathlib import Path
from agentv.extend import Extension, Scope

class Recorded(Extension):
    runs_on = "worker"

    def scope(self, job, evaluators):
        return Steps()

class Steps(Scope):
    def step(self, text):
        with Path("steps").open("a") as file:
            file.write(text + "\\n")

    async def enter(self, request):
        self.step(f"enter {request.eval_id}")
        return request

    async def answered(self, exchange):
        self.step(f"answered {exchange.response.text}")
        return exchange

    async def failed(self, partial):
        self.step(f"failed {partial}")
        return partial

    async def leave(self, result):
        self.step(f"leave {result and (result.error or result.candidate_answer)}")
        return result
"""
FLAKY = """
import pathlib

def answer(question):
    tries = pathlib.Path("tries")
    tries.write_text(str(int(tries.read_text()) + 1) if tries.exists() else "1")
    if int(tries.read_text()) < 3:
        raise ConnectionError("not yet")
    return "hello"
"""
WAITING = """
import pathlib, time

def answer(question):
    pathlib.Path("asked").touch()
    time.sleep(600)
"""


@pytest.fixture
def scopes(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package with an extension that writes down the steps of its scopes is installed."""
    write("site/recorded.py", SCOPES)
    write("site/recorded-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: recorded\nVersion: 1.0\n")
    write("site/recorded-1.0.dist-info/entry_points.txt", "[agentv.extensions]\nrecorded = recorded:Recorded\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "recorded", raising=False)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    write("a.jsonl", [a_case("a", evaluators=[HELLO])])


def steps() -> list[str]:
    return Path("steps").read_text().splitlines()


@pytest.mark.usefixtures("scopes")
def test_a_scope_is_entered_and_left_once_for_each_attempt(write: Write) -> None:
    write("agent.py", FLAKY)
    evaluate("a.jsonl", "--max-retries", "5", "--out", "out.jsonl")
    repeated = ["enter a", "failed None", "leave None"]
    assert steps() == [*repeated, *repeated, "enter a", "answered hello", "leave hello"]
    assert [result["attempt"] for result in results("out.jsonl")] == [3]


@pytest.mark.usefixtures("scopes")
def test_a_scope_of_the_last_attempt_gets_the_error(write: Write) -> None:
    write("agent.py", FLAKY)
    evaluate("a.jsonl", "--max-retries", "1", "--out", "out.jsonl", expect=1)
    assert steps() == [
        "enter a",
        "failed None",
        "leave None",
        "enter a",
        "failed None",
        "leave agent.py:8 in answer: ConnectionError: not yet",
    ]
    assert [result["attempt"] for result in results("out.jsonl")] == [2]


@pytest.mark.usefixtures("scopes")
def test_an_answer_from_the_cache_enters_no_scope(write: Write) -> None:
    write("agent.py", "def answer(question):\n    return 'hello'\n")
    evaluate("a.jsonl", "--cache", "--out", "out.jsonl")
    evaluate("a.jsonl", "--cache", "--out", "again.jsonl")
    called = ["enter a", "answered hello", "leave hello"]
    assert steps() == [*called, "answered hello", "leave hello"]


@pytest.mark.usefixtures("scopes")
def test_a_scope_is_left_when_the_run_is_interrupted(write: Write) -> None:
    write("agent.py", WAITING)
    run = start("a.jsonl", "--out", "out.jsonl")
    wait_until(Path("asked").exists)
    run.send_signal(signal.SIGINT)
    run.communicate()
    assert run.returncode == 130
    assert steps() == ["enter a", "leave None"]


def test_an_extension_that_cannot_be_loaded_stops_the_run_before_it_starts(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(evaluators=[HELLO])])
    write("site/broken-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    write("site/broken-1.0.dist-info/entry_points.txt", "[agentv.extensions]\nquota = broken:Quota\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    ran = evaluate("a.jsonl", "--out", "out.jsonl", expect=2)
    assert "'quota' of the package 'broken' cannot be loaded" in ran.stderr
    assert not Path("out.jsonl").exists()
