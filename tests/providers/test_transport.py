"""Connections to targets on the network: no more than are used at once, and through the proxies that are set."""

import asyncio
import json
import os

import pytest

from tests.kits.model_servers import asked, model_server
from tests.kits.project import Write, a_case, agentv

KINDS = ("openai", "azure", "anthropic", "gemini", "http")


@pytest.mark.parametrize("kind", KINDS)
def test_requests_one_after_another_use_one_connection(kind: str) -> None:
    with model_server(lambda _: "fine") as server:
        answers = asyncio.run(asked(server.target(kind), *["again"] * 5))
        assert len(answers) == len(server.asked) == 5
        assert server.connections == 1


@pytest.mark.parametrize("kind", KINDS)
def test_proxies_are_used(kind: str, write: Write) -> None:
    with model_server(lambda _: "fine") as proxy:
        target = proxy.target(kind)
        away = json.loads(json.dumps(target).replace(proxy.url, "http://far.away.invalid"))
        write("targets.yaml", json.dumps({"targets": [away]}))
        write("cases.jsonl", [a_case(evaluators=[{"type": "contains", "value": "fine"}])])
        ran = agentv("eval", "cases.jsonl", env={**os.environ, "http_proxy": proxy.url})
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (request,) = proxy.requests
    assert request.path.startswith("http://far.away.invalid/")
