"""Find what differs between two runs apart from the answers: cases, evaluators, judges, prompts, versions."""

import operator
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import compress, repeat
from typing import NamedTuple

from agentv.compare.blocks import MIXED, ResultSetup
from agentv.compare.columns import Numbers, RunColumns
from agentv.compare.records import Changed

DIGESTS = ("cases", "evaluators", "prompts")
FORMAT_DEPENDENT = ("evaluators", "prompts", "target")
"""Digests that cover different things in different formats."""
SETUP = ("target", "judges", "scoring", "batch")
"""Fields of a `ResultSetup` whose changes are reported."""
CONFOUNDERS = ("cases", "evaluators", "prompts", "judges", "scoring", "mixed")
"""Changes that make the two results of a case incomparable."""


class _Change(NamedTuple):
    """How the two results of a case differ: the numbers of their setups, and what else is not the same."""

    first: int
    second: int
    cases: int
    evaluators: int
    prompts: int
    mixed: int


def count_changes(
    first: RunColumns,
    second: RunColumns,
    numbers: Numbers,
) -> tuple[Changed, "array[int] | None"]:
    """Return the number of pairs with each change, and the positions of the comparable pairs.

    The positions are None if all pairs are comparable, or if neither run has digests.
    """
    setups = [*first.setups, *second.setups]
    has_digests = any(setup.target for setup in setups)
    if not has_digests:
        return Changed(unknown=len(numbers)), None
    counts: Counter[str] = Counter()
    targets = set()
    confounded: dict[tuple[int, ...], bool] = {}
    # There are many pairs but few distinct changes, so each kind of change is examined once.
    kinds = Counter(_changes(first, second, numbers))
    for change, times in kinds.items():
        kind = _Change._make(change)
        before = first.setups[kind.first]
        after = second.setups[kind.second]
        names = _name_changes(before, after, kind)
        if "target" in names and before.target_name == after.target_name:
            targets.add(after.target_name)
        for name in names:
            counts[name] += times
        confounded[change] = not names.isdisjoint(CONFOUNDERS)
    changed = Changed(
        **counts,
        targets=tuple(sorted(targets)),
    )
    if not any(confounded.values()):
        return changed, None
    changes = _changes(first, second, numbers)
    comparable = (not confounded[change] for change in changes)
    places = compress(range(len(numbers)), comparable)
    return changed, array("I", places)


def _changes(
    first: RunColumns,
    second: RunColumns,
    numbers: Numbers,
) -> Iterator[tuple[int, ...]]:
    """Yield the fields of a `_Change` for each pair, as plain tuples: this runs once per case."""
    columns: list[Iterator[int]] = [
        _entries(first, "setups", numbers),
        _entries(second, "setups", numbers),
    ]
    for name in DIGESTS:
        columns.append(_unequal(first, second, name, numbers))
    columns.append(_mixed(first, second, numbers))
    return zip(*columns, strict=True)


def _entries(
    run: RunColumns,
    name: str,
    numbers: Numbers,
) -> Iterator[int]:
    """Return the entries of these cases in a column."""
    column = run.column(name)
    if column is None:
        return repeat(0, len(numbers))
    return map(column.__getitem__, numbers)


def _unequal(
    first: RunColumns,
    second: RunColumns,
    name: str,
    numbers: Numbers,
) -> Iterator[bool]:
    """Return for each case whether its entries in a column differ between the runs."""
    if first.column(name) is None and second.column(name) is None:
        return repeat(False, len(numbers))
    before = _entries(first, name, numbers)
    after = _entries(second, name, numbers)
    return map(operator.ne, before, after)


def _mixed(
    first: RunColumns,
    second: RunColumns,
    numbers: Numbers,
) -> Iterator[bool]:
    """Return for each case whether its results are mixed in one of the runs."""
    if not first.repeats and not second.repeats:
        return repeat(False, len(numbers))
    flags = map(operator.or_, first.flags, second.flags)
    is_mixed = [bool(each & MIXED) for each in flags]
    return map(is_mixed.__getitem__, numbers)


def _name_changes(
    first: ResultSetup,
    second: ResultSetup,
    change: _Change,
) -> set[str]:
    """Return the fields of `Changed` that apply to a change."""
    if not first.target or not second.target:
        return {"unknown"}
    names = set()
    for name in SETUP:
        if getattr(first, name) != getattr(second, name):
            names.add(name)
    for name in (*DIGESTS, "mixed"):
        if getattr(change, name):
            names.add(name)
    if first.format != second.format:
        names.difference_update(FORMAT_DEPENDENT)
        names.add("formats")
        if _is_other_target(first, second):
            names.add("target")
    return names


def _is_other_target(first: ResultSetup, second: ResultSetup) -> bool:
    """Return whether the targets differ in something that both formats have."""
    if first.target_name != second.target_name:
        return True
    for name in ("settings", "files"):
        before = getattr(first, name)
        after = getattr(second, name)
        if before and after and before != after:
            return True
    return False
