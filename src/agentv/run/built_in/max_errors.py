"""Stop a run after too many errors."""

from agentv.records import EvalResult
from agentv.run.extensions import Extension


class MaxErrors(Extension):
    """Start no further case after this many errors; cases in flight are finished."""

    def __init__(self, limit: int):
        self._limit = limit
        self._errors = 0

    def written(self, result: EvalResult) -> None:
        if result.error is None or result.failure == "machine":
            return
        self._errors += 1
        if self._errors >= self._limit:
            self.stopped_by = "errors"
