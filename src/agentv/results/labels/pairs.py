"""Labelled answers -> pairs of what the judge says and what the people say."""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agentv.errors import ResultsError
from agentv.notices import warn
from agentv.records import Problem
from agentv.results.labels.file import Label
from agentv.results.labels.match import Cluster, LabelledAnswer, LabelMatches, match_labels
from agentv.results.run_files import RunFiles, files_of
from agentv.results.runs import RunRecord


class JudgedPair(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge and the people say of one answer."""

    passed: bool
    deserved: bool
    cluster: Cluster
    is_random: bool
    """Whether the answer was drawn at random from its run."""
    labels: tuple[Label, ...]


class LabelledPairs(msgspec.Struct, frozen=True, kw_only=True):
    """The labelled answers of a run that can be used, and what is to be said of the others."""

    pairs: tuple[JudgedPair, ...]
    left: tuple[tuple[Cluster, bool], ...]
    """Verdicts on answers that count as not labelled: where people are at odds, or that nobody drew at random."""
    disputed: int
    unjudged: int
    is_for_case: bool
    """Whether labels of the whole case are compared with one evaluator, as there are none for it."""
    carried_over: int
    """Pairs that would be random, had not other labels of their time become stale."""

    @property
    def random(self) -> list[JudgedPair]:
        return [pair for pair in self.pairs if pair.is_random]


class OtherRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Labelled answers of other runs, drawn at random there."""

    pairs: tuple[JudgedPair, ...] = ()
    of_other_judges: int = 0
    """Answers that are left out, as somebody else judged them."""


def choose_pairs(
    answers: Sequence[LabelledAnswer], evaluator: str | None, stale: Iterable[Label] = ()
) -> LabelledPairs:
    """Return what the judge and the people say of each labelled answer.

    The majority of the people counts; answers that as many pass as fail are left out. If an evaluator is named, labels
    for it count, and if there are none, those for the whole case. `stale` are labels of other answers to the cases:
    what is left of a random sample when others of it are stale is not random any more.
    """
    is_for_case = all(label.evaluator != evaluator for answer in answers for label in answer.labels)
    wanted = None if is_for_case else evaluator
    is_depleted = has_random(label for label in stale if label.evaluator == wanted)
    pairs: list[JudgedPair] = []
    left: list[tuple[Cluster, bool]] = []
    disputed = unjudged = carried_over = 0
    for answer in answers:
        labels = [label for label in answer.labels if label.evaluator == wanted]
        deserved = majority(labels)
        if answer.passed is None:
            unjudged += bool(labels)
        elif deserved is None:
            disputed += bool(labels)
            left.append((answer.cluster, answer.passed))
        else:
            is_random = has_random(labels)
            if is_random and is_depleted and is_earlier(labels, answer.timestamp):
                carried_over += 1
                is_random = False
            pairs.append(_pair(answer, answer.passed, deserved, is_random, labels))
            if not is_random:
                left.append((answer.cluster, answer.passed))
    return LabelledPairs(
        pairs=tuple(pairs),
        left=tuple(left),
        disputed=disputed,
        unjudged=unjudged,
        is_for_case=is_for_case and evaluator is not None and bool(pairs),
        carried_over=carried_over,
    )


def has_random(labels: Iterable[Label]) -> bool:
    """Return whether one of the labels is of an answer that was drawn at random."""
    return any(label.sampling == "random" for label in labels)


def majority(labels: Sequence[Label]) -> bool | None:
    """Return whether more people pass an answer than fail it; None if as many do."""
    passes = sum(label.label == "pass" for label in labels)
    fails = len(labels) - passes
    return None if passes == fails else passes > fails


def pairs_of_other_runs(
    run: RunFiles, matched: LabelMatches, evaluator: str | None, runs: Iterable[RunRecord]
) -> OtherRuns:
    """Return the labelled answers of other runs; one that several have is that of the first.

    Only answers that were drawn at random count, and only those that the same judge has judged as in this run.
    """
    seen = set(matched.used)
    files = set(map(os.path.realpath, files_of(run)))
    pairs: list[JudgedPair] = []
    of_other_judges = 0
    for other in runs:
        file = Path(other.results or "")
        if not other.results or not file.is_file() or (real := os.path.realpath(file)) in files:
            continue
        files.add(real)
        try:
            found = match_labels(file, matched.book, evaluator, only_labelled=True)
        except ResultsError as error:
            message = f"the labels of this run are left out: {error.message}"
            warn(Problem(message=message, severity="warning", file=file, line=error.line))
            continue
        new = [answer for answer in found.answers if seen.isdisjoint(answer.labels)]
        seen.update(label for answer in new for label in answer.labels)
        same = [answer for answer in new if answer.judge in matched.judges]
        of_other_judges += len(new) - len(same)
        pairs += choose_pairs(same, evaluator).random
    return OtherRuns(pairs=tuple(pairs), of_other_judges=of_other_judges)


def _pair(answer: LabelledAnswer, passed: bool, deserved: bool, is_random: bool, labels: list[Label]) -> JudgedPair:
    cluster, counted = answer.cluster, tuple(labels)
    return JudgedPair(passed=passed, deserved=deserved, cluster=cluster, is_random=is_random, labels=counted)


def is_earlier(labels: Iterable[Label], timestamp: str) -> bool:
    """Return whether all random labels are older than the result; they were then drawn from an earlier run."""
    made = _time(timestamp)
    times = [_time(label.at) for label in labels if label.sampling == "random"]
    return made is not None and all(time is not None and time < made for time in times)


def _time(text: str | None) -> datetime | None:
    """Return a time, None if it is none; one without a zone is that of UTC."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
