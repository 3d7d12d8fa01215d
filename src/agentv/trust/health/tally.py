"""Accumulate how the judges of a run behave. Memory use is two floats per answer, plus counts."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec

from agentv.results.views import JudgedScoreView
from agentv.scoring import verdict_of
from agentv.stats.agreement import alpha, rate, spearman
from agentv.trust.health.record import EvaluatorHealth, Flips

COUNTS = ("call_failed", "off_scale", "unparsable", "repaired", "asked_again")


class FlipTally:
    """Counts answers that were judged more than once."""

    def __init__(self) -> None:
        self._answers = 0
        self._flipped = 0
        self._variance = 0.0

    def add(self, scores: Sequence[float], verdicts: Sequence[str]) -> None:
        """Count an answer by all its scores and verdicts; an answer that was judged once is ignored."""
        if len(scores) < 2:
            return
        self._answers += 1
        outcomes = {verdict == "pass" for verdict in verdicts}
        if len(outcomes) > 1:
            self._flipped += 1
        mean = math.fsum(scores) / len(scores)
        squares = math.fsum((score - mean) ** 2 for score in scores)
        self._variance += squares / (len(scores) - 1)

    @property
    def flips(self) -> Flips | None:
        """The figures, or None if no answer was judged twice."""
        if not self._answers:
            return None
        # Each answer is a cluster of one, with a total of 1 if its verdict changed.
        counts = {
            (1, 0.0): self._answers - self._flipped,
            (1, 1.0): self._flipped,
        }
        mean_variance = self._variance / self._answers
        return Flips(
            answers=self._answers,
            flipped=self._flipped,
            share=rate(counts),
            deviation=math.sqrt(mean_variance),
        )


class JudgeTally:
    """Counts the judgements of a run by evaluator."""

    def __init__(self) -> None:
        self._evaluators: dict[str, _EvaluatorTally] = {}

    def add(self, results: Iterable[Any], answer: str) -> None:
        """Count the evaluator results of one answer; evaluators without a judge are ignored."""
        for name, result in judged_results(results):
            if name not in self._evaluators:
                self._evaluators[name] = _EvaluatorTally()
            self._evaluators[name].add(result, len(answer))

    @property
    def evaluators(self) -> tuple[EvaluatorHealth, ...]:
        """The health of each evaluator that uses judges."""
        found = []
        for name, tally in self._evaluators.items():
            found.append(tally.health(name))
        return tuple(found)


def judged_results(results: Iterable[Any], outer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names and results of evaluators with a judge; members of a composite are named `outer/inner`."""
    for found in results:
        result = found
        if isinstance(found, dict):  # the members of a composite that was read from a file
            result = msgspec.convert(found, JudgedScoreView)
        name = f"{outer}{result.name}"
        if result.evaluator_provider_request is not None:
            yield name, result
        if result.type == "composite" and isinstance(result.details, dict):
            members = result.details.get("results", ())
            yield from judged_results(members, f"{name}/")


class _EvaluatorTally:
    """Counts the judgements of one evaluator."""

    def __init__(self) -> None:
        self._answers = 0
        self._unjudged = 0
        self._contradictions = 0
        self._counts: Counter[str] = Counter()
        self._repeats = FlipTally()
        self._verdicts: Counter[tuple[str, ...]] = Counter()
        """The number of answers by the verdicts of a panel."""
        self._scores: Counter[tuple[float, ...]] = Counter()
        """The number of answers by the scores of a panel."""
        self._lengths = array("d")
        self._means = array("d")

    def add(self, result: Any, length: int) -> None:
        """Count the judgement of an answer of this length."""
        if result.score is None:
            return  # the evaluator does not apply to the case
        self._answers += 1
        details = _own_details(result)
        if details is not None:
            self._add_details(details)
        if result.failed:
            self._unjudged += 1
            if details is None or "judging" not in details:
                kind = "unparsable"
                if result.off_scale is not None:
                    kind = "off_scale"
                self._counts[kind] += 1
            return
        self._lengths.append(length)
        self._means.append(result.score)
        if _is_contradiction(result, details or {}):
            self._contradictions += 1

    def _add_details(self, details: Mapping[str, Any]) -> None:
        judging = details.get("judging")
        if isinstance(judging, dict):
            for name in COUNTS:
                count = judging.get(name)
                if isinstance(count, int):
                    self._counts[name] += count
        for scores in _repeats(details):
            verdicts = [verdict_of(score) for score in scores]
            self._repeats.add(scores, verdicts)
        verdicts_of_panel: list[str] = []
        scores_of_panel: list[float] = []
        for judge in _judges(details):
            if "score" in judge:
                scores_of_panel.append(judge["score"])
                verdicts_of_panel.append(_pass_or_fail(judge["verdict"]))
        if len(scores_of_panel) > 1:
            self._verdicts[tuple(verdicts_of_panel)] += 1
            self._scores[tuple(scores_of_panel)] += 1

    def health(self, name: str) -> EvaluatorHealth:
        """Return the figures of this evaluator."""
        alpha_verdicts = None
        if self._verdicts:
            alpha_verdicts = alpha(_units(self._verdicts))
        alpha_scores = None
        if self._scores:
            alpha_scores = alpha(_units(self._scores), "interval")
        length = None
        if len(self._means) > 1:
            length = spearman(self._lengths, self._means)
        return EvaluatorHealth(
            evaluator=name,
            answers=self._answers,
            call_failed=self._counts["call_failed"],
            off_scale=self._counts["off_scale"],
            unparsable=self._counts["unparsable"],
            unjudged=self._unjudged,
            repaired=self._counts["repaired"],
            asked_again=self._counts["asked_again"],
            contradictions=self._contradictions,
            repeats=self._repeats.flips,
            alpha=alpha_verdicts,
            alpha_scores=alpha_scores,
            length=length,
        )


def _pass_or_fail(verdict: str) -> str:
    """Return `fail` for every verdict but `pass`."""
    if verdict == "pass":
        return "pass"
    return "fail"


def _own_details(result: Any) -> Mapping[str, Any] | None:
    """Return the details of a panel of judges; a composite has its own next to those of its members."""
    details = result.details
    if result.type == "composite" and isinstance(details, dict):
        details = details.get("own")
    if isinstance(details, dict):
        return details
    return None


def _judges(details: Mapping[str, Any]) -> list[Any]:
    """Return the judgements of the members of a panel."""
    judges = details.get("judges")
    if isinstance(judges, list):
        return judges
    return []


def _repeats(details: Mapping[str, Any]) -> Iterator[list[float]]:
    """Yield the scores of each judge that was called several times."""
    for holder in (details, *_judges(details)):
        scores = holder.get("repeats")
        if isinstance(scores, list):
            yield [score for score in scores if score is not None]


def _is_contradiction(result: Any, details: Mapping[str, Any]) -> bool:
    """Return whether a judgement passes an answer but lists only misses, or fails it but lists only hits."""
    score = _described_score(result, details)
    has_only_misses = result.misses and not result.hits
    has_only_hits = result.hits and not result.misses
    if verdict_of(score) == "pass":
        return bool(has_only_misses)
    return bool(has_only_hits and score < 0.5)


def _described_score(result: Any, details: Mapping[str, Any]) -> float:
    """Return the score that hits and misses refer to: they are those of one of several judgements.

    A verdict of `fail` that does not follow from the score counts as 0.
    """
    total: float = result.score
    scores = _scores_of_judgements(details)
    has_several = len(scores) > 1
    if result.verdict == "fail":
        follows_from_score = has_several and verdict_of(total) == "fail"
        if not follows_from_score:
            return 0.0
    if not has_several:
        return total
    return min(scores, key=lambda score: abs(score - total))


def _scores_of_judgements(details: Mapping[str, Any]) -> list[float]:
    """Return the scores of repeated judgements, or else those of the members of a panel."""
    scores: list[float] = []
    for repeated in _repeats(details):
        scores += repeated
    if scores:
        return scores
    return [judge["score"] for judge in _judges(details) if "score" in judge]


def _units(counts: Mapping[tuple[Any, ...], int]) -> Iterator[tuple[Any, ...]]:
    """Yield the ratings of each answer."""
    for unit, times in counts.items():
        yield from repeat(unit, times)
