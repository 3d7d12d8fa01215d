"""`agentv doctor`: installed packages, files in use and the readiness of targets, without secrets."""

import json
import os
import platform
import pty
import re
import select
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentv import __version__
from agentv.cli.setup.doctor import EXTRAS
from tests.kits.processes import start_process
from tests.kits.project import Write, agentv, agentv_process

SECRET = "sk-never-to-be-seen-anywhere"
EVAL = "evalcases: [{id: a, expected_outcome: b, input: c, evaluators: [{type: contains, value: x}]}]"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def diagnosis(*args: str | Path, **options: Any) -> tuple[int, dict[str, Any]]:
    ran = agentv("doctor", "--format", "json", *args, **options)
    return ran.returncode, json.loads(ran.stdout)


def targets(*args: str | Path, **options: Any) -> dict[str, dict[str, Any]]:
    """The state of each target by its name."""
    code, found = diagnosis(*args, **options)
    states = {target["name"]: target for file in found["targets_files"] for target in file["targets"]}
    assert code == (0 if states and all(state["ready"] for state in states.values()) else 1)
    return states


def why(state: dict[str, Any]) -> list[tuple[str, str]]:
    return [(problem["message"], problem["hint"]) for problem in state["problems"]]


def test_a_project_that_is_ready(write: Write, tmp_path: Path) -> None:
    write(
        "targets.yaml", "targets: [{name: default, provider: mock}, {name: m, provider: mock, judge_target: default}]"
    )
    write(".env", f"OPENAI_API_KEY={SECRET}\n")
    write("evals/a.yaml", EVAL)
    ran = agentv("doctor")
    assert (ran.returncode, ran.stderr) == (0, "")
    first, *rest = ran.stdout.splitlines()
    assert first == f"agentv {__version__}, Python {platform.python_version()} ({sys.executable})"
    assert rest[rest.index("Files") :] == [
        "Files",
        "  targets    targets.yaml",
        "  .env       .env",
        "",
        "Targets in targets.yaml, for the eval files in evals",
        "  ready      default (mock)",
        "  ready      m (mock), graded by default",
        "",
        "2 of 2 targets are ready",
    ]


def test_the_extras_are_those_that_can_be_installed() -> None:
    project = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())["project"]
    declared = {
        name: tuple(re.split("[>=]", package)[0] for package in packages)
        for name, packages in project["optional-dependencies"].items()
        if name not in ("all", "dev", "docs")
    }
    assert declared == EXTRAS


def test_extras_are_listed_with_version_or_install_command(write: Write) -> None:
    found = {extra["name"]: extra for extra in diagnosis()[1]["extras"]}
    assert found["openai"]["packages"]["openai"]
    hide = "import importlib.metadata as m, sys\nreal = m.version\n"
    hide += (
        "def version(name):\n    if name == 'anthropic': raise m.PackageNotFoundError(name)\n    return real(name)\n"
    )
    write("without.py", hide + "m.version = version\nfrom agentv.__main__ import main\nmain()\n")
    ran = subprocess.run([sys.executable, "without.py", "doctor"], capture_output=True, text=True, check=False)
    assert "  anthropic  not installed: pip install 'anthropic>=1.0'\n" in ran.stdout


def test_without_any_file_the_searched_folders_are_listed(write: Write, tmp_path: Path) -> None:
    ran = agentv("doctor")
    assert ran.returncode == 1
    assert f"  targets    none; searched {tmp_path}\n             hint: run 'agentv init' to create one\n" in ran.stdout
    assert f"  .env       none; searched {tmp_path}\n" in ran.stdout
    assert ran.stdout.endswith("\n0 of 0 targets are ready\n")


def test_the_files_are_those_that_the_eval_files_below_would_use(write: Write) -> None:
    target = "targets: [{name: default, provider: mock}]"
    for name in ("targets.yaml", "one/.agentv/targets.yaml", "one/.env", "other.yaml"):
        write(name, target if name.endswith("yaml") else "A=1")
    for name in ("one/evals/a.yaml", "one/evals/more/a.yaml", "two/a.yaml"):
        write(name, EVAL)
    code, found = diagnosis()
    used = {file["file"]: file["used_in"] for file in found["targets_files"]}
    assert code == 0
    assert used == {"one/.agentv/targets.yaml": ["one/evals", "one/evals/more"], "targets.yaml": ["two"]}
    assert found["env_files"] == ["one/.env"]
    given = diagnosis("--targets", "other.yaml")[1]["targets_files"]
    assert [file["file"] for file in given] == ["other.yaml"]


PROBLEMS = """targets:
- {name: variable, provider: openai, model: m, api_key: "${{ MISSING_KEY }}"}
- {name: key, provider: openai, model: m}
- {name: key-of-anthropic, provider: anthropic, model: m}
- {name: key-of-gemini, provider: gemini}
- {name: kind, provider: opnai, model: m}
- {name: setting, provider: mock, respons: x}
- {name: agent, provider: codex, executable: no-such-agent}
- {name: command, provider: cli, command_template: "no-such-program {PROMPT}"}
- {name: folder, provider: cli, command_template: "echo hello", cwd: nowhere}
- {name: function, provider: python, function: "nowhere.py:answer"}
- {name: judged, provider: mock, judge_target: judge}
- {name: fine, provider: mock, judge_target: key}
- {provider: mock}
"""


def test_why_a_target_is_not_ready(write: Write, tmp_path: Path) -> None:
    write("targets.yaml", PROBLEMS)
    found = targets()
    assert [name for name, state in found.items() if state["ready"]] == ["fine"]
    set_it = "set it, or add it to .env"
    assert why(found["variable"]) == [("api_key: the environment variable MISSING_KEY is not set", set_it)]
    assert "OPENAI_API_KEY" in why(found["key"])[0][0]
    assert "api_key" in why(found["key-of-anthropic"])[0][0]
    assert "API key" in why(found["key-of-gemini"])[0][0]
    assert why(found["kind"]) == [("provider: unknown provider 'opnai'", "did you mean 'openai'?")]
    assert why(found["setting"]) == [("respons: unknown field", "did you mean 'response'?")]
    assert why(found["agent"])[0][0] == "no such program: no-such-agent"
    assert why(found["command"])[0][0] == "no such program: no-such-program"
    assert why(found["folder"])[0][0] == f"cwd: no such folder: {tmp_path}/nowhere"
    assert why(found["function"]) == [("nowhere.py cannot be loaded: no such file", f"searched {tmp_path}")]
    assert why(found["judged"])[0][0] == "judge_target: unknown target 'judge'"
    assert why(found[""])[0][0] == "missing name"
    assert (found["fine"]["judge"], found["key"]["judge"], found["command"]["judge"]) == ("key", "key", None)
    lines = agentv("doctor").stdout
    assert (
        "  not ready  kind (opnai)\n             line 6: provider: unknown provider 'opnai'\n             hint: did you"
        in lines
    )
    assert lines.endswith("\n1 of 13 targets are ready\n")


def test_a_missing_sdk_is_reported_with_its_install_command(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: openai, model: m}]")
    hide = "import importlib.util as u\nreal = u.find_spec\nu.find_spec = lambda name, *a: None if name == 'openai' else real(name, *a)\n"
    write("without.py", hide + "from agentv.__main__ import main\nmain()\n")
    ran = subprocess.run([sys.executable, "without.py", "doctor"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "this target requires the 'openai' package\n             hint: pip install 'openai>=1.60'\n" in ran.stdout


@pytest.mark.parametrize(
    "template", ["printf %s {PROMPT}", "X=1 no-such-program", "cd .. && no-such-program", "'quoted program' {PROMPT}"]
)
def test_a_command_that_only_the_shell_can_resolve_is_not_checked(template: str, write: Write) -> None:
    write("targets.yaml", f'targets: [{{name: default, provider: cli, command_template: "{template}"}}]')
    assert targets()["default"]["ready"]


def test_paths_are_relative_to_the_eval_files(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    write("evals/agent.py", "print('loading')\ndef answer(question): return question\n")
    assert not targets()["default"]["ready"]
    write("evals/a.yaml", EVAL)
    assert targets()["default"]["ready"]


def test_health_checks_run_only_with_check(write: Write) -> None:
    check = "healthcheck: {type: command, command_template: 'touch checked; test -e healthy'}"
    write("targets.yaml", f"targets: [{{name: default, provider: cli, command_template: echo, {check}}}]")
    assert (targets()["default"]["ready"], Path("checked").exists()) == (True, False)
    assert "health check not run (use --check)\n" in agentv("doctor").stdout
    state = targets("--check")["default"]
    assert (state["ready"], state["healthcheck"]) == (False, "failed")
    assert why(state)[0][0].startswith("health check failed: the command failed with exit code 1")
    write("healthy", "")
    state = targets("--check")["default"]
    assert (state["ready"], state["healthcheck"], state["problems"]) == (True, "passed", [])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("targets.yaml", "targets: [", "targets.yaml"),
        ("targets.yaml", "target: []", "target: unknown field"),
        (".env", b"\xff\xfe\x00", "cannot be read: not UTF-8 text"),
    ],
)
def test_an_unreadable_file_does_not_stop_doctor(name: str, content: str, message: str, write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock}]")
    write(name, content)
    code, found = diagnosis()
    assert code == 1
    assert found["ready"] is False
    assert message in json.dumps(found)


def test_no_secret_is_shown(write: Write) -> None:
    write(".env", f"MY_TOKEN={SECRET}\nPLAIN={SECRET}-two\n")
    write(
        "targets.yaml",
        "targets:\n"
        '- {name: a, provider: http, url: "http://x", headers: {X: "${{ PLAIN }}"}, response_path: "[[${{ PLAIN }}"}\n'
        '- {name: b, provider: codex, executable: "${{ MY_TOKEN }}"}\n'
        '- {name: c, provider: "${{ MY_TOKEN }}"}\n'
        f"- {{name: d, provider: {SECRET}-two}}\n",
    )
    for args in ([], ["--format", "json"]):
        ran = agentv("doctor", *args)
        assert ran.returncode == 1
        assert "no such program: ***" in ran.stdout
        assert SECRET not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("args", "said"), [(["--targets", "nowhere"], "no targets file found"), (["x"], "unexpected extra")]
)
def test_bad_usage(args: list[str], said: str, write: Write) -> None:
    ran = agentv("doctor", *args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert "hint: " in ran.stderr


def test_on_a_narrow_terminal_lines_wrap_below_their_entry(write: Write) -> None:
    write(
        "targets.yaml",
        'targets: [{name: gpt, provider: openai, model: m, api_key: "${{ A_VARIABLE_THAT_IS_MISSING }}"}]',
    )
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "agentv", "doctor"]
    with start_process(command, stdout=slave, env={**os.environ, "COLUMNS": "60"}) as child:
        os.close(slave)
        output = b""
        while select.select([master], [], [], 60)[0]:
            try:
                output += os.read(master, 4096)
            except OSError:  # which is how a terminal ends
                break
        os.close(master)
    lines = output.decode().splitlines()
    assert child.returncode == 1
    assert max(map(len, lines)) <= 60
    at = lines.index("  not ready  gpt (openai), graded by itself")
    assert lines[at + 1 : at + 4] == [
        "             line 1: api_key: the environment variable",
        "             A_VARIABLE_THAT_IS_MISSING is not set",
        "             hint: set it, or add it to .env",
    ]


def test_a_target_on_the_network_has_no_healthcheck_and_its_package_is_tried(write: Write) -> None:
    target = {"name": "default", "provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    write("targets.yaml", json.dumps({"targets": [target]}))
    ran = agentv("doctor")
    assert (ran.returncode, "healthcheck" in ran.stdout) == (0, False)
    write("openai/__init__.py", "raise RuntimeError('built for another machine')")
    ran = agentv_process("doctor", env={**os.environ, "PYTHONPATH": "."})
    assert ran.returncode == 1
    assert "the 'openai' package cannot be imported: RuntimeError: built for another machine" in ran.stdout
