"""Compare two runs per evaluator, dataset, target or metadata value."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agentv.compare.blocks import ERROR, SEEN, name_of_values, values_of
from agentv.compare.columns import Numbers, RunColumns
from agentv.compare.pairs import PairedScores, in_both, pair_scores
from agentv.compare.records import CompareOptions, Part, Statistics
from agentv.compare.verdict import corrected_verdict, paired_statistics
from agentv.results.groups import EVALUATOR, MAX_GROUPS
from agentv.stats.inference import holm

Groups = dict[str, PairedScores]
"""The pairs of each group, by its name."""


class GroupedParts(NamedTuple):
    """The figures of each group, by what the cases are grouped by, and the number of groups without figures."""

    by: Mapping[str, tuple[Part, ...]]
    omitted: int


def clusters_of(first: RunColumns, second: RunColumns) -> "array[int] | None":
    """Return the cluster of each case, as either file has it; None if no file has clusters."""
    if first.clusters is None:
        return second.clusters
    if second.clusters is None:
        return first.clusters
    clusters = array("q")
    for one, other in zip(first.clusters, second.clusters, strict=True):
        clusters.append(one or other)
    return clusters


def compare_groups(
    paired: PairedScores,
    options: CompareOptions,
    groups: Sequence[str],
) -> GroupedParts:
    """Return the figures of each group of pairs. If there are more than `MAX_GROUPS`, keep the largest ones.

    `groups` is the target of each case in `RunColumns.grouped`.
    """
    if not options.by:
        return GroupedParts(by={}, omitted=0)
    first = paired.first
    second = paired.second
    assert isinstance(first, RunColumns)
    assert isinstance(second, RunColumns)
    clusters = clusters_of(first, second)
    is_ambiguous = first.ambiguous > 0 or second.ambiguous > 0
    if is_ambiguous and first.grouped is not None and second.grouped is not None:
        found = _pair_groups(first.grouped, second.grouped, groups)
        clusters = clusters_of(first.grouped, second.grouped)
    elif options.by_evaluator:
        found = _pair_evaluators(first, second)
        if len(options.by) > 1:
            found = _cross(found, first, second, options.by)
    else:
        names = _group_names(first, second, paired.numbers, options)
        found = {}
        if names is not None:
            found = _split_pairs(paired, names)
    statistics = {}
    for name, pairs in _keep_largest(found).items():
        statistics[name] = paired_statistics(pairs, options.margin, clusters)
    return GroupedParts(
        by={options.by_name: _adjust(statistics, options.by)},
        omitted=len(found) - len(statistics),
    )


def _group_names(
    first: RunColumns,
    second: RunColumns,
    numbers: Numbers,
    options: CompareOptions,
) -> Iterator[str] | None:
    """Return the name of each case's group, or None if no file has labels to group by."""
    if options.by == ("dataset",):
        return _datasets(first, numbers)
    if options.by == ("target",):
        return _targets(first, second, numbers)
    if len(options.by) > 1:
        return _labels(first, second, numbers, missing=name_of_values([None] * len(options.by)))
    if first.label_names or second.label_names:
        return _labels(first, second, numbers, missing=f"(no {options.by_name})")
    return None


def _cross(groups: Groups, first: RunColumns, second: RunColumns, by: Sequence[str]) -> Groups:
    """Split the pairs of each evaluator by the values of the other keys."""
    place = by.index(EVALUATOR)
    found: Groups = {}
    for evaluator, pairs in groups.items():
        names = _labels(first, second, pairs.numbers, missing=name_of_values([None] * len(by)))
        for name, members in _split_pairs(pairs, names).items():
            values = values_of(name)
            values[place] = evaluator
            found[name_of_values(values)] = members
    return found


def _keep_largest(groups: Groups) -> Groups:
    """Return the groups in their order, or the `MAX_GROUPS` largest, largest first, if there are more."""
    if len(groups) <= MAX_GROUPS:
        return groups

    def size(name: str) -> int:
        return len(groups[name].numbers)

    by_size = sorted(groups, key=size, reverse=True)
    largest: Groups = {}
    for name in by_size[:MAX_GROUPS]:
        largest[name] = groups[name]
    return largest


def _adjust(statistics: Mapping[str, Statistics], by: Sequence[str]) -> tuple[Part, ...]:
    """Return the figures of the groups, with p-values adjusted for their number."""
    p_values = []
    for each in statistics.values():
        if each.tests:
            p_values.append(each.tests[0].p_value)
    adjusted = iter(holm(p_values))
    parts = []
    for name, each in statistics.items():
        p_holm = None
        if each.tests:
            p_holm = next(adjusted)
        part = make_part(name, p_holm, each)
        if len(by) > 1:
            part = _with_keys(part, by)
        parts.append(part)
    return tuple(parts)


def _with_keys(part: Part, by: Sequence[str]) -> Part:
    """Return the figures of a crossed group with the value of each key, and a name for people."""
    keys = dict(zip(by, values_of(part.name), strict=True))
    names = []
    for key, value in keys.items():
        names.append(value or f"(no {key})")
    return msgspec.structs.replace(part, name=" / ".join(names), keys=keys)


def make_part(
    name: str,
    p_holm: float | None,
    statistics: Statistics,
) -> Part:
    """Return the figures of a group, with a verdict that is corrected for the number of groups."""
    verdict = corrected_verdict(statistics, p_holm)
    return Part(
        name=name,
        p_holm=p_holm,
        p_adjusted=p_holm,
        statistics=msgspec.structs.replace(statistics, verdict=verdict),
    )


def _pair_evaluators(first: RunColumns, second: RunColumns) -> Groups:
    """Pair the scores of each evaluator."""
    no_score = SEEN | ERROR
    found: Groups = {}
    evaluators = [*first.evaluators, *second.evaluators]
    for name in dict.fromkeys(evaluators):
        one = first.scores_of(name)
        other = second.scores_of(name)
        numbers = array("I")
        for number in in_both(one, other):
            # with an error on both sides, it is unknown whether this evaluator applies to the case
            if one.flags[number] == other.flags[number] == no_score:
                continue
            numbers.append(number)
        found[name] = pair_scores(one, other, numbers)
    return found


def _pair_groups(
    first: RunColumns,
    second: RunColumns,
    groups: Sequence[str],
) -> Groups:
    """Pair the cases of each target, if several targets have results with the same id."""
    numbers = in_both(first, second)
    names = map(groups.__getitem__, numbers)
    found: Groups = {}
    for name, members in _group(names, numbers).items():
        found[name] = pair_scores(first, second, members)
    return found


def _split_pairs(paired: PairedScores, names: Iterable[str]) -> Groups:
    """Split the pairs into groups; `names` is the group of each pair."""
    places = range(len(paired.numbers))
    found: Groups = {}
    for name, members in _group(names, places).items():
        found[name] = paired.select(members)
    return found


def _group(names: Iterable[str], members: Iterable[int]) -> "dict[str, array[int]]":
    """Return the members of each group, given the name of each member's group."""
    groups: dict[str, array[int]] = {}
    for name, member in zip(names, members, strict=True):
        if name not in groups:
            groups[name] = array("I")
        groups[name].append(member)
    return groups


def _datasets(run: RunColumns, numbers: Numbers) -> Iterator[str]:
    """Yield the dataset of each case."""
    for number in numbers:
        yield run.setup_of(number).dataset


def _targets(
    first: RunColumns,
    second: RunColumns,
    numbers: Numbers,
) -> Iterator[str]:
    """Yield the target of each case, or both targets if they differ."""
    for number in numbers:
        before = first.setup_of(number).target_name
        after = second.setup_of(number).target_name
        if before == after:
            yield before
        else:
            yield f"{before} -> {after}"


def _labels(
    first: RunColumns,
    second: RunColumns,
    numbers: Numbers,
    missing: str,
) -> Iterator[str]:
    """Yield the label of each case, from the second file or else from the first, or else `missing`."""
    first_names = [missing, *first.label_names]
    second_names = [missing, *second.label_names]
    first_labels = first.labels or bytes(len(first))
    second_labels = second.labels or bytes(len(second))
    for number in numbers:
        if second_labels[number]:
            yield second_names[second_labels[number]]
        else:
            yield first_names[first_labels[number]]
