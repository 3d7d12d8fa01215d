"""Import OpenTelemetry traces (OTLP in JSON) as answers, one per trace."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentv.importers.importer import Answer, Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Sample, read_lines
from agentv.telemetry.span import CASE_ID, LogEvent, Span, add_log_events, log_events_of, spans_of
from agentv.telemetry.spans import response_of_spans

SPANS = '"resourceSpans"'


class Otlp(Importer):
    """A file of OTLP traces: one JSON document, or one document per line."""

    becomes = Becomes.ANSWERS
    noun = "spans"
    takes_id = True

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return SPANS in sample.text

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        """Yield one answer per trace. A trace may span several documents, so all of them are read first."""
        traces: dict[str, list[Span]] = {}
        events: dict[str, list[LogEvent]] = {}
        for document in _documents(source, tally):
            for event in log_events_of(document):
                events.setdefault(event.trace_id, []).append(event)
            for span in spans_of(document):
                tally.read += 1
                traces.setdefault(span.trace_id, []).append(span)
        if not traces:
            raise ImportFailure(
                "the file contains no spans",
                file=source,
                hint="an OTLP file has 'resourceSpans'",
            )
        if self.options.id is not None and len(traces) > 1:
            raise ImportFailure(f"--id is for a single answer, but the file has {len(traces)} traces", file=source)

        for trace_id, spans in traces.items():
            where = f"trace {trace_id}"
            complete_spans = add_log_events(spans, events.get(trace_id, ()))
            response = response_of_spans(complete_spans)
            if not response.text and not response.trace:
                tally.skip("no span belongs to a model, an agent or a tool", where)
                continue
            id_ = self.options.id or _case_id(spans) or trace_id
            answer = Answer(id=id_, response=response)
            yield Row(answer, where)


def _case_id(spans: Sequence[Span]) -> str | None:
    """Return the case id that a span names, or None if no span does."""
    for span in spans:
        case_id = span.attributes.get(CASE_ID)
        if case_id:
            return str(case_id)
    return None


def _documents(source: Path, tally: Tally) -> Iterator[Any]:
    """Yield the documents of a file: the whole file if it is valid JSON, otherwise one document per line."""
    try:
        document = msgspec.json.decode(source.read_bytes())
    except (msgspec.DecodeError, UnicodeError):
        yield from _documents_by_line(source, tally)
    else:
        yield document


def _documents_by_line(source: Path, tally: Tally) -> Iterator[Any]:
    def skip_truncated(where: str) -> None:
        tally.skip("it is truncated", where)

    for line in read_lines(source, skip_truncated):
        yield line.value
