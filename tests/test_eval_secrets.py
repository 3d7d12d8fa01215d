"""No secret reaches anything that a run writes or shows."""

import base64
import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from agentv.redact import Redactor, secrets_in, secrets_in_url
from tests.conftest import Write, a_case, agentv

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


def test_canaries_are_nowhere(write: Write) -> None:
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
def test_secrets_are_known_by_the_names_of_variables(name: str) -> None:
    assert secrets_in({name: "12345678", "HOME": "/home/user"}) == ["12345678"]


def test_short_values_are_no_secrets() -> None:
    assert Redactor(["short12", "long-enough"])("short12 long-enough") == "short12 ***"


def test_a_longer_secret_is_masked_before_a_part_of_it() -> None:
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
