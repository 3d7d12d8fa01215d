"""The extension points of a run: what a feature may do before a case starts, to its result, and after the last case.

A feature joins a run by an `Extension` in the run's one list. The run itself knows none of them.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from agentv.protocols import ResultSink
from agentv.records import EvalResult, JudgeMetrics
from agentv.redact import clean
from agentv.results.summary import Summary
from agentv.run.jobs import Job
from agentv.run.outcome import unwritable_result
from agentv.run.output import mask_result

StoppedBy = Literal["", "budget", "errors"]


class Extension:
    """What a feature does around a run. Every method does nothing unless a feature overrides it."""

    stopped_by: StoppedBy = ""
    """Why no further case may start; empty as long as cases may."""

    def start(self) -> None:
        """Prepare for the first case."""

    async def admit(self, job: Job) -> bool:
        """Return whether a case may start. May wait; False means that no further case starts."""
        return True

    def finish(self, result: EvalResult) -> EvalResult:
        """Return the result to write, which may be another one."""
        return result

    def written(self, result: EvalResult) -> None:
        """Take note of a result that is on disk."""

    async def end(self, results: "Results") -> None:
        """Do what comes after the last case. Not called for a run that was interrupted or failed."""


class Results:
    """The only path of a result. Local workers, a cluster's driver and its workers all use it."""

    def __init__(
        self,
        file: ResultSink | None,
        summary: Summary | None = None,
        sink: ResultSink | None = None,
        extensions: Sequence[Extension] = (),
    ):
        """`file` receives each result first; then `sink` receives it, without secrets."""
        self._file = file
        self._summary = summary
        self._sink = sink
        self._extensions = tuple(extensions)

    @property
    def stopped_by(self) -> StoppedBy:
        """Why no further case may start; empty as long as cases may."""
        for extension in self._extensions:
            if extension.stopped_by:
                return extension.stopped_by
        return ""

    def start(self) -> None:
        """Let the extensions prepare for the first case."""
        for extension in self._extensions:
            extension.start()

    async def admits(self, job: Job) -> bool:
        """Return whether every extension lets a case start."""
        for extension in self._extensions:
            if not await extension.admit(job):
                return False
        return True

    def take(self, result: EvalResult) -> EvalResult:
        """Write a result and count it; return it as written. One that cannot be written becomes an error result."""
        try:
            result = self._write(result)
        except (ValueError, TypeError, RecursionError) as error:
            result = self._write(unwritable_result(result, error))
        if self._summary is not None:
            self._summary.add(result)
        for extension in self._extensions:
            extension.written(result)
        return result

    def keep(self, result: EvalResult, *, is_planned: bool) -> None:
        """Write a result of an earlier run unchanged; count it as done if this run has planned its case."""
        if self._file is not None:
            self._file.write(result)
        if is_planned and self._summary is not None:
            self._summary.add_earlier((result.dataset, result.eval_id), result)

    def add_check_costs(self, taken: Mapping[str, JudgeMetrics]) -> None:
        """Count what checks of judges cost in the summary."""
        if self._summary is not None:
            self._summary.spending.add_checks(taken)

    def count_missing(self, no_answer: int, no_case: int) -> None:
        """Count the cases without a stored answer and the answers without a case in the summary."""
        if self._summary is not None:
            self._summary.no_answer = no_answer
            self._summary.no_case = no_case

    async def end(self) -> None:
        """Let the extensions do what comes after the last case."""
        for extension in self._extensions:
            await extension.end(self)

    def _write(self, result: EvalResult) -> EvalResult:
        for extension in self._extensions:
            result = extension.finish(result)
        if self._file is not None:
            self._file.write(result)
        if self._sink is not None:
            self._sink.write(mask_result(result, clean))
        return result


class MaxErrors(Extension):
    """Start no further case after so many errors; those in flight are finished."""

    def __init__(self, most: int):
        self._most = most
        self._errors = 0

    def written(self, result: EvalResult) -> None:
        if result.error is None:
            return
        self._errors += 1
        if self._errors >= self._most:
            self.stopped_by = "errors"
