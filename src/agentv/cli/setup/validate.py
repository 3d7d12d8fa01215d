"""`agentv validate`."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from agentv.cases.discovery import agentv_files, is_eval_file, log_skipped_results, unique
from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import configure_logging, print_json, print_lines
from agentv.cli.params import format_option, target_names, verbose_option
from agentv.files.printable import printable
from agentv.log import warn
from agentv.project.validate import CheckedFile, check_files
from agentv.records import Problem
from agentv.text import plural


@click.command(
    cls=CommandWithGroups,
    examples=(
        "agentv validate .",
        "agentv validate evals/ .agentv/targets.yaml",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "--target",
    metavar="NAME",
    shell_complete=target_names,
    help="Check the cases for this target, as 'agentv eval --target' runs them.",
)
@format_option
@verbose_option
def command(paths: tuple[str, ...], target: str | None, form: str, verbose: bool) -> None:
    """Check eval files, sidecars, targets and config files without running anything.

    PATHS are files, folders or globs. All problems are reported, as
    'file:line:column: message'. Eval files in a folder need a targets file.

    Exit code 0 if there are no errors, 1 if there are, 2 if a path does not exist.
    """
    configure_logging(verbose)
    results: list[Path] = []
    files: list[Path] = []
    in_project: set[Path] = set()
    for path in paths:
        found = agentv_files(path, results)
        files.extend(found)
        if os.path.isdir(path):
            in_project.update(found)
            _warn_without_eval_files(path, found)
    log_skipped_results(results)
    checked = check_files(unique(files), in_project, target)
    counts: Counter[str] = Counter()
    if form == "json":
        _print_json(checked, counts)
    else:
        print_lines(_lines(checked, counts))
    if counts["errors"]:
        sys.exit(1)
    sys.exit(0)


def _warn_without_eval_files(folder: str, files: Iterable[Path]) -> None:
    """Warn about a folder in which `agentv eval` would find nothing to run."""
    if not any(is_eval_file(path) for path in files):
        message = f"no eval file in {folder!r}: only targets and config files are checked"
        warn(Problem(message=message, severity="warning"))


def _lines(checked: Iterable[CheckedFile], counts: Counter[str]) -> Iterator[str]:
    """Yield one line per problem while files are checked, and a last line with the counts. Update `counts`."""
    for file in checked:
        _count(file, counts)
        for problem in file.problems:
            yield printable(_line(problem))
    files = plural(counts["files"], "file")
    cases = plural(counts["cases"], "case")
    errors = plural(counts["errors"], "error")
    warnings = plural(counts["warnings"], "warning")
    yield f"{files}, {cases}: {errors}, {warnings}"


def _line(problem: Problem) -> str:
    """Return `file:line:column: severity: message`, a format that editors can parse."""
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
