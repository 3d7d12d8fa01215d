"""Point a target's OpenTelemetry SDK to the collector, by environment variables or by HTTP headers."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from urllib.parse import quote

from agentv.processes.variables import state_variables
from agentv.records import ProviderRequest, TraceContext

ENDPOINT_HEADER = "x-agentv-otlp-endpoint"
PROTOCOL = "http/protobuf"
_REMOVED = frozenset(
    [
        b"OTEL_TRACES_EXPORTER",
        b"OTEL_TRACES_SAMPLER",
        b"OTEL_TRACES_SAMPLER_ARG",
        b"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        b"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        b"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
        b"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
        b"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        b"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    ]
)
"""Variables that would override ours, or suppress spans. The user may have set them for `--otel`."""
_PROXIES = (b"HTTP_PROXY", b"http_proxy", b"ALL_PROXY", b"all_proxy")
_NO_PROXY = (b"NO_PROXY", b"no_proxy")
_LOOPBACK = b"127.0.0.1"
MOST_CHARACTERS = 1000
"""The maximum length of a name in a variable, to keep the environment small."""


def new_trace_id() -> str:
    """Return a new trace id: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def case_span_id(trace_id: str) -> str:
    """Return the id of the case's span in a trace. It is derived from the trace id, so it need not be stored."""
    return blake2b(trace_id.encode(), digest_size=8).hexdigest()


def new_context(request: ProviderRequest, base: str, token: str) -> TraceContext:
    """Return the trace context for one attempt at a request. `base` is the address of the collector."""
    trace_id = new_trace_id()
    return TraceContext(
        trace_id=trace_id,
        span_id=case_span_id(trace_id),
        endpoint=f"{base}/{token}",
        collector=base,
        resource=_resource_attributes(request),
    )


def _resource_attributes(request: ProviderRequest) -> str:
    """Return the dataset and the case id in the form of `OTEL_RESOURCE_ATTRIBUTES`."""
    attributes = {
        "test.suite.name": request.dataset,
        "test.case.id": request.eval_id,
    }
    pairs = []
    for name, value in attributes.items():
        if value:
            quoted = quote(value[:MOST_CHARACTERS], safe="", errors="replace")
            pairs.append(f"{name}={quoted}")
    return ",".join(pairs)


def with_variables(
    environment: Mapping[bytes, bytes],
    request: ProviderRequest,
) -> Mapping[bytes, bytes]:
    """Return an environment with the state of the attempt, in which an OpenTelemetry SDK exports to the collector."""
    context = request.telemetry
    if context is None and request.state is None:
        return environment
    found = {**environment, **state_variables(request.state)}
    if context is None:
        return found
    for name in _REMOVED:
        found.pop(name, None)
    # The collector is on loopback, which a proxy cannot reach.
    if any(environment.get(name) for name in _PROXIES):
        for name in _NO_PROXY:
            found[name] = _append(environment.get(name, b""), _LOOPBACK)
    resource = environment.get(b"OTEL_RESOURCE_ATTRIBUTES", b"")
    found[b"OTEL_EXPORTER_OTLP_ENDPOINT"] = os.fsencode(context.endpoint)
    found[b"OTEL_EXPORTER_OTLP_PROTOCOL"] = PROTOCOL.encode()
    found[b"OTEL_RESOURCE_ATTRIBUTES"] = _append(resource, context.resource.encode())
    found[b"TRACEPARENT"] = context.traceparent.encode()
    return found


def _append(values: bytes, value: bytes) -> bytes:
    """Append a value to a comma-separated list. Either may be empty."""
    if not values:
        return value
    if not value:
        return values
    return values + b"," + value


@contextmanager
def current_span(context: TraceContext | None) -> Iterator[None]:
    """Make the case's span the current one for code in this process. Do nothing without OpenTelemetry's API."""
    if context is None:
        yield
        return
    try:
        from opentelemetry import context as otel_context
        from opentelemetry import trace
    except ImportError:
        yield
        return
    span_context = trace.SpanContext(
        trace_id=int(context.trace_id, 16),
        span_id=int(context.span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(1),
    )
    span = trace.NonRecordingSpan(span_context)
    token = otel_context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        otel_context.detach(token)


def trace_headers(context: TraceContext | None) -> dict[str, str]:
    """Return the HTTP headers that name the case's span, and the endpoint for the spans of this request."""
    if context is None:
        return {}
    return {
        "traceparent": context.traceparent,
        ENDPOINT_HEADER: context.endpoint,
    }
