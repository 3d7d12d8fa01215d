"""The cases of a run that must all pass."""

from agentv.filters.match import Filter
from agentv.records import CaseKey
from agentv.results.failures import SHOWN
from agentv.results.views import AnyResult
from agentv.text import plural


class Requirement:
    """Counts the results of the cases that a filter selects, and remembers the first that did not pass."""

    def __init__(self, filter_: Filter, expected: int):
        """`expected` is the number of results that the cases have if all of them run."""
        self.filter = filter_
        self._expected = expected
        self._results = 0
        self._names: dict[str, None] = {}
        """The first few cases that did not pass."""
        self._not_passed: set[int] = set()
        """The hashes of all cases that did not pass."""

    def add(self, result: AnyResult) -> None:
        """Count a result. A machine failure says nothing about its case."""
        if not self.filter.matches(result):
            return
        self._results += 1
        if result.failure == "machine":
            return
        is_unscored = result.error is not None or result.failure is not None
        if result.verdict == "pass" and not is_unscored:
            return
        self._not_passed.add(hash(CaseKey(result.dataset, result.eval_id)))
        if len(self._names) < SHOWN:
            self._names[result.eval_id] = None

    def describe_missed(self) -> str:
        """Return why the requirement is not met, with the cases concerned; empty if it is."""
        reasons = []
        count = len(self._not_passed)
        if count:
            names = ", ".join(self._names)
            more = count - len(self._names)
            if more > 0:
                names += f" and {more} more"
            reasons.append(f"{plural(count, 'case')} did not pass: {names}")
        missing = self._expected - self._results
        if missing > 0:
            reasons.append(f"{plural(missing, 'result')} missing")
        return "; ".join(reasons)
