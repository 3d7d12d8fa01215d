"""Eval cases as tests: a file is a collector, a trial of a case is an item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

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


class EvalFile(pytest.File):
    """An eval file; its cases are collected, and run together when the first of them is reached."""

    def collect(self) -> Iterator[EvalItem]:
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
        for case in cases:
            for trial in range(1, trials + 1):
                name = f"{case.id}[trial-{trial}]" if trials > 1 else case.id
                yield EvalItem.from_parent(self, name=name, key=(case.dataset, case.id, trial), line=case.line)


class EvalItem(pytest.Item):
    """A trial of a case. It only reports: what it reports is run with all others of its file."""

    def __init__(self, *, key: tuple[str, str, int], line: int, **settings: Any):
        super().__init__(**settings)
        self.key, self._line = key, line
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
        return path, max(self._line - 1, 0), self.name


def _told(error: AgentvError) -> str:
    """Return what is wrong, where, and what to do."""
    return f"{error}\nhint: {error.hint}" if error.hint else str(error)
