"""A results file -> JUnit XML, which CI servers show."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from agentv.results.read import read_records
from agentv.results.views import ReportView

_NOT_IN_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_blocks(path: Path) -> Iterator[bytes]:
    """Yield the results of a file as JUnit XML: what did not pass is a failure, what was not judged an error."""
    counts = dict.fromkeys(("pass", "failure", "error"), 0)
    seconds = 0.0
    for result, _ in read_records(path, ReportView):
        counts[result.outcome] += 1
        seconds += result.seconds
    total = sum(counts.values())
    totals = f'tests="{total}" failures="{counts["failure"]}" errors="{counts["error"]}" time="{seconds:.3f}"'
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="agentv" {totals}>\n'.encode()
    yield f'<testsuite name="agentv" {totals}>\n'.encode()
    for result, _ in read_records(path, ReportView):
        yield "".join(_testcase(result)).encode("utf-8", "replace")
    yield b"</testsuite>\n</testsuites>\n"


def _testcase(result: ReportView) -> Iterator[str]:
    names = f"classname={_attribute(result.dataset)} name={_attribute(result.title)}"
    yield f'  <testcase {names} time="{result.seconds:.3f}"'
    if result.outcome == "pass":
        yield "/>\n"
        return
    kind = _attribute(result.failure or result.verdict or "")
    yield f">\n    <{result.outcome} message={_attribute(result.message)} type={kind}>"
    yield f"{escape(_xml_text(result.details))}</{result.outcome}>\n  </testcase>\n"


def _attribute(text: str) -> str:
    return quoteattr(_xml_text(text))


def _xml_text(text: str) -> str:
    """Return the text with a replacement character for each that XML cannot hold."""
    return _NOT_IN_XML.sub("\ufffd", text)
