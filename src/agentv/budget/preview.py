"""Estimate what an evaluation would do and cost. No calls are made, and nothing is written."""

from agentv.budget.demand import NamedJudges
from agentv.budget.extension import budget_of
from agentv.budget.forecast import make_forecast
from agentv.budget.records import Forecast
from agentv.evaluators.build import EvaluatorBuilder
from agentv.log import ignore
from agentv.run.features import uses_batch_api
from agentv.run.options import EvalOptions
from agentv.run.output import earlier_results
from agentv.run.planning.evaluation import plan_evaluation


def forecast_evaluation(options: EvalOptions) -> Forecast:
    """Return the estimate of an evaluation. Raise `AgentvError` if it could not start."""
    plan = plan_evaluation(options)
    if uses_batch_api(plan):
        from agentv.batches.extension import check_counts

        check_counts(plan, plan.trials)
    budget_of(options, plan)
    builder = EvaluatorBuilder(NamedJudges(plan), dry_run=plan.dry_run, warn=ignore, targets=options.project.targets)
    return make_forecast(plan, options, earlier_results(options.output, plan, builder))
