"""`agentv validate`."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import Command
from agentv.cli.messages import print_json, print_lines, print_warnings
from agentv.cli.params import format_option, verbose_option
from agentv.formats.printable import printable
from agentv.project.discovery import agentv_files, tell_of_results, unique
from agentv.project.validate import CheckedFile, check_files
from agentv.records import Problem
from agentv.report.quantities import counted


@click.command(
    cls=Command,
    examples=(
        "agentv validate .",
        "agentv validate evals/ .agentv/targets.yaml",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@format_option
@verbose_option
def command(paths: tuple[str, ...], form: str, verbose: bool) -> None:
    """Check eval files, sidecars, targets and config files without running anything.

    PATHS are files, folders or globs. Every problem of every file is shown, as
    file:line:column: message. Exit code 0: no errors (warnings are fine); 1: errors;
    2: a path that does not exist.
    """
    print_warnings(verbose)
    results: list[Path] = []
    files: list[Path] = []
    for path in paths:
        files.extend(agentv_files(path, results))
    tell_of_results(results)
    checked = check_files(unique(files))
    counts: Counter[str] = Counter()
    if form == "json":
        _print_json(checked, counts)
    else:
        print_lines(_lines(checked, counts))
    if counts["errors"]:
        sys.exit(1)
    sys.exit(0)


def _lines(checked: Iterable[CheckedFile], counts: Counter[str]) -> Iterator[str]:
    """Yield one line per problem while files are checked, and a last line with the counts. Update `counts`."""
    for file in checked:
        _count(file, counts)
        for problem in file.problems:
            yield printable(_line(problem))
    files = counted(counts["files"], "file")
    cases = counted(counts["cases"], "case")
    errors = counted(counts["errors"], "error")
    warnings = counted(counts["warnings"], "warning")
    yield f"{files}, {cases}: {errors}, {warnings}"


def _line(problem: Problem) -> str:
    """Return `file:line:column: severity: message`, the format of compilers, which editors can parse."""
    line = f"{problem.file}:{problem.line or 1}:{problem.column or 1}: {problem.severity}: {problem.message}"
    if problem.hint:
        line += f" ({problem.hint})"
    return line


def _print_json(checked: Iterable[CheckedFile], counts: Counter[str]) -> None:
    """Print all problems and the counts as JSON. Update `counts`."""
    problems: list[Problem] = []
    for file in checked:
        _count(file, counts)
        problems.extend(file.problems)
    summary = {name: counts[name] for name in ("files", "cases", "errors", "warnings")}
    print_json({"problems": problems, "summary": summary}, enc_hook=_path_text)


def _path_text(path: Any) -> str:
    """Return a path as text, even if its name is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def _count(file: CheckedFile, counts: Counter[str]) -> None:
    """Add the cases and problems of a file to the counts."""
    counts["files"] += 1
    counts["cases"] += file.cases
    for problem in file.problems:
        counts[f"{problem.severity}s"] += 1
