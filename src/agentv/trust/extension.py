"""Measure how the judges of a run behave, and check them with `--check-judge`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentv.calls.cache import Cache
from agentv.calls.caller import Caller
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judging.metering import JudgeMeter
from agentv.evaluators.score import CaseEvaluators
from agentv.files.state import state_folder
from agentv.log import ignore, info
from agentv.records import EvalCase, EvalResult, EvaluatorResult, Exchange
from agentv.redact import clean
from agentv.results.runs import LABELS, read_runs
from agentv.run.extensions import Extension, Scope
from agentv.run.features import Opening
from agentv.run.jobs import Job, build_or_explain
from agentv.run.judges import RunJudges
from agentv.run.planning.plan import Plan, file_finder
from agentv.run.record import same_models
from agentv.run.report import RunReport
from agentv.run.run import Run
from agentv.trust.health.record import CheckCost
from agentv.trust.health.tally import JudgeTally
from agentv.trust.health.verdict import health_of, run_labels
from agentv.trust.judge_check import AnswerSink, JudgeCheck, JudgedCase


class Judging(Extension):
    """Measures how the judges of a run behave, and checks them if requested."""

    def __init__(self, plan: Plan, check: JudgeCheck | None, meter: JudgeMeter):
        """`meter` counts the calls that `check` makes."""
        self._plan = plan
        self._check = check
        self._meter = meter
        self._tally = JudgeTally()
        self._findings: dict[str, Any] = {}

    @classmethod
    async def join(cls, opening: Opening) -> "Judging":
        meter = JudgeMeter()
        check = None
        if opening.options is not None and opening.options.check_judge:
            check = _open_check(opening, opening.options.project.targets, meter)
        return cls(opening.plan, check, meter)

    async def start(self, run: Run, tasks: object) -> None:
        """Count the judgements of the results that a resumed run keeps."""
        if run.earlier is None:
            return
        for result in run.earlier.results():
            self._tally.add(result.evaluator_results, result.candidate_answer)

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        if self._check is None:
            return None
        return AnswerScope(self._check, job.planned.name)

    def offer(self, exchange: Exchange, target: str, results: Sequence[EvaluatorResult]) -> None:
        """Keep an answer that was scored elsewhere to be judged a second time, if it belongs to the sample."""
        if self._check is not None:
            self._check.offer(exchange, target, results)

    def finish(self, result: EvalResult) -> EvalResult:
        self._tally.add(result.evaluator_results, result.candidate_answer)
        return result

    async def end(self, run: Run) -> None:
        """Check the judges, unless the budget is used up."""
        if self._check is None:
            return
        if run.stopped_by == "budget":
            info("the judges were not checked: the budget is exhausted")
            return
        cases = self._choose_cases(self._check)
        self._findings["canaries"] = await self._check.plant(cases)
        self._findings["rejudged"] = await self._check.judge_again()
        costs = self._meter.metrics or {}
        self._findings["cost"] = CheckCost.of(costs)
        run.results.add_check_costs(costs)

    def _choose_cases(self, check: JudgeCheck) -> list[JudgedCase]:
        """Return the cases in which answers are planted."""
        file_of = file_finder(self._plan)
        chosen = []
        for case, target in check.choose(self._all_cases()):
            file = file_of(case)
            request, _ = build_or_explain(case, file, file.targets[target])
            if request is not None:
                chosen.append(JudgedCase(case, request, target))
        return chosen

    def _all_cases(self) -> Iterator[tuple[EvalCase, str]]:
        """Yield the cases of the run, each with the name of its target."""
        for file in self._plan.files:
            for case in self._plan.cases_of(file):
                target = self._plan.selection.target_of(case)
                yield case, target

    def add_to(self, report: RunReport) -> RunReport:
        health = health_of(
            self._tally.evaluators,
            labels=run_labels(report.path, LABELS, read_runs),
            same_model=same_models(self._plan),
            **self._findings,
        )
        return report._replace(judge_health=health)


class AnswerScope(Scope):
    """Offers the scored answer of a case, to be judged a second time."""

    def __init__(self, taker: AnswerSink, target: str):
        self._taker = taker
        self._target = target
        self._exchange: Exchange | None = None

    async def answered(self, exchange: Exchange) -> Exchange:
        self._exchange = exchange
        return exchange

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        if result is not None and result.error is None and self._exchange is not None:
            self._taker.offer(self._exchange, self._target, result.evaluator_results)
        return result


def _open_check(opening: Opening, targets_file: Path | None, meter: JudgeMeter) -> JudgeCheck:
    """Return the check of the judges: planted answers use the cache, answers of the run are judged again without it."""
    cache = Cache(state_folder("cache"), clean)
    with_cache = opening.targets.new_caller(cache)
    without_cache = opening.targets.new_caller(None)
    planting = _builder(opening, targets_file, with_cache, meter)
    repeating = _builder(opening, targets_file, without_cache, meter)
    return JudgeCheck(planting, repeating)


def _builder(
    opening: Opening,
    targets_file: Path | None,
    caller: Caller,
    meter: JudgeMeter,
) -> EvaluatorBuilder:
    """Return a builder of evaluators whose judges are called by `caller` and counted by `meter`."""
    judges = RunJudges(
        opening.plan,
        opening.targets,
        opening.progress,
        caller=caller,
        meter=meter,
    )
    return EvaluatorBuilder(judges, warn=ignore, targets=targets_file)
