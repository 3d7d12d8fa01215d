"""Check the targets that an eval file uses, and the targets that judge their answers. No user code is run."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from agentv.cases.guidelines import guideline_patterns
from agentv.cases.media import media_problem
from agentv.errors import AgentvError, ConfigError, nearest
from agentv.judges.target import NeededJudges, judge_name
from agentv.providers.settings import TargetSettings
from agentv.providers.workspaces.settings import has_workspaces
from agentv.records import EvalCase, Problem
from agentv.system.dotenv import load_env
from agentv.targets.read import TargetEntry, TargetList, find_targets, read_targets


class TargetFiles:
    """Find and read the targets files of eval files, each once."""

    def __init__(self) -> None:
        self._read: dict[Path, TargetList | AgentvError] = {}

    def problems(
        self,
        path: Path,
        used: Mapping[str, EvalCase],
        judges: NeededJudges,
        need_workspace: Mapping[str, Iterable[Problem]],
    ) -> Iterator[Problem]:
        """Yield the problems outside of the cases that would stop a run of an eval file.

        Without a targets file, only the config is checked. `used` contains the targets of the cases, each with the
        first case that uses it; `need_workspace` contains the problems of a target if it has no workspaces.
        """
        yield from _config_problems(path)
        try:
            file = _short(find_targets(path.parent))
        except ConfigError:
            return
        read = self._targets(file)
        if isinstance(read, AgentvError):
            yield Problem.of(read)
            return
        yield from read.file_problems
        needed = dict(used)
        yield from _judge_problems(read, judges, needed)
        for name, case in needed.items():
            entry = read.entry(name)
            if entry is None:
                if _is_unknown(name, case, read):
                    yield _unknown_target(name, case, read, path, file)
                continue
            yield from _entry_problems(entry, file, path.parent.absolute())
            if entry.draft is not None and not has_workspaces(entry.draft):
                yield from need_workspace.get(name, ())

    def media_problem(self, path: Path, case: EvalCase) -> Problem | None:
        """Return why the target of a case does not accept its images and PDFs, as far as its settings are known."""
        try:
            file = _short(find_targets(path.parent))
        except ConfigError:
            return None
        read = self._targets(file)
        if isinstance(read, AgentvError):
            return None
        entry = read.entry(case.target)
        if entry is None or entry.draft is None:
            return None
        return media_problem(case, entry.draft)

    def _targets(self, file: Path) -> TargetList | AgentvError:
        if file not in self._read:
            environment = dict(os.environ)
            try:
                load_env([file.parent], environment)
                self._read[file] = read_targets(file, environment)
            except AgentvError as error:
                self._read[file] = error
        return self._read[file]


def _config_problems(path: Path) -> Iterator[Problem]:
    try:
        guideline_patterns(path.parent)
    except ConfigError as error:
        problem = Problem.of(error)
        file = _short(problem.file) if problem.file else None
        yield msgspec.structs.replace(problem, file=file)


def _judge_problems(
    read: TargetList,
    judges: NeededJudges,
    needed: dict[str, EvalCase],
) -> Iterator[Problem]:
    """Yield the problems of judges that a run would find, and add the judging targets to `needed`."""
    settings: dict[str, TargetSettings] = {}
    for entry in read.entries:
        if entry.draft is not None:
            settings.setdefault(entry.name, entry.draft)
    for ref, case in judges.cases.items():
        # A target that is unknown, or has no usable settings, is reported elsewhere.
        if ref.target not in settings:
            continue
        if ref.name in read.names and ref.name not in settings:
            continue
        try:
            name = judge_name(ref, settings, case)
        except ConfigError as error:
            yield Problem.of(error)
        else:
            needed.setdefault(name, case)


def _is_unknown(name: str, case: EvalCase, read: TargetList) -> bool:
    """Return whether a target that the file does not contain is an error."""
    if name == "default" and case.target == "default":
        return False  # a run may get another target from --target
    # If the targets could not be read at all, that is the problem to report.
    return bool(read.names) or not read.file_problems


def _unknown_target(
    name: str,
    case: EvalCase,
    read: TargetList,
    path: Path,
    file: Path,
) -> Problem:
    return Problem(
        message=f"unknown target {name!r}: {file} has none of that name",
        file=path,
        line=case.line,
        column=1,
        hint=nearest(name, read.names),
    )


def _entry_problems(entry: TargetEntry, file: Path, folder: Path) -> Iterator[Problem]:
    """Yield the problems of a target that is used."""
    for problem in entry.problems:
        message = f"{entry.title}: {problem.message}"
        yield msgspec.structs.replace(problem, message=message)
    has_variables = any("environment variable" in problem.message for problem in entry.problems)
    if entry.draft is None or has_variables:
        return
    try:
        entry.draft.check_for(folder, file)
    except ConfigError as error:
        problem = entry.problem(file, error)
        if error.message.startswith("no such program"):
            # The program may be installed on the machine where the target runs.
            problem = msgspec.structs.replace(problem, severity="warning")
        yield problem


def _short(path: Path) -> Path:
    """Return the path relative to the current folder if it is in there, else the absolute path."""
    absolute = Path(os.path.abspath(path))
    current = Path.cwd()
    if absolute.is_relative_to(current):
        return absolute.relative_to(current)
    return absolute
