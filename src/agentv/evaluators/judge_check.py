"""`--check-judge`: judges planted answers during a run, and judges some of its answers a second time.

None of this affects a score or a results file. A hash of the case decides which cases and which answers are chosen:
they are spread over the run, and the next run chooses the same ones, whose judgements are then in the cache.
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
Results = Sequence[EvaluatorResult]
CaseAndTarget = tuple[EvalCase, str]
NamedEvaluators = Iterator[tuple[str, ConfiguredEvaluator]]
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


class _Planted(NamedTuple):
    """A planted answer that is being judged."""

    evaluator: str
    case: EvalCase
    canary: Canary
    task: asyncio.Task[EvaluatorResult]

    @property
    def is_right(self) -> bool:
        """Whether the judge passed an answer that must pass, or did not pass one that must not."""
        has_passed = self.task.result().verdict == "pass"
        return has_passed is self.canary.must_pass


class AnswerTaker(Protocol):
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
        """Return the cases of a run in which answers are planted, each with its target."""

        def rank(pair: CaseAndTarget) -> int:
            case, _ = pair
            return _rank(case, 1)

        judged = (pair for pair in cases if self._has_judges(*pair))  # lazy: a run may have very many cases
        return heapq.nsmallest(CASES, judged, key=rank)

    def _has_judges(self, case: EvalCase, target: str) -> bool:
        return any(True for _ in self._judging(case, target))

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
        unjudged = 0
        right = 0
        failed: list[FailedCanary] = []
        for each in planted:
            result = each.task.result()
            if result.failed:
                unjudged += 1
            elif each.is_right:
                right += 1
            else:
                failed.append(_failed_canary(each))
        # Each judged canary is a cluster of one answer, with a total of 1 if the verdict was right.
        counts = {
            (1, 1.0): right,
            (1, 0.0): len(failed),
        }
        return Canaries(
            planted=len(planted),
            right=right,
            unjudged=unjudged,
            accuracy=rate(counts, "nothing was planted that was judged"),
            failed=tuple(failed),
        )

    def _plant_in(
        self,
        judged: JudgedCase,
        other: str,
        group: asyncio.TaskGroup,
    ) -> Iterator[_Planted]:
        """Start judging the planted answers of a case; `other` is the reference answer of another case."""
        evaluators = self._judging(judged.case, judged.target)
        for name, evaluator in evaluators:
            if evaluator.is_negated:
                continue  # the right verdict on a worthless answer is unknown
            for canary in canaries_of(judged.case, other):
                exchange = plant(canary, judged.case, judged.request)
                task = group.create_task(evaluator.result(exchange))
                yield _Planted(name, judged.case, canary, task)

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
            if not second.failed:
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


def _failed_canary(planted: _Planted) -> FailedCanary:
    result = planted.task.result()
    return FailedCanary(
        evaluator=planted.evaluator,
        eval_id=planted.case.id,
        canary=planted.canary.name,
        verdict=result.verdict,
        score=result.score,
    )


def judging_evaluators(evaluators: Iterable[Any], outer: str = "") -> NamedEvaluators:
    """Yield the evaluators that call judges, including those nested in composites, with their names: `outer/inner`."""
    for configured in evaluators:
        name = f"{outer}{configured.name}"
        panel = getattr(configured.evaluator, "panel", None)
        if panel is not None:
            yield name, configured
        inner = getattr(configured.evaluator, "inner", ())
        yield from judging_evaluators(inner, f"{name}/")


def _other_references(cases: Sequence[JudgedCase]) -> Iterator[str]:
    """Yield for each case the reference answer of the next case that has a different one; empty if there is none."""
    references = [reference_answer(judged.case).strip() for judged in cases]
    for number, own in enumerate(references):
        following = references[number + 1 :] + references[:number]
        others = (text for text in following if text and text != own)
        yield next(others, "")


def _rank(case: EvalCase, trial: int) -> int:
    """Return a hash of a trial that is the same in every run."""
    name = f"{case.dataset}\0{case.id}\0{trial}"
    data = name.encode("utf-8", "replace")
    hashed = blake2b(data, digest_size=8).digest()
    return int.from_bytes(hashed)
