"""Convert a block of results into columns, with one entry per result.

In most files, most fields have the same value in all results: nothing failed, one target, no digests. Each column is
checked for that first, and empty columns are omitted. Comparisons process millions of results, so the columns are
built by comprehensions, with as few steps per result as possible.
"""

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from agentv.compare.records import CompareOptions
from agentv.results.groups import group_name
from agentv.results.views import (
    DigestsView,
    EvaluatorView,
    MetricsView,
    PartsView,
    ResultView,
    ScoreView,
)
from agentv.scoring import PASS as PASSING_SCORE

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
UNSCORED = ERROR | UNJUDGED
"""Flags of results whose score is not a judgement of an answer."""
_FLAGS_OF_PASSED = bytes([SEEN, SEEN | PASSED]).ljust(256, b"\0")
"""Translation table: 0 for failed and 1 for passed -> flags."""
_32_BITS = 0xFFFFFFFF
_NO_DIGESTS = DigestsView()


Names = Sequence[str | None]
Hashes = Mapping[str, Sequence[int]]
"""Hashed digests of the cases (`cases`), the evaluators (`evaluators`) and the judge prompts (`prompts`)."""


class Setup(NamedTuple):
    """What produced a result, apart from its case and its evaluators. All fields but the names are digests."""

    target_name: str = ""
    dataset: str = ""
    target: str = ""
    judges: str = ""
    agentv: str = ""
    scoring: int = 1
    batch: bool = False
    """Whether the answer came through a vendor's batch API."""

    @property
    def names(self) -> tuple[str, str]:
        """Return the target and the dataset, which distinguish results with the same id."""
        return self.target_name, self.dataset


class Block(NamedTuple):
    """Columns of some results. Columns with a default may be omitted."""

    ids: Sequence[str]
    scores: list[float]
    flags: bytes
    timestamp: str = ""
    """Time of the first result."""
    setups: Sequence[Setup] = (Setup(),)
    """One per result, or a single one if all are equal."""
    digests: Mapping[str, Sequence[int]] = {}
    """See `Hashes`."""
    clusters: Names | None = None
    groups: Sequence[str] | None = None
    """The datasets or targets, if figures are wanted for each of them."""
    labels: Names | None = None
    """The values of the field or metadata key that figures are grouped by."""
    known_keys: Collection[str] = ()
    """The metadata keys of the first result, if no result has a value in `labels`."""
    metrics: Sequence[MetricsView | None] = ()
    dry_run: int = 0
    """Number of results of a dry run."""
    cut_off: int = 0
    """Number of answers that were cut off at the token limit."""
    answers_of: Collection[str | None] = ()
    """The ids of the runs that produced the answers."""
    graded: int = 0
    """Number of answers that were re-scored."""
    evaluator_results: Sequence[Sequence[EvaluatorView]] | None = None


def make_block(rows: Sequence[ScoreView], options: CompareOptions) -> Block:
    """Return the columns that a comparison with these options needs."""
    ids = [row.eval_id for row in rows]
    scores = [row.score for row in rows]
    passed = [score >= PASSING_SCORE for score in scores]
    if isinstance(rows[0], ResultView):
        views = cast(Sequence[ResultView], rows)
        flags = _make_flags(views, passed)
        return _make_full_block(ids, scores, flags, views, options)
    groups = None
    if options.by in ("dataset", "target"):
        groups = [""] * len(rows)
    flags = bytes(passed).translate(_FLAGS_OF_PASSED)
    return Block(ids, scores, flags, groups=groups)


def _make_full_block(
    ids: list[str],
    scores: list[float],
    flags: bytes,
    views: Sequence[ResultView],
    options: CompareOptions,
) -> Block:
    """Return the columns of results that have more than an id and a score."""
    targets = [view.target for view in views]
    datasets = [view.dataset for view in views]
    setups, digests = _make_setups_and_digests(views, targets, datasets)
    groups = None
    if options.by == "dataset":
        groups = datasets
    elif options.by == "target":
        groups = targets
    labels = None
    known_keys: Collection[str] = ()
    if options.label is not None:
        labels = [group_name(view, options.label) for view in views]
        if labels.count(None) == len(labels):
            known_keys = _metadata(views[0])
    evaluator_results = None
    if options.by == "evaluator":
        evaluator_results = [_evaluator_results(view) for view in views]
    not_graded = [view.graded_from for view in views].count(None)
    return Block(
        ids=ids,
        scores=scores,
        flags=flags,
        timestamp=views[0].timestamp,
        setups=setups,
        digests=digests,
        clusters=_find_clusters(views, options.cluster),
        groups=groups,
        labels=labels,
        known_keys=known_keys,
        metrics=[view.execution_metrics for view in views],
        dry_run=[view.dry_run for view in views].count(True),
        cut_off=[view.stop_reason for view in views].count("length"),
        answers_of={view.answers_of for view in views},
        graded=len(views) - not_graded,
        evaluator_results=evaluator_results,
    )


def _make_flags(views: Sequence[ResultView], passed: list[bool]) -> bytes:
    """Return the flags of each result. `passed` is derived from the scores, and used for results without a verdict."""
    verdicts = [view.verdict for view in views]
    kinds = set(verdicts)
    if None not in kinds:
        passed = [verdict == "pass" for verdict in verdicts]
    elif len(kinds) > 1:
        for place, verdict in enumerate(verdicts):
            if verdict is not None:
                passed[place] = verdict == "pass"
    flags = bytes(passed).translate(_FLAGS_OF_PASSED)
    no_errors = [view.error for view in views].count(None)
    no_failures = [view.failure for view in views].count(None)
    attempts = {view.attempt for view in views}
    if no_errors == no_failures == len(views) and attempts <= {1, None}:
        return flags
    more = map(_more_flags, views)
    return bytes(map(operator.or_, flags, more))


def _more_flags(view: ResultView) -> int:
    """Return the flags of one result, apart from whether it passed."""
    flags = 0
    if view.error is not None:
        flags |= ERROR
    elif view.failure == "judge":
        flags |= UNJUDGED
    if view.attempt is not None and view.attempt > 1:
        flags |= RETRIED
    return flags


def _make_setups_and_digests(
    views: Sequence[ResultView],
    targets: Sequence[str],
    datasets: Sequence[str],
) -> tuple[Sequence[Setup], Hashes]:
    """Return the columns `setups` and `digests` of a block."""
    digests = [view.digests for view in views]
    if not any(digests):
        return _make_setups(targets, datasets), {}
    known = [each or _NO_DIGESTS for each in digests]
    setups = _make_setups(
        targets,
        datasets,
        [each.target for each in known],
        [each.judges for each in known],
        [each.agentv for each in known],
        [each.scoring for each in known],
        [view.execution_metrics is not None and view.execution_metrics.batch for view in views],
    )
    return setups, _hash_digests(known)


def _make_setups(*columns: Sequence[Any]) -> Sequence[Setup]:
    """Return the setups whose fields are in these columns: a single one if all are equal."""
    if all(map(_is_constant, columns)):
        fields = [column[0] for column in columns]
        return [Setup(*fields)]
    return list(map(Setup, *columns))


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
        if any(column):
            hashed[name] = [hash(digest) & _32_BITS for digest in column]
    return hashed


def _find_clusters(views: Sequence[ResultView], name: str | None) -> Names | None:
    """Return the cluster of each result: its conversation, or its value of `name`. Return None if none has any."""
    clusters = [view.conversation_id for view in views]
    if name is not None:
        clusters = [group_name(view, name) for view in views]
    if clusters.count(None) == len(clusters):
        return None
    return clusters


def _metadata(view: ResultView) -> Collection[str]:
    if isinstance(view, PartsView):
        return view.metadata or ()
    return ()


def _evaluator_results(view: ResultView) -> Sequence[EvaluatorView]:
    if isinstance(view, PartsView):
        return view.evaluator_results or ()
    return ()
