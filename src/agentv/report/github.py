"""Convert a results file to workflow commands, which GitHub shows as annotations next to the cases."""

from collections.abc import Container, Iterator, Mapping
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple

from agentv.records import CaseKey
from agentv.results.read import report_results
from agentv.results.views import ReportView

MAX_ANNOTATIONS = 10
"""GitHub shows at most this many annotations of one kind per step."""


class SourceLine(NamedTuple):
    """The location of a case: a file, relative to the root of the repository, and a line."""

    file: str
    line: int


class Annotations:
    """Annotations for the results of a file that did not pass and have the lowest scores."""

    def __init__(self, path: Path, cases: Container[CaseKey] | None = None):
        """Read the results of a file; with `cases`, only the results of these."""
        self._count = 0
        self._worst = nsmallest(
            MAX_ANNOTATIONS,
            self._not_passed(path, cases),
            key=lambda result: (result.score, result.eval_id),
        )

    def _not_passed(self, path: Path, cases: Container[CaseKey] | None) -> Iterator[ReportView]:
        """Yield the results that did not pass, and count them."""
        for result in report_results(path, cases):
            if result.outcome != "pass":
                self._count += 1
                yield result

    @property
    def cases(self) -> set[CaseKey]:
        """The cases whose locations `lines` needs."""
        return {result.case_key for result in self._worst}

    def lines(self, places: Mapping[CaseKey, SourceLine]) -> Iterator[str]:
        """Yield one workflow command per result, and one with the number of results that are not shown."""
        for result in self._worst:
            yield _annotation(result, places.get(result.case_key))
        more = self._count - len(self._worst)
        if more:
            yield f"::notice title=agentv::{more} more cases did not pass"


def _annotation(result: ReportView, place: SourceLine | None) -> str:
    level = "error"
    if result.verdict == "borderline" and result.outcome == "failure":
        level = "warning"
    where = ""
    if place:
        where = f"file={_escape_property(place.file)},line={place.line},"
    title = _escape_property(f"agentv: {result.title}")
    text = "\n".join(filter(None, [result.message, result.details]))
    return f"::{level} {where}title={title}::{_escape(text)}"


def _escape(text: str) -> str:
    text = text.replace("%", "%25")  # first, since the others add percent signs
    text = text.replace("\r", "%0D")
    return text.replace("\n", "%0A")


def _escape_property(text: str) -> str:
    text = _escape(text)
    text = text.replace(":", "%3A")
    return text.replace(",", "%2C")
