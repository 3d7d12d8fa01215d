"""Convert a results file to JUnit XML, which CI servers display."""

import re
from collections.abc import Container, Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from agentv.records import CaseKey
from agentv.results.read import report_results
from agentv.results.views import ReportView

_NOT_IN_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_blocks(path: Path, cases: Container[CaseKey] | None = None) -> Iterator[bytes]:
    """Yield the results of a file as JUnit XML; with `cases`, only the results of these.

    A case that did not pass is a failure; a case that was not judged is an error.
    """
    # The totals come before the cases in the document, so the file is read twice.
    counts = dict.fromkeys(("pass", "failure", "error"), 0)
    seconds = 0.0
    for result in report_results(path, cases):
        counts[result.outcome] += 1
        seconds += result.seconds
    total = sum(counts.values())
    totals = f'tests="{total}" failures="{counts["failure"]}" errors="{counts["error"]}" time="{seconds:.3f}"'
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="agentv" {totals}>\n'.encode()
    yield f'<testsuite name="agentv" {totals}>\n'.encode()
    for result in report_results(path, cases):
        testcase = "".join(_testcase(result))
        yield testcase.encode("utf-8", "replace")
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
    """Return the text as a quoted attribute value."""
    return quoteattr(_xml_text(text))


def _xml_text(text: str) -> str:
    """Replace the characters that XML does not allow with U+FFFD."""
    return _NOT_IN_XML.sub("\ufffd", text)
