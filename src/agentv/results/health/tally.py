"""Results as they come -> how their judges behave. What is held are two numbers an answer, and counts."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import msgspec

from agentv.results.health.record import EvaluatorHealth, Flips
from agentv.results.views import JudgedScoreView
from agentv.scoring import verdict_of
from agentv.stats.agreement import alpha, rate, spearman

COUNTS = ("unparsable", "repaired", "asked_again")


class FlipTally:
    """Counts answers that were judged more than once."""

    def __init__(self) -> None:
        self._answers = self._flipped = 0
        self._variance = 0.0

    def add(self, scores: Sequence[float], verdicts: Sequence[str]) -> None:
        """Count an answer with the scores and verdicts that it got; one alone says nothing."""
        if len(scores) < 2:
            return
        self._answers += 1
        self._flipped += len({verdict == "pass" for verdict in verdicts}) > 1
        mean = math.fsum(scores) / len(scores)
        self._variance += math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)

    @property
    def flips(self) -> Flips | None:
        """What was found; None if no answer was judged twice."""
        if not self._answers:
            return None
        share = rate({(1, 0.0): self._answers - self._flipped, (1, 1.0): self._flipped})
        deviation = math.sqrt(self._variance / self._answers)
        return Flips(answers=self._answers, flipped=self._flipped, share=share, deviation=deviation)


class JudgeTally:
    """Counts what the judges of a run said, by evaluator."""

    def __init__(self) -> None:
        self._evaluators: dict[str, _EvaluatorTally] = {}

    def add(self, results: Iterable[Any], answer: str) -> None:
        """Count what evaluators made of an answer; those that ask no judge are passed over."""
        for name, result in judged_results(results):
            if name not in self._evaluators:
                self._evaluators[name] = _EvaluatorTally()
            self._evaluators[name].add(result, len(answer))

    @property
    def evaluators(self) -> tuple[EvaluatorHealth, ...]:
        """The health of each evaluator that asks judges."""
        return tuple(tally.health(name) for name, tally in self._evaluators.items())


def judged_results(results: Iterable[Any], outer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the results that are a judge's, those inside of composites too, with their names: `outer/inner`."""
    for found in results:
        result = msgspec.convert(found, JudgedScoreView) if isinstance(found, dict) else found  # of a file
        name = f"{outer}{result.name}"
        if result.evaluator_provider_request is not None:
            yield name, result
        if result.type == "composite" and isinstance(result.details, dict):
            yield from judged_results(result.details.get("results", ()), f"{name}/")


class _EvaluatorTally:
    def __init__(self) -> None:
        self._answers = self._unjudged = self._contradictions = 0
        self._counts: Counter[str] = Counter()
        self._repeats = FlipTally()
        self._verdicts: Counter[tuple[str, ...]] = Counter()
        self._scores: Counter[tuple[float, ...]] = Counter()
        self._lengths, self._means = array("d"), array("d")

    def add(self, result: Any, length: int) -> None:
        self._answers += 1
        details = _own_details(result)
        if details is not None:
            self._add_details(details)
        if result.failed:
            self._unjudged += 1
            if details is None or "judging" not in details:
                self._counts["unparsable"] += 1
            return
        self._lengths.append(length)
        self._means.append(result.score)
        passed = _described_score(result, details or {})
        only_misses, only_hits = result.misses and not result.hits, result.hits and not result.misses
        self._contradictions += bool(only_misses if verdict_of(passed) == "pass" else only_hits and passed < 0.5)

    def _add_details(self, details: Mapping[str, Any]) -> None:
        judging = details.get("judging")
        if isinstance(judging, dict):
            self._counts.update({name: judging[name] for name in COUNTS if isinstance(judging.get(name), int)})
        for scores in _repeats(details):
            self._repeats.add(scores, [verdict_of(score) for score in scores])
        judges = details.get("judges")
        usable = [judge for judge in judges if "score" in judge] if isinstance(judges, list) else []
        if len(usable) > 1:
            self._verdicts[tuple("pass" if judge["verdict"] == "pass" else "fail" for judge in usable)] += 1
            self._scores[tuple(judge["score"] for judge in usable)] += 1

    def health(self, name: str) -> EvaluatorHealth:
        return EvaluatorHealth(
            evaluator=name,
            answers=self._answers,
            unjudged=self._unjudged,
            contradictions=self._contradictions,
            repeats=self._repeats.flips,
            alpha=alpha(_units(self._verdicts)) if self._verdicts else None,
            alpha_scores=alpha(_units(self._scores), "interval") if self._scores else None,
            length=spearman(self._lengths, self._means) if len(self._means) > 1 else None,
            **{name: self._counts[name] for name in COUNTS},
        )


def _own_details(result: Any) -> Mapping[str, Any] | None:
    """Return the details that a panel of judges gave; a composite holds them beside those of its members."""
    details = result.details
    if result.type == "composite" and isinstance(details, dict):
        details = details.get("own")
    return details if isinstance(details, dict) else None


def _repeats(details: Mapping[str, Any]) -> Iterator[list[float]]:
    """Yield the scores that each judge gave, where it was asked several times."""
    judges = details.get("judges")
    for holder in (details, *(judges if isinstance(judges, list) else ())):
        if isinstance(scores := holder.get("repeats"), list):
            yield [score for score in scores if score is not None]


def _described_score(result: Any, details: Mapping[str, Any]) -> float:
    """Return the score that hits and misses are about: of several judgements, that of the one whose words they are.

    A verdict of `fail` that the score alone would not have counts as 0.
    """
    judges = details.get("judges")
    single = [judge["score"] for judge in judges if "score" in judge] if isinstance(judges, list) else []
    scores = [*chain.from_iterable(_repeats(details))] or single
    if len(scores) < 2:
        return result.score if result.verdict != "fail" else 0.0
    if result.verdict == "fail" and verdict_of(result.score) != "fail":
        return 0.0
    return min(scores, key=lambda score: abs(score - result.score))


def _units(counts: Mapping[tuple[Any, ...], int]) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(repeat(unit, times) for unit, times in counts.items())
