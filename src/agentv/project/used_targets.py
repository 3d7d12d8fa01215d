"""The targets that an eval file uses -> what is wrong with them, and with who judges. No code of the user's is run."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from agentv.cases.guidelines import guideline_patterns
from agentv.cases.media import media_problem
from agentv.errors import AgentvError, ConfigError, nearest
from agentv.judges.target import NeededJudges, judge_name
from agentv.providers.workspaces.settings import has_workspaces
from agentv.records import EvalCase, Problem
from agentv.system.dotenv import load_env
from agentv.targets.read import TargetEntry, TargetList, find_targets, read_targets


class TargetFiles:
    """Finds and reads the targets files of eval files, each once."""

    def __init__(self) -> None:
        self._read: dict[Path, TargetList | AgentvError] = {}

    def problems(
        self,
        path: Path,
        used: Mapping[str, EvalCase],
        judges: NeededJudges,
        need_workspace: Mapping[str, Iterable[Problem]],
    ) -> Iterator[Problem]:
        """Yield what would stop a run of an eval file besides its cases; little if there is no targets file.

        `used` are the targets that its cases ask for, each with the first case that does; `need_workspace` is what
        is wrong if one of them has no workspaces.
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
            if entry is not None:
                yield from _entry_problems(entry, file, path.parent.absolute())
                if entry.draft is not None and not has_workspaces(entry.draft):
                    yield from need_workspace.get(name, ())
            elif name == "default" and case.target == "default":
                continue  # a run may be told another by --target
            elif read.names or not read.file_problems:
                message, hint = f"unknown target {name!r}: {file} has none of that name", nearest(name, read.names)
                yield Problem(message=message, file=path, line=case.line, column=1, hint=hint)

    def media_problem(self, path: Path, case: EvalCase) -> Problem | None:
        """Return why the target of a case cannot take its images and PDFs, as far as its settings are known."""
        try:
            read = self._targets(_short(find_targets(path.parent)))
        except ConfigError:
            return None
        entry = read.entry(case.target) if isinstance(read, TargetList) else None
        return media_problem(case, entry.draft) if entry is not None and entry.draft is not None else None

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
        yield msgspec.structs.replace(problem, file=_short(problem.file) if problem.file else None)


def _judge_problems(read: TargetList, judges: NeededJudges, needed: dict[str, EvalCase]) -> Iterator[Problem]:
    """Yield what is wrong with who judges, as a run finds it; add the targets that judge to those that are needed."""
    settings = {entry.name: entry.draft for entry in reversed(read.entries) if entry.draft is not None}
    for ref, case in judges.cases.items():
        if ref.target not in settings or (ref.name in read.names and ref.name not in settings):
            continue  # which is told elsewhere
        try:
            needed.setdefault(judge_name(ref, settings, case), case)
        except ConfigError as error:
            yield Problem.of(error)


def _entry_problems(entry: TargetEntry, file: Path, folder: Path) -> Iterator[Problem]:
    """Yield what is wrong with a target that is used."""
    for problem in entry.problems:
        yield msgspec.structs.replace(problem, message=f"{entry.title}: {problem.message}")
    has_variables = any("environment variable" in problem.message for problem in entry.problems)
    if entry.draft is not None and not has_variables:
        try:
            entry.draft.check_for(folder, file)
        except ConfigError as error:
            problem = entry.problem(file, error)
            is_elsewhere = error.message.startswith("no such program")  # which may be on the machine that it is for
            yield msgspec.structs.replace(problem, severity="warning") if is_elsewhere else problem


def _short(path: Path) -> Path:
    """Return the path from the current folder, if it is in there."""
    absolute = Path(os.path.abspath(path))
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute
