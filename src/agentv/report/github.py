"""A results file -> workflow commands, which GitHub shows as annotations beside the cases."""

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple

from agentv.results.read import read_records
from agentv.results.views import ReportView

MAX_ANNOTATIONS = 10
"""GitHub shows no more of a kind for one step."""
CaseKey = tuple[str, str]
"""The dataset and the id of a case."""


class SourceLine(NamedTuple):
    """Where a case stands: a file, by its path in the repository, and a line."""

    file: str
    line: int


class Annotations:
    """The results of a file with the lowest scores that did not pass."""

    def __init__(self, path: Path):
        not_passed = (result for result, _ in read_records(path, ReportView) if result.outcome != "pass")
        self._count = 0
        self._worst = nsmallest(MAX_ANNOTATIONS, self._counted(not_passed), key=lambda view: (view.score, view.eval_id))

    def _counted(self, results: Iterable[ReportView]) -> Iterator[ReportView]:
        for result in results:
            self._count += 1
            yield result

    @property
    def cases(self) -> set[CaseKey]:
        """The cases that `lines` needs the places of."""
        return {result.case_key for result in self._worst}

    def lines(self, places: Mapping[CaseKey, SourceLine]) -> Iterator[str]:
        """Yield a workflow command for each result, and one that counts those left out."""
        for result in self._worst:
            place = places.get(result.case_key)
            where = f"file={_escape_property(place.file)},line={place.line}," if place else ""
            level = "warning" if result.verdict == "borderline" and result.outcome == "failure" else "error"
            text = "\n".join(filter(None, [result.message, result.details]))
            yield f"::{level} {where}title={_escape_property(f'agentv: {result.title}')}::{_escape(text)}"
        if more := self._count - len(self._worst):
            yield f"::notice title=agentv::{more} more cases did not pass"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
