"""Results as OpenTelemetry traces, sent by the official exporter to a working, slow or unreachable collector."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentv import evaluate as evaluate_in_python
from agentv.records import EvalResult, EvaluatorResult, TraceEvent
from agentv.telemetry.result_spans import SpanData, TargetKind, span_of_result
from tests.kits.otel import command_project, traced_case
from tests.kits.otlp_server import OtlpServer, otlp_server, values
from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import Write, a_case, flat
from tests.kits.runs import results

pytestmark = pytest.mark.slow

ERROR = 2
PASSES, FAILS = (
    {"name": "says", "type": "contains", "value": "hello"},
    {"name": "not", "type": "contains", "value": "bye"},
)
ANSWER = {
    "text": "hello from the agent",
    "trace": [
        {"type": "tool_call", "id": "t1", "name": "find", "input": {"q": "x"}, "timestamp": "2026-01-01T00:00:00Z"},
        {"type": "tool_result", "id": "t1", "output": "found", "timestamp": "2026-01-01T00:00:02Z"},
        {"type": "tool_call", "name": "book", "metadata": {"is_error": True, "error": "no seats"}},
    ],
    "token_usage": {"input": 100, "output": 20, "cached": 60},
    "cost_usd": 0.25,
    "duration_ms": 1500,
}


def a_project(write: Write, *cases: dict[str, Any], answer: dict[str, Any] = ANSWER) -> Path:
    """A project whose target returns its own trace."""
    write("answer.json", json.dumps(answer))
    entry = {"name": "agent", "provider": "cli", "command_template": f"cat {Path('answer.json').absolute()}"}
    write("targets.yaml", json.dumps({"targets": [entry]}))
    return write("cases.jsonl", list(cases or [a_case("one", execution={"evaluators": [PASSES, FAILS]})]))


PATIENT = """
from agentv.__main__ import main
from agentv.telemetry import export
export.FLUSH_SECONDS = 60.0
main()
"""
"""The command, which does not give up on a collector that is slow because the machine is."""


def run(
    server: OtlpServer | str,
    path: Path,
    *args: str,
    command: Sequence[str] = ("-c", PATIENT),
    expect: int = 0,
    **variables: Any,
) -> str:
    """The messages of a run with `--otel`."""
    url = server if isinstance(server, str) else server.url
    environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": url} | variables
    line = [*command, "eval", str(path), "--otel", "--target", "agent", "--out", "out.jsonl", *args]
    ran = subprocess.run(
        [sys.executable, *line], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert ran.returncode == expect, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return flat(ran.stderr)


def test_a_case_is_a_trace(write: Write) -> None:
    with otlp_server() as server:
        said = run(server, a_project(write))
    (case,) = server.named("case")
    (call,) = server.named("invoke_agent")
    (result,) = results("out.jsonl")
    assert "warning" not in said
    assert case.name == "case one"
    found = values(case.attributes)
    assert found["test.suite.name"] == "cases"
    assert found["test.suite.run.id"] == result["run_id"]
    assert found["test.case.id"] == "one"
    assert found["test.case.result.status"] == "fail"
    assert found["agentv.score"] == 0.5
    assert (case.trace_id.hex(), case.parent_span_id) == (result["trace_id"], b"")
    assert {span.trace_id for span in server.spans} == {case.trace_id}
    assert server.children(case) == ["invoke_agent agent", "evaluate not", "evaluate says"]
    assert server.children(call) == ["execute_tool find", "execute_tool book"]
    assert case.start_time_unix_nano <= call.start_time_unix_nano < call.end_time_unix_nano <= case.end_time_unix_nano
    assert "trace" not in result
    assert server.resources[0]["service.name"] == "agentv"


def test_the_call_of_the_target_and_its_tools(write: Write) -> None:
    with otlp_server() as server:
        run(server, a_project(write))
    (call,) = server.named("invoke_agent")
    found = values(call.attributes)
    assert (call.name, call.kind) == ("invoke_agent agent", 3)
    assert (found["gen_ai.operation.name"], found["gen_ai.agent.name"]) == ("invoke_agent", "agent")
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (100, 20)
    assert (found["gen_ai.usage.cache_read.input_tokens"], found["agentv.cost_usd"]) == (60, 0.25)
    find, book = server.named("execute_tool")
    assert values(find.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "find",
        "gen_ai.tool.call.id": "t1",
    }
    assert find.end_time_unix_nano - find.start_time_unix_nano == 2_000_000_000
    assert (book.status.code, book.status.message) == (ERROR, "no seats")
    assert "hello" not in str(values(call.attributes))  # content is only sent when it is asked for


def test_content_is_sent_only_on_request(write: Write) -> None:
    with otlp_server() as server:
        run(server, a_project(write), OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true")
    (call,) = server.named("invoke_agent")
    said = json.loads(values(call.attributes)["gen_ai.output.messages"])
    assert said == [{"role": "assistant", "parts": [{"type": "text", "content": "hello from the agent"}]}]
    assert json.loads(values(call.attributes)["gen_ai.input.messages"])[0]["parts"][0]["content"] == "Query"
    find = values(server.named("execute_tool find")[0].attributes)
    assert (find["gen_ai.tool.call.arguments"], find["gen_ai.tool.call.result"]) == ('{"q":"x"}', "found")


def test_each_score_is_an_event(write: Write) -> None:
    with otlp_server() as server:
        run(server, a_project(write))
    by_name = {span.name: span for span in server.named("evaluate")}
    (event,) = by_name["evaluate says"].events
    assert event.name == "gen_ai.evaluation.result"
    found = values(event.attributes)
    assert found["gen_ai.evaluation.name"] == "says"
    assert (found["gen_ai.evaluation.score.value"], found["gen_ai.evaluation.score.label"]) == (1.0, "pass")
    (event,) = by_name["evaluate not"].events
    found = values(event.attributes)
    assert (found["gen_ai.evaluation.score.value"], found["gen_ai.evaluation.score.label"]) == (0.0, "fail")
    assert "bye" in found["gen_ai.evaluation.explanation"]
    assert values(by_name["evaluate not"].attributes)["agentv.evaluator.type"] == "contains"


def test_each_score_is_a_log_record_if_logs_are_sent(write: Write) -> None:
    with otlp_server() as server:
        said = run(server, a_project(write), OTEL_LOGS_EXPORTER="otlp")
    assert "warning" not in said
    assert not any(span.events for span in server.spans)
    (call,) = server.named("invoke_agent")
    assert [record.event_name for record in server.logs] == ["gen_ai.evaluation.result"] * 2
    assert {(record.trace_id, record.span_id) for record in server.logs} == {(call.trace_id, call.span_id)}
    scores = {(found := values(each.attributes))["gen_ai.evaluation.name"]: found for each in server.logs}
    assert scores["says"]["gen_ai.evaluation.score.value"] == 1.0
    assert scores["not"]["gen_ai.evaluation.score.label"] == "fail"


def test_log_records_that_are_lost_are_counted(write: Write) -> None:
    said = run("http://127.0.0.1:9", a_project(write), OTEL_LOGS_EXPORTER="otlp")
    assert "--otel: 8 of 8 spans and events were not sent" in said


def test_a_failing_target_and_a_crashing_evaluator(write: Write) -> None:
    broken = {"name": "tools", "type": "tool_trajectory", "mode": "exact", "expected": []}
    path = a_project(
        write, a_case("one", execution={"evaluators": [broken]}), answer=ANSWER | {"trace_complete": False}
    )
    with otlp_server() as server:
        run(server, path, expect=1)
        write("answer.json", "")
        Path("answer.json").unlink()
        run(server, path, expect=1)
    judged, failed = server.named("case")
    assert (values(judged.attributes)["error.type"], judged.status.code) == ("judge", ERROR)
    (event,) = server.named("evaluate")[0].events
    assert values(event.attributes)["error.type"] == "judge"
    assert "gen_ai.evaluation.score.value" not in values(event.attributes)
    assert (values(failed.attributes)["error.type"], failed.status.code) == ("target", ERROR)
    assert "failed with exit code 1" in failed.status.message
    assert server.children(failed) == ["invoke_agent agent"]


def test_a_language_model_is_a_chat() -> None:
    result = a_result(trace=None)
    span = span_of_result(result, TargetKind("gpt-9", "openai", is_model=True), has_content=False)
    call = span.children[0]
    assert call.name == "chat gpt-9"
    assert call.attributes["gen_ai.operation.name"] == "chat"
    assert call.attributes["gen_ai.provider.name"] == "openai"
    assert call.attributes["gen_ai.request.model"] == "gpt-9"
    assert "gen_ai.agent.name" not in call.attributes


def a_result(**fields: Any) -> EvalResult:
    known: dict[str, Any] = {
        "timestamp": "2026-01-01T00:00:10Z",
        "answered_at": "2026-01-01T00:00:04Z",
        "eval_id": "one",
        "dataset": "d",
        "target": "agent",
        "attempt": 1,
        "score": 1.0,
        "verdict": "pass",
        "candidate_answer": "hello",
        "evaluator_results": (EvaluatorResult(name="j", type="llm_judge", score=1.0, weight=1.0, verdict="pass"),),
    }
    return EvalResult(**known | fields)


def test_scoring_begins_when_the_answer_is_there() -> None:
    span = span_of_result(a_result(), TargetKind(), has_content=False)
    call, judge = span.children
    assert (call.end, judge.start) == (1_767_225_604 * 10**9,) * 2
    assert (judge.end, span.end) == (1_767_225_610 * 10**9,) * 2


@pytest.mark.parametrize("timestamp", ["", "yesterday", "2026-01-01T00:00:00Z", "9999-99-99", None])
def test_tools_with_invalid_times_have_spans(timestamp: str | None) -> None:
    trace = tuple(TraceEvent(type="tool_call", name=name, timestamp=timestamp) for name in "ab")
    span = span_of_result(a_result(trace=trace), TargetKind(), has_content=True)
    assert all(tool.start <= tool.end for tool in span.children[0].children)
    assert [tool.name for tool in span.children[0].children] == ["execute_tool a", "execute_tool b"]
    assert isinstance(span, SpanData)


def test_secrets_are_masked(write: Write) -> None:
    canary = "canary-1f2e3d4c5b"
    answer = {"text": f"hello {canary}", "trace": [{"type": "tool_call", "name": canary, "input": {canary: [canary]}}]}
    evaluator = {"name": "says", "type": "contains", "value": canary}
    path = a_project(write, a_case(canary, execution={"evaluators": [evaluator]}), answer=answer)
    with otlp_server() as server:
        variables: dict[str, Any] = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true", "MY_API_KEY": canary}
        run(server, path, "--include-trace", **variables)
    assert len(server.spans) == 4
    assert canary.encode() not in b"".join(server.raw)
    assert values(server.named("execute_tool")[0].attributes)["gen_ai.tool.name"] == "***"


def test_the_key_of_the_collector_is_a_secret(write: Write) -> None:
    path = command_project(
        write, traced_case("one"), agent="import os\nprint(os.environ['OTEL_EXPORTER_OTLP_HEADERS'])\n", name="agent"
    )
    with otlp_server() as server:
        run(server, path, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20canary-77aa88bb")
    assert server.headers[0]["authorization"] == "Bearer canary-77aa88bb"
    assert "canary" not in Path("out.jsonl").read_text()
    assert b"canary" not in b"".join(server.raw)


def test_a_collector_that_is_down_costs_a_warning_and_no_result(write: Write) -> None:
    path = a_project(write, *(a_case(f"c{number}", execution={"evaluators": [PASSES]}) for number in range(20)))
    said = run("http://127.0.0.1:9", path, "--workers", "4")
    assert len(results("out.jsonl")) == 20
    assert said.count("--otel: spans cannot be sent to http://127.0.0.1:9/v1/traces: Connection refused") == 1
    assert said.count("--otel: 100 of 100 spans were not sent to http://127.0.0.1:9/v1/traces") == 1
    assert "results are not affected" in said
    assert "Transient" not in said


@pytest.mark.parametrize("status", [401, 503])
def test_a_collector_that_rejects_spans(write: Write, status: int) -> None:
    with otlp_server(status) as server:
        said = run(server, a_project(write), OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert "--otel: 6 of 6 spans were not sent to" in said
    assert len(results("out.jsonl")) == 1


def test_a_collector_that_does_not_respond_does_not_block_the_run(write: Write) -> None:
    path = a_project(write, *(a_case(f"c{number}", execution={"evaluators": [PASSES]}) for number in range(30)))
    with otlp_server(seconds=3600) as server:
        sizes: dict[str, Any] = {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10", "OTEL_BSP_SCHEDULE_DELAY": "1"}
        said = run(server, path, "--workers", "4", command=("-m", "agentv"), **sizes)
    assert len(results("out.jsonl")) == 30
    assert "--otel: 150 of 150 spans were not sent" in said


def test_more_spans_than_the_queue_takes_are_lost_and_counted(write: Write) -> None:
    calls = [{"type": "tool_call", "name": f"t{number}"} for number in range(3000)]
    path = a_project(write, answer={"text": "hello", "trace": calls})
    with otlp_server() as server:
        said = run(
            server,
            path,
            OTEL_BSP_MAX_QUEUE_SIZE="50",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="50",
            OTEL_BSP_SCHEDULE_DELAY="60000",
        )
    lost = 3004 - len(server.spans)
    assert lost > 0
    assert f"--otel: {lost} of 3004 spans were not sent" in said


def test_all_of_a_long_trace_arrives(write: Write) -> None:
    calls = [{"type": "tool_call", "name": f"t{number}"} for number in range(5000)]
    with otlp_server() as server:
        said = run(server, a_project(write, answer={"text": "hello", "trace": calls}))
    assert len(server.spans) == 5004
    assert "warning" not in said


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, 0),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, 0),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, 6),
        ({"OTEL_SDK_DISABLED": "true"}, 0),
        ({"OTEL_TRACES_EXPORTER": "none"}, 0),
    ],
)
def test_sampling_by_the_standard_variables(write: Write, variables: dict[str, Any], count: int) -> None:
    with otlp_server() as server:
        said = run(server, a_project(write), **variables)
    assert len(server.spans) == count
    assert "warning" not in said
    assert len(results("out.jsonl")) == 1


def test_a_part_of_the_traces_is_whole(write: Write) -> None:
    path = a_project(write, *(a_case(f"c{number}", execution={"evaluators": [PASSES]}) for number in range(60)))
    with otlp_server() as server:
        run(server, path, "--workers", "8", OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0.5")
    cases = server.named("case")
    assert 5 < len(cases) < 55
    assert len(server.spans) == 5 * len(cases)


def test_headers_compression_and_names_by_the_standard_variables(write: Write) -> None:
    with otlp_server() as server:
        run(
            server,
            a_project(write),
            OTEL_EXPORTER_OTLP_HEADERS="x-team=red,authorization=Bearer%20abc",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_SERVICE_NAME="evals",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=ci",
        )
    assert (server.headers[0]["x-team"], server.headers[0]["authorization"]) == ("red", "Bearer abc")
    assert server.headers[0]["content-encoding"] == "gzip"
    assert server.resources[0]["service.name"] == "evals"
    assert server.resources[0]["deployment.environment.name"] == "ci"


def test_invalid_variables_are_reported(write: Write) -> None:
    with otlp_server() as server:
        said = run(server, a_project(write), OTEL_TRACES_SAMPLER="nonsense", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert "warning: --otel: Couldn't recognize sampler nonsense" in said
    assert "--otel sends OTLP as http/protobuf, though OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'" in said
    assert len(server.spans) == 6


def test_with_collected_traces_the_target_is_part_of_the_trace_of_its_case(write: Write) -> None:
    path = command_project(write, traced_case("one"), traced_case("two"), name="agent")
    with otlp_server() as server:
        run(server, path, "--collect-traces")
    found = {result["eval_id"]: result for result in results("out.jsonl")}
    assert [found[name]["score"] for name in ("one", "two")] == [1.0, 1.0]
    for case in server.named("case"):
        assert case.trace_id.hex() == found[values(case.attributes)["test.case.id"]]["trace_id"]
        (call,) = [span for span in server.named("invoke_agent") if span.trace_id == case.trace_id]
        assert server.children(call) == ["execute_tool find", "execute_tool book"]
        assert values(call.attributes)["gen_ai.usage.input_tokens"] == 11


def test_the_target_receives_the_span_of_its_case(write: Write) -> None:
    path = command_project(
        write, traced_case("one"), agent="import os\nprint(os.environ['TRACEPARENT'])\n", name="agent"
    )
    with otlp_server() as server:
        run(server, path, "--collect-traces", "--collect-grace", "0")
    (case,) = server.named("case")
    told = results("out.jsonl")[0]["candidate_answer"].strip()
    assert told == f"00-{case.trace_id.hex()}-{case.span_id.hex()}-01"


@pytest.mark.slow
def test_results_of_a_cluster_are_sent_by_the_driver(write: Write) -> None:
    path = a_project(write, *(a_case(f"c{number}", execution={"evaluators": [PASSES]}) for number in range(6)))
    with otlp_server() as server:
        run(server, path, "--cluster", "local:2")
    assert len(server.named("case")) == 6
    assert len(server.named("execute_tool")) == 12
    assert not any("trace" in result for result in results("out.jsonl"))


def test_exported_traces_can_also_be_in_the_results(write: Write) -> None:
    with otlp_server() as server:
        run(server, a_project(write), "--include-trace")
    assert len(results("out.jsonl")[0]["trace"]) == 3


def test_without_the_extra_the_install_command_is_printed(write: Write) -> None:
    write("hidden/opentelemetry/__init__.py", "")
    path = a_project(write)
    said = run("http://127.0.0.1:9", path, expect=2, PYTHONPATH=str(Path("hidden").absolute()))
    assert "error: --otel requires the OpenTelemetry SDK and its OTLP exporter" in said
    assert "hint: install it with: pip install 'opentelemetry-" in said
    assert "'opentelemetry-sdk>=" in said
    assert "'opentelemetry-exporter-otlp-proto-http>=" in said
    assert not Path("out.jsonl").exists()


def test_without_the_option_the_sdk_is_not_imported(write: Write) -> None:
    path = a_project(write)
    script = f"""
import asyncio, sys, agentv

asyncio.run(agentv.evaluate({str(path)!r}, target="agent"))
print([name for name in sys.modules if name.startswith(("opentelemetry", "agentv.telemetry.")) ])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert "opentelemetry" not in ran.stdout
    assert "agentv.telemetry.collector" not in ran.stdout
    assert "agentv.telemetry.export" not in ran.stdout


def test_from_python(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_project(write)
    with otlp_server() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        report = asyncio.run(evaluate_in_python(path, target="agent", otel=True, collect_traces=True))
    assert len(server.named("case")) == 1
    assert report.results[0].trace_id == server.spans[0].trace_id.hex()
    assert report.results[0].trace is None


def test_logs_of_the_users_own_sdk_are_not_captured(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        "agent.py",
        "import logging\n\ndef answer(q):\n    logging.getLogger('opentelemetry.x').error('mine')\n    return 'hello'\n",
    )
    write(
        "targets.yaml",
        json.dumps({"targets": [{"name": "agent", "provider": "python", "function": "agent.py:answer"}]}),
    )
    path = write("cases.jsonl", [a_case("one", execution={"evaluators": [PASSES]})])
    with otlp_server() as server:
        said = run(server, path)
    assert "mine" in said
    assert "--otel: mine" not in said
