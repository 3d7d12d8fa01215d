"""What a comparison is asked and what it answers. The names of the answers are those of the JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from agentv.stats.inference import CONFIDENCE

BY = ("evaluator", "dataset", "target", "conversation_id")
"""What figures can be given for, besides the keys of the metadata."""
Verdict = Literal["better", "worse", "not worse", "cannot tell"]
Outcome = Literal["win", "loss", "tie"]
MARGIN = 0.02


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to compare."""

    threshold: float = 0.1
    """The least difference that counts as a win or a loss."""
    margin: float = MARGIN
    """The most by which a run may be worse and still be called not worse."""
    by: str | None = None
    """For what the figures are given once more, for each of its values: one of `BY`, or a key of the metadata."""
    cluster: str | None = None
    """By what cases belong together: a field, or a key of the metadata; the conversation if it is None."""
    skip_torn: bool = False
    """Whether a result that a kill has cut off is left out; otherwise it is an error."""

    @property
    def label(self) -> str | None:
        """The key of the results by whose values the figures are grouped, if they are by such a key."""
        return None if self.by in (None, "evaluator", "dataset", "target") else self.by


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields by attribute or, as in the JSON, by name."""

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None


class Pair(msgspec.Struct, frozen=True, gc=False):
    """A case that is in both files."""

    eval_id: str
    score1: float
    score2: float
    delta: float
    outcome: Outcome

    __getitem__ = Fields.__getitem__


class Counts(Fields, frozen=True, kw_only=True):
    """A number for each of the two files."""

    file1: int
    file2: int


class Totals(Fields, frozen=True, kw_only=True):
    """What the pairs come to."""

    total: int
    matched: int
    wins: int
    losses: int
    ties: int
    meanDelta: float
    repeats: Counts
    """Results besides the first of an id; an id counts with the mean of all that it has."""


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
    """By how much clusters widen the variance."""
    bootstrap: tuple[float, float] | None = None
    """The interval once more, by resampling: for small samples."""


class Test(Fields, frozen=True, kw_only=True, omit_defaults=True):
    """A test, and how probable so large a difference is if there is none."""

    name: str
    p_value: float
    method: str = ""
    resamples: int = 0
    seed: int | None = None


class Passes(Fields, frozen=True, kw_only=True):
    """How many pass, how many changed sides, and the interval of the difference of the rates (Agresti and Min)."""

    passed1: int
    passed2: int
    gained: int
    lost: int
    ci_lower: float
    ci_upper: float


class Bounds(Fields, frozen=True, kw_only=True):
    """Where the mean difference would be, had all that was not scored gone either way; in how many pairs that is."""

    unscored: int
    lower: float
    upper: float


class Statistics(Fields, frozen=True, kw_only=True):
    """What the pairs that have a score on both sides allow to say."""

    pairs: int
    mean1: float | None = None
    mean2: float | None = None
    delta: Delta | None = None
    tests: tuple[Test, ...] = ()
    passes: Passes | None = None
    mde: float | None = None
    """The smallest difference that this design could have detected, in 80% of such experiments."""
    bounds: Bounds | None = None
    interval: tuple[float, float] | None = None
    """What the verdict rests on: the confidence interval, widened by what pairs without a score could have been."""
    margin: float
    verdict: Verdict
    notes: tuple[str, ...] = ()


class Part(Fields, frozen=True, kw_only=True):
    """The figures of one evaluator, or of one group of cases; `p_adjusted` is Holm's, over all of them."""

    name: str
    p_adjusted: float | None
    statistics: Statistics


class Changed(Fields, frozen=True, kw_only=True):
    """What is not the same on both sides, in pairs; only the target is meant to differ."""

    cases: int = 0
    evaluators: int = 0
    judges: int = 0
    prompts: int = 0
    agentv: int = 0
    scoring: int = 0
    """Pairs that two versions of agentv have scored in different ways."""
    batch: int = 0
    """Pairs of which one answer came through a vendor's batch API, and the other did not."""
    target: int = 0
    targets: tuple[str, ...] = ()
    """The names of targets that are another version in the second file."""
    mixed: int = 0
    """Pairs of which a case has results of different texts or evaluators in one file."""
    unknown: int = 0
    """Pairs of which a result has no fingerprints."""


class Grading(Fields, frozen=True, kw_only=True):
    """How far two gradings of the same answers agree: in how many pairs, and Cohen's kappa with its 95% interval."""

    agreed: int
    flipped: int
    kappa: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None


class LabelFigure(Fields, frozen=True, kw_only=True):
    """A difference of pass rates with its 95% interval; `note` says in words why there is none."""

    value: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    method: str = ""
    note: str = ""


class LabelDifference(Fields, frozen=True, kw_only=True):
    """By how much the pass rates of two runs differ, as people say who labelled answers of both."""

    used: int
    """Labels that the figures are made of."""
    stale: int
    """Labels of other answers to the cases than those of the two runs."""
    cases: int
    """Cases with labels of both answers that the figures are made of."""
    same_answers: int
    """Cases with the same answer in both runs: they do not differ, and need no labels."""
    of: int
    """All the cases that were judged in both runs."""
    difference: LabelFigure
    """By the labels alone."""
    corrected: LabelFigure
    """By the labels, and by the verdicts on all cases as far as labels bear these out."""
    notes: tuple[str, ...] = ()


class AnswerCosts(Fields, frozen=True, kw_only=True):
    """What an answer took: the means of tokens and money, and two quantiles of the time; None is unknown."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    reasoning_tokens: float | None = None
    """Of the output tokens."""
    cost_usd: float | None = None
    cost_known: int = 0
    """Of how many answers the cost is known."""
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
    """Results with the id of a case in another dataset, or of another target; they count as repeats of it."""
    dry_run: int
    """Results of a dry run."""
    cut_off: int
    """Answers that were cut off at the token limit."""
    per_answer: AnswerCosts


class Comparison(Fields, frozen=True, kw_only=True):
    """How one run compares with another."""

    matched: Sequence[Pair]
    unmatched: Counts
    summary: Totals
    statistics: Statistics
    changed: Changed
    unchanged: Statistics | None
    """The same figures for the pairs of which neither the case nor the evaluators have changed, if any have."""
    grading: Grading | None = None
    """How far the scores agree, if one file has the answers of the other, scored again."""
    labels: LabelDifference | msgspec.UnsetType = msgspec.UNSET
    """How the runs differ by labels of people; not in the JSON if there are none."""
    by: Mapping[str, tuple[Part, ...]]
    files: tuple[Source, Source]
    threshold: float
    warnings: tuple[str, ...] = ()
    """Why the figures may not mean what they seem to."""
    notes: tuple[str, ...] = ()
