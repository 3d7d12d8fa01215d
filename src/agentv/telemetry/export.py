"""Results -> spans at the user's collector, through OpenTelemetry's own SDK, which its variables set up.

A thread of the SDK sends them, from a queue that is bounded: a collector that is slow or down costs spans and a
warning, never a result or time. What the SDK has to say about that goes through our warnings.
"""

import logging
import os
import re
import threading
import time
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
LOOK_SECONDS = 0.05
OURS = ("opentelemetry.exporter.otlp", "opentelemetry.sdk")
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
        await run_in_thread(lambda: self._sdk.stop(FLUSH_SECONDS, self._is_hopeless, self._log.end))
        logging.getLogger("opentelemetry").removeHandler(self._log)
        self._tell()

    def _is_hopeless(self) -> bool:
        """Return whether the collector has never taken anything, and has failed to."""
        return bool(self._log.last) and not self._sdk.sent

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
            what = "spans and events" if sdk.has_logs else "spans"
            message = f"--otel: {lost} of {sdk.recorded} {what} were not sent to {sdk.endpoint}{reason}"
            warn(Problem(message=message, severity="warning", hint="results are not affected"))
        elif self._lost_results:
            message = f"--otel: {self._lost_results} results have no trace{reason}"
            warn(Problem(message=message, severity="warning", hint="results are not affected"))


class _Sdk:
    """The SDK, with providers of its own: what the user's code in this process has set up is not touched."""

    def __init__(self) -> None:
        self._trace, self._export, self._ids, self._otlp = _import()
        self.endpoint = ""
        self.recorded = self.sent = 0
        """How many spans, and events that are log records, were handed over, and how many of them have arrived."""
        self.counting = threading.Lock()
        self.workers: set[int] = set()
        """The threads that send."""
        self._processors: list[Any] = []
        self._exporters: list[Any] = []
        self._logger: Any = None

    def start(self) -> None:
        """Set up what the variables say."""
        from opentelemetry.sdk.resources import Resource

        resource = Resource.create({})
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "agentv", "service.version": __version__}))
        self._own_ids = _own_ids(self._ids)
        provider = self._trace.TracerProvider(resource=resource, id_generator=self._own_ids, shutdown_on_exit=False)
        if _variable("OTEL_TRACES_EXPORTER") != "none":
            exporter = self._otlp.OTLPSpanExporter()
            self.endpoint = getattr(exporter, "_endpoint", "the collector")
            size = None if _variable("OTEL_BSP_MAX_QUEUE_SIZE") else QUEUE_SIZE
            provider.add_span_processor(self._added(self._export.BatchSpanProcessor, exporter, size))
            if _variable("OTEL_LOGS_EXPORTER") == "otlp":
                self._start_logs(resource)
        self._tracer = provider.get_tracer("agentv", __version__)
        protocol = _variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or _variable("OTEL_EXPORTER_OTLP_PROTOCOL")
        if protocol and protocol != "http/protobuf":
            message = f"--otel sends OTLP as http/protobuf, though OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}"
            warn(Problem(message=message, severity="warning", hint="the endpoint has to take OTLP over HTTP"))

    @property
    def has_logs(self) -> bool:
        """Whether events are sent as log records."""
        return self._logger is not None

    def _start_logs(self, resource: Any) -> None:
        """Set up log records: the way that the conventions prefer for events, where a collector takes them."""
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        size = None if _variable("OTEL_BLRP_MAX_QUEUE_SIZE") else QUEUE_SIZE
        provider.add_log_record_processor(self._added(BatchLogRecordProcessor, OTLPLogExporter(), size))
        self._logger = provider.get_logger("agentv", __version__)

    def _added(self, processor: Any, exporter: Any, size: int | None) -> Any:
        """Return a processor for an exporter; both are stopped at the end."""
        self._exporters.append(exporter)
        self._processors.append(processor(_Counting(exporter, self), max_queue_size=size))
        return self._processors[-1]

    def stop(self, seconds: float, is_hopeless: Callable[[], bool], on_giving_up: Callable[[], None]) -> None:
        """Send what is left, for so long at most, and only as long as there is hope. It blocks."""
        threads = [threading.Thread(target=processor.shutdown, daemon=True) for processor in self._processors]
        end = time.monotonic() + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and time.monotonic() < end and not is_hopeless():
                thread.join(LOOK_SECONDS)
        if any(thread.is_alive() for thread in threads):
            on_giving_up()
            for exporter in self._exporters:
                exporter.shutdown()  # which wakes up who waits to try again
            for thread in threads:
                thread.join(1.0)

    def send(self, span: SpanData, trace_id: str) -> None:
        """Record a span and all that is in it, as a trace."""
        from opentelemetry.context import Context

        self._own_ids.next = int(trace_id, 16), int(case_span_id(trace_id), 16)
        self._record(span, Context())

    def _record(self, data: SpanData, context: Any, scored: Any = None) -> Any:
        """Record a span, and return its context. `scored` is that of the call whose answer was scored."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        kind = SpanKind.CLIENT if data.is_client else SpanKind.INTERNAL
        span = self._tracer.start_span(
            data.name, context=context, kind=kind, attributes=dict(data.attributes), start_time=data.start
        )
        is_counted = bool(self._processors) and span.get_span_context().trace_flags.sampled
        for name, attributes in data.events:
            if self._logger is None or not is_counted:
                span.add_event(name, dict(attributes), timestamp=data.end)
            else:
                self._log(name, dict(attributes), scored, data.end)
        if data.error is not None:
            span.set_status(StatusCode.ERROR, data.error)
        inner = set_span_in_context(span, context)
        first = None
        for child in data.children:
            found = self._record(child, inner, first)
            first = first or found
        self.recorded += is_counted
        span.end(data.end)
        return inner

    def _log(self, name: str, attributes: dict[str, Any], scored: Any, at: int) -> None:
        """Record an event as a log record, in the span of what was scored."""
        from opentelemetry._logs import LogRecord

        self.recorded += 1
        self._logger.emit(LogRecord(timestamp=at, context=scored, attributes=attributes, event_name=name))


class _Counting:
    """An exporter, of spans or of log records, that counts what it has sent."""

    def __init__(self, exporter: Any, sdk: _Sdk):
        self._exporter, self._sdk = exporter, sdk

    def export(self, batch: Sequence[Any]) -> Any:
        self._sdk.workers.add(threading.get_ident())
        result = self._exporter.export(batch)
        if result.name == "SUCCESS":
            with self._sdk.counting:
                self._sdk.sent += len(batch)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


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
        if record.thread in self._sdk.workers:
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
