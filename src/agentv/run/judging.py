"""The judges of a run: how they behave, and what is asked of them to check them."""

from pathlib import Path
from typing import Any

from agentv.calls.cache import CACHE, Cache
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judge_check import JudgeCheck, JudgedCase
from agentv.judges.metering import JudgeMeter
from agentv.notices import say
from agentv.records import EvalResult, Problem
from agentv.redact import clean
from agentv.results.health.record import CheckCost, JudgeHealth
from agentv.results.health.tally import JudgeTally
from agentv.results.health.verdict import health_of, run_labels
from agentv.results.labels.file import LABELS
from agentv.results.runs import read_runs
from agentv.run.extensions import Extension, Results
from agentv.run.jobs import build_or_explain
from agentv.run.output import Output
from agentv.run.plan import Plan
from agentv.run.record import same_models
from agentv.run.targets import OpenTargets, RunJudges
from agentv.run.watching.watcher import Watcher


class Judging(Extension):
    """Measures how the judges of a run behave, and checks them with `--check-judge`.

    Planted answers are judged through the response cache; answers of the run are judged again without it.
    """

    def __init__(self, plan: Plan, targets: OpenTargets, watcher: Watcher, targets_file: Path | None, *, checks: bool):
        """`targets_file` is the one named on the command line, if any; `checks` enables the checks of judges."""
        self._plan = plan
        self._meter = JudgeMeter()
        has_judges = any(file.judges for file in plan.files) and not plan.dry_run
        self.tally = JudgeTally() if has_judges else None
        self.check: JudgeCheck | None = None
        self._found: dict[str, Any] = {}
        if has_judges and checks:
            callers = targets.new_caller(Cache(CACHE, clean)), targets.new_caller(None)
            judges = [RunJudges(plan, targets, watcher, caller, self._meter) for caller in callers]
            self.check = JudgeCheck(*(EvaluatorBuilder(each, warn=_ignore, targets=targets_file) for each in judges))

    def count_earlier(self, output: Output) -> None:
        """Count what the judges said about the results that a resumed run keeps."""
        if self.tally is not None and output.earlier is not None:
            for result in output.earlier.results():
                self.tally.add(result.evaluator_results, result.candidate_answer)

    def finish(self, result: EvalResult) -> EvalResult:
        if self.tally is not None:
            self.tally.add(result.evaluator_results, result.candidate_answer)
        return result

    async def end(self, results: Results) -> None:
        """Check the judges, unless the budget is used up."""
        if self.check is None:
            return
        if results.stopped_by == "budget":
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
        results.add_check_costs(taken)

    def health(self, results: Path | None) -> JudgeHealth | None:
        """Return what is known of the judges; None if the run has none."""
        if self.tally is None:
            return None
        labels = run_labels(results, LABELS, read_runs)
        return health_of(self.tally.evaluators, labels=labels, same_model=same_models(self._plan), **self._found)


def _ignore(_warning: Problem) -> None:
    """Planning has told the warnings."""
