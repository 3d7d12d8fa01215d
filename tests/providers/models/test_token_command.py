"""A command that prints an Entra ID token."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentv.project.validate import check_file
from agentv.providers.models import token_command
from agentv.providers.models.token_command import TokenCommand
from tests.kits.model_servers import Reply, asked, failing, model_server
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import evaluate

COUNTING = "echo x >> runs; echo token-number-$(wc -l < runs | tr -d ' ')"
every_api = pytest.mark.parametrize("settings", [{}, {"version": "v1"}, {"api": "responses"}])


def a_target(server: Any, command: str, **settings: Any) -> dict[str, Any]:
    target = server.target("azure", token_command=command, **settings)
    del target["api_key"]
    return dict(target)


@every_api
def test_the_token_is_sent_and_the_command_run_once(settings: Any, write: Write, monkeypatch: Any) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "not this one")
    with model_server(lambda _: "Paris") as server:
        got = asyncio.run(asked(a_target(server, COUNTING, **settings), "a", "b", "c"))
    assert [each.text for each in got] == ["Paris"] * 3
    assert {sent.headers["authorization"] for sent in server.requests} == {"Bearer token-number-1"}
    assert not any("api-key" in sent.headers for sent in server.requests)


@every_api
def test_a_rejected_token_is_refreshed_once(settings: Any, write: Write) -> None:
    def answer(_: Any) -> Any:
        is_old = server.requests[-1].headers["authorization"] == "Bearer token-number-1" and len(server.requests) > 1
        return Reply(401, {"error": {"message": "the token has expired"}}) if is_old else "Paris"

    with model_server(answer) as server:
        got = asyncio.run(asked(a_target(server, COUNTING, **settings), "a", "b"))
    assert [each.text for each in got] == ["Paris", "Paris"]
    tokens = [sent.headers["authorization"].rpartition("-")[2] for sent in server.requests]
    assert tokens == ["1", "1", "2"]


def test_a_rejected_fresh_token_is_an_error(write: Write) -> None:
    with model_server(lambda _: 401) as server:
        error = failing(a_target(server, COUNTING))
    assert (error.message, error.status) == ("status 401: no luck", 401)
    assert len(server.requests) == 1


def test_an_old_token_is_refreshed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write("x", "").parent
    command = TokenCommand(COUNTING, folder)

    async def twice() -> list[str]:
        first = await command.token()
        monkeypatch.setattr(token_command, "LIFETIME", -1.0)
        command.forget(first)
        return [first, *[await command.token() for _ in range(2)]]

    assert asyncio.run(twice()) == ["token-number-1", "token-number-2", "token-number-3"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo no login >&2; exit 3", "token_command: the command failed with exit code 3: no login"),
        ("echo half-a-secret-token; exit 1", "token_command: the command failed with exit code 1, without any output"),
        ("no-such-program-at-all", "token_command: the command failed with exit code 127"),
        ("true", "token_command: the command printed nothing"),
        ("echo a b c-secret-token", "token_command: the command printed 3 words instead of a token"),
    ],
)
def test_a_command_without_a_token(command: str, words: str) -> None:
    with model_server(lambda _: "Paris") as server:
        error = failing(a_target(server, command))
    assert error.message.startswith(words)
    assert "secret-token" not in error.message
    assert server.requests == []


def test_a_command_that_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_command, "SECONDS", 0.2)
    with model_server(lambda _: "Paris") as server:
        error = failing(a_target(server, "sleep 60"))
    assert error.message == "token_command: the command timed out after 0.2 s"


def test_the_token_is_masked_everywhere(write: Write) -> None:
    with model_server(lambda _: "the token is very-secret-token-77") as server:
        write("targets.yaml", json.dumps({"targets": [a_target(server, "cat token.txt")]}))
        write("token.txt", "very-secret-token-77\n")
        write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "token"}])])
        ran = evaluate("a.jsonl", "--out", "out.jsonl", "--include-trace")
    assert server.requests[0].headers["authorization"] == "Bearer very-secret-token-77"
    written = Path("out.jsonl").read_text() + ran.stdout + ran.stderr
    assert "very-secret-token-77" not in written
    assert "the token is ***" in written


def test_a_key_and_a_command_cannot_be_combined(write: Write) -> None:
    target = {
        "name": "a",
        "provider": "azure",
        "endpoint": "https://x",
        "model": "m",
        "api_key": "k",
        "token_command": "x",
    }
    (found,) = check_file(write("targets.yaml", json.dumps({"targets": [target]}))).problems
    assert (found.message, found.hint) == (
        "target 'a': token_command: 'api_key' is set as well",
        "remove one of them",
    )


@pytest.mark.parametrize("version", ["v1", "2024-10-21"])
def test_doctor_accepts_a_command_instead_of_a_key(version: str, write: Write) -> None:
    with model_server(lambda _: "Paris") as server:
        write("targets.yaml", json.dumps({"targets": [a_target(server, "exit 1", version=version)]}))
        ran = agentv("doctor")
    assert "no api_key is set" not in ran.stdout + ran.stderr
    assert server.requests == []
