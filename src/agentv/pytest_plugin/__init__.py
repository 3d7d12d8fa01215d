"""The pytest plugin: eval cases as tests, and a fixture that checks the figures of a run.

pytest imports this module whether or not a project uses it, so the rest of agentv is imported only when it is needed.
"""

from __future__ import annotations

import glob
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentv import WINDOWS_MESSAGE
from agentv.pytest_plugin.keys import FILES, RUNS, UNDECIDED, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agentv.pytest_plugin.fixture import CheckedRun


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and the ini file."""
    group = parser.getgroup("agentv", "eval cases")
    group.addoption(
        "--agentv",
        action="append",
        default=[],
        metavar="PATH",
        help="eval file, folder or glob",
    )
    parser.addini(
        FILES,
        "eval files, folders or globs whose cases are collected as tests",
        type="args",
        default=[],
    )
    parser.addini("agentv_target", "target to use for all cases, overriding the eval files")
    parser.addini("agentv_workers", "number of cases to run concurrently")
    parser.addini("agentv_trials", "number of times to run each case")
    parser.addini("agentv_undecided", "what to do if a check is undecided: fail, warn or pass", default="fail")


def pytest_configure(config: pytest.Config) -> None:
    """Add the eval files to the arguments of pytest.

    Files of the ini file are added only if the command line names nothing to collect.
    """
    undecided = str(config.getini("agentv_undecided"))
    if undecided not in UNDECIDED:
        allowed = ", ".join(UNDECIDED)
        raise pytest.UsageError(f"agentv_undecided = {undecided}: expected one of {allowed}")
    given_names = config.getoption("--agentv")
    listed_names = config.getini(FILES)
    if not given_names and not listed_names:
        return
    if sys.platform == "win32":
        raise pytest.UsageError(WINDOWS_MESSAGE)

    has_arguments = config.args_source is config.ArgsSource.ARGS
    given = _find("--agentv", given_names, config.invocation_params.dir)
    listed = _find(FILES, listed_names, config.rootpath, may_be_missing=has_arguments)
    wanted = given | listed
    config.stash[WANTED] = frozenset(wanted)
    if has_arguments:
        _add_arguments(config, given)
    else:
        _add_arguments(config, wanted)

    from agentv.pytest_plugin.runs import Runs

    config.stash[RUNS] = Runs(config)


def _add_arguments(config: pytest.Config, paths: set[Path]) -> None:
    """Add the paths to the arguments of pytest, except those that it collects anyway."""
    collected = set()
    for argument in config.args:
        name, _, _ = argument.partition("::")
        path = Path(config.invocation_params.dir, name)
        collected.add(path.resolve())
    for path in sorted(paths):
        if collected.isdisjoint([path, *path.parents]):
            config.args.append(str(path))


def _find(
    option: str,
    names: list[str],
    folder: Path,
    *,
    may_be_missing: bool = False,
) -> set[Path]:
    """Return the eval files that paths, folders and globs name, as `agentv eval` finds them.

    Raise `pytest.UsageError` for a name that matches none.
    """
    from agentv.cases.discovery import NothingFound, eval_files
    from agentv.errors import AgentvError

    files: set[Path] = set()
    for name in names:
        path = folder / name
        pattern = str(path)
        if not path.exists():
            # The name may be a glob, but the folder is not.
            escaped = glob.escape(str(folder))
            pattern = str(Path(escaped, name))
        try:
            found = eval_files([pattern])
        except NothingFound as error:
            if may_be_missing:
                continue
            missing = _describe_missing(name, path)
            raise pytest.UsageError(f"{option}: {missing} {name} (in {folder})") from error
        except AgentvError as error:
            raise pytest.UsageError(f"{option}: {error}") from error
        for eval_file in found:
            files.add(eval_file.resolve())
    return files


def _describe_missing(name: str, path: Path) -> str:
    if glob.has_magic(name):
        return "no eval file matches"
    if path.is_dir():
        return "no eval file in the folder"
    return "no such eval file:"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
    parent: pytest.Collector,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect the cases of an eval file; warn if another plugin also collects the file."""
    others = yield
    wanted = parent.config.stash.get(WANTED, ())
    if file_path.resolve() not in wanted:
        return others
    from agentv.pytest_plugin.items import EvalFile

    for other in others:
        type_ = type(other)
        kind = f"{type_.__module__}.{type_.__qualname__}"
        message = f"{file_path}: collected by agentv and, as {kind}, by another plugin: remove it from {FILES}"
        warnings.warn(pytest.PytestWarning(message), stacklevel=1)
    eval_file = EvalFile.from_parent(parent, path=file_path)
    return [*others, eval_file]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Select the cases that are left to run after `-k`, `--lf` and similar options."""
    runs = session.config.stash.get(RUNS, None)
    if runs is not None:
        runs.select(session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the folder for partial results, which all processes share, to a worker of pytest-xdist."""
    runs = node.config.stash.get(RUNS, None)
    if runs is not None:
        node.workerinput["agentv_parts"] = str(runs.parts)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Join the partial results into one results file."""
    runs = session.config.stash.get(RUNS, None)
    if runs is not None:
        runs.finish()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the path of the results file."""
    runs = config.stash.get(RUNS, None)
    if runs is not None and runs.results is not None:
        terminalreporter.write_line(f"agentv: results written to {runs.results}")


@pytest.fixture
def agentv(request: pytest.FixtureRequest) -> Callable[..., CheckedRun]:
    """Return a function that runs eval files and returns a run whose figures can be checked."""
    from agentv.pytest_plugin.fixture import Runner

    return Runner(request.config)
