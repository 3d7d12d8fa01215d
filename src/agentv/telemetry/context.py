"""Where a target's spans go, told to whatever runs it: by variables, or by headers."""

import os
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from urllib.parse import quote

from agentv.records import ProviderRequest, TraceContext

ENDPOINT_HEADER = "x-agentv-otlp-endpoint"
PROTOCOL = "http/protobuf"
_SIGNALS = ("TRACES", "LOGS", "METRICS")
_LEFT_OUT = frozenset(
    [b"OTEL_TRACES_EXPORTER", b"OTEL_TRACES_SAMPLER", b"OTEL_TRACES_SAMPLER_ARG"]
    + [f"OTEL_EXPORTER_OTLP_{signal}_{what}".encode() for signal in _SIGNALS for what in ("ENDPOINT", "PROTOCOL")]
)
"""Variables that would win over those that we set, or keep spans back: they may be meant for `--otel`."""
_PROXIES = (b"HTTP_PROXY", b"http_proxy", b"ALL_PROXY", b"all_proxy")
MOST_CHARACTERS = 1000
"""Of a name in a variable: an environment is not for long texts."""


def new_trace_id() -> str:
    """Return the id of a new trace: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def case_span_id(trace_id: str) -> str:
    """Return the id of the span of the case in a trace; it follows from the trace's, so that nobody has to keep it."""
    return blake2b(trace_id.encode(), digest_size=8).hexdigest()


def new_context(request: ProviderRequest, base: str, token: str) -> TraceContext:
    """Return where the spans of one attempt at a request go; `base` is the address of the collector."""
    trace_id = new_trace_id()
    about = {"test.suite.name": request.dataset, "test.case.id": request.eval_id}
    return TraceContext(
        trace_id=trace_id,
        span_id=case_span_id(trace_id),
        endpoint=f"{base}/{token}",
        collector=base,
        resource=",".join(f"{name}={_quote(value)}" for name, value in about.items() if value),
    )


def _quote(value: str) -> str:
    return quote(value[:MOST_CHARACTERS], safe="", errors="replace")


def with_variables(environment: Mapping[bytes, bytes], context: TraceContext | None) -> Mapping[bytes, bytes]:
    """Return an environment in which an SDK of OpenTelemetry sends its spans to the collector."""
    if context is None:
        return environment
    ours = context.resource.encode()
    before = environment.get(b"OTEL_RESOURCE_ATTRIBUTES", b"")
    kept = {name: value for name, value in environment.items() if name not in _LEFT_OUT}
    return (
        kept
        | _without_proxy(environment)
        | {
            b"OTEL_EXPORTER_OTLP_ENDPOINT": os.fsencode(context.endpoint),
            b"OTEL_EXPORTER_OTLP_PROTOCOL": PROTOCOL.encode(),
            b"OTEL_RESOURCE_ATTRIBUTES": b",".join(part for part in (before, ours) if part),
            b"TRACEPARENT": context.traceparent.encode(),
        }
    )


def _without_proxy(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that keep what goes to the collector from a proxy, if there is one."""
    if not any(environment.get(name) for name in _PROXIES):
        return {}
    return {
        name: b",".join(part for part in (environment.get(name, b""), b"127.0.0.1") if part)
        for name in (b"NO_PROXY", b"no_proxy")
    }


def trace_headers(context: TraceContext | None) -> dict[str, str]:
    """Return the headers that tell a server the case's span, and where the spans of this request go."""
    if context is None:
        return {}
    return {"traceparent": context.traceparent, ENDPOINT_HEADER: context.endpoint}
