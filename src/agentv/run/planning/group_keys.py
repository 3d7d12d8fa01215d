"""Find the keys to group results by that no case has, before anything runs."""

from collections.abc import Iterable

from agentv.records import EvalCase
from agentv.results.groups import EVALUATOR, FIELDS, MAX_KEYS, group_name, unknown_key


class GroupKeys:
    """The keys to group by that no case has so far."""

    def __init__(self, keys: Iterable[str]):
        self._missing = [key for key in keys if key not in (*FIELDS, EVALUATOR)]
        self._known: set[str] = set()
        """Keys that cases have, to suggest in a message."""

    def add(self, case: EvalCase) -> None:
        """Look for the keys in a selected case."""
        if not self._missing:
            return
        self._missing = [key for key in self._missing if group_name(case, key) is None]
        if len(self._known) < MAX_KEYS:
            variables = [f"vars.{name}" for name in case.vars or ()]
            self._known.update(case.metadata or (), variables)

    def check(self) -> None:
        """Raise `ConfigError` for a key that no case has."""
        if self._missing:
            raise unknown_key(self._missing[0], self._known, having="case")
