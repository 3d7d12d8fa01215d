"""Secrets in every setting of every kind of target, echoed in every way, never appear in the output of a run."""

import base64
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

import pytest

from tests.kits.agents import NOTES
from tests.kits.model_servers import VENDORS, Answer, Reply, Says, Server, model_server
from tests.kits.project import Write, a_case, agentv

pytestmark = pytest.mark.slow


FLAGS = ("--dump-prompts", "--dump-traces", "--include-trace", "--cache", "--verbose", "--max-retries", "1")
ODD = "ca'na\"ry\\of/odd+signs&é-"
"""What a key can look like at worst."""
ENV = {"SOME_TOKEN": f"{ODD}token", "PLAIN": f"{ODD}header", "LINES_SECRET": 'canary {\n  "key": "a\\nb-canary"\n}\n'}
KEY, USER, PASSWORD = "canary-api-key-1", "canary-user-1", "canary-pass/word-1"
LITERAL = "canary-literal-1"
USERS = ("", "me:", "you:", "them:")
SECRETS = (*ENV.values(), KEY, USER, PASSWORD, LITERAL)


OTHERS = [
    {
        "name": "other-http",
        "provider": "http",
        "url": f"http://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:1/",
        "headers": {"Authorization": "Bearer ${{ PLAIN }}", "Cookie": f"session={LITERAL}; a=b"},
    },
    {"name": "other-model", "provider": "openai", "model": "m", "api_key": KEY},
]
"""Targets that no case asks; what is secret in them is secret."""


def forms(secret: str) -> Iterator[str]:
    """The secret as it may be found in a file."""
    for plain in (secret, secret.strip()):
        yield plain
        escaped = plain
        for _ in range(3):
            yield from (json.dumps(escaped)[1:-1], json.dumps(escaped, ensure_ascii=False)[1:-1])
            yield from (
                json.dumps(escaped)[1:-1].replace("/", "\\/"),
                repr(escaped)[1:-1],
                repr(escaped.encode())[2:-1],
            )
            escaped = json.dumps(escaped)[1:-1]
        yield from (
            quote(plain),
            quote(plain, safe=""),
            quote_plus(plain),
            re.sub("%..", lambda found: found[0].lower(), quote(plain, safe="")),
        )
        yield plain.encode().decode("latin-1")
        yield from (basic(user, plain) for user in USERS)


def basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}{password}".encode()).decode()


def traces(secret: str) -> Iterator[str]:
    """What must not be found: the forms, and of base64 what does not depend on who stands before the secret."""
    in_base64 = {basic(user, plain) for plain in (secret, secret.strip()) for user in USERS}
    yield from set(forms(secret)) - in_base64
    for plain in (secret, secret.strip()):
        yield from (basic(user, plain).rstrip("=")[len(user) * 4 // 3 + 2 : -2] for user in USERS)


def echoes() -> str:
    """All secrets, in all forms, as one text."""
    return " ".join(form for secret in SECRETS for form in forms(secret))


def leaks(folder: Path, *texts: str) -> list[str]:
    """The files that contain a secret but should not. Files written by the test itself do not count."""
    own = {"targets.yaml", "events", "stand-in", "calls.jsonl"}
    seen = {f"text {number}": text for number, text in enumerate(texts)}
    for path in folder.rglob("*"):
        seen[f"name of {path}"] = path.name
        if path.is_file() and path.name not in own:
            seen[str(path)] = path.read_text()
    return [
        f"{form!r} in {where}" for where, text in seen.items() for s in SECRETS for form in traces(s) if form in text
    ]


def run(
    write: Write, folder: Path, targets: list[dict[str, Any]], code: int, judge: dict[str, Any] | None = None
) -> str:
    """Run a case for each target, and look for secrets in all that this left; what it said."""
    write("targets.yaml", json.dumps({"targets": [*targets, *OTHERS, *([judge] if judge else [])]}))
    checks: list[dict[str, Any]] = [{"type": "contains", "value": "canary"}]
    if judge:
        checks.append({"type": "llm_judge", "prompt": "How good is {{ candidate_answer }}?"})
    names = [target["name"] for target in targets]
    asked = {name: [{"role": "user", "content": f"<{name}>"}] for name in names}
    cases = [a_case(n, execution={"target": n}, evaluators=checks, input_messages=asked[n]) for n in names]
    write("cases.jsonl", cases)
    said = ""
    for form in ("jsonl", "yaml"):
        ran = agentv("eval", "cases.jsonl", *FLAGS, "--output-format", form, env={**os.environ, **ENV})
        assert ran.returncode == code, ran.stdout + ran.stderr
        assert leaks(folder, ran.stdout, ran.stderr) == []
        said += ran.stdout + ran.stderr
    return said + "".join(path.read_text() for path in folder.rglob("*.jsonl") if ".agentv" in path.parts)


def with_secrets(server: Server, kind: str, name: str) -> dict[str, Any]:
    """A target with a secret wherever it can have one."""
    secret = {"initial_delay_ms": 1, "max_delay_ms": 2, "name": name}
    if kind == "http":
        headers = {"Authorization": "Bearer ${{ PLAIN }}", "Cookie": f"session={LITERAL}; a=b"}
        secret |= {"headers": headers}
    else:
        secret |= {"api_key": KEY}
    target = server.target(kind, **secret)
    for field in ("url", "base_url", "endpoint"):
        if field in target:
            parts = urlsplit(target[field])
            target[field] = f"{parts.scheme}://{USER}:{quote(PASSWORD, safe='')}@{parts.netloc}{parts.path}"
    return target


ANSWERS: dict[str, Answer] = {
    "said": Says(text=echoes(), thinking=echoes()),
    "called": Says(text=echoes(), calls=(("tool", {"given": echoes(), echoes(): 1}),)),
    "status": Reply(500, {"error": {"message": echoes()}}, {"X-Echo": quote(echoes()), "Retry-After": "0"}),
    "object": Reply(400, {"error": {"code": {"nested": echoes()}}}),
    "page": Reply(403, echoes().encode()),
    "no-json": Reply(body=echoes().encode()),
    "no-choices": Reply(body={"choices": [], "candidates": [], "content": [], "why": echoes()}),
    "malformed": Reply(body={"choices": [{"message": {echoes(): echoes(), "content": 7}}], "content": echoes()}),
    "refused": Says(refusal=echoes()),
    "cut": Reply(body=echoes().encode(), cut=True),
    "away": Reply(302, b"", {"Location": f"http://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:1/{KEY}"}),
}


def chosen(body: dict[str, Any]) -> Answer:
    """The answer that the question asks for."""
    return next(answer for how, answer in ANSWERS.items() if f"<{how}>" in json.dumps(body))


@pytest.mark.parametrize("kind", [*VENDORS, "http"])
def test_nothing_that_a_server_echoes_is_written(kind: str, write: Write, tmp_path: Path) -> None:
    with model_server(chosen) as server:
        said = run(write, tmp_path, [with_secrets(server, kind, how) for how in ANSWERS], code=1)
        assert len(server.requests) >= len(ANSWERS)
    results = {result["eval_id"]: json.dumps(result) for result in map(json.loads, results_in(said))}
    assert results.keys() == ANSWERS.keys()
    for how in ("said", "called", "status", "object", "page"):
        assert "***" in results[how], how


def results_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith('{"timestamp"')]


@pytest.mark.parametrize("kind", [*VENDORS, "http"])
def test_errors_of_an_unreachable_server_contain_no_secrets(kind: str, write: Write, tmp_path: Path) -> None:
    with socket.socket() as silent:  # it has the port, so that nobody else gets it, and does not listen
        silent.bind(("127.0.0.1", 0))
        server = Server(lambda _: "", 0)
        server.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        target = with_secrets(server, kind, "gone")
        assert "the connection failed" in run(write, tmp_path, [target], code=1)


@pytest.mark.parametrize("how", ["said", "status", "no-json"])
def test_nothing_that_a_judge_echoes(how: str, write: Write, tmp_path: Path) -> None:
    with model_server(lambda _: ANSWERS[how]) as server:
        judge = with_secrets(server, "openai", "judge")
        mock = {"name": "default", "provider": "mock", "response": echoes(), "judge_target": "judge"}
        assert "***" in run(write, tmp_path, [mock], code=1, judge=judge)
        assert server.requests


AGENT_EVENTS: dict[str, list[dict[str, Any]]] = {
    "claude-code": [
        {"type": "system", "subtype": "init", "cwd": echoes(), "model": echoes()},
        {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": echoes()}}]},
        },
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "1", "content": echoes()}]}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": echoes()}]}},
        {"type": "result", "subtype": "success", "is_error": False, "result": echoes()},
    ],
    "codex": [
        {"type": "thread.started", "thread_id": echoes()},
        {
            "type": "item.completed",
            "item": {
                "id": "1",
                "type": "command_execution",
                "command": echoes(),
                "aggregated_output": echoes(),
                "exit_code": 0,
                "status": "completed",
            },
        },
        {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": echoes()}},
        {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    ],
}
ENDS = {"well": "", "loudly": "sys.stderr.write(open(HERE / 'echoes').read())\nsys.exit(3)\n"}


@pytest.mark.parametrize("log_format", ["json", "summary"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", AGENT_EVENTS)
def test_nothing_that_a_coding_agent_says(kind: str, end: str, log_format: str, write: Write, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    project = tmp_path / "project"
    outside.mkdir()
    project.mkdir()
    (outside / "echoes").write_text(echoes())
    (outside / "events").write_text("".join(json.dumps(event) + "\n" for event in AGENT_EVENTS[kind]) + echoes())
    script = outside / "stand-in"
    script.write_text(NOTES.format(python=sys.executable, folder=str(outside)) + f"replay()\n{ENDS[end]}")
    script.chmod(0o755)
    os.chdir(project)
    target = {"name": "agent", "provider": kind, "executable": str(script), "log_format": log_format}
    write_here = lambda name, content: write(f"project/{name}", content)  # noqa: E731
    said = run(
        write_here,
        project,
        [target | {"args": ["--url", f"https://me:{quote(PASSWORD, safe='')}@host/", f"--key={LITERAL}"]}],
        int(end != "well"),
    )
    assert "***" in said
    assert list((project / ".agentv/logs" / kind).iterdir())
