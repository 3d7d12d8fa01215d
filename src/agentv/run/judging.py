"""The judges of a run: how they behave, and what is asked of them to check them."""

from pathlib import Path
from typing import Any

from agentv.calls.cache import CACHE, Cache
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judge_check import JudgeCheck, JudgedCase
from agentv.judges.metering import JudgeMeter
from agentv.notices import say
from agentv.records import Problem
from agentv.redact import clean
from agentv.results.health.record import CheckCost, JudgeHealth
from agentv.results.health.tally import JudgeTally
from agentv.results.health.verdict import health_of, run_labels
from agentv.results.labels.file import LABELS
from agentv.results.runs import read_runs
from agentv.results.summary import Summary
from agentv.run.forecast.budget import Budget
from agentv.run.jobs import build_or_explain
from agentv.run.output import Output
from agentv.run.plan import Plan
from agentv.run.record import same_models
from agentv.run.targets import OpenTargets, RunJudges
from agentv.run.watching.watcher import Watcher


class Judging:
    """What a run finds out about its judges: how they behave, and what `--check-judge` asks them besides.

    Planted answers are judged through the cache of responses, answers of the run once more without any.
    """

    def __init__(self, plan: Plan, targets: OpenTargets, watcher: Watcher, targets_file: Path | None, *, checks: bool):
        """`targets_file` is the one that was asked for, if one was; `checks` says whether judges are checked."""
        self._plan, self._meter = plan, JudgeMeter()
        has_judges = any(file.judges for file in plan.files) and not plan.dry_run
        self.tally = JudgeTally() if has_judges else None
        self.check: JudgeCheck | None = None
        self._found: dict[str, Any] = {}
        if has_judges and checks:
            callers = targets.new_caller(Cache(CACHE, clean)), targets.new_caller(None)
            judges = [RunJudges(plan, targets, watcher, caller, self._meter) for caller in callers]
            self.check = JudgeCheck(*(EvaluatorBuilder(each, warn=_ignore, targets=targets_file) for each in judges))

    def start_tally(self, output: Output) -> JudgeTally | None:
        """Return what counts what judges say, if there are any; what they said of earlier results is counted."""
        if self.tally is not None and output.earlier is not None:
            for result in output.earlier.results():
                self.tally.add(result.evaluator_results, result.candidate_answer)
        return self.tally

    async def run(self, summary: Summary, budget: Budget | None) -> None:
        """Ask the judges what is to be checked, after all cases have run; not if the budget is used up."""
        if self.check is None:
            return
        if budget is not None and budget.is_exhausted:
            say("the judges were not checked: the budget is used up")
            return
        files = {self._plan.folder / file.path: file for file in self._plan.files}
        target_of = self._plan.selection.target_of
        all_cases = ((case, target_of(case)) for file in files.values() for case in self._plan.cases_of(file))
        cases = []
        for case, target in self.check.choose(all_cases):
            request, _ = build_or_explain(case, files[case.file.path], files[case.file.path].targets[target])
            if request is not None:
                cases.append(JudgedCase(case, request, target))
        self._found["canaries"] = await self.check.plant(cases)
        self._found["rejudged"] = await self.check.judge_again()
        taken = self._meter.metrics or {}
        self._found["cost"] = CheckCost.of(taken)
        summary.spending.add_checks(taken)

    def health(self, results: Path | None) -> JudgeHealth | None:
        """Return what is known of the judges; None if the run has none."""
        if self.tally is None:
            return None
        labels = run_labels(results, LABELS, read_runs)
        return health_of(self.tally.evaluators, labels=labels, same_model=same_models(self._plan), **self._found)


def _ignore(_warning: Problem) -> None:
    """Planning has told the warnings."""
