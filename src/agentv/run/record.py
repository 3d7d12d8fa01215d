"""The record of a run: what it was asked to do when it starts, and what became of it when it ends."""

from typing import Any

from agentv.redact import clean
from agentv.results.health.record import JudgeHealth
from agentv.results.runs import RunLog, Status, new_record
from agentv.results.summary import Summary
from agentv.run.plan import Plan

LEDGER = {
    "scored": "scored",
    "target errors": "target_errors",
    "judge failures": "judge_failures",
    "timeouts": "timeouts",
    "skipped as invalid": "skipped",
    "already done": "already_done",
    "not run": "not_run",
    "not run (budget)": "not_run_budget",
    "no answer": "no_answer",
    "no case": "no_case",
}
"""How the entries of the summary's ledger are called in a record."""
CALLED = ("model", "deployment")


def start_record(plan: Plan, run_id: str, command: tuple[str, ...], results: Any, folder: Any) -> RunLog:
    """Write the record of a run that starts."""
    record = new_record(
        run_id,
        command,
        eval_files=tuple({"path": file.path.as_posix(), "cases": file.cases} for file in plan.files),
        targets=tuple(_targets(plan)),
        results=str(results) if results is not None else None,
        shard=str(plan.shard) if plan.shard is not None else None,
    )
    return RunLog(folder, record, clean)


def same_models(plan: Plan) -> tuple[str, ...]:
    """Return the targets that are judged by a target with the same model, or by themselves."""
    found: dict[str, None] = {}
    for file in plan.files:
        for ref, judge in file.judges.items():
            own, other = file.settings.get(ref.target), file.settings[judge]
            if own is not None and plan.stand_in is None and _model(own) is not None and _model(own) == _model(other):
                found[ref.target] = None
    return tuple(found)


def _model(settings: Any) -> tuple[str, str] | None:
    """Return the provider and the model of a target, if it has one."""
    model = next((model for name in CALLED if (model := getattr(settings, name, None))), None)
    return (settings.provider, model) if model else None


def _targets(plan: Plan) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for target in plan.targets:
        settings = target.settings
        provider = "mock" if plan.dry_run else settings.provider if settings and not plan.stand_in else "function"
        models = (getattr(settings, name, None) for name in CALLED)
        model = next((model for model in models if model), None)
        entry = {"name": target.name, "provider": provider, "model": model, "digest": target.digest}
        found[target.name, target.digest] = {key: value for key, value in entry.items() if value is not None}
    return list(found.values())


def end_record(
    log: RunLog | None, summary: Summary, health: JudgeHealth | None = None, *, exit_code: int, seconds: float
) -> None:
    """Write what became of a run, if there is a record of it."""
    if log is None:
        return
    status: Status = {0: "done", 1: "done", 130: "interrupted"}.get(exit_code, "failed")  # type: ignore[assignment]
    ledger = {"planned": summary.planned} | dict.fromkeys(LEDGER.values(), 0)
    ledger |= {LEDGER[name]: count for name, count in summary.ledger.items()} | {"no_case": summary.no_case}
    interval = summary.interval or (None, None)
    usage = summary.usage
    tokens = usage.input_tokens.sum + usage.output_tokens.sum
    log.end(
        status=status,
        exit_code=exit_code,
        ledger=ledger,
        summary={
            "mean": summary.mean,
            "ci_lower": interval[0],
            "ci_upper": interval[1],
            "pass_rate": summary.pass_at(1) if summary.complete else None,
            "cost_usd": usage.cost_usd.sum if usage.cost_usd.answers else None,
            "judge_cost_usd": summary.spending.judge_usd,
            "spent_usd": summary.spending.usd,
            "tokens": round(tokens) if usage.input_tokens.answers or usage.output_tokens.answers else None,
            "duration_seconds": round(seconds, 3),
        },
        judge_health=health,
    )
