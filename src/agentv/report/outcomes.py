"""A results file -> where people look for failures: JUnit XML for CI servers, annotations for GitHub."""

import re
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from pathlib import Path
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import msgspec

from agentv.results.write import read_as

MOST_ANNOTATIONS = 10
"""GitHub shows no more of a kind for one step."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Case = tuple[str, str]
"""The dataset and the id of a case."""


class _Metrics(msgspec.Struct, frozen=True):
    duration_ms: float | None = None


class Reported(msgspec.Struct, frozen=True):
    """What a report tells of a result."""

    eval_id: str
    score: float
    verdict: str = ""
    dataset: str = ""
    trial: int | None = None
    misses: tuple[str, ...] = ()
    reasoning: str | None = None
    error: str | None = None
    failure: str | None = None
    execution_metrics: _Metrics | None = None

    @property
    def name(self) -> str:
        return self.eval_id if self.trial is None else f"{self.eval_id}, trial {self.trial}"

    @property
    def kind(self) -> Literal["pass", "failure", "error"]:
        """Whether it passed, failed, or was not judged at all."""
        if self.error is not None or self.failure is not None:
            return "error"
        return "pass" if self.verdict == "pass" else "failure"

    @property
    def message(self) -> str:
        """What is wrong, in a line."""
        if self.error is not None:
            return " ".join(self.error.split())
        return f"score {self.score:.3f}, {'a judge failed' if self.failure else self.verdict}"

    @property
    def details(self) -> str:
        return "\n".join([*(f"- {miss}" for miss in self.misses), *([self.reasoning] if self.reasoning else [])])


def junit(path: Path) -> Iterator[bytes]:
    """The results of a file as JUnit XML: what is not passed is a failure, what was not judged an error."""
    counts = dict.fromkeys(("pass", "failure", "error"), 0)
    seconds = 0.0
    for result in read_as(path, Reported):
        counts[result.kind] += 1
        seconds += _seconds(result)
    total = sum(counts.values())
    totals = f'tests="{total}" failures="{counts["failure"]}" errors="{counts["error"]}" time="{seconds:.3f}"'
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="agentv" {totals}>\n'.encode()
    yield f'<testsuite name="agentv" {totals}>\n'.encode()
    for result in read_as(path, Reported):
        yield "".join(_testcase(result)).encode("utf-8", "replace")
    yield b"</testsuite>\n</testsuites>\n"


def _testcase(result: Reported) -> Iterator[str]:
    names = f"classname={_attribute(result.dataset)} name={_attribute(result.name)}"
    yield f'  <testcase {names} time="{_seconds(result):.3f}"'
    if result.kind == "pass":
        yield "/>\n"
        return
    kind = result.failure or result.verdict
    yield f">\n    <{result.kind} message={_attribute(result.message)} type={_attribute(kind)}>"
    yield f"{escape(_xml(result.details))}</{result.kind}>\n  </testcase>\n"


def _seconds(result: Reported) -> float:
    return ((result.execution_metrics and result.execution_metrics.duration_ms) or 0.0) / 1000


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _xml(text: str) -> str:
    """The text without what XML cannot hold."""
    return _NO_XML.sub("\ufffd", text)


class Place(NamedTuple):
    """Where a case is written."""

    file: str
    line: int


class Annotations:
    """The worst results of a file, as lines that GitHub shows beside the cases."""

    def __init__(self, path: Path):
        wrong = (result for result in read_as(path, Reported) if result.kind != "pass")
        self._counted = 0
        self._worst = nsmallest(MOST_ANNOTATIONS, self._count(wrong), key=lambda result: (result.score, result.eval_id))

    def _count(self, wrong: Iterable[Reported]) -> Iterator[Reported]:
        for result in wrong:
            self._counted += 1
            yield result

    @property
    def cases(self) -> set[Case]:
        """The cases whose places are wanted."""
        return {(result.dataset, result.eval_id) for result in self._worst}

    def lines(self, places: Mapping[Case, Place]) -> Iterator[str]:
        for result in self._worst:
            place = places.get((result.dataset, result.eval_id))
            where = f"file={_property(place.file)},line={place.line}," if place else ""
            level = "warning" if result.verdict == "borderline" and result.kind == "failure" else "error"
            text = "\n".join(filter(None, [result.message, result.details]))
            yield f"::{level} {where}title={_property(f'agentv: {result.name}')}::{_data(text)}"
        if more := self._counted - len(self._worst):
            yield f"::notice title=agentv::{more} more cases did not pass"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
