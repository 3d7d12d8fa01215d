"""Pair the verdict of the judge on each labelled answer with that of the human reviewers."""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agentv.errors import ResultsError
from agentv.log import warn
from agentv.records import Problem
from agentv.results.run_files import RunFiles, files_of
from agentv.results.runs import RunRecord
from agentv.trust.labels.file import Label
from agentv.trust.labels.match import Cluster, LabelledAnswer, LabelMatches, match_labels


class JudgedPair(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of the judge and of the reviewers on one answer."""

    passed: bool
    """Whether the judge passed the answer."""
    deserved: bool
    """Whether the majority of the reviewers passed it."""
    cluster: Cluster
    is_random: bool
    """Whether the answer was sampled at random from its run."""
    labels: tuple[Label, ...]


class LabelledPairs(msgspec.Struct, frozen=True, kw_only=True):
    """The usable labelled answers of a run, and counts of the others."""

    pairs: tuple[JudgedPair, ...]
    as_unlabelled: tuple[tuple[Cluster, bool], ...]
    """Verdicts on answers that count as unlabelled: reviewers disagree, or they were not sampled at random."""
    disputed: int
    unjudged: int
    is_for_case: bool
    """Whether labels for the whole case are compared with one evaluator, because it has no labels of its own."""
    carried_over: int
    """The number of pairs that do not count as random, because other labels of the same sample are stale."""

    @property
    def random(self) -> list[JudgedPair]:
        return [pair for pair in self.pairs if pair.is_random]


class OtherRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Labelled answers that were sampled at random from other runs."""

    pairs: tuple[JudgedPair, ...] = ()
    of_other_judges: int = 0
    """The number of answers that are excluded because another judge judged them."""


def choose_pairs(
    answers: Sequence[LabelledAnswer],
    evaluator: str | None,
    stale: Iterable[Label] = (),
) -> LabelledPairs:
    """Return the verdicts of the judge and of the reviewers on each labelled answer.

    The majority of the reviewers counts; answers with as many passes as fails are excluded. If an evaluator is given,
    the labels for it count or, without any, those for the whole case. `stale` are labels for other answers to the same
    cases: once some labels of a random sample are stale, the rest of it is not a random sample any more.
    """
    is_for_case = not any(_has_label_for(answer, evaluator) for answer in answers)
    wanted = evaluator
    if is_for_case:
        wanted = None
    is_depleted = has_random(label for label in stale if label.evaluator == wanted)
    pairs: list[JudgedPair] = []
    as_unlabelled: list[tuple[Cluster, bool]] = []
    disputed = 0
    unjudged = 0
    carried_over = 0
    for answer in answers:
        labels = [label for label in answer.labels if label.evaluator == wanted]
        deserved = majority(labels)
        if answer.passed is None:
            if labels:
                unjudged += 1
            continue
        if deserved is None:
            if labels:
                disputed += 1
            as_unlabelled.append((answer.cluster, answer.passed))
            continue
        is_random = has_random(labels)
        if is_random and is_depleted and is_earlier(labels, answer.timestamp):
            carried_over += 1
            is_random = False
        pair = JudgedPair(
            passed=answer.passed,
            deserved=deserved,
            cluster=answer.cluster,
            is_random=is_random,
            labels=tuple(labels),
        )
        pairs.append(pair)
        if not is_random:
            as_unlabelled.append((answer.cluster, answer.passed))
    return LabelledPairs(
        pairs=tuple(pairs),
        as_unlabelled=tuple(as_unlabelled),
        disputed=disputed,
        unjudged=unjudged,
        is_for_case=is_for_case and evaluator is not None and bool(pairs),
        carried_over=carried_over,
    )


def _has_label_for(answer: LabelledAnswer, evaluator: str | None) -> bool:
    return any(label.evaluator == evaluator for label in answer.labels)


def has_random(labels: Iterable[Label]) -> bool:
    """Return whether any label is for an answer that was sampled at random."""
    return any(label.sampling == "random" for label in labels)


def majority(labels: Sequence[Label]) -> bool | None:
    """Return whether most reviewers pass an answer, or None if as many pass it as fail it."""
    passes = sum(label.label == "pass" for label in labels)
    fails = len(labels) - passes
    if passes == fails:
        return None
    return passes > fails


def pairs_of_other_runs(
    run: RunFiles,
    matched: LabelMatches,
    evaluator: str | None,
    runs: Iterable[RunRecord],
) -> OtherRuns:
    """Return the labelled answers of other runs; an answer that several runs share is taken from the first.

    Only answers that were sampled at random count, and only if the same judge judged them as in this run.
    """
    seen = set(matched.used)
    pairs: list[JudgedPair] = []
    of_other_judges = 0
    for file in _other_files(run, runs):
        try:
            found = match_labels(file, matched.book, evaluator, only_labelled=True)
        except ResultsError as error:
            problem = Problem(
                message=f"the labels of this run are ignored: {error.message}",
                severity="warning",
                file=file,
                line=error.line,
            )
            warn(problem)
            continue
        new = [answer for answer in found.answers if seen.isdisjoint(answer.labels)]
        for answer in new:
            seen.update(answer.labels)
        same_judge = [answer for answer in new if answer.judge in matched.judges]
        of_other_judges += len(new) - len(same_judge)
        pairs += choose_pairs(same_judge, evaluator).random
    return OtherRuns(pairs=tuple(pairs), of_other_judges=of_other_judges)


def _other_files(run: RunFiles, runs: Iterable[RunRecord]) -> Iterator[Path]:
    """Yield the existing results files of other runs, each once."""
    seen = {os.path.realpath(file) for file in files_of(run)}
    for other in runs:
        if not other.results:
            continue
        file = Path(other.results)
        if not file.is_file():
            continue
        real = os.path.realpath(file)
        if real not in seen:
            seen.add(real)
            yield file


def is_earlier(labels: Iterable[Label], timestamp: str) -> bool:
    """Return whether all random labels are older than the result: they were sampled from an earlier run."""
    made = _time(timestamp)
    if made is None:
        return False
    for label in labels:
        if label.sampling != "random":
            continue
        labelled = _time(label.at)
        if labelled is None or labelled >= made:
            return False
    return True


def _time(text: str | None) -> datetime | None:
    """Parse a time, in UTC unless it has a time zone; return None if it is invalid."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    return found
