"""Convert a block of results into columns, with one entry per result.

In most files, most fields have the same value in all results: nothing failed, one target, no digests. Each column is
checked for that first, and empty columns are omitted. Comparisons process millions of results, so the columns are
built by comprehensions, with as few steps per result as possible.
"""

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from agentv.compare.records import CompareOptions
from agentv.records import PASS
from agentv.results.groups import EVALUATOR, MAX_KEYS, group_name
from agentv.results.views import (
    DigestsView,
    EvaluatorView,
    MetricsView,
    PartsRow,
    ResultRow,
    ScoreRow,
)

SEEN = 1
"""Flag of a case that has a result."""
PASSED = 2
ERROR = 4
UNJUDGED = 8
"""Flag of a case whose judge failed."""
RETRIED = 16
"""Flag of a case that took several attempts."""
REPEATED = 32
"""Flag of a case that has several results."""
MIXED = 64
"""Flag of a case with several results that differ in the case or in the evaluators."""
INCOMPLETE = 128
"""Flag of a case with several results, only some of which have a score."""
UNSCORED = ERROR | UNJUDGED
"""Flags of results whose score is not a judgement of an answer."""
MACHINE = UNSCORED
"""A machine failure has both flags: the byte has no free bit, and no other result or case has both."""
_FLAGS_OF_PASSED = bytes([SEEN, SEEN | PASSED]).ljust(256, b"\0")
"""Translation table: 0 for failed and 1 for passed -> flags."""
_32_BITS = 0xFFFFFFFF
_NO_DIGESTS = DigestsView()


Names = Sequence[str | None]
Hashes = Mapping[str, Sequence[int]]
"""Hashed digests of the cases (`cases`), the evaluators (`evaluators`) and the judge prompts (`prompts`)."""


def is_errored(flags: int) -> bool:
    """Return whether a case ended in an error or was not judged, so that it is unknown whether it passes.

    A case with several results passes if all of them pass. If one fails, the case fails, regardless of the others.
    """
    if flags & UNSCORED:
        return True
    return (flags & INCOMPLETE) > 0 and (flags & PASSED) > 0


def failed_by_machine(flags: int) -> bool:
    """Return whether a result, or all results of a case, are machine failures, which no mean includes."""
    return (flags & MACHINE) == MACHINE


class ResultSetup(NamedTuple):
    """What produced a result, apart from its case and its evaluators. All fields but the names are digests."""

    target_name: str = ""
    dataset: str = ""
    target: str = ""
    judges: str = ""
    scoring: int = 1
    batch: bool = False
    """Whether the answer came through a vendor's batch API."""
    settings: str = ""
    files: str = ""
    format: int = 1
    """The format of the digests."""


class ColumnBlock(NamedTuple):
    """Columns of some results. Columns with a default may be omitted."""

    ids: Sequence[str]
    scores: list[float]
    flags: bytes
    timestamp: str = ""
    """Time of the first result."""
    setups: Sequence[ResultSetup] = (ResultSetup(),)
    """One per result, or a single one if all are equal."""
    digests: Mapping[str, Sequence[int]] = {}
    """See `Hashes`."""
    clusters: Names | None = None
    groups: Sequence[str] | None = None
    """The targets, if figures are wanted for each of them."""
    labels: Names | None = None
    """The values of the field or metadata key that figures are grouped by."""
    known_keys: Collection[str] = ()
    """Keys of metadata and variables in these results, if none has a value for one of the keys to group by."""
    metrics: Sequence[MetricsView | None] = ()
    dry_run: int = 0
    """Number of results of a dry run."""
    cut_off: int = 0
    """Number of answers that were cut off at the token limit."""
    answers_of: Collection[str | None] = ()
    """The ids of the runs that produced the answers."""
    graded: int = 0
    """Number of answers that were re-scored."""
    eval_files: Collection[str | None] = (None,)
    """The eval files of the cases, with None for an unknown one."""
    evaluator_results: Sequence[Sequence[EvaluatorView]] | None = None


def make_block(rows: Sequence[ScoreRow], options: CompareOptions) -> ColumnBlock:
    """Return the columns that a comparison with these options needs."""
    ids = [row.eval_id for row in rows]
    scores = [row.score for row in rows]
    if isinstance(rows[0], ResultRow):  # all rows of a block have the same type
        views = cast(Sequence[ResultRow], rows)
        flags = _make_flags(views)
        return _make_full_block(ids, scores, flags, views, options)
    groups = None
    if options.by_target:
        groups = [""] * len(rows)  # rows with only an id and a score do not name a target
    passed = [score >= PASS for score in scores]  # faster than `verdict_of`
    flags = bytes(passed).translate(_FLAGS_OF_PASSED)
    return ColumnBlock(ids, scores, flags, groups=groups)


def _make_full_block(
    ids: list[str],
    scores: list[float],
    flags: bytes,
    views: Sequence[ResultRow],
    options: CompareOptions,
) -> ColumnBlock:
    """Return the columns of results that have more than an id and a score."""
    targets = [view.target for view in views]
    datasets = [view.dataset for view in views]
    setups, digests = _make_setups_and_digests(views, targets, datasets)
    labels: list[str | None] | None = None
    if len(options.labels) == 1:
        labels = [group_name(view, options.labels[0]) for view in views]
    elif options.labels:
        labels = [_crossed_name(view, options.labels) for view in views]
    known_keys: Collection[str] = ()
    if labels is not None and missing_keys(options.labels, labels):
        known_keys = _keys_of(views)
    groups = None
    if options.by_target:
        groups = targets
        if labels is not None:
            groups = [label or "" for label in labels]
    evaluator_results = None
    if options.by_evaluator:
        evaluator_results = [_evaluator_results(view) for view in views]
    clusters = _find_clusters(views, options.cluster)
    not_graded = [view.graded_from for view in views].count(None)
    dry_runs = [view.dry_run for view in views]
    stop_reasons = [view.stop_reason for view in views]
    return ColumnBlock(
        ids=ids,
        scores=scores,
        flags=flags,
        timestamp=views[0].timestamp,
        setups=setups,
        digests=digests,
        clusters=clusters,
        groups=groups,
        labels=labels,
        known_keys=known_keys,
        metrics=[view.execution_metrics for view in views],
        dry_run=dry_runs.count(True),
        cut_off=stop_reasons.count("length"),
        answers_of={view.answers_of for view in views},
        graded=len(views) - not_graded,
        eval_files={view.file for view in views},
        evaluator_results=evaluator_results,
    )


def missing_keys(keys: Sequence[str], names: Iterable[str | None]) -> list[str]:
    """Return the keys for which no group has a value, given the names of all groups. Evaluators always have names."""
    missing = dict.fromkeys(keys)
    missing.pop(EVALUATOR, None)
    for name in names:
        if not missing:
            break
        if name is None:
            continue
        values: list[str | None] = [name]
        if len(keys) > 1:
            values = values_of(name)
        for key, value in zip(keys, values, strict=True):
            if value is not None:
                missing.pop(key, None)
    return list(missing)


def _crossed_name(view: ResultRow, keys: Sequence[str]) -> str | None:
    """Return the values of several keys as one name, which `values_of` takes apart; None if there are none.

    The key `evaluator` has no value in it.
    """
    values = [group_name(view, key) for key in keys]
    if not any(values):
        return None
    return name_of_values(values)


def name_of_values(values: Sequence[str | None]) -> str:
    """Return the name of a group by several keys."""
    return msgspec.json.encode(values).decode()


def values_of(name: str) -> list[str | None]:
    """Return the values of the keys in the name of a group by several keys."""
    values: list[str | None] = msgspec.json.decode(name)
    return values


def _make_flags(views: Sequence[ResultRow]) -> bytes:
    """Return the flags of each result."""
    passed = [view.verdict == "pass" for view in views]
    flags = bytes(passed).translate(_FLAGS_OF_PASSED)
    no_errors = [view.error for view in views].count(None)
    no_failures = [view.failure for view in views].count(None)
    attempts = {view.attempt for view in views}
    has_no_errors = no_errors == no_failures == len(views)
    if has_no_errors and attempts <= {1, None}:
        return flags
    more = map(_more_flags, views)
    merged = map(operator.or_, flags, more)
    return bytes(merged)


def _more_flags(view: ResultRow) -> int:
    """Return the flags of one result, apart from whether it passed."""
    flags = 0
    if view.failure == "machine":
        flags |= MACHINE
    elif view.error is not None:
        flags |= ERROR
    elif view.failure is not None:
        flags |= UNJUDGED
    if view.attempt is not None and view.attempt > 1:
        flags |= RETRIED
    return flags


def _make_setups_and_digests(
    views: Sequence[ResultRow],
    targets: Sequence[str],
    datasets: Sequence[str],
) -> tuple[Sequence[ResultSetup], Hashes]:
    """Return the columns `setups` and `digests` of a block."""
    digests = [view.digests for view in views]
    if not any(digests):
        return _make_setups(targets, datasets), {}
    known = [each or _NO_DIGESTS for each in digests]
    metrics = [view.execution_metrics for view in views]
    setups = _make_setups(
        targets,
        datasets,
        [each.target for each in known],
        [each.judges for each in known],
        [each.scoring for each in known],
        [each is not None and each.batch for each in metrics],
        [each.settings for each in known],
        [each.files for each in known],
        [each.format for each in known],
    )
    return setups, _hash_digests(known)


def _make_setups(*columns: Sequence[Any]) -> Sequence[ResultSetup]:
    """Return the setups whose fields are in these columns: a single one if all are equal."""
    if all(map(_is_constant, columns)):
        fields = [column[0] for column in columns]
        return [ResultSetup(*fields)]
    return list(map(ResultSetup, *columns))


def _is_constant(column: Sequence[Any]) -> bool:
    return column.count(column[0]) == len(column)


def _hash_digests(digests: Sequence[DigestsView]) -> Hashes:
    """Return a column of hashes for each kind of digest that any result has."""
    columns = {
        "cases": [each.case for each in digests],
        "evaluators": [each.evaluators for each in digests],
        "prompts": [each.prompts for each in digests],
    }
    hashed: dict[str, Sequence[int]] = {}
    for name, column in columns.items():
        if not any(column):
            continue
        hashed[name] = [hash(digest) & _32_BITS for digest in column]
    return hashed


def _find_clusters(
    views: Sequence[ResultRow],
    name: str | None,
) -> Names | None:
    """Return the cluster of each result: its conversation, or its value of `name`. Return None if none has any."""
    clusters = [view.conversation_id for view in views]
    if name is not None:
        clusters = [group_name(view, name) for view in views]
    if clusters.count(None) == len(clusters):
        return None
    return clusters


def _keys_of(views: Iterable[ResultRow]) -> Collection[str]:
    """Return the first keys of metadata and variables that these results can be grouped by."""
    found: dict[str, None] = {}
    for view in views:
        if not isinstance(view, PartsRow):
            continue
        found.update(dict.fromkeys(view.metadata or ()))
        for name in view.vars or ():
            found[f"vars.{name}"] = None
        if len(found) >= MAX_KEYS:
            break
    return found


def _evaluator_results(view: ResultRow) -> Sequence[EvaluatorView]:
    if isinstance(view, PartsRow):
        return view.evaluator_results or ()
    return ()
