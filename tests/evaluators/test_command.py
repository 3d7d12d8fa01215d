"""Commands that score an answer by their exit code or their output."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentv.errors import SettingError
from agentv.evaluators.command import Command
from agentv.records import Exchange, Score
from tests.kits.evaluators import an_exchange, made, misfit
from tests.kits.processes import living, wait_until
from tests.kits.project import Write, agentv
from tests.kits.workspaces import Project, command

PYTHON = sys.executable


def score(write: Write, line: str | list[str], answer: str = "the answer", **settings: Any) -> Score:
    """The score of an answer; the workspace is the folder `work`."""
    folder = write("work/made.txt", "made\n").parent
    evaluator = made(Command, folder.parent, command=line, **settings)
    exchange: Exchange = msgspec.structs.replace(an_exchange(answer), workspace=folder)
    found: Score = asyncio.run(evaluator.evaluate(exchange))
    return found


def test_exit_code_0_is_a_hit(write: Write) -> None:
    assert score(write, "cat made.txt") == Score(score=1.0, hits=("'cat made.txt' succeeded",))
    assert score(write, ["cat", "made.txt"]).score == 1.0


def test_any_other_is_a_miss_with_the_end_of_both_streams(write: Write) -> None:
    found = score(write, "echo 2 failed; echo careful >&2; exit 4")
    message = "'echo 2 failed; echo careful >&2; exit 4' failed with exit code 4: 2 failed\ncareful"
    assert found == Score(score=0.0, misses=(message,))
    assert score(write, "false").misses == ("'false' failed with exit code 1 without output",)
    assert "was killed by SIGKILL" in score(write, "kill -9 $$").misses[0]


def test_a_long_output_is_cut_at_its_beginning(write: Write) -> None:
    (miss,) = score(write, f'{PYTHON} -c \'print("x" * 100000 + "end")\'; exit 1').misses
    assert len(miss) < 2500
    assert miss.endswith("xend")


def test_a_command_that_times_out_shows_the_end_of_its_output(write: Write, reached: str) -> None:
    line = f"echo test_one passed; echo test_two hangs >&2; {reached}; sleep 60"
    found = score(write, line, timeout_seconds=5)
    (miss,) = found.misses
    assert miss.endswith("timed out after 5 s: test_one passed\ntest_two hangs")


def test_negate_inverts_the_exit_code(write: Write) -> None:
    assert score(write, "false", negate=True).hits == ("'false' failed with exit code 1 without output",)
    assert score(write, "true", negate=True) == Score(score=0.0, misses=("'true' succeeded",))


def test_a_command_that_does_not_end_is_a_miss_and_leaves_no_child(write: Write, nap: str) -> None:
    found = score(write, f"{nap} & {nap}", timeout_seconds=0.5)
    assert (found.score, found.failed) == (0.0, False)
    assert found.misses[0].endswith("timed out after 0.5 s")
    wait_until(lambda: living(nap) == [])


def test_the_answer_is_on_stdin_and_the_rest_in_the_environment(write: Write) -> None:
    check = f'test "$(cat)" = "$(printf %s {shlex.quote("$(touch hacked); `x` é")})"'
    assert score(write, check, "$(touch hacked); `x` é").score == 1.0
    assert not Path("work/hacked").exists()
    assert score(write, 'test "$AGENTV_WORKSPACE" = "$(pwd)" && test "$AGENTV_EVAL_ID" = id').score == 1.0


def test_a_command_without_a_workspace_runs_in_the_eval_files_folder(write: Write) -> None:
    write("here.txt", "")
    evaluator = made(Command, Path.cwd(), command='test -f here.txt && test -z "$AGENTV_WORKSPACE"')
    assert asyncio.run(evaluator.evaluate(an_exchange("x"))).score == 1.0


def test_cwd_names_another_folder(write: Write) -> None:
    write("tools/check.sh", 'test -f check.sh && test -f "$AGENTV_WORKSPACE/made.txt"\n')
    assert score(write, "sh check.sh", cwd="tools").score == 1.0


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0.25", Score(score=0.25)),
        ("1\n", Score(score=1.0)),
        ("collected 3 tests\n0.5\n", Score(score=0.5)),
        ('{"score": 0.75, "hits": ["three of four"]}', Score(score=0.75, hits=("three of four",))),
    ],
)
def test_a_score_is_read_from_stdout(write: Write, written: str, expected: Score) -> None:
    write("written", written)
    assert score(write, "cat ../written", score_from="stdout") == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo well done", "the command wrote neither a number nor a JSON object with a score: well done"),
        ("true", "the command wrote nothing to stdout: expected a number or a JSON object with a score"),
        ("echo '{\"points\": 1}'", "no 'score' in "),
        ("echo NaN", "the command wrote neither a number"),
        ("echo true", "the command wrote neither a number"),
        ("echo 1; exit 3", "the command failed with exit code 3: 1"),
    ],
)
def test_output_without_a_score_is_a_failure_of_the_evaluator(write: Write, line: str, words: str) -> None:
    project = Project(write)
    project.evaluators = [command(line, score_from="stdout")]
    result = project.one(expect=1)
    assert (result["failure"], result["verdict"]) == ("judge", "fail")
    (part,) = result["evaluator_results"]
    assert part["failed"] is True
    assert words in part["misses"][0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("! grep -q TODO made.txt", 1.0),
        ("! grep -q made made.txt", 0.0),
        ("command -v sh", 1.0),
        ("exit 3", 0.0),
    ],
)
def test_a_word_of_the_shell_is_not_a_missing_program(write: Write, line: str, expected: float) -> None:
    assert score(write, line).score == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"command": "  "}, "'command' is empty"),
        ({"command": ["exit", "3"]}, "command: no such command: exit"),
        ({"command": ["no-such-program-4711"]}, "command: no such command: no-such-program-4711"),
        ({"command": "no-such-program-4711 -q"}, "command: no such command: no-such-program-4711"),
        ({"command": "true", "cwd": "nowhere"}, "cwd: no such folder: "),
        (
            {"command": "true", "negate": True, "score_from": "stdout"},
            "'negate' cannot be combined with a score from stdout",
        ),
    ],
)
def test_settings_that_cannot_be_used(write: Write, settings: dict[str, Any], words: str) -> None:
    write("x", "")
    with pytest.raises(SettingError) as error:
        made(Command, Path.cwd(), **settings)
    assert words in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"command": ""}, "must not be empty"),
        ({"command": []}, "must not be empty"),
        ({"command": "x", "score_from": "stderr"}, "unknown score_from 'stderr'"),
        ({"command": "x", "timeout_seconds": 0}, "greater than 0"),
    ],
)
def test_invalid_combinations_of_settings(settings: dict[str, Any], words: str) -> None:
    assert words in misfit(Command, **settings)


def test_errors_are_reported_with_their_location_before_the_run(write: Write) -> None:
    project = Project(write)
    project.evaluators = [command("pytset-4711 -q", name="tests")]
    said = project.refused()
    assert ": case 'a': evaluators[0]: command: no such command: pytset-4711" in said
    assert "0 errors, 1 warning" in agentv("validate", "cases.jsonl").stdout  # it may be on another machine


def test_a_dry_run_runs_no_command(write: Write) -> None:
    project = Project(write)
    project.evaluators = [command('touch ran; touch "$AGENTV_EVAL_DIR/ran"')]
    found = project.one("--dry-run")
    assert found["misses"] == ["dry run: no workspace was created"]
    assert not Path("ran").exists()
