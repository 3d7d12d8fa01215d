"""The record of a run: its options, written at the start, and its outcome, written at the end."""

from pathlib import Path
from typing import Any

import msgspec

from agentv.redact import clean
from agentv.results.git_state import Commit, git_state
from agentv.results.runs import RunLog, Status, new_record
from agentv.results.summary import Summary
from agentv.run.exit_code import ExitReason, code_of
from agentv.run.options import EvalOptions
from agentv.run.output import RunOutput
from agentv.run.planning.plan import Plan, PlannedTarget
from agentv.run.report import RunReport
from agentv.targets.prices import MODEL_SETTINGS
from agentv.text import path_text

LEDGER = {
    "scored": "scored",
    "target errors": "target_errors",
    "judge failures": "judge_failures",
    "timeouts": "timeouts",
    "machine failures": "machine_failures",
    "invalid": "invalid",
    "already done": "already_done",
    "not run": "not_run",
    "not run (budget)": "not_run_budget",
    "no answer": "no_answer",
    "no case": "no_case",
}
"""The name in the record of each entry of the summary's ledger."""
STATUSES: dict[int, Status] = {0: "done", 1: "done", 130: "interrupted"}
"""The status of a run by its exit code. Other codes mean that it failed."""


def read_git(options: EvalOptions, plan: Plan) -> Commit | None:
    """Return the Git state of the eval files, for a run with a record."""
    if options.output.runs_folder is None:
        return None
    return git_state(_files_of(plan))


def commit_of(git: Commit | None) -> str | None:
    """Return the commit that results carry, if it is known."""
    if git is None or not git.commit:
        return None
    return git.commit


def start_record(
    options: EvalOptions,
    plan: Plan,
    output: RunOutput,
    run_id: str,
    git: Commit | None,
) -> RunLog | None:
    """Write the record of a run that starts, and return it; None for a run without a record."""
    folder = options.output.runs_folder
    if folder is None:
        return None
    record = new_record(
        run_id,
        tuple(map(path_text, options.command)),
        name=options.output.name,
        eval_files=eval_files_of(plan),
        targets=tuple(_targets(plan)),
        results=_path_text(output.path),
        resumed_runs=output.resumed_runs,
        shard=_text(plan.shard),
        dry_run=plan.dry_run,
        git=git,
    )
    return RunLog(folder, record, clean, options.pages.record)


def eval_files_of(plan: Plan) -> tuple[dict[str, Any], ...]:
    """Return the eval files of a run with the number of cases in each: of an iterable, those that have arrived."""
    found = []
    for file in plan.files:
        cases = file.cases
        if plan.source.is_streamed:
            cases = plan.cases
        found.append({"path": path_text(file.path.as_posix()), "cases": cases})
    return tuple(found)


def _files_of(plan: Plan) -> list[Path]:
    """Return the eval files and targets files of a plan."""
    files: dict[Path, None] = {}
    for file in plan.files:
        files[file.path] = None
    for file in plan.files:
        if file.targets_file is not None:
            files[file.targets_file] = None
    return list(files)


def _path_text(path: Path | None) -> str | None:
    if path is None:
        return None
    return path_text(path)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value)


def same_models(plan: Plan) -> tuple[str, ...]:
    """Return the targets that are judged by a target with the same model, or by themselves."""
    if plan.stand_in is not None:
        return ()
    found: dict[str, None] = {}
    for file in plan.files:
        for ref, judge in file.judges.items():
            own_settings = file.settings.get(ref.target)
            if own_settings is None:
                continue
            own_model = _provider_and_model(own_settings)
            judge_model = _provider_and_model(file.settings[judge])
            if own_model is not None and own_model == judge_model:
                found[ref.target] = None
    return tuple(found)


def _provider_and_model(settings: Any) -> tuple[str, str] | None:
    """Return the provider and the model of a target, or None if its settings name no model."""
    model = _model(settings)
    if model is None:
        return None
    return settings.provider, model


def _model(settings: Any) -> str | None:
    for name in MODEL_SETTINGS:
        model: str | None = getattr(settings, name, None)
        if model:
            return model
    return None


def _targets(plan: Plan) -> list[dict[str, Any]]:
    """Return an entry for each version of each target."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for target in plan.targets:
        entry = {
            "name": target.name,
            "provider": _provider(plan, target),
            "model": _model(target.settings),
            "digest": target.digest,
            "parts": target.version.parts or None,
        }
        known = {key: value for key, value in entry.items() if value is not None}
        found[target.name, target.digest] = known
    return list(found.values())


def _provider(plan: Plan, target: PlannedTarget) -> str:
    if plan.dry_run:
        return "mock"
    if target.settings and not plan.stand_in:
        return target.settings.provider
    return "function"


def end_record(report: RunReport, reason: ExitReason, seconds: float) -> None:
    """Write the outcome of a run, if it has a record."""
    judge_health = msgspec.to_builtins(report.judge_health)
    metrics = dict(report.metrics)
    complete_record(
        report.log,
        report.summary,
        reason,
        seconds,
        eval_files=eval_files_of(report.plan),
        metrics=metrics,
        judge_health=judge_health,
    )


def complete_record(
    log: RunLog | None,
    summary: Summary,
    reason: ExitReason,
    seconds: float,
    **fields: Any,
) -> None:
    """Write how a run ended, and its figures, if it has a record."""
    if log is None:
        return
    code = code_of(reason)
    figures = _figures(summary, seconds)
    log.end(
        status=STATUSES.get(code, "failed"),
        exit_code=code,
        exit_reason=reason,
        ledger=_ledger(summary),
        summary={name: value for name, value in figures.items() if value is not None},
        **fields,
    )


def _ledger(summary: Summary) -> dict[str, int]:
    ledger = {"planned": summary.planned}
    for entry in LEDGER.values():
        ledger[entry] = 0
    for name, count in summary.ledger.items():
        ledger[LEDGER[name]] = count
    ledger["skipped"] = summary.skipped
    ledger["no_case"] = summary.no_case
    ledger["unplanned_results"] = summary.unplanned_results
    return ledger


def _figures(summary: Summary, seconds: float) -> dict[str, Any]:
    """Return the figures of a run. Those that are None are not written."""
    usage = summary.usage
    figures: dict[str, Any] = {
        "mean": summary.mean,
        "ci_lower": None,
        "ci_upper": None,
        "pass_rate": None,
        "cost_usd": None,
        "judge_cost_usd": summary.spending.judge_usd,
        "spent_usd": summary.spending.usd,
        "tokens": None,
        "duration_seconds": round(seconds, 3),
    }
    if summary.interval:
        lower, upper = summary.interval
        figures["ci_lower"] = lower
        figures["ci_upper"] = upper
    if summary.complete:
        figures["pass_rate"] = summary.pass_at(1)
    if usage.cost_usd.answers:
        figures["cost_usd"] = usage.cost_usd.sum
    if usage.input_tokens.answers or usage.output_tokens.answers:
        figures["tokens"] = round(usage.input_tokens.sum + usage.output_tokens.sum)
    return figures
