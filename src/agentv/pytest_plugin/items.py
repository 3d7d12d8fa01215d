"""Eval cases as tests: a file is a collector, a trial of a case is an item.

An id with `::` in it would be a node id that nobody can name on pytest's command line, which looks for one node after
the other. So its parts are nodes: `geo::france` is an item in a group, as a method is in its class, and the node id is
the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest

from agentv.cases.read import read_eval_file
from agentv.errors import AgentvError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.pytest_plugin.keys import RUNS
from agentv.records import Problem
from agentv.report.case import case_lines

if TYPE_CHECKING:
    import os
    from pathlib import Path


class Trial(NamedTuple):
    """A trial of a case, which becomes an item."""

    parts: tuple[str, ...]
    """Of its name, those that are still to be nodes."""
    name: str
    key: tuple[str, str, int]
    line: int


class EvalFile(pytest.File):
    """An eval file; its cases are collected, and run together when the first of them is reached."""

    def collect(self) -> Iterator[EvalGroup | EvalItem]:
        problems: list[Problem] = []
        trials = self.config.stash[RUNS].trials
        try:
            cases = list(read_eval_file(self.path, problems.append))
        except AgentvError as error:
            raise self.CollectError(_told(error)) from error
        builder = EvaluatorBuilder(only_check=True, warn=lambda _problem: None)
        problems += [problem for case in cases for problem in builder.problems(case, case.target)]
        if errors := {_told(AgentvError.of(problem)): None for problem in problems if problem.severity == "error"}:
            raise self.CollectError("\n".join(errors))
        for problem in problems:
            self.warn(pytest.PytestWarning(str(AgentvError.of(problem))))
        found = []
        for case in cases:
            for trial in range(1, trials + 1):
                name = f"{case.id}[trial-{trial}]" if trials > 1 else case.id
                found.append(Trial(_parts(name), name, (case.dataset, case.id, trial), case.line))
        yield from _nodes(self, found)


class EvalGroup(pytest.Collector):
    """Cases that follow each other, and whose ids have the same text before `::`."""

    def __init__(self, *, trials: Sequence[Trial], **settings: Any):
        super().__init__(**settings)
        self._trials = trials

    def collect(self) -> Iterator[EvalGroup | EvalItem]:
        yield from _nodes(self, self._trials)


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name between `::`; pytest takes what comes after a bracket as it stands."""
    start, bracket, rest = name.partition("[")
    *groups, last = start.split("::")
    return *groups, last + bracket + rest


def _nodes(parent: EvalFile | EvalGroup, trials: Sequence[Trial]) -> Iterator[EvalGroup | EvalItem]:
    """Yield an item for each trial, or a group for those whose names go on; their order stays."""
    for (name, goes_on), found in groupby(trials, key=lambda trial: (trial.parts[0], len(trial.parts) > 1)):
        if goes_on:
            inner = [trial._replace(parts=trial.parts[1:]) for trial in found]
            yield EvalGroup.from_parent(parent, name=name, trials=inner)
        else:
            yield from (EvalItem.from_parent(parent, name=name, trial=trial) for trial in found)


class EvalItem(pytest.Item):
    """A trial of a case. It only reports: what it reports is run with all others of its file."""

    def __init__(self, *, trial: Trial, **settings: Any):
        super().__init__(**settings)
        self.key, self._line, self._title = trial.key, trial.line, trial.name
        self.extra_keyword_matches.add(trial.name)
        self._result: dict[str, Any] = {}

    def setup(self) -> None:
        """Get the result. What is no judgement of an answer is an error of the test, and not a failure."""
        found = self.config.stash[RUNS].result(self.path, self.key)
        if isinstance(found, AgentvError):
            pytest.fail(_told(found), pytrace=False)
        self._result = found
        if self._result.get("error") is not None or self._result.get("failure") is not None:
            self._fail()

    def runtest(self) -> None:
        if self._result.get("verdict") != "pass":
            self._fail()

    def _fail(self) -> NoReturn:
        """Fail with what was asked and answered, and why that is not right."""
        pytest.fail("\n".join(case_lines(self._result)), pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        path: Path = self.path
        # pytest prints `::` for each dot of a title that the node id ends with
        title = f"case {self._title}" if "." in self._title else self._title
        return path, max(self._line - 1, 0), title


def _told(error: AgentvError) -> str:
    """Return what is wrong, where, and what to do."""
    return f"{error}\nhint: {error.hint}" if error.hint else str(error)
