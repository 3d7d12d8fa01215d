"""`--check-judge`: judges planted answers during a run, and judges some of its answers a second time.

None of this affects a score or a results file. A hash of the case decides which cases and which answers are chosen:
they are spread over the run, and the next run chooses the same ones, whose judgements are then in the cache.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judging.payload import reference_answer
from agentv.evaluators.score import ConfiguredEvaluator, NamedEvaluators, judging_evaluators
from agentv.records import EvalCase, EvaluatorResult, Exchange, ProviderRequest, Verdict
from agentv.scoring import verdict_of
from agentv.stats.agreement import rate
from agentv.trust.canaries import Canary, canaries_of, count_canaries, different_reference, has_examples, plant
from agentv.trust.health.record import Canaries, FailedCanary, Flips
from agentv.trust.health.tally import FlipTally, judged_results

T = TypeVar("T")
Results = Sequence[EvaluatorResult]
CaseAndTarget = tuple[EvalCase, str]
CASES = 12
"""The number of cases in which answers are planted."""
ANSWERS = 40
"""The number of answers that are judged a second time."""


class JudgedCase(NamedTuple):
    """A case whose answers are judged, with the request and the name of the target."""

    case: EvalCase
    request: ProviderRequest
    target: str


class _Answer(NamedTuple):
    """An answer that is kept to be judged a second time."""

    exchange: Exchange
    target: str
    results: Results


class _Judgement(NamedTuple):
    """The judgement of one judge on a planted answer."""

    judge: str | None
    """The name of the judge of a panel; None if the evaluator has a single judge."""
    score: float
    verdict: Verdict | None
    """None if the judge gave no usable judgement."""


class _Planted(NamedTuple):
    """A planted answer that is being judged."""

    name: str
    """The name of the evaluator."""
    evaluator: ConfiguredEvaluator
    case: EvalCase
    canary: Canary
    task: asyncio.Task[EvaluatorResult]

    def judgements(self) -> Iterator[_Judgement]:
        """Yield the judgement of each judge: two lenient judges of a panel could hide a strict one, and vice versa."""
        result = self.task.result()
        members = _members(result)
        if not members:
            verdict = result.verdict
            if result.failed:
                verdict = None
            yield _Judgement(None, result.score or 0.0, verdict)
        for member in members:
            score = member.get("score", 0.0)
            verdict = member.get("verdict")
            if self.evaluator.is_negated and verdict is not None:
                score = round(1.0 - score, 12)
                verdict = verdict_of(score)
            yield _Judgement(member["judge"], score, verdict)


class AnswerSink(Protocol):
    """Receives every judged answer and keeps some of them."""

    def offer(
        self,
        exchange: Exchange,
        target: str,
        results: Results,
    ) -> None:
        """Keep an answer to be judged a second time, if it belongs to the sample."""
        ...


class AnswerSample(Generic[T]):
    """Keeps a value for each answer of the sample: the `ANSWERS` with the lowest ranks of all that were added."""

    def __init__(self) -> None:
        # A heap whose first entry has the highest rank: ranks are negated.
        self._kept: list[tuple[int, int, T]] = []
        self._added = 0

    def add(
        self,
        case: EvalCase,
        trial: int,
        results: Results,
        what: T,
    ) -> bool:
        """Add an answer; return whether it belongs to the sample of the answers added so far."""
        has_judgement = any(True for _ in judged_results(results))
        if not has_judgement:
            return False
        self._added += 1
        # The count makes entries unique, so that values are never compared.
        entry = (-_rank(case, trial), self._added, what)
        if len(self._kept) < ANSWERS:
            heapq.heappush(self._kept, entry)
            return True
        if entry > self._kept[0]:
            heapq.heapreplace(self._kept, entry)
            return True
        return False

    def __iter__(self) -> Iterator[T]:
        for _, _, what in self._kept:
            yield what


class JudgeCheck:
    """Checks the judges of a run."""

    def __init__(self, planting: EvaluatorBuilder, repeating: EvaluatorBuilder):
        """Judge planted answers with evaluators from `planting`, and kept answers again with those from `repeating`."""
        self._planting = planting
        self._repeating = repeating
        self._answers = AnswerSample[_Answer]()

    def offer(
        self,
        exchange: Exchange,
        target: str,
        results: Results,
    ) -> None:
        """Keep an answer to be judged a second time, if it belongs to the sample."""
        answer = _Answer(exchange, target, results)
        self._answers.add(
            exchange.case,
            exchange.request.trial,
            results,
            answer,
        )

    def choose(self, cases: Iterable[CaseAndTarget]) -> list[CaseAndTarget]:
        """Return the cases of a run in which answers are planted, each with its target; those with examples first."""

        def rank(pair: CaseAndTarget) -> tuple[bool, int]:
            case, target = pair
            judges = self._judging(case, target)
            lacks_examples = not any(has_examples(evaluator) for _, evaluator in judges)
            return lacks_examples, _rank(case, 1)

        judged = (pair for pair in cases if self._has_canaries(*pair))  # lazy: a run may have very many cases
        return heapq.nsmallest(CASES, judged, key=rank)

    def _has_canaries(self, case: EvalCase, target: str) -> bool:
        judges = self._judging(case, target)
        return any(count_canaries(case, evaluator) for _, evaluator in judges)

    def _judging(self, case: EvalCase, target: str) -> NamedEvaluators:
        built = self._planting.build(case, target)
        return judging_evaluators(built.evaluators)

    async def plant(self, cases: Sequence[JudgedCase]) -> Canaries:
        """Have the planted answers of these cases judged, and return how many of the verdicts were right."""
        planted: list[_Planted] = []
        async with asyncio.TaskGroup() as group:
            other_references = _other_references(cases)
            for judged, other in zip(cases, other_references, strict=True):
                planted += self._plant_in(judged, other, group)
        return _count_canaries(planted)

    def _plant_in(
        self,
        judged: JudgedCase,
        other: str,
        group: asyncio.TaskGroup,
    ) -> Iterator[_Planted]:
        """Start judging the planted answers of a case; `other` is the reference answer of another case."""
        evaluators = self._judging(judged.case, judged.target)
        for name, evaluator in evaluators:
            for canary in canaries_of(judged.case, evaluator, other):
                exchange = plant(canary, judged.case, judged.request)
                task = group.create_task(evaluator.result(exchange))
                yield _Planted(name, evaluator, judged.case, canary, task)

    async def judge_again(self) -> Flips | None:
        """Judge the kept answers again and return how much the second judgements differ; None if there are none."""
        firsts: list[Any] = []
        tasks: list[asyncio.Task[EvaluatorResult]] = []
        async with asyncio.TaskGroup() as group:
            for answer in self._answers:
                for first, evaluator in self._repeatable(answer):
                    task = group.create_task(evaluator.result(answer.exchange))
                    firsts.append(first)
                    tasks.append(task)
        tally = FlipTally()
        for first, task in zip(firsts, tasks, strict=True):
            second = task.result()
            if not second.failed and second.score is not None and second.verdict is not None:
                scores = (first.score, second.score)
                verdicts = (first.verdict, second.verdict)
                tally.add(scores, verdicts)
        return tally.flips

    def _repeatable(self, answer: _Answer) -> Iterator[tuple[Any, ConfiguredEvaluator]]:
        """Yield each usable judgement of an answer with the evaluator that can repeat it."""
        built = self._repeating.build(answer.exchange.case, answer.target)
        evaluators = dict(judging_evaluators(built.evaluators))
        for name, first in judged_results(answer.results):
            if name in evaluators and not first.failed:
                yield first, evaluators[name]


def _members(result: EvaluatorResult) -> Sequence[Any]:
    """Return the judgement of each judge of a panel; nothing for a single judge."""
    if isinstance(result.details, dict):
        members: Sequence[Any] = result.details.get("judges", ())
        return members
    return ()


def _count_canaries(planted: Sequence[_Planted]) -> Canaries:
    """Return how many judgements of planted answers were right."""
    unjudged = 0
    right = 0
    failed: list[FailedCanary] = []
    # The judgements of one answer by several judges are not independent: each answer is a cluster.
    clusters: Counter[tuple[int, float]] = Counter()
    for each in planted:
        judged = 0
        right_here = 0
        for judgement in each.judgements():
            if judgement.verdict is None:
                unjudged += 1
                continue
            judged += 1
            if judgement.verdict == each.canary.verdict:
                right_here += 1
            else:
                failed.append(_failed_canary(each, judgement, judgement.verdict))
        right += right_here
        if judged:
            clusters[judged, float(right_here)] += 1
    return Canaries(
        planted=right + len(failed) + unjudged,
        right=right,
        unjudged=unjudged,
        accuracy=rate(clusters, "no planted answer was judged"),
        failed=tuple(failed),
    )


def _failed_canary(
    planted: _Planted,
    judgement: _Judgement,
    verdict: Verdict,
) -> FailedCanary:
    return FailedCanary(
        evaluator=planted.name,
        eval_id=planted.case.id,
        canary=planted.canary.name,
        verdict=verdict,
        score=judgement.score,
        judge=judgement.judge,
    )


def _other_references(cases: Sequence[JudgedCase]) -> Iterator[str]:
    """Yield for each case the reference answer of the next case that has a different one; empty if there is none."""
    references = [reference_answer(judged.case).strip() for judged in cases]
    for number, own in enumerate(references):
        following = references[number + 1 :] + references[:number]
        others = (text for text in following if text)
        yield different_reference(own, others)


def _rank(case: EvalCase, trial: int) -> int:
    """Return a hash of a trial that is the same in every run."""
    name = f"{case.dataset}\0{case.id}\0{trial}"
    data = name.encode("utf-8", "replace")
    hashed = blake2b(data, digest_size=8).digest()
    return int.from_bytes(hashed)
