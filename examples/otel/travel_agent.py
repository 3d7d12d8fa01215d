"""An agent instrumented with OpenTelemetry. It does not depend on agentv.

As usual with the SDK, environment variables configure where it sends its spans.
"""

import json
import os
import sys
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

FLIGHTS = {"Oslo": ["OSL-1", "OSL-2"], "Rome": ["FCO-7"]}
tracer = trace.get_tracer("travel-agent")


def call(tool: str, **arguments: Any) -> Any:
    """Call a tool in its own span."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    }
    with tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes) as span:
        result = FLIGHTS.get(arguments["to"], []) if tool == "find_flights" else "booked"
        span.set_attribute("gen_ai.tool.call.result", json.dumps(result))
        return result


def answer(question: str) -> str:
    city = question.removeprefix("A flight to ").partition(",")[0]
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "travel-agent"}
    parent = extract({"traceparent": os.environ.get("TRACEPARENT", "")})
    with tracer.start_as_current_span("invoke_agent travel-agent", context=parent, attributes=attributes):
        flights = call("find_flights", to=city)
        if not flights:
            return f"There is no flight to {city}."
        call("book", flight=flights[0])
        return f"Booked: {flights[0]}."


if __name__ == "__main__":
    provider = TracerProvider()
    if "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    print(answer(sys.argv[1]))
    provider.shutdown()
