"""Traces of OpenTelemetry, as OTLP in JSON -> answers, one for each trace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.importers.importer import Answer, Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Sample, read_lines
from agentv.telemetry.span import CASE_ID, LogEvent, Span, add_log_events, log_events_of, spans_of
from agentv.telemetry.spans import response_of_spans

SPANS = '"resourceSpans"'


class Otlp(Importer):
    """A file of OTLP traces: one JSON document, or one a line."""

    becomes = Becomes.ANSWERS
    noun = "spans"
    takes_id = True

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return SPANS in sample.text

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        """Yield an answer for each trace. A trace may be in several documents, so all of them are read first."""
        traces: dict[str, list[Span]] = {}
        events: dict[str, list[LogEvent]] = {}
        for document in _documents(source, tally):
            for event in log_events_of(document):
                events.setdefault(event.trace_id, []).append(event)
            for span in spans_of(document):
                tally.read += 1
                traces.setdefault(span.trace_id, []).append(span)
        if not traces:
            raise ImportFailure("there are no spans in this file", file=source, hint="it should have 'resourceSpans'")
        if self.options.id is not None and len(traces) > 1:
            raise ImportFailure(f"--id names one answer, and there are {len(traces)} traces", file=source)
        for trace_id, spans in traces.items():
            response = response_of_spans(add_log_events(spans, events.get(trace_id, ())))
            if not response.text and not response.trace:
                tally.skip("no span is of a model, an agent or a tool", f"trace {trace_id}")
                continue
            named = next((span.attributes[CASE_ID] for span in spans if span.attributes.get(CASE_ID)), trace_id)
            yield Row(Answer(id=self.options.id or str(named), response=response), f"trace {trace_id}")


def _documents(source: Path, tally: Tally) -> Iterator[Any]:
    """Yield the documents of a file: the whole of it, or one a line."""
    try:
        yield msgspec.json.decode(source.read_bytes())
    except (msgspec.DecodeError, UnicodeError):
        yield from (line.value for line in read_lines(source, lambda where: tally.skip("it is cut off", where)))
