"""Command templates: the command receives any value unchanged, wherever the placeholder is."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.processes.template import build_script, expand_variable, find_problems
from tests.kits.project import Write, agentv

NAMES = ("PROMPT", "EVAL_ID", "OUTPUT_FILE", "PROMPT_FILE")
FOREIGN = ("PROMPT", "EVAL_ID")
PRINT = "printf '%s\\0' "


def received(template: str, value: str) -> list[str]:
    """The arguments that a command of the template gets."""
    script = build_script(template, NAMES, expand_variable)
    environment = {**os.environ, "AGENTV_PROMPT": value}
    run = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, check=True)
    assert run.stderr == b""
    return [text.decode("utf-8", "surrogateescape") for text in run.stdout.split(b"\0")[:-1]]


NASTY = 'it\'s $(touch pwned) `touch pwned` "$HOME" \\ * ~ {PROMPT} ${PATH} ; & | > x #\n\tü \x01\x81\x88\n'


@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        ("{PROMPT}", "", ""),
        ('"{PROMPT}"', "", ""),
        ("'{PROMPT}'", "", ""),
        ('--prompt="say {PROMPT} twice"', "--prompt=say ", " twice"),
        ("--prompt={PROMPT}!", "--prompt=", "!"),
        ("'it is' \"$(printf %s {PROMPT}.)\"", "", "."),
        ('"$(printf %s "{PROMPT}.")"', "", "."),
        ("\"$(printf %s '{PROMPT}.')\"", "", "."),
        ('"${NOTHING:-{PROMPT}}"', "", ""),
        ('\\"{PROMPT}\\"', '"', '"'),
        ("# it's a \"comment\n{PROMPT}", None, ""),
    ],
)
def test_the_command_receives_the_value_byte_for_byte(
    write: Write, template: str, before: str | None, after: str
) -> None:
    write("here", "")
    lines = f"{PRINT}{template}" if before is not None else template.replace("\n", f"\n{PRINT}")
    assert received(lines, NASTY)[-1] == f"{before or ''}{NASTY}{after}"
    assert not Path("pwned").exists()


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_any_text_is_received_unchanged(value: str) -> None:
    assert received(PRINT + "{PROMPT} \"{PROMPT}\" '{PROMPT}'", value) == [value] * 3


def test_the_attempt_number_can_be_used_in_arithmetic() -> None:
    assert received(f"{PRINT}$(( {{PROMPT}} + 1 ))", "2") == ["3"]


def test_a_shell_function_receives_the_value() -> None:
    assert received(f"f() {{ {PRINT}{{PROMPT}}; }}; f other", NASTY) == [NASTY]


@pytest.mark.parametrize(
    "template",
    [
        "awk '{print $1}' x",
        'echo "${HOME}" ${{ VAR }} ${{VAR}}',
        'echo {a,b} \'{"json": {"x": 1}}\' {} \\{PROMPT}',
        "cat {PROMPT_FILE} > {OUTPUT_FILE}",
        "python -c 'import sys; print(sys.argv[1])' {PROMPT}",
        "sh -c 'echo \"$1\"' - {PROMPT}",
        "grep -e {PROMPT} x",
        "agent -c {PROMPT}",
        "python -c \"open('{OUTPUT_FILE}', 'w')\"",
        "echo 1 # {WHATEVER} it's",
        "(true)#it's\ncmd '{PROMPT}'",
        "python3 agent.py -c {PROMPT}",
        "bash script.sh -c {PROMPT}; node agent.js -e '{PROMPT}'",
        "echo $((1<<2))\necho {PROMPT}",
        "cat <<END\nx\nEND\necho {PROMPT}",
        "bash -c 'x' && agent {PROMPT}",
        "evaluate {PROMPT}; agent --ssh {PROMPT} --trap '{PROMPT}'",
    ],
)
def test_valid_templates(template: str) -> None:
    assert list(find_problems(template, NAMES, FOREIGN)) == []


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("agent {PROMT}", ("unknown placeholder {PROMT}", "did you mean '{PROMPT}'?")),
        ("agent {prompt}", ("unknown placeholder {prompt}", "did you mean '{PROMPT}'?")),
        ("agent '{X}'", ("unknown placeholder {X}", "available: {EVAL_ID}, {OUTPUT_FILE}, {PROMPT_FILE}, {PROMPT}")),
        ("agent {{PROMPT}}", ("{PROMPT} is inside double braces", "use {PROMPT}")),
        (
            "cat <<END\n{PROMPT}\nEND",
            ("{PROMPT} is inside a here-document", "pass it as an argument, or use {PROMPT_FILE}"),
        ),
    ],
)
def test_invalid_templates(template: str, problem: tuple[str, str]) -> None:
    assert list(find_problems(template, NAMES, FOREIGN)) == [problem]


@pytest.mark.parametrize(
    "template",
    [
        "bash -c 'agent {PROMPT}'",
        'sh -c "agent {EVAL_ID}"',
        "cd x && /bin/bash -lc {PROMPT}",
        "python3.11 -c \"print('{PROMPT}')\"",
        "node --eval '{PROMPT}'",
        "eval 'agent {PROMPT}'",
        "sudo -u me bash -c \"x '{PROMPT}'\"",
        "bash -c \\\n  'echo {PROMPT}'",
        'bash -c "x=$(true); echo {PROMPT}"',
        "bash -c 'echo \"'{PROMPT}'\"'",
        "bash -c 'set -e; echo '\"{PROMPT}\"",
        "sh -c echo\\ {PROMPT}",
        "python3 -c print\\({PROMPT}\\)",
        "eval echo {PROMPT}",
        "bash -c -- 'x {PROMPT}'",
        "bash -cx 'x {PROMPT}'",
        "node -p '{PROMPT}'",
        "awk 'BEGIN{print \"{PROMPT}\"}'",
        "ssh host echo {PROMPT}",
        "trap 'echo {PROMPT}' EXIT",
        "env -S \"sh -c '{PROMPT}'\"",
        "su me -c 'echo {PROMPT}'",
        "echo $(({PROMPT} + 1))",
    ],
)
def test_a_value_that_would_run_as_code_is_rejected(template: str) -> None:
    ((message, hint),) = find_problems(template, NAMES, FOREIGN)
    assert message.endswith("would be run as code here")
    assert hint.startswith("pass it as an argument: ")


def test_validate_and_eval_report_unknown_placeholders_with_their_line(write: Write) -> None:
    write("targets.yaml", "targets:\n  - name: default\n    provider: cli\n    command_template: a {PROMT} {FILE}\n")
    write(
        "a.jsonl",
        [{"id": "a", "expected_outcome": "x", "input": "y", "evaluators": [{"type": "equals", "value": "z"}]}],
    )
    checked = agentv("validate", "targets.yaml")
    assert checked.returncode == 1
    assert "targets.yaml:4:5: error: target 'default': command_template: unknown placeholder {PROMT}" in checked.stdout
    ran = agentv("eval", "a.jsonl")
    assert ran.returncode == 2
    assert (
        ":4:5: target 'default': command_template: unknown placeholder {FILE}\nhint: did you mean '{FILES}'?"
        in ran.stderr
    )


def test_quoted_files_and_invalid_file_formats_are_rejected(write: Write) -> None:
    write(
        "targets.yaml",
        "targets:\n  - {name: a, provider: cli, command_template: 'x \"{FILES}\"', files_format: 'sh -c {basename} {file}'}\n"
        "  - {name: b, provider: cli, command_template: 'x {PROMPT}', provider_batching: true}\n"
        "  - {name: c, provider: cli, command_template: 'x {BATCH_FILE}'}\n"
        "  - {name: d, provider: cli, command_template: x, healthcheck: {type: command, command_template: '{Y}'}}\n",
    )
    shown = agentv("validate", "targets.yaml").stdout
    assert "target 'a': command_template: {FILES} is inside quotes" in shown
    assert "target 'a': files_format: unknown placeholder {file}" in shown
    assert "target 'b': command_template: {PROMPT} is empty in a batch" in shown
    assert "target 'c': command_template: unknown placeholder {BATCH_FILE}" in shown
    assert "target 'a': files_format: {basename} would be run as code here" in shown
    assert "target 'd': healthcheck.command_template: unknown placeholder {Y}" in shown
