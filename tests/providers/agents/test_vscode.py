"""VS Code, tested with a program that replaces its command."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentv.providers.agents.vscode import VscodeSettings
from tests.kits.agents import Agents
from tests.kits.model_servers import a_request
from tests.kits.processes import living, wait_until
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import results

EDITOR = """
document = Path(sys.argv[sys.argv.index("--add-file") + 1])
text = document.read_text()
with open(HERE / "documents", "a") as file:
    file.write(text + "\\0")
part, response = re.search(r"to the file (\\S+), and nothing else. Then rename that file to (\\S+): ", text).groups()
def answer(content):
    Path(part).write_text(content)
    os.rename(part, response)
"""


@pytest.fixture
def vscode(write: Write) -> Agents:
    return Agents(write, "vscode")


def edits(agents: Agents, script: str) -> Agents:
    return agents.does(f"import re{EDITOR}{script}")


def document() -> str:
    return Path("documents").read_text().partition("\0")[0]


def test_the_prompt_document_is_opened_and_the_response_file_is_the_answer(vscode: Agents) -> None:
    vscode.settings |= {"system_prompt": "Be brief.", "args": ["--new-window"]}
    (found,) = edits(vscode, "answer('Paris, é\\n')").run()
    assert found["candidate_answer"] == "Paris, é\n"
    (call,) = vscode.calls
    folder = Path(call["cwd"])
    assert call["args"][:5] == ["chat", "--mode", "agent", "--new-window", "--add-file"]
    path = Path(call["args"][5])
    assert path.parent.parent == folder
    assert call["args"][6:] == [f"Do what {path} says."]
    assert document().startswith("Be brief.\n\nQuery\n\nWhen you are done, write your whole answer to the file ")
    assert not folder.exists()


def test_guidelines_and_files_are_linked_before_the_question(vscode: Agents) -> None:
    style = vscode.write("my style.instructions.md", "Use British spelling.")
    loop = vscode.write("loop.py", "pass")
    blocks = [{"type": "file", "value": path.name} for path in (style, loop)]
    vscode.case = {"input_messages": [{"role": "user", "content": [{"type": "text", "value": "Explain"}, *blocks]}]}
    edits(vscode, "answer('done')").run()
    assert style.as_uri().endswith("/my%20style.instructions.md")
    assert document().startswith(
        "Read these guidelines before you do anything else, and follow them:\n"
        f"* [my style.instructions.md]({style.as_uri()})\n\n"
        f"Read these files before you begin:\n* [loop.py]({loop.as_uri()})\n\n"
        'Explain\n<Attached: my style.instructions.md>\n<file: path="loop.py">\n\nWhen you are done,'
    )


def test_a_half_written_answer_is_never_read(vscode: Agents) -> None:
    """The command has exited when the agent writes. The editor that it started keeps running."""
    late = (
        "if os.fork(): os._exit(0)\nos.setsid()\nPath(part).write_text('Par')\ntime.sleep(0.5)\nanswer('Paris')\n"
        "time.sleep(0.5)\n(HERE / 'alive').touch()"
    )
    (found,) = edits(vscode, late).run()
    assert found["candidate_answer"] == "Paris"
    wait_until(Path("alive").exists)


@pytest.mark.slow
def test_cases_run_one_after_another(vscode: Agents) -> None:
    script = "(HERE / 'open').mkdir()\ntime.sleep(0.2)\n(HERE / 'open').rmdir()\nanswer('Paris')"
    found = edits(vscode, script).run("--workers", "3", ids=("a", "b", "c"))
    assert [entry["candidate_answer"] for entry in found] == ["Paris"] * 3
    assert "warning: target 'default' does not support concurrent cases: using 1 worker" in vscode.ran.stderr


def test_the_users_folder_is_not_changed(vscode: Agents) -> None:
    vscode.write("work/kept.txt", "kept")
    vscode.settings |= {"cwd": "work"}
    edits(vscode, "answer('Paris')").run()
    (call,) = vscode.calls
    assert Path(call["cwd"]) == Path("work").resolve()
    assert [path.name for path in Path("work").iterdir()] == ["kept.txt"]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("sys.exit('no display')", "vscode failed with exit code 1: no display"),
        ("answer(' \\n')", "the agent wrote an empty answer"),
        ("os.mkdir(response)", "the response file of the agent is not a regular file"),
        ("answer('x' * (17 << 20))", "the agent answered with more than 16 MiB"),
    ],
)
def test_failures_are_errors_for_the_case(vscode: Agents, script: str, error: str) -> None:
    (found,) = edits(vscode, script).run(expect=1)
    assert (found["error"], found["failure"]) == (error, "target")


@pytest.mark.slow
def test_a_missing_answer_is_a_timeout_and_the_command_is_killed(vscode: Agents, nap: str) -> None:
    vscode.settings |= {"timeout_seconds": 0.5}
    edits(vscode, f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsubprocess.run({nap.split()!r})")
    (found,) = vscode.run(expect=1)
    assert (found["error"], found["failure"]) == ("timed out after 0.5 s", "timeout")
    wait_until(lambda: living(nap) == [])  # it was killed, and nobody has waited for it to be gone
    vscode.settings |= {"executable": "./gone"}
    edits(vscode, "")
    Path("stand-in").rename("gone")
    (found,) = vscode.run(expect=1)
    assert found["failure"] == "timeout"


@pytest.mark.parametrize(("provider", "program"), [("vscode", "code"), ("vscode-insiders", "code-insiders")])
def test_a_missing_editor_stops_the_run_before_it_starts(
    write: Write, monkeypatch: pytest.MonkeyPatch, provider: str, program: str
) -> None:
    agents = Agents(write, provider)
    del agents.settings["executable"]
    edits(agents, "answer('Paris')")
    empty = write("bin/nothing", "").parent
    monkeypatch.setenv("PATH", str(empty))
    with pytest.raises(FileNotFoundError):
        agents.run(expect=2)
    assert f"no such program: {program}\n" in agents.ran.stderr
    Path("stand-in").rename(empty / program)
    (found,) = agents.run()
    assert found["candidate_answer"] == "Paris"


@pytest.mark.parametrize(
    "setting", [{"model": "gpt-5"}, {"log_dir": "logs"}, {"log_format": "json"}, {"keep_sessions": True}]
)
def test_unsupported_settings_are_reported(write: Write, setting: dict[str, Any]) -> None:
    (name,) = setting
    target = {"name": "a", "provider": "vscode", **setting}
    path = write("targets.yaml", f"targets:\n  - {target}\n")
    ran = agentv("validate", path)
    assert ran.returncode == 0
    assert re.search(rf"warning: target 'a': {name}: vscode does not support this setting \(", ran.stdout)


def test_dumped_prompts_contain_the_opened_document(vscode: Agents) -> None:
    vscode.settings |= {"system_prompt": "Be brief."}
    edits(vscode, "answer('Paris')").run("--dump-prompts=prompts")
    document = json.loads(Path("prompts/a.json").read_text())["sent"]["document"]
    assert document.startswith("Be brief.\n\nQuery\n\n")


def test_an_answer_that_is_still_being_written_is_waited_for(vscode: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time the file is checked, another piece is written."""
    pieces = ["", "first half, ", "second half"]

    async def write_piece(_seconds: float) -> None:
        if pieces:
            (folder,) = Path("work").glob(".agentv-*")
            with (folder / "response.md").open("a") as file:
                file.write(pieces.pop(0))

    vscode.write("work/kept.txt", "kept")
    vscode.does("")
    monkeypatch.setattr("agentv.providers.agents.vscode.asyncio.sleep", write_piece)
    settings = VscodeSettings(name="default", provider="vscode", executable="./stand-in", cwd="work")
    assert asyncio.run(settings.open(Path.cwd()).invoke(a_request())).text == "first half, second half"


def test_editors_used_as_judges_run_one_at_a_time(vscode: Agents) -> None:
    edits(
        vscode,
        "lock = HERE / 'open'\nassert not lock.exists()\nlock.touch()\ntime.sleep(0.1)\nlock.unlink()\nanswer('{\"score\": 1}')",
    )
    editor = {"name": "judge", "provider": "vscode", "executable": "./stand-in"}
    mock = {"name": "default", "provider": "mock", "response": "x", "judge_target": "judge"}
    vscode.write("targets.yaml", json.dumps({"targets": [mock, editor]}))
    vscode.write("cases.jsonl", [a_case(f"c{number}") for number in range(3)])
    assert agentv("eval", "cases.jsonl", "--workers", "3", "--out", "out.jsonl").returncode == 0
    assert [result["score"] for result in results("out.jsonl")] == [1.0] * 3
