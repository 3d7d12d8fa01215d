"""Targets that do not accept images or PDFs are reported before the run, with the case."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.media import PDF, PNG
from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import evaluate, results

CHECK = {"type": "contains", "value": ""}


def a_project(
    write: Write, target: dict[str, Any], name: str = "chart.png", data: bytes = PNG, role: str = "user"
) -> None:
    write(name, "").write_bytes(data)
    write("targets.yaml", json.dumps({"targets": [{"name": "default", **target}]}))
    messages = [
        {"role": role, "content": [{"type": "file", "value": name}]},
        {"role": "user", "content": "What is it?"},
    ]
    write(
        "a.jsonl", [a_case("plain", evaluators=[CHECK]), a_case("shown", input_messages=messages, evaluators=[CHECK])]
    )


HTTP = {"provider": "http", "url": "http://127.0.0.1:9/"}
CLI = {"provider": "cli", "command_template": "touch ran; echo {PROMPT}"}
BATCH = {"provider": "cli", "command_template": "touch ran; cat {PROMPT_FILE}", "provider_batching": True}
MODEL = {"provider": "openai", "model": "gpt-5", "api_key": "k", "base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("target", "message", "hint"),
    [
        (
            HTTP,
            "chart.png is an image or a PDF, which http targets do not support",
            "use a language model, or a 'python' or 'cli' target, which gets its path",
        ),
        *(
            (
                cli,
                "chart.png is an image or a PDF, but the command has no {FILES} to pass it",
                "add {FILES} where the command takes file paths",
            )
            for cli in (CLI, BATCH)
        ),
    ],
)
def test_a_target_without_media_support_is_an_error(target: Any, message: str, hint: str, write: Write) -> None:
    a_project(write, target)
    ran = evaluate("a.jsonl", "--out", "out.jsonl", expect=2)
    assert flat(ran.stderr) == f"error: a.jsonl:2:1: case 'shown': {message} hint: {hint}"
    assert not Path("ran").exists()
    assert not Path("out.jsonl").exists()
    checked = agentv("validate", "a.jsonl")
    assert checked.returncode == 1
    assert f"case 'shown': {message}" in flat(checked.stdout + checked.stderr)


def test_media_in_unselected_cases_is_ignored(write: Write) -> None:
    a_project(write, CLI)
    evaluate("a.jsonl", "--out", "out.jsonl", "--eval-id", "plain")
    assert len(results("out.jsonl")) == 1


@pytest.mark.parametrize(
    "target",
    [
        {"provider": "mock", "response": "yes"},
        {"provider": "cli", "command_template": "cat {FILES} > /dev/null && echo yes"},
        {"provider": "python", "function": "agent.py:answer"},
    ],
)
def test_targets_that_accept_media(target: Any, write: Write) -> None:
    write(
        "agent.py",
        "def answer(question, files):\n    return f'{files[0].name}: {len(files[0].read_bytes())} {question}'\n",
    )
    a_project(write, target)
    evaluate("a.jsonl", "--eval-id", "shown", "--out", "out.jsonl")
    (result,) = results("out.jsonl")
    if target["provider"] == "python":
        assert result["candidate_answer"].startswith(f'chart.png: {len(PNG)} @[User]:\n<file: path="chart.png">')
    else:
        assert result["candidate_answer"].strip() == "yes"


def test_a_batch_gets_the_paths_in_its_file(write: Write) -> None:
    script = (
        "import json, sys\n"
        "for line in open(sys.argv[1]):\n"
        "    case = json.loads(line)\n"
        "    print(json.dumps({'id': case['id'], 'text': ' '.join(case['input_files'])}))\n"
    )
    write("agent.py", script)
    a_project(
        write, {"provider": "cli", "command_template": "python3 agent.py {BATCH_FILE}", "provider_batching": True}
    )
    evaluate("a.jsonl", "--out", "out.jsonl")
    answers = {result["eval_id"]: result["candidate_answer"] for result in results("out.jsonl")}
    assert answers["shown"].endswith("/chart.png")


@pytest.mark.parametrize(("vendor", "most"), [("openai", 50), ("azure", 50), ("anthropic", 24), ("gemini", 50)])
def test_a_pdf_of_100_mb(vendor: str, most: int, write: Write) -> None:
    settings = {"azure": {"endpoint": "http://127.0.0.1:9", "model": "m"}, "gemini": {}}
    a_project(write, {"provider": vendor, "api_key": "k", **settings.get(vendor, {"model": "m"})}, "big.pdf", PDF)
    with Path("big.pdf").open("r+b") as file:
        file.truncate(100_000_000)  # a hole, which takes no room
    ran = evaluate("a.jsonl", "--dry-run", expect=2)
    assert flat(ran.stderr) == (
        f"error: a.jsonl:2:1: case 'shown': big.pdf has 100.0 MB, but {vendor} accepts at most {most} MB in a request"
        " hint: make it smaller, or attach only the pages that matter"
    )


def test_an_image_outside_of_user_messages(write: Write) -> None:
    a_project(write, MODEL, role="system")
    ran = evaluate("a.jsonl", expect=2)
    assert "case 'shown': chart.png: language models accept images and PDFs only in user messages" in ran.stderr


def test_a_yaml_case_is_named_by_its_line(write: Write) -> None:
    a_project(write, HTTP)
    write(
        "b.yaml",
        "evalcases:\n  - id: one\n    expected_outcome: x\n    input:\n      - role: user\n"
        "        content: [{type: file, value: chart.png}]\n",
    )
    ran = evaluate("b.yaml", expect=2)
    assert "b.yaml:2:1: case 'one': chart.png is an image" in ran.stderr


def test_validate_accepts_images(write: Write) -> None:
    a_project(write, MODEL)
    ran = agentv("validate", "a.jsonl")
    assert (ran.returncode, "chart.png" in ran.stdout + ran.stderr) == (0, False)
