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
from agentv.records import EvalCase, Json, Problem, ResultKey
from agentv.report.case import case_lines

if TYPE_CHECKING:
    import os
    from pathlib import Path

    Nodes = Iterator["EvalGroup | EvalItem"]


class Trial(NamedTuple):
    """A trial of a case, which becomes a test item."""

    parts: tuple[str, ...]
    """The parts of its name that have no node yet."""
    name: str
    key: ResultKey
    """The case and the trial. The target is not known before the run, which has one result per trial."""
    line: int
    skip: str
    """Why the case is skipped; empty if it runs."""


class EvalFile(pytest.File):
    """An eval file. Its cases are run together when the first of them is reached."""

    def collect(self) -> Nodes:
        runs = self.config.stash[RUNS]
        trials: list[Trial] = []
        for case in self._read_cases():
            trials += _trials_of(case, runs.trials)
        return _nodes(self, trials)

    def _read_cases(self) -> list[EvalCase]:
        """Return the cases of the file; raise `CollectError` with all errors, and warn about other problems."""
        problems: list[Problem] = []
        try:
            cases = list(read_eval_file(self.path, problems.append))
        except AgentvError as error:
            message = _with_hint(error)
            raise self.CollectError(message) from error
        builder = EvaluatorBuilder(
            only_check=True,
            warn=lambda _problem: None,
        )
        for case in cases:
            problems += builder.problems(case, case.target)
        errors: dict[str, None] = {}
        for problem in problems:
            if problem.severity == "error":
                found = AgentvError.of(problem)
                message = _with_hint(found)
                errors[message] = None
        if errors:
            raise self.CollectError("\n".join(errors))
        for problem in problems:
            message = str(AgentvError.of(problem))
            warning = pytest.PytestWarning(message)
            self.warn(warning)
        return cases


def _trials_of(case: EvalCase, count: int) -> Iterator[Trial]:
    """Yield the trials of a case; their names have a number if there are several."""
    for number in range(1, count + 1):
        name = case.id
        if count > 1:
            name = f"{case.id}[trial-{number}]"
        yield Trial(
            parts=_parts(name),
            name=name,
            key=ResultKey.of_any_target(case.dataset, case.id, number),
            line=case.line,
            skip=case.skip,
        )


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
    groups = groupby(trials, key=_node_key)
    for (name, has_more_parts), found in groups:
        if has_more_parts:
            inner = [_without_first_part(trial) for trial in found]
            yield EvalGroup.from_parent(parent, name=name, trials=inner)
            continue
        for trial in found:
            yield EvalItem.from_parent(parent, name=name, trial=trial)


def _without_first_part(trial: Trial) -> Trial:
    rest = trial.parts[1:]
    return trial._replace(parts=rest)


def _node_key(trial: Trial) -> tuple[str, bool]:
    """Return the first part of a trial's name, and whether there are more."""
    has_more_parts = len(trial.parts) > 1
    return trial.parts[0], has_more_parts


class EvalItem(pytest.Item):
    """A trial of a case. It only reports its result; all trials of a file are run together."""

    def __init__(self, *, trial: Trial, **settings: Any):
        super().__init__(**settings)
        self.key = trial.key
        self._line = trial.line
        self._title = trial.name
        self.extra_keyword_matches.add(trial.name)
        if trial.skip:
            self.add_marker(pytest.mark.skip(reason=trial.skip))
        self._result: Json = {}

    def setup(self) -> None:
        """Get the result. Without a judgement of the answer, the test has an error instead of a failure."""
        runs = self.config.stash[RUNS]
        result = runs.result(self.path, self.key)
        if isinstance(result, AgentvError):
            message = _with_hint(result)
            pytest.fail(message, pytrace=False)
        self._result = result
        has_error = result.get("error") is not None
        has_failure = result.get("failure") is not None
        if has_error or has_failure:
            self._fail()

    def runtest(self) -> None:
        if self._result.get("verdict") != "pass":
            self._fail()

    def _fail(self) -> NoReturn:
        """Fail with the question, the answer and the reasons."""
        lines = case_lines(self._result)
        message = "\n".join(lines)
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
