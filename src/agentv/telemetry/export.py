"""Results -> spans at the user's collector, through OpenTelemetry's own SDK, which its variables set up.

A thread of the SDK sends them, from a queue that is bounded: a collector that is slow or down costs spans and a
warning, never a result or time. What the SDK has to say about that goes through our warnings.
"""

import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from agentv import __version__
from agentv.errors import ConfigError
from agentv.notices import warn
from agentv.records import EvalResult, Problem
from agentv.redact import clean
from agentv.system.extras import install_command
from agentv.system.threads import run_in_thread
from agentv.telemetry.context import case_span_id, new_trace_id
from agentv.telemetry.result_spans import SpanData, TargetKind, span_of_result

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE_SIZE = 16_384
"""How many spans may wait to be sent, unless OTEL_BSP_MAX_QUEUE_SIZE says otherwise."""
FLUSH_SECONDS = 5.0
"""How long the end of a run waits for spans to be sent."""
OURS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk")
"""The loggers that tell of the end of an exporter."""
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Exporter:
    """Sends the spans of results. It is an async context manager: its end waits for what is not sent, for a while."""

    def __init__(self, kind_of: Callable[[str], TargetKind]):
        """`kind_of` tells what the target of a name is. Raise `ConfigError` without the extra."""
        self._kind_of = kind_of
        self._has_content = os.environ.get(CONTENT, "").strip().lower() in ("true", "span_only", "span_and_event")
        self._sdk = _Sdk()
        self._log = _SdkLog(self._sdk)
        self._lost_results = 0

    async def __aenter__(self) -> "Exporter":
        clean.learn(_header_secrets())
        logging.getLogger("opentelemetry").addHandler(self._log)
        with self._log.ours():
            self._sdk.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await run_in_thread(lambda: self._sdk.stop(FLUSH_SECONDS, self._log.end))
        logging.getLogger("opentelemetry").removeHandler(self._log)
        self._tell()

    def stamp(self, result: EvalResult) -> str:
        """Return the id of the trace of a result: that which its target knows, else a new one."""
        return result.trace_id or new_trace_id()

    def export(self, result: EvalResult) -> None:
        """Hand over the spans of a result, which has no secrets any more. It raises nothing, and waits for nothing."""
        try:
            with self._log.ours():
                span = span_of_result(result, self._kind_of(result.target), has_content=self._has_content)
                self._sdk.send(span, result.trace_id or new_trace_id())
        except Exception as error:  # whatever it is, it must not cost the result
            self.lose(error)

    def lose(self, error: Exception) -> None:
        """Take note that a result has no spans, because of this."""
        self._lost_results += 1
        self._log.last = f"{type(error).__name__}: {error}"

    def _tell(self) -> None:
        """Warn of what did not arrive, if anything did not."""
        sdk = self._sdk
        reason = f": {self._log.last}" if self._log.last else ""
        if lost := sdk.recorded - sdk.sent:
            message = f"--otel: {lost} of {sdk.recorded} spans were not sent to {sdk.endpoint}{reason}"
            warn(Problem(message=message, severity="warning", hint="results are not affected"))
        elif self._lost_results:
            message = f"--otel: {self._lost_results} results have no trace{reason}"
            warn(Problem(message=message, severity="warning", hint="results are not affected"))


class _Sdk:
    """The SDK, with a provider of its own: what the user's code in this process has set up is not touched."""

    def __init__(self) -> None:
        self._trace, self._export, self._ids, self._otlp = _import()
        self.endpoint = ""
        self.recorded = self.sent = 0
        self.worker: int | None = None
        """The thread that sends."""
        self._processor: Any = None
        self._exporter: Any = None

    def start(self) -> None:
        from opentelemetry.sdk.resources import Resource

        resource = Resource.create({})
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "agentv", "service.version": __version__}))
        self._own_ids = _own_ids(self._ids)
        provider = self._trace.TracerProvider(resource=resource, id_generator=self._own_ids, shutdown_on_exit=False)
        if os.environ.get("OTEL_TRACES_EXPORTER", "").strip() != "none":
            exporter = self._exporter = self._otlp.OTLPSpanExporter()
            self.endpoint = getattr(exporter, "_endpoint", "the collector")
            size = None if os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") else QUEUE_SIZE
            self._processor = self._export.BatchSpanProcessor(_counting(exporter, self), max_queue_size=size)
            provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("agentv", __version__)
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        if protocol and protocol.strip() != "http/protobuf":
            message = f"--otel sends OTLP as http/protobuf, though OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}"
            warn(Problem(message=message, severity="warning", hint="the endpoint has to take OTLP over HTTP"))

    def stop(self, seconds: float, on_giving_up: Callable[[], None]) -> None:
        """Send what is left, for so long at most. It blocks."""
        if self._processor is not None:
            thread = threading.Thread(target=self._processor.shutdown, daemon=True)
            thread.start()
            thread.join(seconds)
            if thread.is_alive():
                on_giving_up()
                self._exporter.shutdown()  # which wakes up who waits to try again
                thread.join(1.0)

    def send(self, span: SpanData, trace_id: str) -> None:
        """Record a span and all that is in it, as a trace."""
        from opentelemetry.context import Context

        self._own_ids.next = int(trace_id, 16), int(case_span_id(trace_id), 16)
        self._record(span, Context())

    def _record(self, data: SpanData, context: Any) -> None:
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        kind = SpanKind.CLIENT if data.is_client else SpanKind.INTERNAL
        span = self._tracer.start_span(
            data.name, context=context, kind=kind, attributes=dict(data.attributes), start_time=data.start
        )
        for name, attributes in data.events:
            span.add_event(name, dict(attributes), timestamp=data.end)
        if data.error is not None:
            span.set_status(StatusCode.ERROR, data.error)
        inner = set_span_in_context(span, context)
        for child in data.children:
            self._record(child, inner)
        if self._processor is not None and span.get_span_context().trace_flags.sampled:
            self.recorded += 1
        span.end(data.end)


def _counting(exporter: Any, sdk: _Sdk) -> Any:
    """Return an exporter that counts what it has sent."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counting(SpanExporter):
        def export(self, spans: Sequence[Any]) -> SpanExportResult:
            sdk.worker = threading.get_ident()
            result: SpanExportResult = exporter.export(spans)
            if result is SpanExportResult.SUCCESS:
                sdk.sent += len(spans)
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return bool(exporter.force_flush(timeout_millis))

    return Counting()


def _own_ids(ids: ModuleType) -> Any:
    """Return a generator of ids that gives the next trace, and its first span, those that are set."""

    class Ids(ids.RandomIdGenerator):  # type: ignore[name-defined,misc]  # it is a module that was imported late
        next: tuple[int, int] | None = None

        def generate_trace_id(self) -> int:
            return self.next[0] if self.next is not None else int(super().generate_trace_id())

        def generate_span_id(self) -> int:
            found, self.next = self.next, None
            return found[1] if found is not None else int(super().generate_span_id())

    return Ids()


class _SdkLog(logging.Handler):
    """Hears what the SDK logs: of our own spans it becomes one warning; what else it says is as it would be."""

    def __init__(self, sdk: _Sdk):
        super().__init__(logging.WARNING)
        self._sdk = sdk
        self.last = ""
        self._is_ours: int | None = None
        self._was_told = self._is_over = False

    @contextmanager
    def ours(self) -> "Iterator[None]":
        """Take what this thread makes the SDK log for ours."""
        self._is_ours = threading.get_ident()
        try:
            yield
        finally:
            self._is_ours = None

    def end(self) -> None:
        """Hear no more of what becomes of our spans."""
        self._is_over = True

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_over and record.name.startswith(OURS):
            return
        if record.thread == self._sdk.worker:
            self._tell_of_trouble(_reason(record.getMessage()))
        elif record.thread == self._is_ours:
            if record.getMessage().startswith("Queue full"):
                self._tell_of_trouble(f"more than {QUEUE_SIZE} spans wait to be sent")
            else:  # on what the variables say
                warn(Problem(message=f"--otel: {_reason(record.getMessage())}", severity="warning"))
        elif not logging.getLogger().handlers and logging.lastResort is not None:
            logging.lastResort.handle(record)

    def _tell_of_trouble(self, reason: str) -> None:
        """Warn, once, that spans cannot be sent."""
        self.last = reason
        if not self._was_told:
            self._was_told = True
            hint = "the run goes on; how many spans are lost is told at its end"
            message = f"--otel: spans cannot be sent to {self._sdk.endpoint}: {reason}"
            warn(Problem(message=message, severity="warning", hint=hint))


def _header_secrets() -> list[str]:
    """Return the values of the headers that go to the collector, such as its key."""
    given = [os.environ.get(f"OTEL_EXPORTER_OTLP_{name}HEADERS", "") for name in ("", "TRACES_")]
    values = [unquote(pair.partition("=")[2]).strip() for text in given for pair in text.split(",")]
    return [*values, *(value.partition(" ")[2] for value in values)]  # of "Bearer abc", too


def _reason(message: str) -> str:
    """Return why something failed, from what the SDK logs: the system's own words, if they are in it."""
    if found := re.search(r"\[Errno -?\d+\] ([^\"')\]]+)", message):
        return found[1].strip()
    line = (message.strip().splitlines() or [""])[0]
    found = re.match(r"Transient error (.*) encountered while exporting", line)
    return (found[1] if found else line)[:300]


def _import() -> tuple[ModuleType, ModuleType, ModuleType, ModuleType]:
    """Return the parts of the SDK that are used; raise `ConfigError` if the extra is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http import trace_exporter
        from opentelemetry.sdk import trace
        from opentelemetry.sdk.trace import export, id_generator
    except ImportError as error:
        hint = f"install it with: {install_command('otel')}"
        raise ConfigError("--otel needs OpenTelemetry's SDK and its OTLP exporter", hint=hint) from error
    return trace, export, id_generator, trace_exporter
