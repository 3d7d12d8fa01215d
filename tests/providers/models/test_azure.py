"""Models on Azure: their URLs and their settings."""

import json
from typing import Any

import pytest

from agentv.project.validate import check_file
from tests.kits.model_servers import Reply, ask, completion, failing, model_server
from tests.kits.project import Write


@pytest.mark.parametrize(
    ("settings", "deployment", "model", "version"),
    [
        ({}, "mine", "mine", "2024-10-21"),
        ({"version": "2025-01-01-preview"}, "mine", "mine", "2025-01-01-preview"),
        ({"api_version": "2025-04-01"}, "mine", "mine", "2025-04-01"),
        ({"deployment": None, "model": "gpt-5"}, "gpt-5", "gpt-5", "2024-10-21"),
        ({"model": "gpt-5"}, "mine", "gpt-5", "2024-10-21"),
    ],
)
def test_the_deployment_and_the_version_are_in_the_url(
    settings: dict[str, Any], deployment: str, model: str, version: str
) -> None:
    with model_server(lambda _: "Paris") as server:
        assert ask(server.target("azure", **settings)).text == "Paris"
    assert server.requests[0].path == f"/openai/deployments/{deployment}/chat/completions?api-version={version}"
    assert server.asked[0]["model"] == model


def test_an_endpoint_may_end_with_a_slash() -> None:
    with model_server(lambda _: "Paris") as server:
        ask(server.target("azure", endpoint=f"{server.url}/"))
    assert server.requests[0].path.startswith("/openai/deployments/mine/")


@pytest.mark.parametrize(
    ("settings", "problem", "hint"),
    [
        ({}, "target 'a': missing deployment", "set the name of the Azure deployment as 'deployment' or 'model'"),
        (
            {"model": "m", "version": "1", "api_version": "2"},
            "target 'a': api_version: 'version' has a different value",
            "remove one of them",
        ),
    ],
)
def test_invalid_combinations_of_settings(write: Write, settings: dict[str, Any], problem: str, hint: str) -> None:
    target = {"name": "a", "provider": "azure", "endpoint": "https://x.openai.azure.com", **settings}
    (found,) = check_file(write("targets.yaml", json.dumps({"targets": [target]}))).problems
    assert (found.message, found.hint) == (problem, hint)


def test_a_filter_that_stops_an_answer_is_a_refusal() -> None:
    body = completion("How to")
    body["choices"][0]["finish_reason"] = "content_filter"
    with model_server(lambda _: Reply(body=body)) as server:
        error = failing(server.target("azure"))
    assert error.message == "the model refused: a content filter stopped it after 'How to'"


def test_a_blocked_prompt_has_azures_message() -> None:
    body = {"error": {"code": "content_filter", "message": "The prompt triggered the content policy"}}
    with model_server(lambda _: Reply(400, body)) as server:
        error = failing(server.target("azure"))
    assert (error.message, error.may_pass) == ("status 400: The prompt triggered the content policy", False)


@pytest.mark.parametrize("settings", [{"version": "v1"}, {"api_version": "v1"}, {"at": "/openai/v1/"}])
def test_the_v1_api_has_no_dated_version(settings: dict[str, Any]) -> None:
    with model_server(lambda _: "Paris") as server:
        at = settings.pop("at", "")
        assert ask(server.target("azure", endpoint=f"{server.url}{at}", **settings)).text == "Paris"
    assert server.requests[0].path == "/openai/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == "Bearer secret-key-123"
    assert server.asked[0]["model"] == "mine"


def test_the_v1_api_never_gets_the_key_for_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "meant-for-openai")
    with model_server(lambda _: "Paris") as server:
        error = failing(server.target("azure", version="v1", api_key=None))
        assert error.message == (
            "no credentials: set api_key, token_command or AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_TOKEN"
        )
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "meant-for-azure")
        ask(server.target("azure", version="v1", api_key=None))
    assert [asked.headers["authorization"] for asked in server.requests] == ["Bearer meant-for-azure"]
