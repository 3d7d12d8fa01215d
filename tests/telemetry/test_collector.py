"""Requests to the collector's port: large, oversized, compressed, late, and invalid ones."""

import asyncio
import contextlib
import gzip
import http.client
import itertools
import json
import secrets
import socket
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from agentv.log import collect_warnings
from agentv.records import ProviderRequest, ProviderResponse, TraceContext
from agentv.run.options import CollectOptions
from agentv.telemetry.collector import MAX_BODY_BYTES, CaseTraces, Collector, CollectorServer
from agentv.telemetry.inbox import BadTelemetry, read_telemetry
from tests.kits.processes import wait_until

JSON, PROTOBUF = "application/json", "application/x-protobuf"


def collect(
    use: Callable[[TraceContext], Any], answer: ProviderResponse | None = None, grace: float = 0.2
) -> ProviderResponse:
    """The answer to one case, during which something is sent."""

    async def main() -> ProviderResponse:
        with Collector(CollectOptions(collect_grace=grace)) as collector, collector.case(is_late=False) as traces:
            request = await traces.prepare(ProviderRequest(eval_id="one", question="?", dataset="d"))
            assert request.telemetry is not None
            await asyncio.to_thread(use, request.telemetry)
            return await traces.complete(answer or ProviderResponse(text="hello"))

    return asyncio.run(main())


def post(
    url: str,
    data: bytes,
    kind: str = PROTOBUF,
    signal: str = "traces",
    *,
    chunked: bool = False,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    parts = urlsplit(f"{url}/v1/{signal}")
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        body: Any = iter([data[:10], data[10:]]) if chunked else data
        connection.request("POST", parts.path, body, {"Content-Type": kind, **(headers or {})}, encode_chunked=chunked)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def tool_spans(context: TraceContext, count: int = 1, padding: str = "", **fields: Any) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(count):
        span = spans.add(
            trace_id=bytes.fromhex(fields.get("trace_id", context.trace_id)),
            span_id=secrets.token_bytes(8),
            parent_span_id=bytes.fromhex(fields.get("parent", context.span_id)),
            name="tool",
            start_time_unix_nano=1_700_000_000_000_000_000 + number,
            end_time_unix_nano=1_700_000_000_000_000_000 + number + 5,
        )
        known = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": f"t{number}"}
        for key, value in (known | ({"padding": padding} if padding else {})).items():
            span.attributes.add(key=key).value.string_value = value
    return request


def names(response: ProviderResponse) -> list[str | None]:
    return [event.name for event in response.trace or ()]


def test_all_kinds_of_values_in_protobuf() -> None:
    def send(context: TraceContext) -> None:
        request = tool_spans(context)
        span = request.resource_spans[0].scope_spans[0].spans[0]
        span.status.code, span.status.message = 2, "it broke"
        value = span.attributes.add(key="gen_ai.tool.call.arguments").value.kvlist_value.values
        value.add(key="text").value.string_value = "é"
        value.add(key="no").value.int_value = -(2**63)
        value.add(key="half").value.double_value = -0.5
        value.add(key="yes").value.bool_value = True
        value.add(key="list").value.array_value.values.add().int_value = 2**63 - 1
        value.add(key="data").value.bytes_value = b"\x00"
        value.add(key="nothing")
        assert post(context.endpoint, request.SerializeToString()) == (200, b"")

    (event,) = collect(send).trace or ()
    expected = {
        "text": "é",
        "no": -(2**63),
        "half": -0.5,
        "yes": True,
        "list": [2**63 - 1],
        "data": None,
        "nothing": None,
    }
    assert event.input == expected
    assert event.metadata is not None
    assert (event.metadata["is_error"], event.metadata["error"]) == (True, "it broke")


@pytest.mark.parametrize("form", ["plain", "gzip", "deflate", "chunked", "gzip and chunked"])
def test_how_a_request_may_be_sent(form: str) -> None:
    def send(context: TraceContext) -> None:
        data = tool_spans(context).SerializeToString()
        encoded = gzip.compress(data) if "gzip" in form else zlib.compress(data) if form == "deflate" else data
        headers = {} if encoded is data else {"Content-Encoding": form.partition(" ")[0]}
        status, _ = post(context.endpoint, encoded, chunked="chunked" in form, headers=headers)
        assert status == 200

    assert names(collect(send)) == ["t0"]


def test_log_records_in_protobuf() -> None:
    def send(context: TraceContext) -> None:
        request = tool_spans(context)
        span = request.resource_spans[0].scope_spans[0].spans[0]
        span.attributes[0].value.string_value = "chat"
        logs = ExportLogsServiceRequest()
        record = (
            logs.resource_logs.add()
            .scope_logs.add()
            .log_records.add(trace_id=span.trace_id, span_id=span.span_id, event_name="gen_ai.choice")
        )
        message = record.body.kvlist_value.values.add(key="message").value.kvlist_value.values
        message.add(key="content").value.string_value = "hello there"
        assert post(context.endpoint, logs.SerializeToString(), signal="logs") == (200, b"")
        assert post(context.endpoint, request.SerializeToString()) == (200, b"")
        assert post(context.endpoint, b"whatever", signal="metrics") == (200, b"")

    assert [event.text for event in collect(send).trace or ()] == ["hello there"]


def test_10_000_spans_and_20_megabytes() -> None:
    def send(context: TraceContext) -> None:
        request = tool_spans(context, 10_000, padding="x" * 2000)
        data = request.SerializeToString()
        assert len(data) > 20_000_000
        assert post(context.endpoint, data) == (200, b"")

    response = collect(send)
    assert names(response) == [f"t{number}" for number in range(10_000)]
    assert response.trace_complete is None


def test_10_000_spans_one_inside_of_the_other_and_without_tools() -> None:
    def send(context: TraceContext) -> None:
        request = tool_spans(context, 10_000)
        spans = request.resource_spans[0].scope_spans[0].spans
        call = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "", "name": "find", "arguments": {}}]}]
        for before, span in itertools.pairwise(spans):
            span.parent_span_id = before.span_id
            span.attributes[0].value.string_value = "chat"
            span.attributes.add(key="gen_ai.output.messages").value.string_value = json.dumps(call)
        spans[0].attributes[0].value.string_value = "invoke_agent"
        spans[0].attributes.add(key="gen_ai.agent.name").value.string_value = "guide"
        for piece in range(0, 10_000, 500):
            part = ExportTraceServiceRequest()
            part.resource_spans.add().scope_spans.add().spans.extend(spans[piece : piece + 500])
            assert post(context.endpoint, part.SerializeToString())[0] == 200

    response = collect(send)
    steps = [event for event in response.trace or () if event.type == "model_step"]
    assert len(steps) == 9_999
    assert {(event.metadata or {}).get("agent") for event in steps} == {"guide"}
    assert names(response).count("find") == 9_999


def test_a_span_that_is_sent_twice_counts_once() -> None:
    def send(context: TraceContext) -> None:
        data = tool_spans(context, 2).SerializeToString()
        post(context.endpoint, data)
        post(context.collector, data)

    assert names(collect(send)) == ["t0", "t1"]


def test_spans_without_an_attempt_are_rejected_and_reported() -> None:
    def send(context: TraceContext) -> None:
        stray = tool_spans(context, 3, trace_id="ab" * 16).SerializeToString()
        status, answer = post(context.collector, stray)
        reply = ExportTraceServiceResponse.FromString(answer)
        assert (status, reply.partial_success.rejected_spans) == (200, 3)
        assert "no running case" in reply.partial_success.error_message
        document = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "ab" * 16}]}]}]}
        status, answer = post(context.collector, json.dumps(document).encode(), JSON)
        assert json.loads(answer)["partialSuccess"]["rejectedSpans"] == "1"
        assert post(f"{context.collector}/{secrets.token_urlsafe(16)}", stray)[0] == 404

    with collect_warnings() as warnings:
        response = collect(send)
    assert response.trace is None
    assert [warning.message for warning in warnings] == ["5 spans and events did not belong to a running case"]


def test_a_known_trace_id_takes_precedence_over_the_endpoint() -> None:
    async def main() -> None:
        with Collector(CollectOptions(collect_grace=0.2)) as collector:
            with collector.case(is_late=False) as first, collector.case(is_late=False) as second:
                requests = [await each.prepare(ProviderRequest(eval_id="c", question="?")) for each in (first, second)]
                one, two = (request.telemetry for request in requests)
                assert one is not None and two is not None
                both = tool_spans(one, 1)
                both.resource_spans.extend(tool_spans(two, 2).resource_spans)
                await asyncio.to_thread(post, one.endpoint, both.SerializeToString())
                answers = [await each.complete(ProviderResponse(text="")) for each in (first, second)]
            late = await asyncio.to_thread(post, one.endpoint, both.SerializeToString())
            assert late[0] == 404
        assert [names(answer) for answer in answers] == [["t0"], ["t0", "t1"]]

    with collect_warnings() as warnings:
        asyncio.run(main())
    assert warnings[0].message == "1 span did not belong to a running case"


def test_too_many_spans_are_not_kept_and_the_trace_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentv.telemetry.inbox.MAX_SPANS", 10)

    def send(context: TraceContext) -> None:
        _, answer = post(context.endpoint, tool_spans(context, 15).SerializeToString())
        assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 5

    response = collect(send)
    assert (len(names(response)), response.trace_complete) == (10, False)


@pytest.mark.parametrize(
    ("data", "kind", "headers", "status", "message"),
    [
        (b"\x00\xff\xfe garbage", PROTOBUF, {}, 400, "invalid OTLP: unknown wire type 7"),
        (b"\x0a\x7f\x01", PROTOBUF, {}, 400, "it is truncated"),
        (b"\xff" * 20, PROTOBUF, {}, 400, "a number has more than ten bytes"),
        (b"\x0b", PROTOBUF, {}, 400, "unknown wire type 3"),
        (b"\x08\x01", PROTOBUF, {}, 400, "resourceSpans is not a message"),
        (b"{not json", JSON, {}, 400, "invalid OTLP: JSON is malformed: "),
        (b"[" * 100_000, JSON, {}, 400, "invalid OTLP: maximum recursion depth exceeded"),
        (b"[]", JSON, {}, 400, "not a JSON object"),
        (b"no gzip", PROTOBUF, {"Content-Encoding": "gzip"}, 400, "invalid OTLP: invalid gzip: "),
        (gzip.compress(b"abc", mtime=0)[:-4], PROTOBUF, {"Content-Encoding": "gzip"}, 400, "the body is truncated"),
        (
            gzip.compress(bytes(MAX_BODY_BYTES + 1), mtime=0),
            PROTOBUF,
            {"Content-Encoding": "gzip"},
            413,
            "the body exceeds 64 MiB",
        ),
        (b"", PROTOBUF, {"Content-Length": str(MAX_BODY_BYTES + 1)}, 413, "the body exceeds 64 MiB"),
        (b"", PROTOBUF, {"Content-Length": "-5"}, 411, "Content-Length is missing"),
        (b"x", PROTOBUF, {"Content-Encoding": "br"}, 415, "send the body uncompressed or with gzip"),
        (b"hello", "text/plain", {}, 415, "send application/x-protobuf or application/json"),
    ],
)
def test_garbage(data: bytes, kind: str, headers: dict[str, str], status: int, message: str) -> None:
    def send(context: TraceContext) -> None:
        found, answer = post(context.endpoint, data, kind, headers=headers)
        assert (found, message in json.loads(answer)["message"]) == (status, True), answer
        post(context.endpoint, tool_spans(context).SerializeToString())

    assert names(collect(send)) == ["t0"]  # it goes on


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", bytes(70_000), b"GET / HTTP/1.1\r\n\r\n", b""])
def test_requests_that_are_not_http(data: bytes) -> None:
    def send(context: TraceContext) -> None:
        parts = urlsplit(context.endpoint)
        with (
            socket.create_connection((parts.hostname, parts.port or 0)) as connection,
            contextlib.suppress(OSError),  # it may hang up before it has read all
        ):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1000):
                pass
        post(context.endpoint, tool_spans(context).SerializeToString())

    assert names(collect(send)) == ["t0"]


def test_many_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CollectorServer, "max_threads", 5)

    def send(context: TraceContext) -> None:
        parts = urlsplit(context.endpoint)
        idle = [socket.create_connection((parts.hostname, parts.port or 0)) for _ in range(20)]
        hung_up = [connection for connection in idle[5:] if connection.recv(1) == b""]
        assert len(hung_up) == 15
        for connection in idle:
            connection.close()

        def is_taken() -> bool:
            with contextlib.suppress(OSError):  # the threads of the idle ones may not have ended yet
                return post(context.endpoint, tool_spans(context).SerializeToString())[0] == 200
            return False

        wait_until(is_taken)

    assert names(collect(send)) == ["t0"]


@given(st.binary(max_size=200), st.sampled_from(["traces", "logs"]), st.booleans())
def test_any_bytes_are_telemetry_or_a_decoding_error(data: bytes, signal: str, is_json: bool) -> None:
    try:
        spans, events = read_telemetry(signal, data, is_json=is_json)
    except BadTelemetry:
        return
    assert isinstance(spans, list)
    assert isinstance(events, list)


def test_nested_values_are_bounded() -> None:
    data = b""
    for _ in range(3000):
        data = b"\x0a" + _varint(len(data)) + data  # a list with one value
        data = b"\x2a" + _varint(len(data)) + data  # a value that is a list
    attribute = b"\x12" + _varint(len(data)) + data
    for tag in (b"\x4a", b"\x12", b"\x12", b"\x0a"):
        attribute = tag + _varint(len(attribute)) + attribute
    with pytest.raises(BadTelemetry, match="nested more than 50 deep"):
        read_telemetry("traces", attribute, is_json=False)


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def test_the_wait_ends_with_the_last_span_and_not_before() -> None:
    async def main() -> ProviderResponse:
        with Collector(CollectOptions(collect_grace=60)) as collector, collector.case(is_late=False) as traces:
            return await _send_in_pieces(traces)

    response = asyncio.run(main())
    assert names(response) == ["t0", "t0"]
    assert response.trace_complete is None


async def _send_in_pieces(traces: CaseTraces) -> ProviderResponse:
    context = (await traces.prepare(ProviderRequest(eval_id="one", question="?"))).telemetry
    assert context is not None
    root = tool_spans(context)
    parent = root.resource_spans[0].scope_spans[0].spans[0].span_id.hex()
    await asyncio.to_thread(post, context.endpoint, tool_spans(context, parent=parent).SerializeToString())
    waiting = asyncio.ensure_future(traces.complete(ProviderResponse(text="hello")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await asyncio.to_thread(post, context.endpoint, root.SerializeToString())
    return await waiting
