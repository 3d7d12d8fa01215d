"""Two runs -> what differs between them besides the answers: cases, evaluators, judges, prompts, versions."""

import operator
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from typing import NamedTuple

from agentv.compare.blocks import MIXED, Setup
from agentv.compare.columns import RunColumns
from agentv.compare.records import Changed

DIGESTS = ("cases", "evaluators", "prompts")
SETUP = ("target", "judges", "agentv", "scoring", "batch")
"""Changes of what produced a result."""
CONFOUNDERS = ("cases", "evaluators", "prompts", "judges", "scoring", "mixed")
"""Changes that keep two results of a case from being held side by side."""


class _Change(NamedTuple):
    """How the two results of a case differ: the setups that produced them, and what else is not the same."""

    first: int
    second: int
    cases: int
    evaluators: int
    prompts: int
    mixed: int


def find_changes(first: RunColumns, second: RunColumns, numbers: Sequence[int]) -> tuple[Changed, "array[int] | None"]:
    """Return what differs in how many pairs, and the places of the pairs of which nothing has changed.

    The places are None if nothing has changed in any pair, or nobody knows.
    """
    if not any(setup.target for run in (first, second) for setup in run.setups):
        return Changed(unknown=len(numbers)), None
    counts: Counter[str] = Counter()
    targets: dict[str, None] = {}
    confounded: dict[tuple[int, ...], bool] = {}
    for change, times in Counter(_changes(first, second, numbers)).items():
        before, after = first.setups[change[0]], second.setups[change[1]]
        names = _name_changes(before, after, _Change._make(change))
        if "target" in names and before.target_name == after.target_name:
            targets[after.target_name] = None
        counts.update(dict.fromkeys(names, times))
        confounded[change] = not names.isdisjoint(CONFOUNDERS)
    changed = Changed(**counts, targets=tuple(sorted(targets)))
    if not any(confounded.values()):
        return changed, None
    unchanged = (not confounded[change] for change in _changes(first, second, numbers))
    return changed, array("I", compress(range(len(numbers)), unchanged))


def _changes(first: RunColumns, second: RunColumns, numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the fields of a `_Change` for each pair."""
    setups = (_entries(run, "setups", numbers) for run in (first, second))
    digests = (_unequal(first, second, name, numbers) for name in DIGESTS)
    mixed = (bool((first.flags[number] | second.flags[number]) & MIXED) for number in numbers)
    has_mixed = first.repeats or second.repeats
    return zip(*setups, *digests, mixed if has_mixed else repeat(False, len(numbers)), strict=True)


def _entries(run: RunColumns, name: str, numbers: Sequence[int]) -> Iterator[int]:
    column = run.column(name)
    return repeat(0, len(numbers)) if column is None else map(column.__getitem__, numbers)


def _unequal(first: RunColumns, second: RunColumns, name: str, numbers: Sequence[int]) -> Iterator[bool]:
    if first.column(name) is None and second.column(name) is None:
        return repeat(False, len(numbers))
    return map(operator.ne, _entries(first, name, numbers), _entries(second, name, numbers))


def _name_changes(first: Setup, second: Setup, change: _Change) -> set[str]:
    """Return the names in `Changed` of what is not the same."""
    if not first.target or not second.target:
        return {"unknown"}
    of_setups = {name for name in SETUP if getattr(first, name) != getattr(second, name)}
    return of_setups | {name for name in ("cases", "evaluators", "prompts", "mixed") if getattr(change, name)}
