"""The common behavior of language models, through each vendor's SDK against a loopback server."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

import pytest

from agentv.errors import ConfigError
from agentv.files.conversion import convert
from agentv.providers import settings_type, transport
from agentv.providers.network import parse_retry_after
from agentv.records import Message, TokenUsage, ToolCall
from tests.kits.model_servers import (
    RESPONSES,
    VENDORS,
    Answer,
    Reply,
    Says,
    a_request,
    ask,
    asked,
    completion,
    failing,
    model_server,
    nobody_there,
)
from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import Write, a_case, agentv, agentv_process
from tests.kits.runs import evaluate, results

every_vendor = pytest.mark.parametrize("vendor", (*VENDORS, *RESPONSES))
every_target = pytest.mark.parametrize("vendor", (*VENDORS, *RESPONSES, "http"))


@every_vendor
def test_an_answer_with_its_tokens_and_its_time(vendor: str) -> None:
    with model_server(lambda _: "Paris") as server:
        got = ask(server.target(vendor))
    assert got.text == "Paris"
    assert got.output_messages == (Message(role="assistant", content="Paris"),)
    assert got.token_usage is not None
    assert (got.token_usage.input, got.token_usage.output) == (11, 7)
    assert got.duration_ms is not None
    assert got.duration_ms > 0
    assert got.cost_usd is None


@every_vendor
def test_cached_tokens_are_part_of_the_input_and_have_their_own_price(vendor: str) -> None:
    with model_server(lambda _: Says("Paris", cached=10)) as server:
        got = ask(server.target(vendor, pricing={"input": 3, "output": 15, "cached": 0.3}))
    assert got.token_usage == TokenUsage(input=11, output=7, cached=10)
    assert got.cost_usd == pytest.approx((1 * 3 + 10 * 0.3 + 7 * 15) / 1_000_000)


@every_vendor
def test_reasoning_tokens_are_part_of_the_output(vendor: str) -> None:
    with model_server(lambda _: Says("Paris", reasoning=5)) as server:
        got = ask(server.target(vendor, pricing={"input": 1, "output": 2}))
    assert got.token_usage is not None
    assert (got.token_usage.output, got.token_usage.reasoning) == (7, 5)
    assert got.cost_usd == pytest.approx((11 * 1 + 7 * 2) / 1_000_000)


@every_vendor
def test_tool_calls_and_reasoning_become_messages(vendor: str) -> None:
    said = Says("Let me see.", calls=(("search", {"q": "France"}), ("read", {"page": 1})), thinking="Hm, a capital.")
    with model_server(lambda _: said) as server:
        got = ask(server.target(vendor))
    calls = (
        ToolCall(tool="search", input={"q": "France"}, id="id-search"),
        ToolCall(tool="read", input={"page": 1}, id="id-read"),
    )
    assert got.text == "Let me see."
    assert got.output_messages == (
        Message(role="assistant", name="reasoning", content="Hm, a capital."),
        Message(role="assistant", content="Let me see.", tool_calls=calls),
    )


@every_vendor
def test_a_tool_call_without_text_is_an_answer(vendor: str) -> None:
    with model_server(lambda _: Says(calls=(("search", {"q": "France"}),))) as server:
        got = ask(server.target(vendor))
    assert got.text == ""
    assert got.output_messages is not None
    assert [message.content for message in got.output_messages] == [None]


@every_vendor
def test_a_refusal_is_an_error_with_the_vendors_message(vendor: str) -> None:
    with model_server(lambda _: Says(refusal="I must not help with that")) as server:
        error = failing(server.target(vendor))
    refused = (
        "the model stopped early: SAFETY" if vendor == "gemini" else "the model refused: I must not help with that"
    )
    assert error.message.startswith(refused)
    assert not error.may_pass


@every_vendor
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_answer_is_an_error_with_its_stop_reason(vendor: str, text: str) -> None:
    with model_server(lambda _: Says(text)) as server:
        error = failing(server.target(vendor))
    reason = {"anthropic": "end_turn", "gemini": "STOP", **dict.fromkeys(RESPONSES, "completed")}.get(vendor, "stop")
    assert error.message == f"the model returned an empty answer (stop reason: {reason})"


@every_vendor
def test_no_choices_at_all(vendor: str) -> None:
    body: dict[str, Any] = {"choices": [], "candidates": [], "content": [], "output": []}
    with model_server(lambda _: Reply(body=body)) as server:
        error = failing(server.target(vendor))
    assert error.message.startswith(
        "the model returned an empty answer" if vendor == "anthropic" else "the model returned no answer: its list of "
    )


@every_vendor
@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [{"message": {"cont',
        b"<html>Welcome to the hotel</html>",
        b"",
        {"choices": "none", "candidates": "none", "content": "none", "output": "none"},
        {"choices": [{"message": 7}], "candidates": [7], "content": [7], "output": [7]},
        ["Paris"],
    ],
)
def test_a_malformed_answer_is_an_error_for_the_case(vendor: str, body: Any) -> None:
    with model_server(lambda _: Reply(body=body)) as server:
        error = failing(server.target(vendor))
    assert error.message.startswith(
        ("the model's answer is", "the model returned no answer", "the model returned an empty answer")
    )
    assert not error.may_pass


@every_target
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_temporary_statuses_are_retried(vendor: str, status: int) -> None:
    with model_server(lambda _: status) as server:
        error = failing(server.target(vendor))
    assert (error.may_pass, error.status, error.retry_after) == (True, status, None)
    assert error.message == f"status {status}: no luck"
    assert len(server.asked) == 1


@every_target
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 501])
def test_permanent_statuses_are_not_retried(vendor: str, status: int) -> None:
    with model_server(lambda _: status) as server:
        error = failing(server.target(vendor))
    assert (error.may_pass, error.status) == (False, status)
    assert len(server.asked) == 1


@every_target
def test_retried_statuses_can_be_configured(vendor: str) -> None:
    with model_server(lambda _: 401) as server:
        assert failing(server.target(vendor, retryable_status_codes=[401])).may_pass
    with model_server(lambda _: 429) as server:
        assert not failing(server.target(vendor, retryable_status_codes=[401])).may_pass
        assert not failing(server.target(vendor, retryable_status_codes=[])).may_pass


@every_target
def test_the_retry_delay_of_a_server_is_respected(vendor: str) -> None:
    with model_server(lambda _: Reply(429, {"message": "slow down"}, {"Retry-After": "7"})) as server:
        error = failing(server.target(vendor))
    assert (error.may_pass, error.retry_after, error.message) == (True, 7.0, "status 429: slow down")


def test_the_forms_of_retry_after() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert parse_retry_after({"retry-after": "1.5"}) == 1.5
    assert parse_retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert parse_retry_after({"retry-after-ms": "soon", "retry-after": "9"}) == 9.0
    assert 3500 < (parse_retry_after({"retry-after": later}) or 0) <= 3600
    assert parse_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    for odd in ({}, {"retry-after": "soon"}, {"retry-after": "nan"}, {"retry-after": "-5"}, {"retry-after": ""}):
        assert parse_retry_after(odd) is None


@every_target
def test_a_status_without_json(vendor: str) -> None:
    with model_server(lambda _: Reply(502, b"<html>\n  Bad gateway\n</html>")) as server:
        assert failing(server.target(vendor)).message == "status 502: <html> Bad gateway </html>"
    with model_server(lambda _: Reply(503)) as server:
        assert failing(server.target(vendor)).message == "status 503: no reason given"


@every_target
def test_a_dropped_connection_is_a_temporary_error(vendor: str) -> None:
    with model_server(lambda _: Reply(body=b'{"choices": [', cut=True)) as server:
        error = failing(server.target(vendor))
    assert error.message.startswith("the connection failed: ")
    assert (error.may_pass, error.status) == (True, None)
    assert len(server.asked) == 1


@every_target
def test_a_refused_connection_is_a_temporary_error(vendor: str) -> None:
    with nobody_there() as server:
        error = failing(server.target(vendor))
    assert error.message.startswith("the connection failed: ")
    assert error.may_pass


@pytest.mark.parametrize("vendor", ["openai", "azure", "anthropic"])
def test_an_invalid_address_is_a_permanent_error(vendor: str) -> None:
    with model_server(lambda _: "Paris") as server:
        setting = "endpoint" if vendor == "azure" else "base_url"
        error = failing(server.target(vendor, **{setting: "my-resource"}))
    assert error.message.startswith("the connection failed: Request URL is missing an 'http://'")
    assert not error.may_pass


def test_a_package_that_is_broken_stops_the_run(write: Write) -> None:
    write("openai/__init__.py", "import nothing_of_that_name")
    with model_server(lambda _: "Paris") as server:
        write("targets.yaml", json.dumps({"targets": [server.target("openai")]}))
    write("a.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": "Paris"}])])
    ran = agentv_process("eval", "a.jsonl", env={**os.environ, "PYTHONPATH": "."})
    assert ran.returncode == 2
    assert "the 'openai' package cannot be imported: ModuleNotFoundError: No module named 'nothing_of" in ran.stderr
    assert "pip install --upgrade 'openai>=1.60'" in ran.stderr
    assert "Traceback" not in ran.stderr


@every_target
def test_a_cancelled_call_can_be_repeated(vendor: str) -> None:
    """An SDK must not mind being cancelled in the middle of a request."""
    late = threading.Event()

    def answer(_: Any) -> str:
        if len(server.asked) == 1:
            late.wait(PATIENCE_SECONDS)
        return "Paris"

    async def impatient(target: dict[str, Any]) -> str:
        settings: Any = convert(target, settings_type(target["provider"]))
        async with settings.open(None) as provider:
            waiting = asyncio.ensure_future(provider.invoke(a_request()))
            while not server.asked:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            late.set()
            return str((await provider.invoke(a_request())).text)

    with model_server(answer) as server:
        assert asyncio.run(impatient(server.target(vendor))) == "Paris"


@every_target
def test_fifty_workers_share_the_connections_of_one_client(
    vendor: str,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # on a slow machine a connection may be idle for longer than usual
    monkeypatch.setattr(transport, "KEEPALIVE_SECONDS", PATIENCE_SECONDS)
    together = threading.Barrier(50)

    def answer(_: Any) -> str:
        together.wait(PATIENCE_SECONDS)
        return "Paris"

    with model_server(answer) as server:
        write("targets.yaml", json.dumps({"targets": [server.target(vendor, workers=50)]}))
        write("a.jsonl", [a_case(f"c{n}", evaluators=[{"type": "contains", "value": "Paris"}]) for n in range(100)])
        evaluate("a.jsonl", "--out", "out.jsonl")
    assert [result["score"] for result in results("out.jsonl")] == [1.0] * 100
    assert server.connections == 50


CONVERSATION = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Capital of France?"),
    Message(role="assistant", tool_calls=(ToolCall(tool="search", input={"q": "France"}),)),
    Message(role="tool", content='{"found": "Paris"}'),
    Message(role="assistant", content="Paris", tool_calls=(ToolCall(tool="read", id="r1", output=[1, 2]),)),
    Message(role="user", content="Sure?"),
)


def test_a_conversation_for_openai_and_azure() -> None:
    for vendor in ("openai", "azure"):
        with model_server(lambda _: "Yes") as server:
            ask(server.target(vendor, system_prompt="Think."), a_request("all of it", *CONVERSATION))
        search = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q":"France"}'}}
        read = {"id": "r1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        assert server.asked[0]["messages"] == [
            {"role": "system", "content": "Think."},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Capital of France?"},
            {"role": "assistant", "content": None, "tool_calls": [search]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"found": "Paris"}'},
            {"role": "assistant", "content": "Paris", "tool_calls": [read]},
            {"role": "tool", "tool_call_id": "r1", "content": "[1,2]"},
            {"role": "user", "content": "Sure?"},
        ]


def test_a_conversation_for_anthropic() -> None:
    with model_server(lambda _: "Yes") as server:
        ask(server.target("anthropic", system_prompt="Think."), a_request("all of it", *CONVERSATION))
    (sent,) = server.asked
    assert sent["system"] == "Think.\n\nBe brief."
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Capital of France?"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_1", "name": "search", "input": {"q": "France"}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": '{"found": "Paris"}'}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Paris"},
                {"type": "tool_use", "id": "r1", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "r1", "content": "[1,2]"},
                {"type": "text", "text": "Sure?"},
            ],
        },
    ]


def test_a_conversation_for_gemini() -> None:
    with model_server(lambda _: "Yes") as server:
        ask(server.target("gemini", system_prompt="Think."), a_request("all of it", *CONVERSATION))
    (sent,) = server.asked
    assert [part["text"] for part in sent["systemInstruction"]["parts"]] == ["Think.\n\nBe brief."]
    unsigned = {"thoughtSignature": "skip_thought_signature_validator"}
    assert sent["contents"] == [
        {"role": "user", "parts": [{"text": "Capital of France?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "search", "args": {"q": "France"}}, **unsigned}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "search", "response": {"found": "Paris"}}}]},
        {"role": "model", "parts": [{"text": "Paris"}, {"functionCall": {"name": "read", "args": {}}, **unsigned}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "read", "response": {"output": [1, 2]}}}, {"text": "Sure?"}],
        },
    ]


@every_vendor
def test_a_system_message_alone_is_sent(vendor: str) -> None:
    with model_server(lambda _: "Yes") as server:
        ask(server.target(vendor), a_request("Say yes.", Message(role="system", content="Say yes.")))
    assert json.dumps(server.asked[0]).count("Say yes.") == 1


@every_vendor
def test_a_tool_result_without_a_call_is_sent(vendor: str) -> None:
    with model_server(lambda _: "Yes") as server:
        turns = Message(role="user", content="Hi"), Message(role="tool", content="It rains.")
        ask(server.target(vendor), a_request("Hi", *turns))
    assert "@[Tool]:\\nIt rains." in json.dumps(server.asked[0])


@every_vendor
def test_what_is_not_set_is_not_sent(vendor: str) -> None:
    with model_server(lambda _: "Yes") as server:
        ask(server.target(vendor))
    sent = {name for name, value in server.asked[0].items() if value}
    needed = {
        "anthropic": {"model", "messages", "max_tokens"},
        "gemini": {"contents"},
        **{key: {"model", "input"} for key in RESPONSES},
    }
    assert sent == needed.get(vendor, {"model", "messages"})


@every_vendor
def test_what_is_set_is_sent(vendor: str) -> None:
    options = {"top_p": 0.5} if vendor != "gemini" else {"topP": 0.5}
    with model_server(lambda _: "Yes") as server:
        ask(server.target(vendor, temperature=0, max_output_tokens=99, options={**options, "new": {"x": 1}}))
    sent = server.asked[0]
    if vendor == "gemini":
        assert sent["generationConfig"] == {"temperature": 0, "maxOutputTokens": 99, "topP": 0.5}
    else:
        limits = {"anthropic": "max_tokens", **dict.fromkeys(RESPONSES, "max_output_tokens")}
        limit = limits.get(vendor, "max_completion_tokens")
        assert (sent["temperature"], sent[limit], sent["top_p"]) == (0, 99, 0.5)
    assert sent["new"] == {"x": 1}


@every_vendor
def test_the_key_is_sent_as_the_vendor_expects_and_in_no_error(vendor: str) -> None:
    with model_server(lambda body: 401) as server:
        error = failing(server.target(vendor))
    headers = server.requests[0].headers
    names = {"azure": "api-key", "gemini": "x-goog-api-key", "anthropic": "x-api-key"}
    sent = headers.get(names.get(vendor, "")) or headers["authorization"]  # Anthropic's SDK has it here since 2.0
    assert sent.removeprefix("Bearer ") == "secret-key-123"
    assert "secret-key-123" not in error.message


@pytest.mark.parametrize(
    ("vendor", "variable"),
    [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY"), ("gemini", "GEMINI_API_KEY")],
)
def test_a_custom_server_never_receives_the_vendors_key(
    vendor: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "meant-for-the-vendor")
    with model_server(lambda _: "Yes") as server:
        ask(server.target(vendor, api_key=None))
    assert "meant-for-the-vendor" not in str(server.requests)


@pytest.mark.parametrize("vendor", ["openai", "azure", "gemini"])
def test_a_missing_key_is_explained(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with model_server(lambda _: "Yes") as server:
        error = failing(
            {**server.target(vendor), "api_key": None, "base_url": None}
            if vendor != "azure"
            else server.target(vendor, api_key=None)
        )
    assert "key" in error.message.lower()
    assert server.asked == []


PACKAGES = [
    ("openai", "openai"),
    ("azure", "openai"),
    ("anthropic", "anthropic"),
    ("gemini", "google.genai"),
    ("http", "httpx2"),
]


@pytest.mark.parametrize(("vendor", "package"), PACKAGES)
def test_a_missing_package_stops_the_run_and_names_the_command(
    vendor: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest))
    with model_server(lambda _: "Yes") as server:
        settings: Any = convert(server.target(vendor), settings_type(vendor))
        with pytest.raises(ConfigError) as failed:
            settings.open(None)
    extra = "openai" if vendor == "azure" else vendor
    assert failed.value.message == f"this target requires the {package!r} package"
    assert failed.value.hint == f"pip install {INSTALLED[extra]}"  # agentv itself is in no package index


INSTALLED = {
    "openai": "'openai>=1.60'",
    "anthropic": "'anthropic>=1.0'",
    "gemini": "'google-genai>=3.0' 'httpx2>=2.0'",
    "http": "'httpx2>=2.0'",
}
SDKS = {package for _, package in PACKAGES}


@pytest.mark.parametrize(("vendor", "package"), PACKAGES)
@pytest.mark.slow
def test_only_the_packages_of_called_targets_are_imported(vendor: str, package: str, write: Write) -> None:
    """Validating imports none of them, and so does a run that asks others."""
    with model_server(lambda _: "Paris") as server:
        targets = [server.target(kind, name=kind) for kind, _ in PACKAGES]
        write("targets.yaml", json.dumps({"targets": [*targets, {"name": "default", "provider": "mock"}]}))
        write("a.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": "Paris"}])])
        run = ["eval", "a.jsonl", "--quiet", "--out", "out.jsonl"]
        for args, expected in (
            (["validate", "targets.yaml", "a.jsonl"], set()),
            (run, set()),
            ([*run, "--target", vendor], {package}),
        ):
            loaded = loaded_by(args)
            assert loaded - {"httpx2"} == expected - {"httpx2"}
            assert ("httpx2" in loaded) is bool(expected)  # which all of them have


def loaded_by(args: list[str]) -> set[str]:
    """The packages that a command has imported by its end."""
    code = f"""
import sys
from agentv.cli import run
sys.argv = ["agentv", *{args!r}]
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
print("LOADED", *sys.modules.keys() & {SDKS!r})
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.rpartition("LOADED")[2].split())


@every_vendor
def test_a_run_through_the_command_line(vendor: str, write: Write) -> None:
    said = Says("Paris", calls=(("search", {"q": "France"}),), thinking="Hm.", cached=4)
    with model_server(lambda _: said) as server:
        target = server.target(vendor, api_key="${{ THE_KEY }}", pricing={"input": 1, "output": 1})
        write("targets.yaml", json.dumps({"targets": [target]}))
        write(".env", "THE_KEY=secret-key-456\n")
        expected = [{"tool": "search", "args": {"q": "France"}}]
        checks = [
            {"type": "contains", "value": "Paris"},
            {"type": "tool_trajectory", "mode": "exact", "expected": expected},
        ]
        write("a.jsonl", [a_case("a", evaluators=checks)])
        evaluate("a.jsonl", "--out", "out.jsonl")
    (result,) = results("out.jsonl")
    assert (result["score"], result["candidate_answer"]) == (1.0, "Paris")
    assert result["trace_summary"]["toolCallsByName"] == {"search": 1}
    metrics = result["execution_metrics"]
    assert metrics["token_usage"] == {"input": 11, "output": 7, "cached": 4}
    assert metrics["cost_usd"] == pytest.approx(18e-6)
    assert metrics["duration_ms"] > 0
    assert "secret-key-456" in str(server.requests[0].headers)


@every_target
def test_one_client_serves_many_calls(vendor: str) -> None:
    with model_server(lambda _: "Paris") as server:
        got = asyncio.run(asked(server.target(vendor), *["Capital of France?"] * 5))
    assert [answer.text for answer in got] == ["Paris"] * 5
    assert server.connections == 1


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
def test_a_system_message_alone_is_sent_whole_and_once(write: Write, vendor: str) -> None:
    """These vendors require a user message. The system message must not be lost."""
    write("rules.instructions.md", "Answer in French.")
    blocks = [{"type": "text", "value": "Say hi."}, {"type": "file", "value": "rules.instructions.md"}]
    write("a.jsonl", [a_case("a", input_messages=[{"role": "system", "content": blocks}])])
    write("a.yaml", "evaluators: [{type: contains, value: Paris}]\n")
    with model_server(lambda _: "Paris") as server:
        write("targets.yaml", json.dumps({"targets": [server.target(vendor)]}))
        assert agentv("eval", "a.jsonl", "--out", "out.jsonl").returncode == 0
        sent = json.dumps(server.asked[0])
    assert (sent.count("Say hi."), sent.count("Answer in French.")) == (1, 1)


def test_a_server_without_schema_support_can_judge(write: Write) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if "response_format" in body:
            return Reply(400, {"error": {"message": "This response_format type is unavailable now"}})
        return '{"score": 0.9}'

    with model_server(answer) as server:
        judge = server.target("openai") | {"name": "judge"}
        mock = {"name": "default", "provider": "mock", "response": "Paris", "judge_target": "judge"}
        write("targets.yaml", json.dumps({"targets": [mock, judge]}))
        write("a.jsonl", [a_case("a"), a_case("b")])
        assert agentv("eval", "a.jsonl", "--out", "out.jsonl").returncode == 0
        assert len(server.asked) == 3  # it is not asked for the impossible twice
    assert [result["score"] for result in results("out.jsonl")] == [0.9, 0.9]


def test_an_unpaired_surrogate_does_not_lose_an_answer(write: Write) -> None:
    body = b'{"choices": [{"message": {"role": "assistant", "content": "Paris \\ud83d"}}]}'
    with model_server(lambda _: Reply(200, body)) as server:
        write("targets.yaml", json.dumps({"targets": [server.target("openai")]}))
        write("a.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": "Paris"}])])
        assert agentv("eval", "a.jsonl", "--out", "out.jsonl").returncode == 0
    assert results("out.jsonl")[0]["candidate_answer"] == "Paris ?"


STOPPED = {
    "openai": {
        "stop": "stop", "length": "length", "max_tokens": "length", "MAX_TOKENS": "length",
        "function_call": "tool_calls", "eos": "other",
    },
    "azure": {"stop": "stop", "length": "length", "tool_calls": "tool_calls"},
    "anthropic": {
        "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "model_context_window_exceeded": "length",
        "tool_use": "tool_calls", "pause_turn": "other",
    },
    "gemini": {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "other"},
    **{key: {"": "stop", "max_output_tokens": "length", "max_messages": "other"} for key in RESPONSES},
}  # fmt: skip


def answer_that_stopped(vendor: str, reason: str, _asked: object = None) -> Answer:
    if vendor == "anthropic":
        return {"content": [{"type": "text", "text": "Par"}], "stop_reason": reason}
    if vendor == "gemini":
        return {"candidates": [{"content": {"role": "model", "parts": [{"text": "Par"}]}, "finishReason": reason}]}
    if vendor in RESPONSES:
        return Says("Par", stop=reason)
    body = completion("Par")
    body["choices"][0]["finish_reason"] = reason
    return Reply(200, body)


@every_vendor
def test_why_a_model_stopped_has_the_same_name_everywhere(vendor: str) -> None:
    for reason, expected in STOPPED[vendor].items():
        with model_server(partial(answer_that_stopped, vendor, reason)) as server:
            assert ask(server.target(vendor)).stop_reason == expected, reason
    with model_server(lambda _: Says(None, calls=(("search", {}),))) as server:
        assert ask(server.target(vendor)).stop_reason == "tool_calls"


@every_vendor
def test_an_answer_that_was_cut_off_has_a_note(vendor: str, write: Write) -> None:
    reason = next(word for word, ours in STOPPED[vendor].items() if ours == "length")
    with model_server(lambda _: answer_that_stopped(vendor, reason)) as server:
        write("targets.yaml", json.dumps({"targets": [{"name": "default", **server.target(vendor)}]}))
        path = write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "Par"}])])
        ran = evaluate(path, "--out", "o.jsonl")
    assert "  1 answer was cut off at the token limit\n" in ran.stdout
    (result,) = results("o.jsonl")
    assert (result["stop_reason"], result["note"]) == ("length", "the answer was cut off at the token limit")
