"""`agentv doctor`."""

import asyncio
import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import click
import msgspec

from agentv import __version__
from agentv.cases.discovery import NothingFound, eval_files
from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import print_json, print_lines
from agentv.cli.params import PATH, format_option
from agentv.errors import ConfigError
from agentv.extras import install_command
from agentv.files.folders import searched_folders
from agentv.files.printable import printable
from agentv.records import Problem
from agentv.redact import clean
from agentv.targets.dotenv import load_env
from agentv.targets.find import find_targets
from agentv.targets.readiness import TargetState, read_all_targets, target_states

EXTRAS = {
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "gemini": ("google-genai", "httpx2"),
    "http": ("httpx2",),
    "dask": ("distributed",),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
}
"""The extras of agentv, and the packages that each one installs."""
INDENT = 13
"""The indentation of lines about a target."""


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """An extra, and the versions of its packages. None if one of them is not installed."""

    name: str
    packages: dict[str, str] | None
    install: str


class TargetsFileState(msgspec.Struct, frozen=True, kw_only=True):
    """A targets file, the folders whose eval files use it, and the states of its targets."""

    file: str
    used_in: tuple[str, ...]
    targets: tuple[TargetState, ...]
    problems: tuple[Problem, ...]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The report of `agentv doctor`."""

    agentv: str
    python: str
    executable: str
    extras: tuple[Extra, ...]
    env_files: tuple[str, ...]
    targets_files: tuple[TargetsFileState, ...]
    looked_in: tuple[str, ...]
    problems: tuple[Problem, ...]
    ready: bool


@click.command(
    cls=CommandWithGroups,
    examples=(
        "agentv doctor",
        "agentv doctor --check",
        "agentv doctor --format json",
    ),
)
@click.option("--targets", type=PATH, help="Targets file, or a folder that contains one.")
@click.option(
    "--check",
    is_flag=True,
    help="Also run the health checks of targets, which may incur costs.",
)
@format_option
def command(targets: Path | None, check: bool, form: str) -> None:
    """Check the installation, the project files and the targets.

    Prints installed extras, the targets file and .env file in use, and whether each target is ready. Without
    --check, no target is called. Secrets are never printed.

    Exit code 0 if all targets are ready, 1 if not, 2 for invalid usage.
    """
    with contextlib.redirect_stdout(sys.stderr):  # this loads the user's functions, which may print
        diagnosis = _diagnose(targets, check)
    if form == "json":
        print_json(diagnosis, enc_hook=str)
    else:
        print_lines(map(printable, _wrap(_lines(diagnosis))))
    if not diagnosis.ready:
        sys.exit(1)
    sys.exit(0)


def _diagnose(given: Path | None, check: bool) -> Diagnosis:
    """Examine the installation, the files and the targets. `given` is the targets file named by the user."""
    folders = _eval_folders()
    problems: list[Problem] = []
    env_files: dict[Path, dict[str, str]] = {}
    try:
        env_files = load_env(folders)
    except ConfigError as error:
        problems.append(Problem.of(error))
    states = []
    for file, users in _targets_files(folders, given).items():
        states.append(_file_state(file, users, check))
    extras = [_extra(name, packages) for name, packages in EXTRAS.items()]
    return Diagnosis(
        agentv=__version__,
        python=platform.python_version(),
        executable=sys.executable,
        extras=tuple(extras),
        env_files=tuple(map(_relative, env_files)),
        targets_files=tuple(states),
        looked_in=_searched(folders),
        problems=tuple(problems),
        ready=_is_ready(states) and not problems,
    )


def _eval_folders() -> list[Path]:
    """Return the folders of the eval files below the current folder, or the current folder if there are none."""
    try:
        files = eval_files(["."], lambda _results: None)
    except NothingFound:
        return [Path()]
    return list(dict.fromkeys(file.parent for file in files))


def _searched(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the distinct folders that are searched for targets files and .env files."""
    places: dict[str, None] = {}
    for folder in folders:
        for place in searched_folders(folder):
            places[str(place)] = None
    return tuple(places)


def _is_ready(states: Sequence[TargetsFileState]) -> bool:
    """Return whether a targets file exists, and all targets files and targets are usable."""
    for state in states:
        if state.problems or not all(target.ready for target in state.targets):
            return False
    return bool(states)


def _targets_files(folders: Sequence[Path], given: Path | None) -> dict[Path, list[Path]]:
    """Return the targets files, each with the folders whose eval files use it.

    Raise `ConfigError` if the file named by the user does not exist.
    """
    used: dict[Path, list[Path]] = {}
    for folder in folders:
        try:
            file = find_targets(folder, given)
        except ConfigError:
            if given is not None:
                raise
            continue
        used.setdefault(file, []).append(folder)
    return used


def _extra(name: str, packages: Sequence[str]) -> Extra:
    versions: dict[str, str] | None = None
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions = {package: metadata.version(package) for package in packages}
    return Extra(name=name, packages=versions, install=install_command(name))


def _file_state(file: Path, folders: Sequence[Path], check: bool) -> TargetsFileState:
    """Examine a targets file and its targets. With `check`, run their healthchecks."""
    states: list[TargetState] = []
    try:
        targets = read_all_targets(file)
        clean.learn(targets.secrets)
        problems = targets.file_problems
        states = asyncio.run(target_states(targets, file, folders, check=check))
    except ConfigError as error:
        problems = (Problem.of(error),)
    return TargetsFileState(
        file=_relative(file),
        used_in=tuple(map(_relative, folders)),
        targets=tuple(states),
        problems=problems,
    )


def _relative(path: Path) -> str:
    """Return the path, relative to the current folder if it is inside."""
    absolute = Path(os.path.abspath(path))
    if absolute.is_relative_to(Path.cwd()):
        return str(absolute.relative_to(Path.cwd()))
    return str(absolute)


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the report as text."""
    yield f"agentv {diagnosis.agentv}, Python {diagnosis.python} ({diagnosis.executable})"
    yield ""
    yield "Extras"
    for extra in diagnosis.extras:
        yield _extra_line(extra)
    yield ""
    yield "Files"
    yield from _file_lines(diagnosis)
    for problem in diagnosis.problems:
        yield from _problem_lines(problem)
    total = 0
    ready = 0
    for state in diagnosis.targets_files:
        yield ""
        yield f"Targets in {state.file}, for the eval files in {', '.join(state.used_in)}"
        for problem in state.problems:
            yield from _problem_lines(problem)
        for target in state.targets:
            total += 1
            if target.ready:
                ready += 1
            yield from _target_lines(target)
    yield ""
    if total == 1:
        yield f"{ready} of 1 target is ready"
    else:
        yield f"{ready} of {total} targets are ready"


def _extra_line(extra: Extra) -> str:
    text = f"not installed: {extra.install}"
    if extra.packages:
        text = ", ".join(f"{name} {version}" for name, version in extra.packages.items())
    return f"  {extra.name:9}  {text}"


def _file_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the targets files and the .env files in use, or the folders that were searched for them."""
    nothing = f"none; searched {', '.join(diagnosis.looked_in)}"
    targets_files = [state.file for state in diagnosis.targets_files]
    yield f"  targets    {', '.join(targets_files) or nothing}"
    if not targets_files:
        yield f"{'':{INDENT}}hint: run 'agentv init' to create one"
    yield f"  .env       {', '.join(diagnosis.env_files) or nothing}"


def _target_lines(target: TargetState) -> Iterator[str]:
    status = "not ready"
    if target.ready:
        status = "ready"
    name = target.name or "unnamed target"
    provider = target.provider or "no provider"
    line = f"  {status:9}  {name} ({provider})"
    if target.judge == target.name:
        line += ", graded by itself"
    elif target.judge:
        line += f", graded by {target.judge}"
    yield line
    if target.healthcheck == "not run":
        yield f"{'':{INDENT}}health check not run (use --check)"
    for problem in target.problems:
        yield from _problem_lines(problem)


def _problem_lines(problem: Problem) -> Iterator[str]:
    message = problem.message
    if problem.line:
        message = f"line {problem.line}: {message}"
    if problem.severity == "warning":
        message = f"warning: {message}"
    yield f"{'':{INDENT}}{message}"
    if problem.hint:
        yield f"{'':{INDENT}}hint: {problem.hint}"


def _wrap(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines, wrapped to the width of the terminal. Without a terminal, they are unchanged."""
    if not sys.stdout.isatty():
        yield from lines
        return
    width = shutil.get_terminal_size().columns
    for line in lines:
        text = line.lstrip()
        first_indent = line[: len(line) - len(text)]
        indent = ""
        if line.startswith("  "):
            indent = " " * INDENT
        yield from click.wrap_text(text, width, first_indent, indent).splitlines() or [""]
