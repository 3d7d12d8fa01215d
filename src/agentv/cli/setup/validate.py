"""`agentv validate`."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from agentv.cli.help import Command
from agentv.cli.messages import print_lines, print_warnings
from agentv.cli.params import OneOf
from agentv.formats.printable import printable
from agentv.project.discovery import agentv_files, tell_of_results, unique
from agentv.project.validate import CheckedFile, check_files
from agentv.records import Problem


@click.command(cls=Command, examples=("agentv validate .", "agentv validate evals/ .agentv/targets.yaml"))
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--format", "form", type=OneOf(["text", "json"]), default="text", help="json is for tools.")
@click.option("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(paths: tuple[str, ...], form: str, verbose: bool) -> None:
    """Check eval files, sidecars, targets and config files without running anything.

    PATHS are files, folders or globs. Every problem of every file is shown, as
    file:line:column: message. Exit code 0: no errors (warnings are fine); 1: errors;
    2: a path that does not exist.
    """
    print_warnings(verbose)
    results: list[Path] = []
    files = unique(file for path in paths for file in agentv_files(path, results))
    tell_of_results(results)
    checked = check_files(files)
    summary = _print_json(checked) if form == "json" else _print_text(checked)
    sys.exit(1 if summary["errors"] else 0)


_COUNTED = ("files", "cases", "errors", "warnings")


def _print_text(checked: Iterable[CheckedFile]) -> Counter[str]:
    total: Counter[str] = Counter()
    print_lines(_lines(checked, total))
    return total


def _lines(checked: Iterable[CheckedFile], total: Counter[str]) -> Iterator[str]:
    """Yield a line for each problem while files are checked, and a last line with the numbers."""
    for file in checked:
        total.update(_counts(file))
        yield from (printable(_line(problem)) for problem in file.problems)
    files, cases, errors, warnings = (f"{total[what]} {what if total[what] != 1 else what[:-1]}" for what in _COUNTED)
    yield f"{files}, {cases}: {errors}, {warnings}"


def _line(problem: Problem) -> str:
    """Return `file:line:column: severity: message`, as compilers print it and editors read it."""
    hint = f" ({problem.hint})" if problem.hint else ""
    place = f"{problem.file}:{problem.line or 1}:{problem.column or 1}"
    return f"{place}: {problem.severity}: {problem.message}{hint}"


def _print_json(checked: Iterable[CheckedFile]) -> Counter[str]:
    files = list(checked)
    total = sum(map(_counts, files), Counter[str]())
    form = {
        "problems": [problem for file in files for problem in file.problems],
        "summary": {what: total[what] for what in _COUNTED},
    }
    print_lines([msgspec.json.format(msgspec.json.encode(form, enc_hook=_path), indent=2).decode()])
    return total


def _path(path: Any) -> str:
    """Return a path as text, also one that is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def _counts(file: CheckedFile) -> Counter[str]:
    severities = Counter(f"{problem.severity}s" for problem in file.problems)
    return Counter(files=1, cases=file.cases) + severities
