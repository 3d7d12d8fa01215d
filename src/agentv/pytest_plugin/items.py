"""Collect eval cases as tests: an eval file is a collector, a trial of a case is an item.

pytest resolves a node id on its command line one node after the other, so an item with `::` in its name could not be
selected. The parts of such an id are therefore separate nodes: `geo::france` is an item in a group, like a method in
its class, and its node id stays the same.
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
from agentv.records import EvalCase, Json, Problem
from agentv.report.case import case_lines

if TYPE_CHECKING:
    import os
    from pathlib import Path

    Nodes = Iterator["EvalGroup | EvalItem"]


class Trial(NamedTuple):
    """A trial of a case, from which an item is made."""

    parts: tuple[str, ...]
    """The parts of its name that have no node yet."""
    name: str
    key: tuple[str, str, int]
    line: int


class EvalFile(pytest.File):
    """An eval file. Its cases are run together when the first of them is reached."""

    def collect(self) -> Nodes:
        trials: list[Trial] = []
        trial_count = self.config.stash[RUNS].trials
        for case in self._read_cases():
            for number in range(1, trial_count + 1):
                name = case.id
                if trial_count > 1:
                    name = f"{case.id}[trial-{number}]"
                trial = Trial(
                    parts=_parts(name),
                    name=name,
                    key=(case.dataset, case.id, number),
                    line=case.line,
                )
                trials.append(trial)
        return _nodes(self, trials)

    def _read_cases(self) -> list[EvalCase]:
        """Return the cases of the file; raise `CollectError` with all errors, and warn about other problems."""
        problems: list[Problem] = []
        try:
            cases = list(read_eval_file(self.path, problems.append))
        except AgentvError as error:
            raise self.CollectError(_with_hint(error)) from error
        builder = EvaluatorBuilder(only_check=True, warn=lambda _problem: None)
        for case in cases:
            problems += builder.problems(case, case.target)
        errors: dict[str, None] = {}
        for problem in problems:
            if problem.severity == "error":
                found = AgentvError.of(problem)
                errors[_with_hint(found)] = None
        if errors:
            raise self.CollectError("\n".join(errors))
        for problem in problems:
            message = str(AgentvError.of(problem))
            self.warn(pytest.PytestWarning(message))
        return cases


class EvalGroup(pytest.Collector):
    """Consecutive cases whose ids have the same text before `::`."""

    def __init__(self, *, trials: Sequence[Trial], **settings: Any):
        super().__init__(**settings)
        self._trials = trials

    def collect(self) -> Nodes:
        return _nodes(self, self._trials)


def _parts(name: str) -> tuple[str, ...]:
    """Split a name at `::`; pytest does not split what comes after a bracket."""
    start, bracket, rest = name.partition("[")
    *groups, last = start.split("::")
    last += bracket + rest
    return *groups, last


def _nodes(parent: EvalFile | EvalGroup, trials: Sequence[Trial]) -> Nodes:
    """Yield an item for each trial, or a group for consecutive trials with more parts; the order stays the same."""
    for (name, has_more_parts), found in groupby(trials, key=_node_key):
        if has_more_parts:
            inner = [trial._replace(parts=trial.parts[1:]) for trial in found]
            yield EvalGroup.from_parent(parent, name=name, trials=inner)
            continue
        for trial in found:
            yield EvalItem.from_parent(parent, name=name, trial=trial)


def _node_key(trial: Trial) -> tuple[str, bool]:
    """Return the first part of a trial's name, and whether there are more."""
    return trial.parts[0], len(trial.parts) > 1


class EvalItem(pytest.Item):
    """A trial of a case. It only reports its result; all trials of a file are run together."""

    def __init__(self, *, trial: Trial, **settings: Any):
        super().__init__(**settings)
        self.key = trial.key
        self._line = trial.line
        self._title = trial.name
        self.extra_keyword_matches.add(trial.name)
        self._result: Json = {}

    def setup(self) -> None:
        """Get the result. Without a judgement of the answer, the test has an error instead of a failure."""
        runs = self.config.stash[RUNS]
        result = runs.result(self.path, self.key)
        if isinstance(result, AgentvError):
            pytest.fail(_with_hint(result), pytrace=False)
        self._result = result
        if result.get("error") is not None or result.get("failure") is not None:
            self._fail()

    def runtest(self) -> None:
        if self._result.get("verdict") != "pass":
            self._fail()

    def _fail(self) -> NoReturn:
        """Fail with the question, the answer and the reasons."""
        message = "\n".join(case_lines(self._result))
        pytest.fail(message, pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        path: Path = self.path
        title = self._title
        if "." in title:
            # If the node id ends with the title, pytest would print `::` for each dot.
            title = f"case {title}"
        line_index = max(self._line - 1, 0)
        return path, line_index, title


def _with_hint(error: AgentvError) -> str:
    """Return the message of an error with its location and hint."""
    if error.hint:
        return f"{error}\nhint: {error.hint}"
    return str(error)
