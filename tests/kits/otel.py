"""Agents that are instrumented with OpenTelemetry's SDK, and spans that they send manually."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.kits.project import Write, a_case

SDK = '''
import json, os, sys, time
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

provider = TracerProvider()
tracer = trace.get_tracer("agent", tracer_provider=provider)


def span(name, context=None, **attributes):
    found = {key.replace("__", "."): value for key, value in attributes.items()}
    return tracer.start_as_current_span(name, context=context, attributes=found)


def genai(question, context=None):
    """An agent by GenAI's conventions, 1.37 and later."""
    with span("invoke_agent guide", context, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="guide"):
        said = [{"role": "assistant", "parts": [{"type": "text", "content": "hello"}], "finish_reason": "stop"}]
        with span(
            "chat m1", gen_ai__operation__name="chat", gen_ai__request__model="m1", gen_ai__usage__input_tokens=11,
            gen_ai__usage__output_tokens=3, gen_ai__output__messages=json.dumps(said),
        ):
            pass
        for name in ("find", "book"):
            with span(
                "execute_tool " + name, gen_ai__operation__name="execute_tool", gen_ai__tool__name=name,
                gen_ai__tool__call__arguments=json.dumps({"about": question}), gen_ai__tool__call__result=name + " done",
            ):
                time.sleep(0.002)
    return "hello " + question


def openinference(question, context=None):
    """An agent by OpenInference's conventions."""
    with span("agent", context, openinference__span__kind="AGENT", output__value="hello"):
        with span("llm", openinference__span__kind="LLM", llm__model_name="m1", llm__token_count__prompt=11):
            pass
        for name in ("find", "book"):
            with span(
                name, openinference__span__kind="TOOL", tool__name=name, input__value=json.dumps({"about": question}),
                output__value=name + " done",
            ):
                time.sleep(0.002)
    return "hello " + question
'''
"""What instrumented agents have in common."""

COMMAND = (
    SDK
    + """
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
question, kind = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "genai"
parent = extract({"traceparent": os.environ["TRACEPARENT"]}) if "--own-root" not in sys.argv else None
print(globals()[kind](question, parent))
provider.shutdown()
"""
)
"""A program."""

FUNCTION = (
    SDK
    + """
trace.set_tracer_provider(provider)


async def answer(question):
    return genai(question)


def answer_in_thread(question):
    return openinference(question)
"""
)
"""Functions; no exporter is set up."""

SERVER = (
    SDK
    + """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["question"]
        endpoint = self.headers["x-agentv-otlp-endpoint"]
        answer = genai(question, extract({"traceparent": self.headers["traceparent"]})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


if len(sys.argv) > 1:  # one endpoint for all requests
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{sys.argv[1]}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=200))
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
)
"""A server that lives on after its answers, and sends its spans now and then."""


def about(question: str) -> list[dict[str, Any]]:
    """The calls that each of the agents makes."""
    return [{"tool": name, "args": {"about": question}, "output": f"{name} done"} for name in ("find", "book")]


def trajectory(question: str) -> dict[str, Any]:
    """An evaluator that passes when the trace has exactly those calls."""
    return {"name": "tools", "type": "tool_trajectory", "mode": "exact", "expected": about(question)}


def traced_case(id_: str, question: str | None = None) -> dict[str, Any]:
    """A case that passes only with its own trace."""
    asked = question if question is not None else f"about {id_}"
    return a_case(
        id_,
        input_messages=[{"role": "user", "content": asked}],
        execution={"evaluators": [trajectory(asked)]},
    )


def command_project(
    write: Write, *cases: dict[str, Any], agent: str = COMMAND, words: str = "", **settings: Any
) -> Path:
    """Write a project whose target is an instrumented program, and return the eval file."""
    write("agent.py", agent)
    entry = {
        "name": "default",
        "provider": "cli",
        "command_template": f"{sys.executable} agent.py {{PROMPT}} {words}".strip(),
        **settings,
    }
    write("targets.yaml", json.dumps({"targets": [entry]}))
    return write("cases.jsonl", list(cases))


POST = '''
import json, os, secrets, sys, time, urllib.request


def post(document, signal="traces", endpoint=None):
    """Send an OTLP document, as JSON."""
    url = (endpoint or os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]) + "/v1/" + signal
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.loads(reply.read())


def value(of):
    return {"intValue": str(of)} if isinstance(of, int) else {"stringValue": of}


_, trace_id, case_span, _ = os.environ["TRACEPARENT"].split("-")


def a_span(name, parent=case_span, id_=None, at=1_700_000_000, **attributes):
    found = [{"key": key.replace("__", "."), "value": value(of)} for key, of in attributes.items()]
    return {
        "traceId": trace_id, "spanId": id_ or secrets.token_hex(8), "parentSpanId": parent, "name": name,
        "startTimeUnixNano": str(at * 10**9), "endTimeUnixNano": str(at * 10**9 + 5_000_000), "attributes": found,
    }


def a_tool(name, **fields):
    question = sys.argv[1]
    return a_span(
        name, gen_ai__operation__name="execute_tool", gen_ai__tool__name=name,
        gen_ai__tool__call__arguments=json.dumps({"about": question}), gen_ai__tool__call__result=name + " done", **fields,
    )


def document(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


'''
"""What programs have in common that write their spans by hand."""
