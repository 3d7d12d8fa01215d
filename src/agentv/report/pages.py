"""Check the files in which a run is to write its results in other formats."""

import os
from pathlib import Path

from agentv.errors import OutputError
from agentv.files.atomic_files import why_not_writable
from agentv.run.options import STDOUT, EvalOptions


def check_pages(options: EvalOptions) -> None:
    """Raise `OutputError` if a report cannot be written, before any target or judge is called."""
    out = options.output.out
    _check_page("--junit", options.pages.junit, "junit.xml", out)
    _check_page("--report", options.pages.report, "report.html", out)
    _check_page("--record", options.pages.record, "record.json", out)


def _check_page(flag: str, path: Path | None, example: str, out: Path | None) -> None:
    if path is None:
        return
    if os.path.isdir(path):
        raise OutputError(f"{flag} is a folder", file=path, hint=f"pass a file in it: {path / example}")
    reason = why_not_writable(path)
    if reason:
        raise OutputError(f"{flag} cannot be written: {reason}", file=path, hint="name another file")
    if out is None:
        return
    if out == STDOUT or (out.exists() and not out.is_file()):
        raise OutputError(f"{flag} needs results in a regular file", file=out, hint="name another --out")
    if os.path.realpath(path) == os.path.realpath(out):
        raise OutputError(f"{flag} is --out as well", file=path, hint="name another file")
