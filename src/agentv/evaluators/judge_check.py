"""`--check-judge`: planted answers are judged besides a run, and some of its answers are judged once more.

Nothing of this enters a score or a results file. Which cases and which answers are taken is decided by a hash of their
names: they are spread over the run, and the next run takes the same, whose judgements it finds in the cache.
"""

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.score import ConfiguredEvaluator
from agentv.judges.canaries import Canary, canaries_of, plant
from agentv.judges.payload import reference_answer
from agentv.records import EvalCase, EvaluatorResult, Exchange, ProviderRequest
from agentv.results.health.record import Canaries, FailedCanary, Flips
from agentv.results.health.tally import FlipTally, judged_results
from agentv.stats.agreement import rate

T = TypeVar("T")
CASES, ANSWERS = 12, 40
"""In how many cases answers are planted, and how many answers are judged again."""


class JudgedCase(NamedTuple):
    """A case whose answers are judged, with what is sent for it, and the target that answers."""

    case: EvalCase
    request: ProviderRequest
    target: str


class _Answer(NamedTuple):
    exchange: Exchange
    target: str
    results: Sequence[EvaluatorResult]


class AnswerTaker(Protocol):
    """Is offered what was judged, and takes some of it."""

    def offer(self, exchange: Exchange, target: str, results: Sequence[EvaluatorResult]) -> None:
        """Keep an answer to be judged again, if it is one of those that are taken."""
        ...


class AnswerSample(Generic[T]):
    """Holds what belongs to the answers that are taken, of all that were added."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, T]] = []
        self._added = 0

    def add(self, case: EvalCase, trial: int, results: Sequence[EvaluatorResult], what: T) -> bool:
        """Return whether an answer is one of those that are taken, as far as is known now."""
        if not any(True for _ in judged_results(results)):
            return False
        self._added += 1
        entry = -_rank(case, trial), self._added, what
        if len(self._kept) < ANSWERS:
            heapq.heappush(self._kept, entry)
        elif entry > self._kept[0]:
            heapq.heapreplace(self._kept, entry)
        else:
            return False
        return True

    def __iter__(self) -> Iterator[T]:
        return (what for *_, what in self._kept)


class JudgeCheck:
    """Checks the judges of a run. `planting` and `repeating` build evaluators whose judges are asked for the checks."""

    def __init__(self, planting: EvaluatorBuilder, repeating: EvaluatorBuilder):
        self._planting, self._repeating = planting, repeating
        self._answers = AnswerSample[_Answer]()

    def offer(self, exchange: Exchange, target: str, results: Sequence[EvaluatorResult]) -> None:
        """Keep an answer to be judged again, if it is one of those that are taken."""
        self._answers.add(exchange.case, exchange.request.trial, results, _Answer(exchange, target, results))

    def choose(self, cases: Iterable[tuple[EvalCase, str]]) -> list[tuple[EvalCase, str]]:
        """Return the cases that answers are planted in, of all that the run has, each with its target."""
        judged = ((case, target) for case, target in cases if any(True for _ in self._judging(case, target)))
        return heapq.nsmallest(CASES, judged, key=lambda pair: _rank(pair[0], 1))

    def _judging(self, case: EvalCase, target: str) -> Iterator[tuple[str, ConfiguredEvaluator]]:
        return judging_evaluators(self._planting.build(case, target).evaluators)

    async def plant(self, cases: Sequence[JudgedCase]) -> Canaries:
        """Return what the judges make of planted answers."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                (name, judged, canary, group.create_task(evaluator.result(exchange)))
                for judged, other in zip(cases, _others(cases), strict=True)
                for name, evaluator in self._judging(judged.case, judged.target)
                if not evaluator.is_negated  # what it should say of a worthless answer, nobody knows
                for canary in canaries_of(judged.case, other)
                for exchange in [plant(canary, judged.case, judged.request)]
            ]
        found = [(name, judged, canary, task.result()) for name, judged, canary, task in tasks]
        failed = tuple(
            FailedCanary(
                evaluator=name,
                eval_id=judged.case.id,
                canary=canary.name,
                verdict=result.verdict,
                score=result.score,
            )
            for name, judged, canary, result in found
            if not result.failed and not _is_right(canary, result)
        )
        unjudged = sum(result.failed for *_, result in found)
        right = len(found) - unjudged - len(failed)
        accuracy = rate({(1, 1.0): right, (1, 0.0): len(failed)}, "nothing was planted that was judged")
        return Canaries(planted=len(found), right=right, unjudged=unjudged, accuracy=accuracy, failed=failed)

    async def judge_again(self) -> Flips | None:
        """Return how far second judgements of answers differ from the first; None if there are none."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                (first, group.create_task(evaluator.result(answer.exchange)))
                for answer in self._answers
                for first, evaluator in self._pairs(answer)
            ]
        tally = FlipTally()
        for first, task in tasks:
            if not (second := task.result()).failed:
                tally.add((first.score, second.score), (first.verdict, second.verdict))
        return tally.flips

    def _pairs(self, answer: _Answer) -> Iterator[tuple[Any, ConfiguredEvaluator]]:
        """Yield each judgement of an answer, with the evaluator that gives another."""
        built = self._repeating.build(answer.exchange.case, answer.target)
        evaluators = dict(judging_evaluators(built.evaluators))
        for name, first in judged_results(answer.results):
            if name in evaluators and not first.failed:
                yield first, evaluators[name]


def _is_right(canary: Canary, result: EvaluatorResult) -> bool:
    return (result.verdict == "pass") is canary.must_pass


def judging_evaluators(evaluators: Iterable[Any], outer: str = "") -> Iterator[tuple[str, ConfiguredEvaluator]]:
    """Yield the evaluators that ask judges, those inside of composites too, with their names: `outer/inner`."""
    for configured in evaluators:
        name = f"{outer}{configured.name}"
        if getattr(configured.evaluator, "panel", None) is not None:
            yield name, configured
        yield from judging_evaluators(getattr(configured.evaluator, "inner", ()), f"{name}/")


def _others(cases: Sequence[JudgedCase]) -> Iterator[str]:
    """Yield for each case the reference answer of the next one that has another; empty if there is none."""
    references = [reference_answer(judged.case).strip() for judged in cases]
    for number, own in enumerate(references):
        following = (*references[number + 1 :], *references[:number])
        yield next((text for text in following if text and text != own), "")


def _rank(case: EvalCase, trial: int) -> int:
    name = f"{case.dataset}\0{case.id}\0{trial}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(name, digest_size=8).digest())
