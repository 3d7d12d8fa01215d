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
from agentv.cli.help import Command
from agentv.cli.messages import print_lines
from agentv.cli.params import OneOf
from agentv.errors import ConfigError
from agentv.formats.printable import printable
from agentv.project.discovery import NothingFound, eval_files
from agentv.records import Problem
from agentv.redact import clean, secrets_in
from agentv.system.dotenv import load_env
from agentv.system.extras import install_command
from agentv.system.folders import searched_folders
from agentv.targets.read import find_targets
from agentv.targets.readiness import TargetState, read_all_targets, target_states

EXTRAS = {
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "gemini": ("google-genai", "httpx2"),
    "http": ("httpx2",),
    "dask": ("distributed",),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
}
"""The extras of agentv, and the packages that each installs."""


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """An extra, and the versions of its packages; None if one is not installed."""

    name: str
    packages: dict[str, str] | None
    install: str


class TargetsFileState(msgspec.Struct, frozen=True, kw_only=True):
    """A targets file, the folders whose eval files use it, and the state of its targets."""

    file: str
    used_in: tuple[str, ...]
    targets: tuple[TargetState, ...]
    problems: tuple[Problem, ...]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All that `agentv doctor` finds out."""

    agentv: str
    python: str
    executable: str
    extras: tuple[Extra, ...]
    env_files: tuple[str, ...]
    targets_files: tuple[TargetsFileState, ...]
    looked_in: tuple[str, ...]
    problems: tuple[Problem, ...]
    ready: bool


@click.command(cls=Command, examples=("agentv doctor", "agentv doctor --check", "agentv doctor --format json"))
@click.option("--targets", type=click.Path(path_type=Path), help="The targets file, or a folder that has one.")
@click.option("--check", is_flag=True, help="Also run the healthchecks of targets, which may cost something.")
@click.option("--format", "form", type=OneOf(["text", "json"]), default="text", help="json is for tools.")
def command(targets: Path | None, check: bool, form: str) -> None:
    """Tell what is installed, which targets file and .env are used from here, and which targets are ready.

    Nobody is asked anything without --check, and no secret is shown. Exit code 0: every target is ready;
    1: one is not, or there is none; 2: bad usage.
    """
    with contextlib.redirect_stdout(sys.stderr):  # the user's functions are loaded, and may say something
        found = _diagnose(targets, check)
    if form == "json":
        print_lines([msgspec.json.format(msgspec.json.encode(found, enc_hook=str), indent=2).decode()])
    else:
        print_lines(map(printable, _fold(_lines(found))))
    sys.exit(0 if found.ready else 1)


def _diagnose(given: Path | None, check: bool) -> Diagnosis:
    try:
        folders = list(dict.fromkeys(path.parent for path in eval_files(["."], lambda _results: None)))
    except NothingFound:
        folders = [Path()]
    problems: list[Problem] = []
    env_files: dict[Path, dict[str, str]] = {}
    try:
        env_files = load_env(folders)
    except ConfigError as error:
        problems.append(Problem.of(error))
    for variables in env_files.values():
        clean.learn(secrets_in(variables))
    states = tuple(_file_state(file, places, check) for file, places in _targets_files(folders, given).items())
    is_ready = all(target.ready for state in states for target in state.targets)
    return Diagnosis(
        agentv=__version__,
        python=platform.python_version(),
        executable=sys.executable,
        extras=tuple(_extra(name, packages) for name, packages in EXTRAS.items()),
        env_files=tuple(map(_relative, env_files)),
        targets_files=states,
        looked_in=tuple(dict.fromkeys(str(place) for folder in folders for place in searched_folders(folder))),
        problems=tuple(problems),
        ready=bool(states) and is_ready and not problems and not any(state.problems for state in states),
    )


def _targets_files(folders: Sequence[Path], given: Path | None) -> dict[Path, list[Path]]:
    """The targets files, each with the folders whose eval files use it. One that was named must be there."""
    used: dict[Path, list[Path]] = {}
    for folder in folders:
        try:
            used.setdefault(find_targets(folder, given), []).append(folder)
        except ConfigError:
            if given is not None:
                raise
    return used


def _extra(name: str, packages: Sequence[str]) -> Extra:
    try:
        versions: dict[str, str] | None = {package: metadata.version(package) for package in packages}
    except metadata.PackageNotFoundError:
        versions = None
    return Extra(name=name, packages=versions, install=install_command(name))


def _file_state(file: Path, folders: Sequence[Path], check: bool) -> TargetsFileState:
    states: list[TargetState] = []
    try:
        read = read_all_targets(file)
        clean.learn(read.secrets)
        problems = read.file_problems
        states = asyncio.run(target_states(read, file, folders, check=check))
    except ConfigError as error:
        problems = (Problem.of(error),)
    return TargetsFileState(
        file=_relative(file), used_in=tuple(map(_relative, folders)), targets=tuple(states), problems=problems
    )


def _relative(path: Path) -> str:
    """Return the path, relative to the current folder if it is inside."""
    here = Path(os.path.abspath(path))
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def _lines(found: Diagnosis) -> Iterator[str]:
    yield f"agentv {found.agentv}, Python {found.python} ({found.executable})"
    yield from ("", "Extras")
    for extra in found.extras:
        versions = ", ".join(f"{name} {version}" for name, version in (extra.packages or {}).items())
        yield f"  {extra.name:9}  {versions or f'not installed: {extra.install}'}"
    yield from ("", "Files")
    nothing = f"none; looked in {', '.join(found.looked_in)}"
    yield f"  targets    {', '.join(state.file for state in found.targets_files) or nothing}"
    if not found.targets_files:
        yield "             hint: 'agentv init' makes one"
    yield f"  .env       {', '.join(found.env_files) or nothing}"
    for problem in found.problems:
        yield from _problem_lines(problem)
    for state in found.targets_files:
        yield from ("", f"Targets in {state.file}, for the eval files in {', '.join(state.used_in)}")
        for problem in state.problems:
            yield from _problem_lines(problem)
        for target in state.targets:
            yield from _target_lines(target)
    targets = [target for state in found.targets_files for target in state.targets]
    ready = sum(target.ready for target in targets)
    yield from ("", f"{ready} of {len(targets)} {'target is' if len(targets) == 1 else 'targets are'} ready")


def _target_lines(target: TargetState) -> Iterator[str]:
    status = "ready" if target.ready else "not ready"
    judge = "itself" if target.judge == target.name else target.judge
    graded = f", graded by {judge}" if judge else ""
    yield f"  {status:9}  {target.name or 'a target without a name'} ({target.provider or 'no provider'}){graded}"
    if target.healthcheck == "not run":
        yield f"{'':13}its healthcheck was not run: --check runs it"
    for problem in target.problems:
        yield from _problem_lines(problem)


def _problem_lines(problem: Problem) -> Iterator[str]:
    line = f"line {problem.line}: " if problem.line else ""
    kind = "warning: " if problem.severity == "warning" else ""
    yield f"{'':13}{kind}{line}{problem.message}"
    if problem.hint:
        yield f"{'':13}hint: {problem.hint}"


def _fold(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines, folded to the width of the terminal; unchanged if stdout is not a terminal."""
    if not sys.stdout.isatty():
        yield from lines
        return
    width = shutil.get_terminal_size().columns
    for line in lines:
        indent = " " * (13 if line.startswith("  ") else 0)
        first = line[: len(line) - len(line.lstrip())]
        yield from click.wrap_text(line.lstrip(), width, first, indent).splitlines() or [""]
