"""No secret appears in anything that a run writes or prints."""

import base64
import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from agentv.redact import Redactor, secrets_in, secrets_in_url
from tests.kits.pages import page_content
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import results

CANARY = 'canary "with" quotes\\and/slash é'
AGENT = """
import json, os, sys, urllib.parse, base64
secret = os.environ["MY_SERVICE_TOKEN"]

def leak(question):
    call = {"tool": "t", "input": {"header": secret, "nested": json.dumps({"k": secret})}}
    return {
        "text": " ".join([secret, json.dumps(secret), urllib.parse.quote(secret, safe=""),
                          urllib.parse.quote_plus(secret), base64.b64encode((":" + secret).encode()).decode()]),
        "output_messages": [{"role": "assistant", "content": secret, "tool_calls": [call]}],
    }

def crash(question):
    raise ValueError("rejected: " + secret)
"""


def test_planted_secrets_are_not_written_anywhere(write: Write) -> None:
    write(".env", f"MY_SERVICE_TOKEN={json.dumps(CANARY, ensure_ascii=False)}\n")
    write("agent.py", AGENT)
    write(
        "targets.yaml",
        "targets:\n"
        "  - {name: default, provider: python, function: 'agent.py:leak'}\n"
        "  - {name: crash, provider: python, function: 'agent.py:crash'}\n",
    )
    check = {"type": "contains", "value": CANARY}
    entries = [
        a_case(f"id {CANARY}", evaluators=[check], metadata={"k": CANARY}),
        a_case("b", execution={"target": "crash"}, evaluators=[check]),
    ]
    path = write("evals/a.jsonl", entries)
    write("evals/agent.py", AGENT)
    seen = ""
    for form in ("jsonl", "yaml"):
        flags = [
            "--include-trace",
            "--dump-traces",
            "--dump-prompts",
            "--verbose",
            "--max-retries",
            "1",
            "--output-format",
            form,
        ]
        ran = agentv("eval", path, *flags)
        assert ran.returncode == 1
        seen += ran.stdout + ran.stderr
    for file in Path(".agentv").rglob("*"):
        seen += str(file)
        if file.is_file():
            seen += file.read_text()
    assert "***" in seen
    for form in (
        CANARY,
        json.dumps(CANARY)[1:-1],
        quote(CANARY, safe=""),
        base64.b64encode(f":{CANARY}".encode()).decode(),
    ):
        assert form not in seen
    assert 'with\\\\\\" quotes' not in seen


@pytest.mark.parametrize("name", ["API_KEY", "my_token", "DbPassword", "aws_secret_x", "GOOGLE_CREDENTIALS"])
def test_secrets_are_recognized_by_variable_names(name: str) -> None:
    assert secrets_in({name: "12345678", "HOME": "/home/user"}) == ["12345678"]


def test_short_values_are_not_masked() -> None:
    assert Redactor(["short12", "long-enough"])("short12 long-enough") == "short12 ***"


def test_the_longest_secret_is_masked_first() -> None:
    assert Redactor(["abcdefgh", "abcdefghij"])("abcdefghij abcdefgh") == "*** ***"


def test_credentials_in_urls() -> None:
    found = secrets_in_url("https://user%40x:pass%2Fword@host/path")
    clean = Redactor(found)
    basic = base64.b64encode(b"user@x:pass/word").decode()
    assert clean(f"Authorization: Basic {basic}; pass%2Fword pass/word") == "Authorization: Basic ***; *** ***"
    assert secrets_in_url("https://host/path") == []
    assert secrets_in_url("http://[bad") == []


def test_variables_of_the_environment_count_too(write: Write) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: 'the key is ${{ SOME_API_KEY }}'}\n")
    path = write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "key"}])])
    agentv("eval", path, "--out", "o.jsonl", env={**os.environ, "SOME_API_KEY": "very-secret-value"})
    assert json.loads(Path("o.jsonl").read_text())["candidate_answer"] == "the key is ***"


TOKEN = "hunter2hunter2"


def seen_in(folder: Path, *texts: str) -> str:
    files = [file for file in folder.rglob("*") if ".agentv" in file.parts or file.name.startswith("o.")]
    return "".join([*texts, *map(str, files), *(file.read_text() for file in files if file.is_file())])


def test_a_secret_in_an_id(write: Write, tmp_path: Path) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock}\n")
    path = write("a.jsonl", [a_case(f"id-{TOKEN}-a", evaluators=[{"type": "contains", "value": TOKEN}])])
    env = {**os.environ, "API_TOKEN": TOKEN}
    for flags in ([], ["--resume"]):
        ran = agentv("eval", path, "--out", "o.jsonl", "--dump-prompts", "--dump-traces", "--verbose", *flags, env=env)
        assert ran.returncode == 0
        assert TOKEN not in seen_in(tmp_path, ran.stdout, ran.stderr)
    assert "1 already done" in ran.stderr
    assert "1 planned = 1 already done" in ran.stdout
    assert len(Path("o.jsonl").read_text().splitlines()) == 1


def test_secrets_of_several_lines_and_as_python_writes_them(write: Write, tmp_path: Path) -> None:
    secrets = {"MULTI_SECRET": "line one secret\nline two secret", "ODD_KEY": "a'b\"cdefgh"}
    code = "import os\ndef answer(q):\n    raise ValueError(os.environ['MULTI_SECRET'] + repr(os.environ['ODD_KEY']))\n"
    write("agent.py", code)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    path = write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "x"}])])
    ran = agentv("eval", path, "--out", "o.jsonl", "--max-retries", "1", env={**os.environ, **secrets})
    shown = seen_in(tmp_path, ran.stdout, ran.stderr)
    assert "line two" not in shown
    assert "cdefgh" not in shown


@pytest.mark.parametrize("form", ["jsonl", "yaml"])
def test_a_number_that_is_a_secret_leaves_a_valid_file(write: Write, form: str) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock}\n")
    path = write("a.jsonl", [a_case(metadata={"n": 16777216}, evaluators=[{"type": "contains", "value": "x"}])])
    ran = agentv("eval", path, "--out", f"o.{form}", env={**os.environ, "MAX_TOKENS": "16777216"})
    assert ran.returncode == 0
    assert "16777216" not in Path(f"o.{form}").read_text()
    if form == "jsonl":
        assert json.loads(Path("o.jsonl").read_text())["metadata"] == {"n": "***"}


def test_secrets_of_targets(write: Write, tmp_path: Path) -> None:
    write(
        "targets.yaml",
        """targets:
  - {name: default, provider: mock, response: bare-value-one bearer-value-two cred-value-three}
  - name: other
    provider: http
    url: https://me:cred-value-three@host/
    headers: {X: "Bearer ${{ HDR }}", Y: Token bearer-value-two}
""",
    )
    path = write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "x"}])])
    agentv("eval", path, "--out", "o.jsonl", env={**os.environ, "HDR": "bare-value-one"})
    assert json.loads(Path("o.jsonl").read_text())["candidate_answer"] == "*** *** ***"


def test_messages_about_bad_usage_are_masked(write: Write) -> None:
    write("a.txt", "")
    env = {**os.environ, "API_TOKEN": TOKEN}
    for args in (
        [f"{TOKEN}.yaml"],
        ["a.txt", "--workers", TOKEN],
        ["a.txt", f"--{TOKEN}"],
        ["a.txt", "--limit", TOKEN],
    ):
        ran = agentv("eval", *args, env=env)
        assert ran.returncode == 2
        assert TOKEN not in ran.stdout + ran.stderr


FAILING = """
import os

def fail(question):
    raise ValueError("x" * int(question) + os.environ["SOME_SECRET"])
"""


@pytest.mark.parametrize("secret", ["first-line-x\nsecond-line-y", "first-line-x-second-line-y"])
@pytest.mark.parametrize("length", [5, 9_880])
def test_a_secret_in_a_traceback_is_masked_before_it_is_cut(write: Write, secret: str, length: int) -> None:
    write("agent.py", FAILING)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:fail'}\n")
    check = {"type": "python", "function": "agent.py:fail"}
    message = {"role": "user", "content": str(length)}
    path = write("a.jsonl", [a_case(input_messages=[message], evaluators=[check])])
    env = {**os.environ, "SOME_SECRET": secret}
    # The traceback has two cuts of its own: around the middle of a long one, and at each end of a line.
    for shift in range(0, 30, 3):
        message["content"] = str(length + shift)
        write("a.jsonl", [a_case(input_messages=[message], evaluators=[check])])
        for flags in ([], ["--dry-run"]):
            ran = agentv("eval", path, "--out", "o.jsonl", "--verbose", *flags, env=env)
            shown = ran.stdout + ran.stderr + Path("o.jsonl").read_text()
            assert "first-line" not in shown
            assert "second-line" not in shown


def test_a_secret_in_a_judgement_is_masked_before_it_is_cut(write: Write) -> None:
    secret = "first-half-x-second-half-y"
    answer = {"name": "n" * 60 + secret}
    write(
        "targets.yaml",
        json.dumps({"targets": [{"name": "default", "provider": "mock", "response": json.dumps(answer)}]}),
    )
    fields = [{"path": "name", "match": "exact"}]
    check = {"type": "field_accuracy", "fields": fields}
    expected = [{"role": "assistant", "content": {"name": "other"}}]
    path = write("a.jsonl", [a_case(expected_messages=expected, evaluators=[check])])
    agentv("eval", path, "--out", "o.jsonl", env={**os.environ, "SOME_SECRET": secret})
    assert "first-half" not in Path("o.jsonl").read_text()


def test_a_secret_in_the_path_of_a_prompt_is_masked_before_it_is_cut(write: Write) -> None:
    secret = "first-half-x-second-half-y"
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "mock"}]}))
    for length in range(175, 205, 5):
        check = {"type": "llm_judge", "prompt": "p" * length + secret}
        path = write("a.jsonl", [a_case(evaluators=[check])])
        ran = agentv("eval", path, "--out", "o.jsonl", env={**os.environ, "SOME_SECRET": secret})
        assert "prompt: no such file: ppp" in ran.stderr
        assert "first" not in ran.stderr


def test_validate_masks_the_variables_of_env_files(write: Write) -> None:
    write(".env", f"SERVICE_TOKEN={TOKEN}\n")
    settings = {"provider": "cli", "command_template": "cat {PROMPT_FILE}", "cwd": "nowhere/${{ SERVICE_TOKEN }}"}
    write("targets.yaml", json.dumps({"targets": [{"name": "default", **settings}]}))
    write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "x"}])])
    for args in (["."], ["a.jsonl", "--format", "json"], ["targets.yaml"]):
        ran = agentv("validate", *args)
        assert TOKEN not in ran.stdout + ran.stderr
    assert "nowhere/***" in agentv("validate", ".").stdout


def test_commands_about_results_mask_the_variables_of_env_files(write: Write) -> None:
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "mock", "response": TOKEN}]}))
    write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "x"}])])
    agentv("eval", "a.jsonl", "--out", "results.jsonl")
    assert TOKEN in Path("results.jsonl").read_text()
    write("table.csv", f"question,answer\nWhat is it?,{TOKEN}\n")
    write(".env", f"SERVICE_TOKEN={TOKEN}\n")
    for args in (
        ["show", "results.jsonl"],
        ["show", "results.jsonl", "--format", "json"],
        ["export", "results.jsonl", "--to", "csv"],
        ["import", "table.csv", "--out", "-"],
    ):
        ran = agentv(*args)
        assert ran.returncode == 0, ran.stderr
        assert TOKEN not in ran.stdout + ran.stderr, args
        assert "***" in ran.stdout
    Path(".env").write_bytes(b"\xff")
    assert agentv("show", "results.jsonl").returncode == 0


def test_commands_about_results_mask_the_variables_that_the_config_names(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALERTS_WEBHOOK", TOKEN)
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "mock", "response": TOKEN}]}))
    write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "x"}])])
    agentv("eval", "a.jsonl", "--out", "results.jsonl")
    (result,) = results("results.jsonl")
    assert result["candidate_answer"] == TOKEN
    label = {"eval_id": result["eval_id"], "dataset": result["dataset"], "label": "pass", "note": TOKEN}
    write("labels.jsonl", [{**label, "answer_digest": result["answer_digest"]}])
    write("table.csv", f"question,answer\nWhat is it?,{TOKEN}\n")
    write(".agentv/config.yaml", 'secrets: ["*_WEBHOOK"]\n')
    for args in (
        ["show", "results.jsonl"],
        ["show", "results.jsonl", "--format", "json"],
        ["export", "results.jsonl", "--to", "csv"],
        ["import", "table.csv", "--out", "-"],
    ):
        ran = agentv(*args)
        assert ran.returncode == 0, ran.stderr
        assert TOKEN not in ran.stdout + ran.stderr, args
        assert "***" in ran.stdout
    assert agentv("report", "results.jsonl", "--out", "page.html").returncode == 0
    assert TOKEN.encode() not in page_content("page.html")
    ran = agentv("judge", "results.jsonl", "--labels", "labels.jsonl")
    assert TOKEN not in ran.stdout + ran.stderr
    write(".agentv/config.yaml", "secrets: 5\n")
    assert agentv("show", "results.jsonl").returncode == 0
