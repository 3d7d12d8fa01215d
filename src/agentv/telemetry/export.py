"""Export results as spans to the user's collector, through OpenTelemetry's own SDK and its environment variables.

A thread of the SDK sends the spans from a bounded queue: a collector that is slow or unreachable causes lost spans and
a warning, but never costs a result or delays the run. Log messages of the SDK are turned into agentv warnings.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from agentv import __version__
from agentv.errors import ConfigError
from agentv.extras import install_command
from agentv.log import warn
from agentv.processes.threads import run_in_thread
from agentv.providers.trace_context import case_span_id, new_trace_id
from agentv.records import EvalResult, Problem
from agentv.redact import NamedSecret, clean
from agentv.telemetry.result_spans import SpanData, TargetKind, span_of_result

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE_SIZE = 16_384
"""The maximum number of spans in the queue. OTEL_BSP_MAX_QUEUE_SIZE overrides it."""
FLUSH_SECONDS = 5.0
"""How long the end of a run waits for spans to be sent."""
LOOK_SECONDS = 0.05
"""The interval at which the end of a run checks whether to keep waiting."""
OURS = ("opentelemetry.exporter.otlp", "opentelemetry.sdk")
"""The loggers that report failures after an exporter was shut down."""
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_IN_SPANS = ("true", "span_only", "span_and_event")
ERRNO = re.compile(r"\[Errno -?\d+\] ([^\"')\]]+)")
TRANSIENT = re.compile(r"Transient error (.*) encountered while exporting")
MAX_REASON_CHARACTERS = 300


class Exporter:
    """Sends the spans of results. An async context manager: leaving it waits for unsent spans, for a limited time."""

    def __init__(self, kind_of: Callable[[str], TargetKind]):
        """Import the SDK. `kind_of` returns the kind of a target by its name.

        Raise `ConfigError` if the extra is not installed.
        """
        self._kind_of = kind_of
        self._has_content = _variable(CONTENT).lower() in CONTENT_IN_SPANS
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
        def stop() -> None:
            self._sdk.stop(FLUSH_SECONDS, self._is_hopeless, self._log.end)

        await run_in_thread(stop)
        logging.getLogger("opentelemetry").removeHandler(self._log)
        self._warn_about_losses()

    def _is_hopeless(self) -> bool:
        """Return whether sending has failed and nothing was ever sent."""
        return bool(self._log.last) and not self._sdk.sent

    def stamp(self, result: EvalResult) -> str:
        """Return the trace id for a result: the one that its target was given, or a new one."""
        return result.trace_id or new_trace_id()

    def export(self, result: EvalResult) -> None:
        """Queue the spans of a result, which must be masked already. Never raises and never blocks."""
        try:
            with self._log.ours():
                kind = self._kind_of(result.target)
                span = span_of_result(result, kind, has_content=self._has_content)
                self._sdk.send(span, self.stamp(result))
        except Exception as error:  # no failure of the export may cost the result
            self.lose(error)

    def lose(self, error: Exception) -> None:
        """Record that a result has no spans because of this error."""
        self._lost_results += 1
        self._log.last = f"{type(error).__name__}: {error}"

    def _warn_about_losses(self) -> None:
        """Warn if spans were not sent, or if results have no spans."""
        sdk = self._sdk
        reason = ""
        if self._log.last:
            reason = f": {self._log.last}"
        lost = sdk.recorded - sdk.sent
        if lost:
            what = "spans"
            if sdk.has_logs:
                what = "spans and events"
            message = f"--otel: {lost} of {sdk.recorded} {what} were not sent to {sdk.endpoint}{reason}"
        elif self._lost_results:
            message = f"--otel: {self._lost_results} results have no trace{reason}"
        else:
            return
        warn(
            Problem(
                message=message,
                severity="warning",
                hint="results are not affected",
            )
        )


class _SdkModules(NamedTuple):
    """The modules of the SDK that are used. They are imported late, as the SDK is an extra."""

    trace: ModuleType
    export: ModuleType
    id_generator: ModuleType
    otlp: ModuleType


class _Sdk:
    """The SDK with providers of its own, separate from those that the user's code in this process has set up."""

    def __init__(self) -> None:
        self._modules = _import_sdk()
        self.endpoint = ""
        self.recorded = 0
        """The number of spans, and of events that are log records, that were queued."""
        self.sent = 0
        """How many of them the collector has accepted."""
        self.counting = threading.Lock()
        self.workers: set[int] = set()
        """The ids of the threads that send."""
        self._processors: list[Any] = []
        self._exporters: list[Any] = []
        self._logger: Any = None

    def start(self) -> None:
        """Set up the providers according to the environment variables."""
        from opentelemetry.sdk.resources import Resource

        resource = Resource.create({})
        service_name = str(resource.attributes.get("service.name", ""))
        if service_name.startswith("unknown_service"):
            own = Resource({"service.name": "agentv", "service.version": __version__})
            resource = resource.merge(own)
        self._own_ids = _own_ids(self._modules.id_generator)
        provider = self._modules.trace.TracerProvider(
            resource=resource,
            id_generator=self._own_ids,
            shutdown_on_exit=False,
        )
        if _variable("OTEL_TRACES_EXPORTER") != "none":
            self._start_traces(provider)
            if _variable("OTEL_LOGS_EXPORTER") == "otlp":
                self._start_logs(resource)
        self._tracer = provider.get_tracer("agentv", __version__)
        _check_protocol()

    @property
    def has_logs(self) -> bool:
        """Whether events are sent as log records."""
        return self._logger is not None

    def _start_traces(self, provider: Any) -> None:
        exporter = self._modules.otlp.OTLPSpanExporter()
        self.endpoint = getattr(exporter, "_endpoint", "the collector")
        processor = self._processor(
            self._modules.export.BatchSpanProcessor,
            exporter,
            _queue_size("OTEL_BSP_MAX_QUEUE_SIZE"),
        )
        provider.add_span_processor(processor)

    def _start_logs(self, resource: Any) -> None:
        """Set up log records, which the conventions prefer for events."""
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        processor = self._processor(
            BatchLogRecordProcessor,
            OTLPLogExporter(),
            _queue_size("OTEL_BLRP_MAX_QUEUE_SIZE"),
        )
        provider.add_log_record_processor(processor)
        self._logger = provider.get_logger("agentv", __version__)

    def _processor(
        self,
        type_: Any,
        exporter: Any,
        queue_size: int | None,
    ) -> Any:
        """Return a new processor for an exporter. `stop` shuts both down."""
        processor = type_(_CountingExporter(exporter, self), max_queue_size=queue_size)
        self._exporters.append(exporter)
        self._processors.append(processor)
        return processor

    def stop(
        self,
        seconds: float,
        is_hopeless: Callable[[], bool],
        on_giving_up: Callable[[], None],
    ) -> None:
        """Send the rest of the queue. Block for at most `seconds`, and only while `is_hopeless` returns False.

        Call `on_giving_up` if spans are left.
        """
        threads = []
        for processor in self._processors:
            thread = threading.Thread(target=processor.shutdown, daemon=True)
            thread.start()
            threads.append(thread)

        end = time.monotonic() + seconds
        for thread in threads:
            while thread.is_alive() and time.monotonic() < end and not is_hopeless():
                thread.join(LOOK_SECONDS)
        if any(thread.is_alive() for thread in threads):
            on_giving_up()
            for exporter in self._exporters:
                exporter.shutdown()  # wakes threads that wait for a retry
            for thread in threads:
                thread.join(1.0)

    def send(self, span: SpanData, trace_id: str) -> None:
        """Record a span and its children as a trace with this id."""
        from opentelemetry.context import Context

        span_id = case_span_id(trace_id)
        self._own_ids.next = (int(trace_id, 16), int(span_id, 16))
        self._record(span, Context())

    def _record(
        self,
        data: SpanData,
        context: Any,
        scored_call: Any = None,
    ) -> Any:
        """Record a span and its children, and return its context.

        `scored_call` is the context of the call whose answer was scored, which events as log records refer to.
        """
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        kind = SpanKind.INTERNAL
        if data.is_client:
            kind = SpanKind.CLIENT
        span = self._tracer.start_span(
            data.name,
            context=context,
            kind=kind,
            attributes=dict(data.attributes),
            start_time=data.start,
        )
        is_counted = bool(self._processors) and span.get_span_context().trace_flags.sampled
        for name, attributes in data.events:
            if self.has_logs and is_counted:
                self._log(name, dict(attributes), scored_call, data.end)
            else:
                span.add_event(name, dict(attributes), timestamp=data.end)
        if data.error is not None:
            span.set_status(StatusCode.ERROR, data.error)
        own_context = set_span_in_context(span, context)
        call_context = None
        for child in data.children:
            child_context = self._record(child, own_context, call_context)
            # The first child of a case is the call of its target; evaluators follow.
            call_context = call_context or child_context
        if is_counted:
            self.recorded += 1
        span.end(data.end)
        return own_context

    def _log(
        self,
        name: str,
        attributes: dict[str, Any],
        scored_call: Any,
        at: int,
    ) -> None:
        """Record an event as a log record in the span of the call that was scored, whose context is `scored_call`."""
        from opentelemetry._logs import LogRecord

        self.recorded += 1
        record = LogRecord(
            timestamp=at,
            context=scored_call,
            attributes=attributes,
            event_name=name,
        )
        self._logger.emit(record)


@dataclass(eq=False)
class _CountingExporter:
    """Wraps an exporter of spans or log records and counts the items it has sent."""

    exporter: Any
    sdk: _Sdk

    def export(self, batch: Sequence[Any]) -> Any:
        self.sdk.workers.add(threading.get_ident())
        result = self.exporter.export(batch)
        if result.name == "SUCCESS":
            with self.sdk.counting:
                self.sdk.sent += len(batch)
        return result

    def shutdown(self) -> None:
        self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self.exporter.force_flush(timeout_millis))


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _queue_size(variable: str) -> int | None:
    """Return our size of a queue, or None if the user has set the variable, which the SDK reads itself."""
    if _variable(variable):
        return None
    return QUEUE_SIZE


def _check_protocol() -> None:
    """Warn if the variables ask for a protocol other than the only one that is supported."""
    protocol = _variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or _variable("OTEL_EXPORTER_OTLP_PROTOCOL")
    if not protocol or protocol == "http/protobuf":
        return
    message = f"--otel sends OTLP as http/protobuf, though OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}"
    warn(
        Problem(
            message=message,
            severity="warning",
            hint="the endpoint must accept OTLP over HTTP",
        )
    )


def _own_ids(id_generator: ModuleType) -> Any:
    """Return an id generator that uses the ids in `next` for the next trace and its root span."""

    class Ids(id_generator.RandomIdGenerator):  # type: ignore[name-defined,misc]  # the module is imported late
        next: tuple[int, int] | None = None

        def generate_trace_id(self) -> int:
            if self.next is None:
                return int(super().generate_trace_id())
            return self.next[0]

        def generate_span_id(self) -> int:
            if self.next is None:
                return int(super().generate_span_id())
            span_id = self.next[1]
            self.next = None  # child spans have random ids
            return span_id

    return Ids()


class _SdkLog(logging.Handler):
    """Receives the SDK's log records. Those about our own spans become one warning, others are logged as usual."""

    def __init__(self, sdk: _Sdk):
        super().__init__(logging.WARNING)
        self._sdk = sdk
        self.last = ""
        """The last reason for which spans could not be sent."""
        self._our_thread: int | None = None
        self._has_warned = False
        self._is_over = False

    @contextmanager
    def ours(self) -> "Iterator[None]":
        """Attribute what the SDK logs in this thread to our own spans."""
        self._our_thread = threading.get_ident()
        try:
            yield
        finally:
            self._our_thread = None

    def end(self) -> None:
        """Ignore further failures to send our spans."""
        self._is_over = True

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_over and record.name.startswith(OURS):
            return
        if record.thread in self._sdk.workers:
            self._warn_once(_reason(record.getMessage()))
        elif record.thread == self._our_thread:
            message = record.getMessage()
            if message.startswith("Queue full"):
                self._warn_once(f"more than {QUEUE_SIZE} spans are waiting to be sent")
            else:  # an invalid environment variable
                warn(Problem(message=f"--otel: {_reason(message)}", severity="warning"))
        elif not logging.getLogger().handlers and logging.lastResort is not None:
            # A record about other spans, which `logging` would print if this handler did not exist.
            logging.lastResort.handle(record)

    def _warn_once(self, reason: str) -> None:
        """Warn that spans cannot be sent, the first time only."""
        self.last = reason
        if self._has_warned:
            return
        self._has_warned = True
        message = f"--otel: spans cannot be sent to {self._sdk.endpoint}: {reason}"
        hint = "the run continues; the number of lost spans is reported at its end"
        warn(
            Problem(
                message=message,
                severity="warning",
                hint=hint,
            )
        )


def _header_secrets() -> list[str]:
    """Return the values of the headers that are sent to the collector, such as an API key."""
    secrets: list[str] = []
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for pair in os.environ.get(name, "").split(","):
            value = unquote(pair.partition("=")[2]).strip()
            token = value.partition(" ")[2]  # the token alone, of "Bearer abc"
            secrets.append(NamedSecret(value, name))
            secrets.append(NamedSecret(token, name))
    return secrets


def _reason(message: str) -> str:
    """Return the reason for a failure from a log message of the SDK: the operating system's, if it contains one."""
    errno = ERRNO.search(message)
    if errno is not None:
        return errno[1].strip()
    lines = message.strip().splitlines()
    if not lines:
        return ""
    reason = lines[0]
    transient = TRANSIENT.match(reason)
    if transient is not None:
        reason = transient[1]
    return reason[:MAX_REASON_CHARACTERS]


def _import_sdk() -> _SdkModules:
    """Import the parts of the SDK that are used. Raise `ConfigError` if the extra is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http import trace_exporter
        from opentelemetry.sdk import trace
        from opentelemetry.sdk.trace import export, id_generator
    except ImportError as error:
        hint = f"install it with: {install_command('otel')}"
        raise ConfigError("--otel requires the OpenTelemetry SDK and its OTLP exporter", hint=hint) from error
    return _SdkModules(
        trace=trace,
        export=export,
        id_generator=id_generator,
        otlp=trace_exporter,
    )
