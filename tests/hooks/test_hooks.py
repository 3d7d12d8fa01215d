"""Hooks of eval files and targets: when they run, what they receive, and where their state is used."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kits.hooks import FILE_HOOKS, Hooked, log
from tests.kits.project import Write, agentv
from tests.kits.runs import evaluate, results, run_one

ECHOED: list[tuple[str, Any]] = []
"""The paths and bodies that the server has received."""


class _Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ECHOED.append((self.path, body))
        answer = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def echo_server() -> Iterator[str]:
    """The address of a server that echoes requests."""
    ECHOED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


AROUND_A = ["before_all", "before_each a", "after_each a a database-of-a", "after_all"]


def test_hooks_of_a_file_surround_its_run_and_each_attempt(write: Write) -> None:
    Hooked(write).save("a", "b")
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert log() == [
        "before_all",
        "before_each a",
        "after_each a a database-of-a",
        "before_each b",
        "after_each b b database-of-b",
        "after_all",
    ]


def test_hooks_of_a_file_wrap_those_of_its_target(write: Write) -> None:
    names = ("before_all", "before_each", "after_each", "after_all")
    hooks = {name: [f"echo file {name} >> log", "true"] for name in names}
    Hooked(write, hooks, hooks={name: f"echo target {name} >> log" for name in names}).save()
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert log() == [
        "file before_all",
        "target before_all",
        "file before_each",
        "target before_each",
        "target after_each",
        "file after_each",
        "target after_all",
        "file after_all",
    ]


def test_each_attempt_has_its_hooks(write: Write) -> None:
    project = Hooked(write)
    write("failing.py", "def answer(attempt):\n    if attempt < 3: raise OSError('busy')\n    return 'hello'\n")
    project.settings = {"name": "default", "provider": "python", "function": "failing.py:answer"}
    project.save()
    assert run_one("cases.jsonl", "--max-retries", "2")["attempt"] == 3
    assert log()[1:-1] == ["before_each a", "after_each a a database-of-a"] * 3


def test_a_function_receives_what_its_parameters_name(write: Write) -> None:
    project = Hooked(write, {"before_each": {"function": "mine.py:before_each"}})
    write(
        "mine.py",
        "import json\n"
        "def before_each(eval_id, vars, metadata, trial, attempt, workspace_path, state, case):\n"
        "    got = [eval_id, vars, metadata, trial, attempt, workspace_path, state, case.expected_outcome]\n"
        "    open('got', 'a').write(json.dumps(got) + '\\n')\n",
    )
    project.save()
    write("cases.jsonl", [{"id": "a", "input": "x", "outcome": "y", "vars": {"v": 1}, "metadata": {"m": 2}}])
    evaluate("cases.jsonl", "--out", "out.jsonl", "--trials", "2")
    assert [json.loads(line) for line in Path("got").read_text().splitlines()] == [
        ["a", {"v": 1}, {"m": 2}, 1, 1, None, {}, "y"],
        ["a", {"v": 1}, {"m": 2}, 2, 1, None, {}, "y"],
    ]


# The state


def test_the_state_reaches_functions_and_evaluators_and_is_masked_in_results(write: Write) -> None:
    project = Hooked(write)
    project.evaluators = [{"type": "python", "function": "hooks.py:check"}]
    project.save()
    found = run_one("cases.jsonl")
    assert (found["score"], found["candidate_answer"], found["masked"]) == (1.0, "hello from ***", ["state.database"])
    assert "database-of-a" not in Path("out.jsonl").read_text()


def test_commands_get_the_part_of_the_state_that_is_json(write: Write) -> None:
    write(
        "mine.py",
        "def before_each():\n"
        "    return {'n': 1, 'at': object(), 'deep': {'a': [1], 'b': object()}, 'list': [object()], 'x': float('inf')}\n",
    )
    hooks = {"before_each": {"function": "mine.py:before_each"}, "after_each": 'echo "$AGENTV_STATE" >> log'}
    project = Hooked(write, hooks)
    project.settings = {
        "name": "default",
        "provider": "cli",
        "command_template": 'echo "$AGENTV_STATE" >> log; echo hello',
    }
    write(
        "judge.py",
        "import json, sys\nopen('log', 'a').write(json.dumps(json.load(sys.stdin)['state']) + '\\n')\nprint('{\"score\": 1}')",
    )
    project.evaluators = [
        {"type": "command", "command": 'echo "$AGENTV_STATE" >> log'},
        {"type": "code_judge", "script": "python3 judge.py"},
    ]
    project.save()
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert [json.loads(line) for line in log()] == [{"n": 1, "deep": {"a": [1]}}] * 4


def test_each_attempt_has_a_copy_of_what_before_all_returned(write: Write) -> None:
    write(
        "mine.py",
        "import threading\n"
        "def before_all():\n    return {'list': [], 'lock': threading.Lock()}\n"
        "def before_each(state):\n    state['list'].append(1)\n    assert len(state['list']) == 1\n    state['lock'].acquire()\n"
        "def after_each(state):\n    state['lock'].release()\n"
        "def after_all(state):\n    assert state['list'] == []\n    open('log', 'a').write('ok\\n')\n",
    )
    names = ("before_all", "before_each", "after_each", "after_all")
    Hooked(write, {name: {"function": f"mine.py:{name}"} for name in names}).save("a", "b")
    assert evaluate("cases.jsonl", "--out", "out.jsonl").stderr.count("warning") == 0
    assert log() == ["ok"]


def test_a_state_may_contain_itself(write: Write) -> None:
    write(
        "mine.py",
        "def before_each():\n"
        "    node = {'name': 'secret-of-the-node', 'parents': []}\n"
        "    node['parents'].append(node)\n"
        "    return {'node': node, 'port': 8080}\n"
        "def answer(state):\n    return 'hello ' + state['node']['parents'][0]['name']\n",
    )
    hooks = {"before_each": {"function": "mine.py:before_each"}, "after_each": 'echo "$AGENTV_STATE" > log'}
    Hooked(write, hooks, function="mine.py:answer").save()
    assert run_one("cases.jsonl")["candidate_answer"] == "hello ***"
    assert log() == ['{"port": 8080}']


def test_strings_of_the_state_are_masked_in_messages_and_dumps(write: Write) -> None:
    write("mine.py", "def answer(state):\n    raise ValueError('cannot open ' + state['database'])\n")
    Hooked(write, function="mine.py:answer").save()
    ran = agentv("eval", "cases.jsonl", "--out", "out.jsonl", "--dump-traces", "dumps", "--verbose")
    assert "ValueError: cannot open ***" in ran.stderr
    assert "cannot open ***" in results("out.jsonl")[0]["error"]
    written = [path.read_text(errors="replace") for path in Path().rglob("*.json*")]
    assert "database-of-a" not in "".join([ran.stdout, ran.stderr, *written])


def test_the_state_is_masked_in_the_errors_of_the_summary(write: Write) -> None:
    write("failing.py", "def answer(state):\n    raise OSError('no table in ' + state['database'])\n")
    project = Hooked(write)
    project.settings["function"] = "failing.py:answer"
    project.save("a", "b", "c")
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert "no table in ***" in ran.stdout
    assert "database-of" not in ran.stdout


def test_the_state_is_not_part_of_digests(write: Write) -> None:
    Hooked(write).save()
    first = run_one("cases.jsonl")["digests"]
    Hooked(write, {}).save()
    assert run_one("cases.jsonl")["digests"] == first


def test_an_http_target_gets_the_state_in_its_settings(write: Write, echo_server: str) -> None:
    project = Hooked(write)
    project.settings = {
        "name": "default",
        "provider": "http",
        "url": f"{echo_server}/{{{{ state.database }}}}",
        "body": {"text": "hello {{ state.seen }}"},
    }
    project.save()
    assert run_one("cases.jsonl")["score"] == 1.0
    assert ECHOED == [("/database-of-a", {"text": 'hello ["a"]'})]
    said = evaluate("cases.jsonl", "--cache", expect=2).stderr
    assert "--cache: target 'default' uses 'state', which is not part of cache keys" in said


# Failures


def test_a_failing_before_each_is_an_error_of_its_case_and_has_its_after_each(write: Write) -> None:
    hooks = {
        "before_each": {"function": "hooks.py:fail"},
        "after_each": "echo after $AGENTV_EVAL_ID >> log",
    }
    Hooked(write, hooks, hooks={"after_each": "echo never >> log"}).save()
    found = run_one("cases.jsonl", expect=1)
    assert found["error"] == "before_each hooks.py:fail: hooks.py:34 in fail: ValueError: no server"
    assert log() == ["fail", "after a"]


def test_a_failing_before_all_stops_the_run_before_any_case(write: Write) -> None:
    hooks = {**FILE_HOOKS, "before_all": {"function": "hooks.py:fail"}, "after_all": "echo after >> log"}
    Hooked(write, hooks).save()
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=2)
    assert "cases.yaml:1:12: before_all hooks.py:fail: hooks.py:34 in fail: ValueError: no server" in ran.stderr
    assert "hint: no case was run" in ran.stderr
    assert log() == ["fail", "after"]


def test_a_failing_before_all_leaves_results_as_they_were(write: Write) -> None:
    project = Hooked(write)
    project.save()
    evaluate("cases.jsonl", "--out", "out.jsonl")
    earlier = results("out.jsonl")
    records = list(Path(".agentv/runs").iterdir())
    project.hooks["before_all"] = {"function": "hooks.py:fail"}
    project.save()
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=2)
    assert "moved out.jsonl.bak back to out.jsonl\n" in ran.stderr
    assert results("out.jsonl") == earlier
    evaluate("cases.jsonl", "--out", "new.jsonl", expect=2)
    project.settings["config"] = {"changed": True}
    project.save()
    evaluate("cases.jsonl", "--out", "out.jsonl", "--resume", expect=2)
    assert results("out.jsonl") == earlier
    assert not Path("new.jsonl").exists()
    assert not Path("out.jsonl.bak").exists()
    assert list(Path(".agentv/runs").iterdir()) == records


def test_a_failing_before_all_keeps_the_errors_that_a_resumed_run_was_to_retry(write: Write) -> None:
    project = Hooked(write)
    write("failing.py", "def answer(question):\n    raise OSError('busy')\n")
    project.settings["function"] = "failing.py:answer"
    project.save("a", "b")
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    Path("out.jsonl").chmod(0o640)
    earlier = Path("out.jsonl").read_bytes()
    project.hooks["before_all"] = {"function": "hooks.py:fail"}
    project.save("a", "b")
    evaluate("cases.jsonl", "--out", "out.jsonl", "--resume", expect=2)
    assert Path("out.jsonl").read_bytes() == earlier
    assert Path("out.jsonl").stat().st_mode & 0o777 == 0o640
    assert not list(Path().glob("out.jsonl.*"))


def test_failing_hooks_after_a_case_and_a_run_are_warnings(write: Write) -> None:
    Hooked(write, {"after_each": "echo busy; exit 3", "after_all": {"function": "hooks.py:fail"}}).save()
    ran = evaluate("cases.jsonl", "--out", "out.jsonl")
    assert "warning: case 'a': after_each 'echo busy; exit 3' failed with exit code 3: busy" in ran.stderr
    assert "warning: after_all hooks.py:fail: hooks.py:34 in fail: ValueError: no server" in ran.stderr
    assert results("out.jsonl")[0]["note"] == "after_each 'echo busy; exit 3' failed with exit code 3: busy"


def test_hooks_follow_an_error_a_timeout_and_max_errors(write: Write, reached: str, nap: str) -> None:
    project = Hooked(write)
    project.settings = {
        "name": "default",
        "provider": "cli",
        "command_template": f"{reached}; {nap}",
        "timeout_seconds": 60,
    }
    project.save("a", "b")
    evaluate("cases.jsonl", "--out", "out.jsonl", "--max-errors", "1", expect=1)
    assert log() == AROUND_A


def test_a_function_that_times_out(write: Write) -> None:
    write("mine.py", "import time\ndef before_each():\n    time.sleep(60)\n")
    hooks = {"before_each": {"function": "mine.py:before_each", "timeout_seconds": 0.05}}
    Hooked(write, hooks).save()
    assert run_one("cases.jsonl", expect=1)["error"] == "before_each mine.py:before_each timed out after 0.05 s"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return 3", "returned int: return a mapping or None"),
        ("return {1: 2}", "returned a mapping with a key that is not a string"),
        ("raise SystemExit(1)", "SystemExit: 1"),
    ],
)
def test_invalid_return_values_of_a_function(write: Write, code: str, words: str) -> None:
    write("mine.py", f"def before_each():\n    {code}\n")
    Hooked(write, {"before_each": {"function": "mine.py:before_each"}}).save()
    error = run_one("cases.jsonl", expect=1)["error"]
    assert error.startswith("before_each mine.py:before_each")
    assert words in error


def test_a_hook_that_cancels_itself_has_failed(write: Write) -> None:
    code = "import asyncio\nasync def before():\n    asyncio.current_task().cancel()\n    await asyncio.sleep(60)\n"
    write("mine.py", code)
    Hooked(write, {"before_each": {"function": "mine.py:before"}}).save()
    assert "CancelledError" in run_one("cases.jsonl", expect=1)["error"]
    Hooked(write, {"before_all": {"function": "mine.py:before"}}).save()
    assert "CancelledError" in evaluate("cases.jsonl", expect=2).stderr


# When none run


@pytest.mark.parametrize("flag", ["--dry-run", "--plan"])
def test_no_hooks_run_if_no_case_is_sent(write: Write, flag: str) -> None:
    Hooked(write).save()
    evaluate("cases.jsonl", flag)
    assert log() == []


def test_no_hooks_run_for_stored_answers_finished_cases_and_cached_answers(write: Write) -> None:
    project = Hooked(write, function="plain.py:answer")
    write("plain.py", "def answer(question):\n    return 'hello'\n")
    project.save()
    evaluate("cases.jsonl", "--out", "out.jsonl", "--cache")
    assert log() == AROUND_A
    evaluate("cases.jsonl", "--out", "out.jsonl", "--resume")
    evaluate("cases.jsonl", "--out", "again.jsonl", "--cache")
    assert agentv("grade", "out.jsonl", "cases.jsonl", "--out", "graded.jsonl").returncode == 0
    assert log() == AROUND_A


def test_an_evaluator_that_takes_the_state_is_not_given_cached_answers(write: Write) -> None:
    write("plain.py", "def answer(question):\n    return 'database-of-a'\n")
    project = Hooked(write, function="plain.py:answer")
    project.evaluators = [{"type": "python", "function": "hooks.py:check"}]
    project.save()
    for _ in range(2):
        ran = evaluate("cases.jsonl", "--out", "out.jsonl", "--cache")
    assert "target 'default' is called despite --cache: 'python' may need the state that hooks return" in ran.stderr
    assert log() == AROUND_A * 2


def test_a_target_that_takes_the_state_cannot_be_cached(write: Write) -> None:
    Hooked(write).save()
    ran = evaluate("cases.jsonl", "--cache", expect=2)
    assert "--cache: target 'default' uses 'state', which is not part of cache keys" in ran.stderr
    assert log() == []


# Invalid hooks


@pytest.mark.parametrize(
    ("hooks", "words"),
    [
        ({"before_each": {"function": "hooks.py:before"}}, "before_each: hooks.py has no function 'before'"),
        ({"before_each": {"function": "no.py:x"}}, "before_each: no.py cannot be loaded: no such file"),
        ({"before_each": {"functon": "no.py:x"}}, "did you mean 'function'?"),
        ({"before": "true"}, "hooks.before: unknown field"),
        ({"after_all": []}, "hooks.after_all: must not be empty"),
        ({"after_all": 3}, "hooks.after_all: expected a string, an array or an object, got an integer"),
    ],
)
def test_hooks_that_cannot_be_used(write: Write, hooks: Any, words: str) -> None:
    Hooked(write, hooks).save()
    ran = evaluate("cases.jsonl", expect=2)
    checked = agentv("validate", "cases.jsonl")
    for said in (ran.stderr, checked.stdout):
        assert words in said
        assert "cases.yaml:1:" in said


def test_a_hook_of_a_run_receives_no_case_data(write: Write) -> None:
    Hooked(write, {"before_all": {"function": "hooks.py:before_each"}}).save()
    said = evaluate("cases.jsonl", expect=2).stderr
    assert "cases.yaml:1:12: before_all: the function's parameter 'eval_id' cannot be supplied" in said
    assert "hint: available parameters: state" in said
    checked = agentv("validate", "cases.jsonl").stdout
    assert "before_all: the function's parameter 'eval_id' cannot be supplied (available parameters: state)" in checked


def test_a_function_of_a_target_is_located_in_the_targets_file(write: Write) -> None:
    Hooked(write, {}, hooks={"before_each": {"function": "hooks.py:before"}}).save()
    words = "target 'default': before_each: hooks.py has no function 'before'"
    assert words in evaluate("cases.jsonl", expect=2).stderr
    assert words in agentv("validate", "cases.jsonl").stdout


def test_targets_that_answer_in_batches_have_no_hooks_around_cases(write: Write) -> None:
    project = Hooked(write, {"before_each": "true"})
    project.settings = {
        "name": "default",
        "provider": "cli",
        "command_template": "cat {BATCH_FILE} > {OUTPUT_FILE}",
        "provider_batching": True,
    }
    project.save()
    words = "target 'default' answers many cases at once, so before_each cannot run for each of them"
    assert f"cases.yaml:1:12: {words}" in evaluate("cases.jsonl", expect=2).stderr
    assert f"cases.yaml:1:12: error: {words}" in agentv("validate", "cases.jsonl").stdout
    project.settings["hooks"] = {"before_all": "true"}
    project.save()
    assert "a target that answers many cases at once cannot have hooks" in evaluate("cases.jsonl", expect=2).stderr


# Versions


def test_hooks_after_the_answer_are_not_part_of_the_version(write: Write) -> None:
    versions = []
    for hooks in ({}, {"hooks": {"after_each": "true", "after_all": "true"}}, {"hooks": {"before_each": "true"}}):
        project = Hooked(write, {}, **hooks)
        project.save()
        versions.append(run_one("cases.jsonl")["digests"]["target"])
    assert versions[0] == versions[1]
    assert versions[0] != versions[2]


def test_code_that_runs_before_the_target_is_part_of_its_version(write: Write) -> None:
    def version(source: str, **hooks: str) -> str:
        write("mine.py", source)
        Hooked(write, {}, hooks={name: {"function": f"mine.py:{hook}"} for name, hook in hooks.items()}).save()
        return str(run_one("cases.jsonl")["digests"]["target"])

    first = version("def f():\n    return None\n", before_each="f")
    assert version("def f():\n    return None  # a comment\n", before_each="f") == first
    assert version("def f():\n    return {}\n", before_each="f") != first
    after = version("def f():\n    return None\n", before_each="f", after_each="f")
    assert after == first
