"""Spans of instrumented agents become the traces of their cases: real SDKs, as commands, servers and functions."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentv import evaluate as evaluate_in_python
from agentv.errors import ConfigError
from agentv.telemetry import collector
from tests.kits.agents import Agents
from tests.kits.otel import COMMAND, FUNCTION, POST, SERVER, command_project, traced_case
from tests.kits.processes import start_process
from tests.kits.project import Write, agentv, agentv_process, flat
from tests.kits.runs import evaluate, results

COLLECT = ("--collect-traces", "--include-trace", "--out", "out.jsonl")


def run(path: Path, *args: str, expect: int = 0) -> list[dict[str, Any]]:
    evaluate(path, *COLLECT, *args, expect=expect)
    return results("out.jsonl")


def run_apart(path: Path, *args: str) -> list[dict[str, Any]]:
    """The results of a run in a separate process: functions set OpenTelemetry's global provider, once per process."""
    ran = agentv_process("eval", path, *COLLECT, *args)
    assert ran.returncode == 0, ran.stderr
    return results("out.jsonl")


def tools(result: dict[str, Any]) -> list[str]:
    return [event["name"] for event in result["trace"] if event["type"] == "tool_call"]


@pytest.mark.parametrize("words", ["genai", "openinference", "genai --own-root"])
def test_an_instrumented_command(write: Write, words: str) -> None:
    (result,) = run(command_project(write, traced_case("one"), words=words))
    assert result["score"] == 1.0, result
    assert [event["type"] for event in result["trace"]][-3:] == ["model_step", "tool_call", "tool_call"]
    call = result["trace"][-2]
    assert (call["name"], call["input"], call["output"]) == ("find", {"about": "about one"}, "find done")
    assert call["metadata"]["duration_ms"] >= 2
    assert call["timestamp"] < result["trace"][-1]["timestamp"]
    assert result["execution_metrics"]["token_usage"]["input"] == 11
    assert "trace_complete" not in result
    assert len(result["trace_id"]) == 32
    if "genai" in words:
        assert call["metadata"]["agent"] == "guide"


def test_without_the_option_nothing_is_collected_and_nothing_is_set(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRACEPARENT", "OTEL_EXPORTER_OTLP_ENDPOINT"):  # somebody may trace these tests
        monkeypatch.delenv(name, raising=False)
    agent = "import os\nprint('hello', 'TRACEPARENT' in os.environ, 'OTEL_EXPORTER_OTLP_ENDPOINT' in os.environ)\n"
    path = command_project(write, traced_case("one"), agent=agent)
    evaluate(path, "--out", "out.jsonl")
    (result,) = results("out.jsonl")
    assert result["candidate_answer"] == "hello False False\n"
    assert "trace_id" not in result


def test_the_variables_of_a_command(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = """
import json, os
names = ("ENDPOINT", "PROTOCOL", "TRACES_ENDPOINT", "LOGS_PROTOCOL")
print(json.dumps([os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") for name in names]))
print(os.environ["TRACEPARENT"])
print(os.environ["OTEL_RESOURCE_ATTRIBUTES"])
"""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=red")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://elsewhere/v1/traces")
    path = command_project(write, traced_case("a, b=c"), traced_case("two"), agent=agent)
    first, second = (result["candidate_answer"].splitlines() for result in run(path, "--collect-grace", "0"))
    endpoint, protocol, *others = json.loads(first[0])
    assert (protocol, others) == ("http/protobuf", [None, None])
    host, token = endpoint.rsplit("/", 1)
    assert host.startswith("http://127.0.0.1:")
    assert len(token) >= 20
    version, trace_id, span_id, flags = first[1].split("-")
    assert (version, len(trace_id), len(span_id), flags) == ("00", 32, 16, "01")
    assert first[2] == "team=red,test.suite.name=cases,test.case.id=a%2C%20b%3Dc"
    assert json.loads(second[0])[0] != endpoint
    assert second[1] != first[1]


def test_neither_a_proxy_nor_a_sampler_keeps_spans_from_the_collector(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    found = run(command_project(write, traced_case("one"), traced_case("x" * 200_000, "two")))
    assert [result["score"] for result in found] == [1.0, 1.0]


@pytest.mark.parametrize("provider", ["claude-code", "codex", "vscode"])
def test_coding_agents_receive_the_variables(write: Write, provider: str) -> None:
    note = 'open(HERE / "told", "a").write(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + " " + os.environ["TRACEPARENT"])'
    Agents(write, provider).does(f"{note}\nsys.exit(3)\n").run(*COLLECT[:2], "--collect-grace", "0", expect=1)
    endpoint, traceparent = Path("told").read_text().split()
    assert endpoint.startswith("http://127.0.0.1:")
    assert traceparent.split("-")[1] == results("out.jsonl")[0]["trace_id"]


def test_functions_see_the_span_of_the_case_and_need_no_exporter(write: Write) -> None:
    write("agent.py", FUNCTION)
    entries = [
        {"name": "default", "provider": "python", "function": "agent.py:answer"},
        {"name": "threaded", "provider": "python", "function": "agent.py:answer_in_thread"},
    ]
    write("targets.yaml", json.dumps({"targets": entries}))
    path = write("cases.jsonl", [traced_case(f"c{number}") for number in range(20)])
    for target in ("default", "threaded"):
        found = run_apart(path, "--target", target, "--workers", "10")
        assert [result["score"] for result in found] == [1.0] * 20
        assert {tuple(tools(result)) for result in found} == {("find", "book")}


def test_a_function_without_the_api_of_opentelemetry(write: Write) -> None:
    write("agent.py", "def answer(question):\n    return 'hello'\n")
    write(
        "targets.yaml",
        json.dumps({"targets": [{"name": "default", "provider": "python", "function": "agent.py:answer"}]}),
    )
    write("opentelemetry/__init__.py", "raise ImportError('not here')\n")
    path = write("cases.jsonl", [traced_case("one")])
    (result,) = run(path, "--collect-grace", "0")
    assert result["candidate_answer"] == "hello"
    assert result["misses"] == ["No trace available for evaluation"]


@contextmanager
def server(*args: str) -> Iterator[str]:
    process = start_process([sys.executable, "server.py", *args], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def free_port() -> Iterator[str]:
    """A port that is reserved: it is bound here, but nothing listens on it yet."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", 0))
        yield str(found.getsockname()[1])


PATIENT = ("--collect-grace", "60")
"""The wait ends with the last span, however slow a machine is."""


def test_a_server_with_one_exporter_for_all_requests(write: Write) -> None:
    write("server.py", SERVER)
    path = write("cases.jsonl", [traced_case(f"c{number}") for number in range(20)])
    with free_port() as port, server(port) as url:
        write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "http", "url": url}]}))
        found = run(path, "--workers", "10", "--collect-port", port, *PATIENT)
    assert [result["score"] for result in found] == [1.0] * 20


def test_a_server_that_sends_to_the_endpoint_of_each_request(write: Write) -> None:
    own = """        own = TracerProvider()
        own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint + "/v1/traces")))
        global tracer
        tracer = own.get_tracer("agent")
        answer = genai"""
    late = """        if "x-early" in self.headers:
            own.shutdown()
        self.send_response"""
    source = SERVER.replace("        answer = genai", own).replace("        self.send_response", late)
    write("server.py", source.replace("wfile.write(answer)", "wfile.write(answer); own.shutdown()"))
    path = write("cases.jsonl", [traced_case("one"), traced_case("two")])
    with server() as url:
        headers = {"Traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01", "X-Early": "yes"}
        entries = [
            {"name": "default", "provider": "http", "url": url},
            {"name": "own", "provider": "http", "url": url, "headers": headers},
        ]
        write("targets.yaml", json.dumps({"targets": entries}))
        assert [result["score"] for result in run(path, *PATIENT)] == [1.0, 1.0]
        found = run(path, "--target", "own", "--collect-grace", "0", expect=1)
    assert [tools(result) for result in found] == [["find", "book"]] * 2
    assert [result["trace_complete"] for result in found] == [False, False]  # its parent is the user's own
    assert [result["failure"] for result in found] == ["judge", "judge"]


@pytest.mark.slow
def test_fifty_cases_at_once_never_mix(write: Write) -> None:
    path = command_project(write, *(traced_case(f"c{number}") for number in range(50)), agent=POST + POST_TWO)
    found = run(path, "--workers", "50")
    assert [result["score"] for result in found] == [1.0] * 50
    assert len({result["trace_id"] for result in found}) == 50


POST_TWO = """
root = secrets.token_hex(8)
post(document(a_tool("find", parent=root)))
post(document(a_tool("book", parent=root, at=1_700_000_001), a_span("agent", id_=root)))
print("hello")
"""


def test_the_grace_period_extends_for_a_slow_server(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collector.LATE_GRACE_SECONDS > 5  # which is how often SDKs send, unless told otherwise
    monkeypatch.setattr(collector, "LATE_GRACE_SECONDS", 60.0)
    monkeypatch.setattr(collector, "GRACE_SECONDS", 0.0)
    with sends_after(write, milliseconds=500) as (path, port):
        report = asyncio.run(evaluate_in_python(path, collect_traces=True, collect_port=int(port)))
    assert [result.score for result in report.results] == [1.0], report.results


def test_a_server_that_sends_after_the_grace(write: Write) -> None:
    with sends_after(write, milliseconds=3_600_000) as (path, port):
        (result,) = run(path, "--collect-port", port, "--collect-grace", "0.05")
    assert result["misses"] == ["No trace available for evaluation"]
    assert result["score"] == 0.0


@contextmanager
def sends_after(write: Write, milliseconds: int) -> Iterator[tuple[Path, str]]:
    """A case whose server sends its spans at this interval, and the port that it sends them to."""
    write("server.py", SERVER.replace("schedule_delay_millis=200", f"schedule_delay_millis={milliseconds}"))
    with free_port() as port, server(port) as url:
        write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "http", "url": url}]}))
        yield write("cases.jsonl", [traced_case("one")]), port


def test_tool_trajectory_does_not_judge_a_trace_without_a_root(write: Write) -> None:
    agent = POST + 'post(document(a_tool("find", parent="0123456789abcdef"), a_tool("book")))\nprint("hello")\n'
    path = command_project(write, traced_case("one"), agent=agent)
    (result,) = run(path, "--collect-grace", "0.1", expect=1)
    assert result["trace_complete"] is False
    assert (result["failure"], result["score"]) == ("judge", 0.0)
    assert tools(result) == ["find", "book"]
    evaluate(
        "cases.jsonl",
        "--out",
        "again.jsonl",
        "--targets",
        write("replay.yaml", json.dumps({"targets": [{"name": "default", "provider": "replay", "file": "out.jsonl"}]})),
        expect=1,
    )
    assert results("again.jsonl")[0]["trace_complete"] is False
    graded = agentv("grade", "out.jsonl", "cases.jsonl", "--out", "graded.jsonl")
    assert graded.returncode == 1, graded.stderr
    assert results("graded.jsonl")[0]["trace_complete"] is False


def test_a_target_with_its_own_trace_keeps_it(write: Write) -> None:
    agent = (
        POST
        + """
post(document(a_tool("other", parent="0123456789abcdef")))
print(json.dumps({"text": "hello", "trace": [{"type": "tool_call", "name": "mine"}]}))
"""
    )
    path = command_project(write, traced_case("one"), agent=agent)
    (result,) = run(path, "--collect-grace", "60")
    assert tools(result) == ["mine"]
    assert "trace_complete" not in result


def test_each_attempt_has_its_own_trace(write: Write) -> None:
    fails_at_first = """

def told(question):
    genai(question)
    trace_id = format(trace.get_current_span().get_span_context().trace_id, "032x")
    if not os.path.exists("tried"):
        open("tried", "w").write(trace_id)
        raise RuntimeError("try again")
    return trace_id
"""
    write("agent.py", FUNCTION + fails_at_first)
    entry = {"name": "default", "provider": "python", "function": "agent.py:told"}
    write("targets.yaml", json.dumps({"targets": [entry]}))
    (result,) = run_apart(write("cases.jsonl", [traced_case("one")]), "--max-retries", "1")
    assert (result["attempt"], result["score"]) == (2, 1.0), result
    assert tools(result) == ["find", "book"]
    assert result["trace_id"] == result["candidate_answer"].strip() != Path("tried").read_text()


def test_a_target_that_fails_keeps_what_has_arrived(write: Write) -> None:
    agent = POST + 'post(document(a_tool("find"), a_tool("book", parent="0123456789abcdef")))\nsys.exit(3)\n'
    (result,) = run(command_project(write, traced_case("one"), agent=agent), expect=1)
    assert "failed with exit code 3" in result["error"]
    assert (tools(result), result["trace_complete"]) == (["find", "book"], False)


def test_events_of_1_36_as_span_events_and_as_log_records(write: Write) -> None:
    agent = (
        POST
        + """
def event(name, **fields):
    return {"name": name, "attributes": [{"key": key, "value": value(of)} for key, of in fields.items()]}

call = json.dumps([{"id": "call-1", "type": "function", "function": {"name": "find", "arguments": json.dumps({"about": sys.argv[1]})}}])
asks = a_span("chat m1", gen_ai__operation__name="chat", gen_ai__request__model="m1")
asks["events"] = [event("gen_ai.choice", message=json.dumps({"tool_calls": json.loads(call)}))]
reads = a_span("chat m1", at=1_700_000_001, gen_ai__operation__name="chat")
reads["events"] = [event("gen_ai.tool.message", id="call-1", content="find done")]
third = a_span("chat m1", at=1_700_000_002, gen_ai__operation__name="chat")
fourth = a_span("chat m1", at=1_700_000_003, gen_ai__operation__name="chat")

def text(of):
    return {"stringValue": of}

def record(span, name, **body):
    return {"traceId": trace_id, "spanId": span["spanId"], "eventName": name, "body": {"kvlistValue": {"values": [{"key": k, "value": v} for k, v in body.items()]}}}

function = {"kvlistValue": {"values": [{"key": "name", "value": text("book")}, {"key": "arguments", "value": text(json.dumps({"about": sys.argv[1]}))}]}}
said = {"kvlistValue": {"values": [{"key": "id", "value": text("call-2")}, {"key": "function", "value": function}]}}
message = {"kvlistValue": {"values": [{"key": "tool_calls", "value": {"arrayValue": {"values": [said]}}}]}}
logs = [record(third, "gen_ai.choice", message=message), record(fourth, "gen_ai.tool.message", id=text("call-2"), content=text("book done"))]
post({"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}, "logs")
post(document(asks, reads, third, fourth))
print("hello")
"""
    )
    (result,) = run(command_project(write, traced_case("one"), agent=agent))
    assert result["score"] == 1.0, result


def test_a_cached_answer_without_a_trace_is_requested_again(write: Write) -> None:
    agent = (
        "import os\nprint('hello')\nopen('calls', 'a').write('.')\nif 'TRACEPARENT' not in os.environ: raise SystemExit\n"
        + COMMAND.replace("print(globals", "(globals")
    )
    path = command_project(write, traced_case("one"), agent=agent)
    evaluate(path, "--cache", "--out", "out.jsonl")
    for _ in range(2):
        (result,) = run(path, "--cache")
        assert result["score"] == 1.0
    assert Path("calls").read_text() == ".."


@pytest.mark.slow
def test_on_a_cluster_each_worker_collects(write: Write) -> None:
    path = command_project(write, *(traced_case(f"c{number}") for number in range(6)), agent=POST + POST_TWO)
    found = run(path, "--cluster", "local:2", "--workers", "2")
    assert [result["score"] for result in found] == [1.0] * 6


def test_a_batch_target_is_reported(write: Write) -> None:
    record = json.dumps({"id": "one", "text": "hello"})
    entry = {"name": "default", "provider": "cli", "command_template": f"echo '{record}'", "provider_batching": True}
    write("targets.yaml", json.dumps({"targets": [entry]}))
    ran = evaluate(write("cases.jsonl", [traced_case("one")]), *COLLECT)
    assert "warning: target 'default' answers all cases at once, so its traces are not collected" in ran.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collect_port": 4318}, "collect_port needs collect_traces=True"),
        ({"collect_grace": 2.0}, "collect_grace needs collect_traces=True"),
        ({"collect_traces": True, "collect_port": 70_000}, "cannot listen on port 70000"),
    ],
)
def test_invalid_options_from_python(write: Write, options: Any, message: str) -> None:
    path = command_project(write, traced_case("one"))
    with pytest.raises(ConfigError, match=message):
        asyncio.run(evaluate_in_python(path, **options))


def test_a_dry_run_collects_nothing(write: Write) -> None:
    path = command_project(write, traced_case("one"))
    with free_port() as port:
        (result,) = run(path, "--dry-run", "--collect-port", port)
    assert "trace_id" not in result


def test_a_port_that_is_taken(write: Write) -> None:
    path = command_project(write, traced_case("one"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = evaluate(path, *COLLECT, "--collect-port", str(port), expect=2)
    assert flat(ran.stderr).endswith(
        f"error: --collect-traces cannot listen on port {port} of 127.0.0.1: Address already in use "
        "hint: choose another --collect-port, or omit it to use any free port"
    )
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--collect-port", "4318"), "--collect-port needs --collect-traces"),
        (("--collect-grace", "3"), "--collect-grace needs --collect-traces"),
        (("--collect-traces", "--collect-port", "0"), "0 is not in the range 1<=x<=65535"),
        (("--collect-traces", "--collect-port", "many"), "'many' is not a valid integer"),
        (("--collect-traces", "--collect-grace", "-1"), "-1"),
        (
            ("--collect-traces", "--collect-port", "4318", "--cluster", "local:2"),
            "--collect-port cannot be used with --cluster: each worker listens on its own port",
        ),
    ],
)
def test_invalid_options(write: Write, args: tuple[str, ...], message: str) -> None:
    ran = evaluate(command_project(write, traced_case("one")), *args, expect=2)
    assert message in flat(ran.stderr)


def test_otlp_over_grpc_is_reported_once(write: Write) -> None:
    agent = (
        POST
        + """
import socket
from urllib.parse import urlsplit
for _ in range(3):
    with socket.create_connection((urlsplit(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]).hostname, urlsplit(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]).port)) as grpc:
        grpc.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        while grpc.recv(100):
            pass
print("hello")
"""
    )
    path = command_project(write, traced_case("one"), traced_case("two"), agent=agent)
    ran = evaluate(path, *COLLECT, "--collect-grace", "0")
    assert ran.stderr.count("received OTLP over gRPC, but --collect-traces supports only OTLP over HTTP") == 1
    assert "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in flat(ran.stderr)


def test_secrets_in_spans_are_masked(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "canary-9f8e7d6c5b")
    agent = (
        POST
        + 'post(document(a_tool("find", note=os.environ["MY_API_KEY"]), a_tool(os.environ["MY_API_KEY"])))\nprint("hello")\n'
    )
    path = command_project(write, traced_case("one"), agent=agent)
    ran = evaluate(path, *COLLECT)
    assert "canary" not in Path("out.jsonl").read_text() + ran.stdout + ran.stderr
    assert tools(results("out.jsonl")[0]) == ["find", "***"]
