"""Options and results of a comparison. The fields of the results are named as in the JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from agentv.filters.match import Filter
from agentv.stats.fields import Fields
from agentv.stats.inference import CONFIDENCE
from agentv.stats.metrics import MetricDifference
from agentv.text import plural

BY = ("evaluator", "dataset", "target", "conversation_id")
"""What results can be grouped by, in addition to metadata keys."""
Verdict = Literal["better", "worse", "not worse", "cannot tell"]
Outcome = Literal["win", "loss", "tie"]
MARGIN = 0.02


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a comparison."""

    threshold: float = 0.1
    """Minimum score difference that counts as a win or a loss."""
    margin: float = MARGIN
    """Non-inferiority margin."""
    by: tuple[str, ...] = ()
    """Report the figures for each value of this: one of `BY`, or a metadata key. Several keys are crossed."""
    needs_keys: bool = False
    """Whether a key in `by` that no result has is an error, instead of a note."""
    cluster: str | None = None
    """Field or metadata key that cases are clustered by; None for the conversation."""
    filter: Filter | None = None
    """Compare only the cases that this selects."""
    skip_truncated: bool = False
    """Whether to skip a last line that was truncated by a kill, instead of raising an error."""

    @property
    def by_name(self) -> str:
        """What results are grouped by, as the JSON names it; empty if they are not grouped."""
        return ",".join(self.by)

    @property
    def by_evaluator(self) -> bool:
        """Whether the scores of evaluators are grouped, instead of those of cases."""
        return "evaluator" in self.by

    @property
    def by_target(self) -> bool:
        """Whether results of different targets are in different groups."""
        return "target" in self.by and not self.by_evaluator

    @property
    def labels(self) -> tuple[str, ...]:
        """The keys whose values name the groups, if results are not grouped by one column that each of them has."""
        if len(self.by) == 1 and self.by[0] in ("evaluator", "dataset", "target"):
            return ()
        return self.by


def case_name(dataset: str, eval_id: str) -> str:
    """Return the display name of a case. The dataset is empty if the id is unique."""
    if not dataset:
        return eval_id
    return f"{dataset}/{eval_id}"


class Pair(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A case that is in both files."""

    eval_id: str
    score1: float
    score2: float
    delta: float
    outcome: Outcome
    dataset: str = ""
    """The dataset of a case that was matched by dataset and id. Omitted from the JSON if the id alone was enough."""

    @property
    def name(self) -> str:
        """The id, with the dataset if the id alone is ambiguous."""
        return case_name(self.dataset, self.eval_id)

    __getitem__ = Fields.__getitem__


class Counts(Fields, frozen=True, kw_only=True):
    """A number for each of the two files."""

    file1: int
    file2: int


class PairTotals(Fields, frozen=True, kw_only=True):
    """Summary of all pairs."""

    total: int
    matched: int
    wins: int
    losses: int
    ties: int
    meanDelta: float
    errored: int
    """Pairs that ended in an error or were not judged, on either side. They are neither regressions nor gains."""
    repeats: Counts
    """Results in addition to the first of each id. An id with several results counts with their mean."""


class Delta(Fields, frozen=True, kw_only=True):
    """The mean difference and its 95% confidence interval, by Student's t over cases or clusters of them."""

    mean: float
    se: float | None
    ci_lower: float | None
    ci_upper: float | None
    method: str
    df: int
    confidence: float = CONFIDENCE
    clusters: int | None = None
    design_effect: float | None = None
    """Factor by which clusters increase the variance."""
    bootstrap: tuple[float, float] | None = None
    """Bootstrap interval, for small samples."""


class Test(Fields, frozen=True, kw_only=True, omit_defaults=True):
    """A significance test and its p-value."""

    name: str
    p_value: float
    method: str = ""
    resamples: int = 0
    seed: int | None = None


class Passes(Fields, frozen=True, kw_only=True):
    """Passes, changed verdicts, and the interval of the difference between the pass rates (Agresti and Min)."""

    passed1: int
    passed2: int
    gained: int
    lost: int
    ci_lower: float
    ci_upper: float


class Bounds(Fields, frozen=True, kw_only=True):
    """Range of the mean difference over all possible scores of the unscored results, and the number of such pairs."""

    unscored: int
    lower: float
    upper: float


class Statistics(Fields, frozen=True, kw_only=True):
    """Statistics of the pairs that have a score on both sides."""

    pairs: int
    mean1: float | None = None
    mean2: float | None = None
    delta: Delta | None = None
    tests: tuple[Test, ...] = ()
    passes: Passes | None = None
    mde: float | None = None
    """Minimum detectable effect, with 80% power."""
    bounds: Bounds | None = None
    interval: tuple[float, float] | None = None
    """The interval that decides the verdict: the confidence interval, widened for pairs without a score."""
    margin: float
    verdict: Verdict
    notes: tuple[str, ...] = ()


class Part(Fields, frozen=True, kw_only=True):
    """The figures of one evaluator or one group of cases."""

    name: str
    p_holm: float | None
    """The p-value, corrected for the number of groups (Holm). It decides the verdict."""
    p_adjusted: float | None
    """An alias of `p_holm`."""
    statistics: Statistics
    keys: Mapping[str, str | None] | msgspec.UnsetType = msgspec.UNSET
    """The value of each key, if several keys are crossed. Omitted from the JSON for a single key."""


class Changed(Fields, frozen=True, kw_only=True):
    """Number of pairs with each difference in what produced their results. Only the target should differ."""

    cases: int = 0
    evaluators: int = 0
    judges: int = 0
    prompts: int = 0
    formats: int = 0
    """Pairs whose digests have different formats, so that some of them cannot be compared."""
    scoring: int = 0
    """Pairs that were scored by agentv versions with different scoring rules."""
    batch: int = 0
    """Pairs with only one answer that came through a vendor's batch API."""
    target: int = 0
    """Pairs with answers of different targets, or of different versions of a target."""
    targets: tuple[str, ...] = ()
    """The names of targets whose version is different in the second file."""
    mixed: int = 0
    """Pairs with a case whose results in one file have different inputs or evaluators."""
    unknown: int = 0
    """Pairs with a result that has no digests."""


class Grading(Fields, frozen=True, kw_only=True):
    """Agreement of two gradings of the same answers: counts of pairs, and Cohen's kappa with its 95% interval."""

    agreed: int
    flipped: int
    kappa: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None


class LabelFigure(Fields, frozen=True, kw_only=True):
    """A difference between pass rates with its 95% interval. `note` explains why it is missing."""

    value: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    method: str = ""
    note: str = ""


class LabelDifference(Fields, frozen=True, kw_only=True):
    """The difference between the pass rates of two runs, by human labels of their answers."""

    used: int
    """Labels that are used for the figures."""
    stale: int
    """Labels of answers to these cases that are not in the two runs."""
    cases: int
    """Cases with labels of both answers that are used for the figures."""
    same_answers: int
    """Cases with the same answer in both runs. They do not differ and need no labels."""
    of: int
    """All cases that were judged in both runs."""
    difference: LabelFigure
    """Estimate from the labels alone."""
    corrected: LabelFigure
    """Estimate from the labels and the verdicts on all cases, which are weighted by their accuracy."""
    notes: tuple[str, ...] = ()


class AnswerCosts(Fields, frozen=True, kw_only=True):
    """Mean tokens and cost of an answer, and quantiles of its duration. Unknown figures are None."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    reasoning_tokens: float | None = None
    """The part of the output tokens that was used for reasoning."""
    cost_usd: float | None = None
    cost_known: int = 0
    """Number of answers whose cost is known."""
    answers: int = 0
    duration_p50_ms: float | None = None
    duration_p95_ms: float | None = None


class Source(Fields, frozen=True, kw_only=True):
    """A results file."""

    path: str
    results: int
    cases: int
    targets: tuple[str, ...]
    timestamp: str
    errors: int
    judge_failures: int
    retried: int
    ambiguous: int
    """Results whose id also occurs for another target. They count as repeats."""
    dry_run: int
    """Number of results of a dry run."""
    cut_off: int
    """Number of answers that were cut off at the token limit."""
    per_answer: AnswerCosts


class Comparison(Fields, frozen=True, kw_only=True):
    """The comparison of two runs."""

    matched: Sequence[Pair]
    unmatched: Counts
    summary: PairTotals
    statistics: Statistics
    changed: Changed
    unchanged: Statistics | None
    """The same statistics for the comparable pairs only; None if all are comparable."""
    grading: Grading | None = None
    """The agreement of the scores, if one file contains the re-scored answers of the other."""
    labels: LabelDifference | msgspec.UnsetType = msgspec.UNSET
    """The difference by human labels. Omitted from the JSON if there are none."""
    metrics: Mapping[str, MetricDifference] | msgspec.UnsetType = msgspec.UNSET
    """The metrics that the eval files of the second run name now. Omitted from the JSON if there are none."""
    by: Mapping[str, tuple[Part, ...]]
    files: tuple[Source, Source]
    threshold: float
    warnings: tuple[str, ...] = ()
    """Reasons why the figures may be misleading."""
    notes: tuple[str, ...] = ()

    def table(self) -> list[dict[str, Any]]:
        """Return one flat row per matched case, for example to create a pandas or polars data frame."""
        matched: Any = self.matched
        rows: list[dict[str, Any]] = matched.table()
        return rows

    def __repr__(self) -> str:
        """Return the verdict and the difference, for an interpreter that shows the comparison as a value."""
        statistics = self.statistics
        shown: str = statistics.verdict
        delta = statistics.delta
        if delta is not None:
            shown += f", difference {delta.mean:+.3f}"
            if delta.ci_lower is not None and delta.ci_upper is not None:
                shown += f" (95%: {delta.ci_lower:+.3f} to {delta.ci_upper:+.3f})"
        return f"<Comparison: {shown}, {plural(statistics.pairs, 'pair', separator=',')}>"
