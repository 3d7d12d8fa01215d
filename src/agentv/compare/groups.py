"""Compare two runs per evaluator, dataset, target or metadata value."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentv.compare.blocks import ERROR, SEEN
from agentv.compare.columns import Numbers, RunColumns
from agentv.compare.pairs import PairedScores, in_both, pair_scores
from agentv.compare.records import CompareOptions, Part, Statistics
from agentv.compare.verdict import paired_statistics
from agentv.results.groups import MAX_GROUPS
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
    both = zip(first.clusters, second.clusters, strict=True)
    return array("q", (one or other for one, other in both))


def compare_groups(
    paired: PairedScores,
    options: CompareOptions,
    groups: Sequence[str],
) -> GroupedParts:
    """Return the figures of each group of pairs. If there are more than `MAX_GROUPS`, keep the largest ones.

    `groups` is the dataset or target of each case in `RunColumns.grouped`.
    """
    if options.by is None:
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
    elif options.by == "evaluator":
        found = _pair_evaluators(first, second)
    elif options.by == "dataset":
        names = _datasets(first, paired.numbers)
        found = _split_pairs(paired, names)
    elif options.by == "target":
        names = _targets(first, second, paired.numbers)
        found = _split_pairs(paired, names)
    elif first.label_names or second.label_names:
        names = _labels(first, second, paired.numbers, key=options.by)
        found = _split_pairs(paired, names)
    else:
        found = {}
    statistics = {}
    for name, pairs in _keep_largest(found).items():
        statistics[name] = paired_statistics(pairs, options.margin, clusters)
    return GroupedParts(
        by={options.by: _adjust(statistics)},
        omitted=len(found) - len(statistics),
    )


def _keep_largest(groups: Groups) -> Groups:
    """Return the groups in their order, or the `MAX_GROUPS` largest, largest first, if there are more."""
    if len(groups) <= MAX_GROUPS:
        return groups

    def size(name: str) -> int:
        return len(groups[name].numbers)

    by_size = sorted(groups, key=size, reverse=True)
    return {name: groups[name] for name in by_size[:MAX_GROUPS]}


def _adjust(statistics: Mapping[str, Statistics]) -> tuple[Part, ...]:
    """Return the figures of the groups, with p-values adjusted for their number."""
    p_values = []
    for each in statistics.values():
        if each.tests:
            p_values.append(each.tests[0].p_value)
    adjusted = iter(holm(p_values))
    parts = []
    for name, each in statistics.items():
        p_adjusted = None
        if each.tests:
            p_adjusted = next(adjusted)
        part = Part(name=name, p_adjusted=p_adjusted, statistics=each)
        parts.append(part)
    return tuple(parts)


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
            if not one.flags[number] == other.flags[number] == no_score:
                numbers.append(number)
        found[name] = pair_scores(one, other, numbers)
    return found


def _pair_groups(
    first: RunColumns,
    second: RunColumns,
    groups: Sequence[str],
) -> Groups:
    """Pair the cases of each dataset or target, if several of these have cases with the same id."""
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
    key: str,
) -> Iterator[str]:
    """Yield the value of `key` of each case, from the second file or else from the first."""
    first_names = [f"(no {key})", *first.label_names]
    second_names = [f"(no {key})", *second.label_names]
    first_labels = first.labels or bytes(len(first))
    second_labels = second.labels or bytes(len(second))
    for number in numbers:
        if second_labels[number]:
            yield second_names[second_labels[number]]
        else:
            yield first_names[first_labels[number]]
