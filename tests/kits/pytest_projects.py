"""A project that uses the pytest plugin, with pytest in this process (fast) or in a separate one."""

import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml  # noqa: F401  # pytester forgets what is imported in a run; what has a state must be there before

import agentv.pytest_plugin.fixture
import agentv.pytest_plugin.items
import agentv.pytest_plugin.runs  # noqa: F401

EVALS = """
execution:
  evaluators: [{type: contains, value: Paris}]
evalcases:
  - {id: france, expected_outcome: Names Paris., input: The capital is Paris}
  - {id: norway, expected_outcome: Names Paris., input: The capital is Oslo}
  - {id: broken, expected_outcome: Names Paris., input: break}
"""
AGENT = """
import os

def answer(question, eval_id, request):
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{eval_id}/{request.trial}\\n")
    if "break" in question:
        raise ValueError("no idea")
    return question
"""
TARGETS = "targets: [{name: default, provider: python, function: agent.py:answer}]\n"
WITHOUT_OTHERS = "-p no:anyio -p no:hypothesispytest"
"""Plugins that are only installed here; to load them takes as long as all the rest of pytest."""

FIXTURE = """
import pytest

def answers(share):
    def answer(eval_id):
        return "Paris" if int(eval_id) < share * 40 else "Rome"
    return answer

@pytest.fixture
def evals(tmp_path):
    path = tmp_path / "many.jsonl"
    line = '{"id": "%d", "expected_outcome": "Names Paris.", "input": "Which?", "evaluators": [{"type": "contains", "value": "Paris"}]}'
    path.write_text("\\n".join(line % number for number in range(40)))
    return path

def test_reached(agentv, evals):
    run = agentv(evals, target=answers(1), workers=8)
    assert (len(run.results), run.summary.mean) == (40, 1.0)
    run.check(mean=0.9, pass_rate=0.9)

def test_missed(agentv, evals):
    agentv(evals, target=answers(0.5)).check(mean=0.8)

def test_undecided(agentv, evals):
    agentv(evals, target=answers(0.85)).check(pass_rate=0.8)

def test_close(agentv, evals):
    agentv(evals, target=answers(0.85)).check(pass_rate=0.851)

def test_bad_bar(agentv, evals):
    agentv(evals, target=answers(1)).check(mean=80)

def test_worse(agentv, evals):
    base = agentv(evals, target=answers(0.9)).path
    agentv(evals, target=answers(0.95)).not_worse_than(base, margin=0.1)
    agentv(evals, target=answers(0.2)).not_worse_than(base)

def test_no_such_target(agentv, evals):
    agentv(evals, target="nobody", targets=".")

def test_no_number(agentv, evals):
    agentv(evals, target=answers(1)).check(mean="0.8")

def test_no_base(agentv, evals):
    agentv(evals, target=answers(1), out=None).not_worse_than("base.jsonl")

def test_errors(agentv, evals):
    agentv(evals, target=lambda question: 1 / 0).check(mean=0.8)

def test_few(agentv, evals):
    base = agentv(evals, target=answers(1), limit=4, out=None).path
    agentv(evals, target=answers(0), limit=4).not_worse_than(base)

def test_missing(agentv, evals):
    base = agentv(evals, target=answers(1)).path
    agentv(evals, target=answers(1), limit=38).not_worse_than(base)

async def run_inside(agentv, evals):
    return agentv(evals, target=answers(1), trials=2).summary.trials

def test_in_a_running_loop(agentv, evals):
    import asyncio
    assert asyncio.run(run_inside(agentv, evals)) == 2
"""


def outcomes(printed: str) -> dict[str, str]:
    """The outcome of each test by its id, as `-v` prints it."""
    found = re.findall(
        r"^(?:\[gw\d+\] \[ *\d+%\] )?(\S+::\S+)? ?(PASSED|FAILED|ERROR) ?(\S+::\S+)?", printed, re.MULTILINE
    )
    return {before or after: verdict for before, verdict, after in found if before or after}


def calls() -> list[str]:
    return sorted(Path("calls.txt").read_text().split()) if Path("calls.txt").exists() else []


def results() -> list[str]:
    """The cases of the one results file."""
    (path,) = Path(".agentv/results").glob("*.jsonl")
    return sorted(json.loads(line)["eval_id"] for line in path.read_text().splitlines())


@dataclass(frozen=True)
class PytestProject:
    """A folder, which is the current one: it can be written to, and pytest can be run in it."""

    pytester: pytest.Pytester

    def __call__(self, name: str, text: str) -> Path:
        """Write a file."""
        path = self.pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *args: str, code: int = 0) -> str:
        """The output of pytest in this process."""
        with warnings.catch_warnings():
            warnings.resetwarnings()  # those of our own run are errors
            return _printed(self.pytester.runpytest_inprocess(*args), code)

    def run_apart(self, *args: str, code: int = 0) -> str:
        """The output of pytest in a separate process."""
        return _printed(self.pytester.runpytest_subprocess(*args, timeout=300), code)


def _printed(ran: pytest.RunResult, code: int) -> str:
    printed = f"{ran.stdout}\n{ran.stderr}\n"
    assert ran.ret == code, printed
    return printed
