"""Two runs -> the same figures for each evaluator, dataset or target."""

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress

from agentv.compare.blocks import ERROR, SEEN
from agentv.compare.columns import RunColumns
from agentv.compare.pairs import PairedScores, in_both, pair_scores
from agentv.compare.records import CompareOptions, Part
from agentv.compare.verdict import paired_statistics
from agentv.results.groups import MAX_GROUPS
from agentv.stats.inference import holm


def clusters_of(first: RunColumns, second: RunColumns) -> "array[int] | None":
    """Return which cases belong together, by whichever file says so; None if neither does."""
    if first.clusters is None or second.clusters is None:
        return first.clusters if second.clusters is None else second.clusters
    return array("q", (one or other for one, other in zip(first.clusters, second.clusters, strict=True)))


def compare_groups(
    paired: PairedScores, options: CompareOptions, groups: Sequence[str]
) -> tuple[dict[str, tuple[Part, ...]], int]:
    """Return the figures of each group of pairs, under the name of what they are grouped by.

    If there are very many, they are those of the largest; how many are left out is returned as well.

    `groups` is the group of each case, where those with the same id are kept apart.
    """
    if options.by is None:
        return {}, 0
    first, second = paired.first, paired.second
    assert isinstance(first, RunColumns) and isinstance(second, RunColumns)
    clusters = clusters_of(first, second)
    if options.by == "evaluator":
        found = dict(_pair_evaluators(first, second))
    elif (first.ambiguous or second.ambiguous) and first.grouped is not None and second.grouped is not None:
        found = _pair_groups(first.grouped, second.grouped, groups)
        clusters = clusters_of(first.grouped, second.grouped)
    elif options.label is not None:
        found = _split_by_label(first, second, paired, options.label)
    else:
        found = _split_pairs(first, second, paired, options.by)
    left_out = len(found) - MAX_GROUPS
    if left_out > 0:
        found = dict(sorted(found.items(), key=lambda item: -len(item[1].numbers))[:MAX_GROUPS])
    statistics = {name: paired_statistics(pairs, options.margin, clusters) for name, pairs in found.items()}
    adjusted = iter(holm([each.tests[0].p_value for each in statistics.values() if each.tests]))
    parts = (
        Part(name=name, p_adjusted=next(adjusted) if each.tests else None, statistics=each)
        for name, each in statistics.items()
    )
    return {options.by: tuple(parts)}, max(0, left_out)


def _pair_evaluators(first: RunColumns, second: RunColumns) -> Iterator[tuple[str, PairedScores]]:
    for name in dict.fromkeys([*first.evaluators, *second.evaluators]):
        one, other = first.scores_of(name), second.scores_of(name)
        numbers = in_both(one, other)
        no_score = SEEN | ERROR  # with an error on both sides, nobody knows whether this evaluator would have judged
        known = (not one.flags[number] == other.flags[number] == no_score for number in numbers)
        yield name, pair_scores(one, other, array("I", compress(numbers, known)))


def _pair_groups(first: RunColumns, second: RunColumns, groups: Sequence[str]) -> dict[str, PairedScores]:
    """Pair the cases of each dataset or target, where the same ids stand in several."""
    numbers: dict[str, array[int]] = {}
    for number in in_both(first, second):
        numbers.setdefault(groups[number], array("I")).append(number)
    return {name: pair_scores(first, second, found) for name, found in numbers.items()}


def _split_pairs(first: RunColumns, second: RunColumns, paired: PairedScores, by: str) -> dict[str, PairedScores]:
    places: dict[str, array[int]] = {}
    for at, number in enumerate(paired.numbers):
        before, after = first.setup_of(number), second.setup_of(number)
        name = before.dataset if by == "dataset" else _change(before.target_name, after.target_name)
        places.setdefault(name, array("I")).append(at)
    return {name: paired.select(found) for name, found in places.items()}


def _split_by_label(first: RunColumns, second: RunColumns, paired: PairedScores, key: str) -> dict[str, PairedScores]:
    """Return the pairs by what the second file has under the key, else the first; no group if none has anything."""
    places: dict[str, array[int]] = {}
    names = [[f"(no {key})", *run.label_names] for run in (second, first)]
    columns = [run.labels or array("I", bytes(4 * len(run))) for run in (second, first)]
    for at, number in enumerate(paired.numbers):
        side = 0 if columns[0][number] else 1
        places.setdefault(names[side][columns[side][number]], array("I")).append(at)
    if not first.label_names and not second.label_names:
        return {}
    return {name: paired.select(found) for name, found in places.items()}


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"
