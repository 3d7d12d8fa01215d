"""Report what could not be read in the answers of a run."""

from agentv.log import warn
from agentv.records import EvalResult
from agentv.results.dropped import DroppedCounts
from agentv.run.extensions import Extension
from agentv.run.run import Run


class DroppedReport(Extension):
    """Count what could not be read in the answers of a run, and warn about each kind at the end."""

    def __init__(self) -> None:
        self._counts = DroppedCounts()

    def written(self, result: EvalResult) -> None:
        if result.dropped:
            self._counts.add(result.dropped, repr(result.eval_id))

    async def end(self, run: Run) -> None:
        for problem in self._counts.warnings():
            warn(problem)
