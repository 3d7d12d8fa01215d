"""Some results of a file -> columns, one entry for each result.

Most files are alike in most of their fields (nothing failed, one target, no fingerprints), so each column is checked
for that first: what holds nothing is left out. This is done by the million, hence in as few steps as possible.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from agentv.compare.records import CompareOptions
from agentv.results.groups import group_name
from agentv.results.views import DigestsView, EvaluatorView, MetricsView, PartsView, ResultView, ScoreView
from agentv.scoring import PASS as PASSING_SCORE

SEEN, PASSED, ERROR, UNJUDGED, RETRIED, REPEATED, MIXED = (1 << bit for bit in range(7))
"""Flags of a case: it has a result; it passed; it ended in an error; a judge failed; it took several attempts; it has
several results; these differ in what was asked or in how the answers were scored."""
UNSCORED = ERROR | UNJUDGED
"""What is no judgement of an answer, though a score is written for it."""
_FLAGS_OF_PASSED = bytes([SEEN, SEEN | PASSED]).ljust(256, b"\0")
_32_BITS = 0xFFFFFFFF
_NO_DIGESTS = DigestsView()


class Setup(NamedTuple):
    """What produced a result besides its case and its evaluators; all but the names are fingerprints."""

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
        return self.target_name, self.dataset


class Block(NamedTuple):
    """Columns of some results. Those with a default may be left out."""

    ids: Sequence[str]
    scores: list[float]
    flags: bytes
    timestamp: str = ""
    """When the first of them was written."""
    setups: Sequence[Setup] = (Setup(),)
    """A single one if it is the same for all."""
    digests: Mapping[str, Sequence[int]] = {}
    """Numbers that stand for what was asked (`cases`), how it was scored (`evaluators`) and by which `prompts`."""
    clusters: Sequence[str | None] | None = None
    groups: Sequence[str] | None = None
    """The datasets or targets, if the figures are wanted for each."""
    labels: Sequence[str | None] | None = None
    """What the results have under the key for whose values the figures are wanted."""
    known_keys: Collection[str] = ()
    """The keys of the metadata, where no result has anything under that key."""
    metrics: Sequence[MetricsView | None] = ()
    dry_run: int = 0
    """How many are of a dry run."""
    cut_off: int = 0
    """How many answers were cut off at the token limit."""
    answers_of: Collection[str | None] = ()
    """The runs that the answers are of."""
    graded: int = 0
    """How many answers were scored again."""
    evaluator_results: Sequence[Sequence[EvaluatorView]] | None = None


def make_block(rows: Sequence[ScoreView], options: CompareOptions) -> Block:
    """Return the columns of these results that a comparison with these options needs."""
    ids, scores = [row.eval_id for row in rows], [row.score for row in rows]
    passed = [score >= PASSING_SCORE for score in scores]
    if not isinstance(rows[0], ResultView):
        groups = [""] * len(rows) if options.by in ("dataset", "target") else None
        return Block(ids, scores, bytes(passed).translate(_FLAGS_OF_PASSED), groups=groups)
    views = cast(Sequence[ResultView], rows)
    targets, datasets = [row.target for row in views], [row.dataset for row in views]
    digests = [row.digests for row in views]
    if not any(digests):
        setups, numbers = _make_setups(targets, datasets), {}
    else:
        full = [each or _NO_DIGESTS for each in digests]
        setups = _make_setups(
            targets,
            datasets,
            [each.target for each in full],
            [each.judges for each in full],
            [each.agentv for each in full],
            [each.scoring for each in full],
            [row.execution_metrics is not None and row.execution_metrics.batch for row in views],
        )
        numbers = _hash_digests(full)
    labels = [group_name(row, options.label) for row in views] if options.label is not None else None
    return Block(
        ids,
        scores,
        _make_flags(views, passed),
        timestamp=views[0].timestamp,
        setups=setups,
        digests=numbers,
        clusters=_find_clusters(views, options.cluster),
        groups={"dataset": datasets, "target": targets}.get(options.by or ""),
        labels=labels,
        known_keys=_metadata(views[0]) if labels is not None and labels.count(None) == len(labels) else (),
        metrics=[row.execution_metrics for row in views],
        dry_run=[row.dry_run for row in views].count(True),
        cut_off=[row.stop_reason for row in views].count("length"),
        answers_of={row.answers_of for row in views},
        graded=len(views) - [row.graded_from for row in views].count(None),
        evaluator_results=_evaluator_results(views) if options.by == "evaluator" else None,
    )


def _make_flags(rows: Sequence[ResultView], passed: list[bool]) -> bytes:
    """Return the flags of each result; `passed` is what its score says, for those without a verdict."""
    verdicts = [row.verdict for row in rows]
    kinds = set(verdicts)
    if None not in kinds:
        passed = [verdict == "pass" for verdict in verdicts]
    elif len(kinds) > 1:
        told = zip(verdicts, passed, strict=True)
        passed = [by_score if verdict is None else verdict == "pass" for verdict, by_score in told]
    flags = bytes(passed).translate(_FLAGS_OF_PASSED)
    failed = 2 * len(rows) - [row.error for row in rows].count(None) - [row.failure for row in rows].count(None)
    if not failed and {row.attempt for row in rows} <= {1, None}:
        return flags
    return bytes(flag | _more_flags(row) for flag, row in zip(flags, rows, strict=True))


def _more_flags(row: ResultView) -> int:
    return (
        (ERROR if row.error is not None else 0)
        | (UNJUDGED if row.failure == "judge" and row.error is None else 0)
        | (RETRIED if row.attempt is not None and row.attempt > 1 else 0)
    )


def _make_setups(*columns: Sequence[Any]) -> Sequence[Setup]:
    if all(column.count(column[0]) == len(column) for column in columns):
        return [Setup(*(column[0] for column in columns))]
    return list(map(Setup, *columns))


def _hash_digests(digests: Sequence[DigestsView]) -> dict[str, Sequence[int]]:
    """Return a column of numbers for each kind of fingerprint that any of the results has."""
    columns = {
        "cases": [each.case for each in digests],
        "evaluators": [each.evaluators for each in digests],
        "prompts": [each.prompts for each in digests],
    }
    return {name: [hash(text) & _32_BITS for text in column] for name, column in columns.items() if any(column)}


def _find_clusters(rows: Sequence[ResultView], name: str | None) -> Sequence[str | None] | None:
    """Return what each result belongs to: the conversation, or what it has under `name`; None if none has any."""
    found = [row.conversation_id for row in rows] if name is None else [group_name(row, name) for row in rows]
    return None if found.count(None) == len(found) else found


def _metadata(row: ResultView) -> Collection[str]:
    return (isinstance(row, PartsView) and row.metadata) or ()


def _evaluator_results(rows: Sequence[ResultView]) -> Sequence[Sequence[EvaluatorView]]:
    return [(isinstance(row, PartsView) and row.evaluator_results) or () for row in rows]
