"""Check the files in which a run is to write its results in other formats."""

import os
from pathlib import Path

from agentv.errors import OutputError
from agentv.files.atomic_files import why_not_writable
from agentv.run.options import STDOUT, EvalOptions


def check_pages(options: EvalOptions) -> None:
    """Raise `OutputError` if a report cannot be written, before any target or judge is called."""
    out = options.output.out
    pages = options.pages
    _check_page("--junit", pages.junit, "junit.xml", out)
    _check_page("--report", pages.report, "report.html", out)
    _check_page("--record", pages.record, "record.json", out)
    _check_same("--report", pages.report, "--junit", pages.junit)
    _check_same("--record", pages.record, "--junit", pages.junit)
    _check_same("--record", pages.record, "--report", pages.report)


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
    _check_same(flag, path, "--out", out)


def _check_same(flag: str, path: Path | None, other_flag: str, other: Path | None) -> None:
    """Raise `OutputError` if two options name the same file."""
    if path is None or other is None:
        return
    if os.path.realpath(path) == os.path.realpath(other):
        raise OutputError(f"{flag} is {other_flag} as well", file=path, hint="name another file")
