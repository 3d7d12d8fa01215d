"""The pytest plugin: eval cases as tests, and a fixture that checks what a run comes to.

pytest imports this module whether or not a project uses it, so it imports nothing of agentv until it does.
"""

from __future__ import annotations

import glob
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentv.pytest_plugin.keys import FILES, RUNS, UNDECIDED, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agentv.pytest_plugin.fixture import CheckedRun


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the ini file and of the command line."""
    group = parser.getgroup("agentv", "eval cases")
    group.addoption("--agentv", action="append", default=[], metavar="PATH", help="eval file, folder or glob")
    parser.addini(FILES, "eval files, folders or globs of them, whose cases are tests", type="args", default=[])
    parser.addini("agentv_target", "the target to use, in the place of what cases and files say")
    parser.addini("agentv_workers", "how many cases are in flight at once")
    parser.addini("agentv_trials", "how often each case is run")
    parser.addini("agentv_undecided", "what a check that cannot tell does: fail, warn or pass", default="fail")


def pytest_configure(config: pytest.Config) -> None:
    """Add the eval files to what is collected, unless somebody has named what to collect."""
    if (undecided := str(config.getini("agentv_undecided"))) not in UNDECIDED:
        raise pytest.UsageError(f"agentv_undecided = {undecided}: it must be one of {', '.join(UNDECIDED)}")
    asked, listed = config.getoption("--agentv"), config.getini(FILES)
    if not asked and not listed:
        return
    is_named = config.args_source is config.ArgsSource.ARGS
    named = set(_find("--agentv", asked, config.invocation_params.dir))
    needed = named | set(_find(FILES, listed, config.rootpath, may_be_missing=is_named))
    config.stash[WANTED] = frozenset(needed)
    folders = [Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args]
    for path in sorted(named if is_named else needed):
        if not any(path == folder or folder in path.parents for folder in folders):
            config.args.append(str(path))
    from agentv.pytest_plugin.runs import Runs

    config.stash[RUNS] = Runs(config)


def _find(option: str, names: list[str], folder: Path, *, may_be_missing: bool = False) -> Iterator[Path]:
    """Yield the eval files that paths, folders and globs stand for, as `agentv eval` finds them.

    Raise `pytest.UsageError` for a name that stands for none.
    """
    from agentv.errors import AgentvError
    from agentv.project.discovery import NothingFound, eval_files

    for name in names:
        path = folder / name
        try:
            found = eval_files([str(path) if path.exists() else str(Path(glob.escape(str(folder)), name))])
        except NothingFound as error:
            if may_be_missing:
                continue
            what = "no eval file in the folder" if path.is_dir() else "no such eval file:"
            what = "no eval file fits" if glob.has_magic(name) else what
            raise pytest.UsageError(f"{option}: {what} {name} (in {folder})") from error
        except AgentvError as error:
            raise pytest.UsageError(f"{option}: {error}") from error
        yield from (path.resolve() for path in found)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect the cases of an eval file; warn if another plugin collects the file as well."""
    others = yield
    if file_path.resolve() not in parent.config.stash.get(WANTED, ()):
        return others
    from agentv.pytest_plugin.items import EvalFile

    for other in others:
        kind = f"{type(other).__module__}.{type(other).__qualname__}"
        message = f"{file_path}: agentv collects it, and another plugin as {kind}: take it out of {FILES}, or of that"
        warnings.warn(pytest.PytestWarning(message), stacklevel=1)
    return [*others, EvalFile.from_parent(parent, path=file_path)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which cases are left to run, after `-k`, `--lf` and the like."""
    if (runs := session.config.stash.get(RUNS, None)) is not None:
        runs.select(session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where all workers put what they run."""
    if (runs := node.config.stash.get(RUNS, None)) is not None:
        node.workerinput["agentv_parts"] = str(runs.parts)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Join what was run into one results file."""
    if (runs := session.config.stash.get(RUNS, None)) is not None:
        runs.finish()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell where the results are."""
    runs = config.stash.get(RUNS, None)
    if runs is not None and runs.results is not None:
        terminalreporter.write_line(f"agentv: results are in {runs.results}")


@pytest.fixture
def agentv(request: pytest.FixtureRequest) -> Callable[..., CheckedRun]:
    """Return a function that runs eval files and returns a run whose figures can be checked."""
    from agentv.pytest_plugin.fixture import Runner

    return Runner(request.config)
