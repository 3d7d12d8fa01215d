"""Where prompts and traces are dumped, and what a run says about earlier dumps."""

import os
from pathlib import Path

import pytest

from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK, evaluate


@pytest.fixture
def two_cases(write: Write) -> Write:
    write("targets.yaml", MOCK)
    write("evals/a.jsonl", [a_case(id_, evaluators=[HELLO]) for id_ in ("a", "b")])
    return write


def files(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize(
    ("args", "folder"),
    [
        (["evals", "--dump-traces"], ".agentv/traces"),
        (["--dump-traces", "evals"], ".agentv/traces"),
        (["--dump-traces", "evals/a.jsonl"], ".agentv/traces"),
        (["--dump-traces", "evals", "--quiet"], ".agentv/traces"),
        (["--dump-traces", "mine", "evals"], "mine"),
        (["evals", "--dump-traces", "mine"], "mine"),
        (["evals", "--dump-traces=mine"], "mine"),
        (["--dump-prompts", "prompts", "--dump-traces", "mine", "evals"], "mine"),
        (["--dump-prompts", "--dump-traces", "evals"], ".agentv/traces"),
    ],
)
def test_the_folder_of_traces(two_cases: Write, args: list[str], folder: str) -> None:
    evaluate(*args)
    assert files(folder) == ["a_attempt-1.json", "b_attempt-1.json"]


def test_a_run_reports_how_many_dumps_it_overwrites(two_cases: Write) -> None:
    first = evaluate("evals", "--dump-traces", "--dump-prompts", "prompts")
    assert "replaced" not in first.stderr
    second = evaluate("evals", "--dump-traces", "--dump-prompts", "prompts")
    assert (
        "note: 2 earlier files in .agentv/traces were overwritten; pass another folder to --dump-traces"
        in second.stderr
    )
    assert "note: 2 earlier files in prompts were overwritten; pass another folder to --dump-prompts" in second.stderr
    third = evaluate("evals", "--dump-traces", "traces-2", "--dump-prompts=prompts", "--eval-id", "a")
    assert "note: 1 earlier file in prompts was overwritten" in third.stderr
    assert "traces" not in third.stderr.replace("--dump-prompts", "")


def test_the_cache_names_the_secret_that_prevents_storing_an_answer(two_cases: Write) -> None:
    env = {**os.environ, "GREETING_KEY": "hello from default"}
    ran = agentv("eval", "evals", "--cache", env=env)
    message = "an answer contains the value of GREETING_KEY and is not cached: the next run will request it again"
    assert ran.stderr.count(message) == 1
    assert "was not cached" not in agentv("eval", "evals", "--cache").stderr
