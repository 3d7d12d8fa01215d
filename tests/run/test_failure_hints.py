"""A target that fails because of its settings names the setting to change."""

from tests.kits.project import Write, a_case
from tests.kits.runs import HELLO, evaluate

TARGETS = """targets:
  - name: default
    provider: cli
    command_template: {command}
    timeout_seconds: 0.2
"""


def run_command(write: Write, command: str) -> str:
    write(".agentv/targets.yaml", TARGETS.format(command=command))
    path = write("a.jsonl", [a_case("a", evaluators=[HELLO]), a_case("b", evaluators=[HELLO])])
    return evaluate(path, expect=1).stderr


def test_a_command_that_is_not_found(write: Write) -> None:
    hint = "note: .agentv/targets.yaml:4:5: target 'default': check command_template\n"
    assert run_command(write, "nosuchcommand {PROMPT}").count(hint) == 1


def test_a_time_limit_that_is_too_short(write: Write) -> None:
    hint = "note: .agentv/targets.yaml:5:5: target 'default': increase timeout_seconds or --agent-timeout\n"
    assert run_command(write, "sleep 60").count(hint) == 1


def test_a_time_limit_that_is_too_short_for_a_target_without_its_own(write: Write) -> None:
    write("agent.py", "import time\ndef answer(question):\n    time.sleep(60)\n")
    write("targets.yaml", "targets:\n- {name: default, provider: python, function: 'agent.py:answer'}\n")
    write("a.jsonl", [a_case("a", evaluators=[HELLO])])
    ran = evaluate("a.jsonl", "--agent-timeout", "0.1", expect=1)
    assert "note: targets.yaml:2:3: target 'default': increase --agent-timeout\n" in ran.stderr


def test_other_failures_get_no_hint(write: Write) -> None:
    assert "note: " not in run_command(write, "exit 3")
