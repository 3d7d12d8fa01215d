"""The features that join a run.

Those in `built_in` are part of the run. Each of the others is imported only for a run that uses it, so that a run
works without it.
"""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, NamedTuple

from agentv.registry import extension_names, load_extension
from agentv.run.built_in.dropped_report import DroppedReport
from agentv.run.built_in.failure_hints import FailureHints
from agentv.run.built_in.max_errors import MaxErrors
from agentv.run.built_in.stored_answers import StoredAnswersExtension
from agentv.run.built_in.workspaces import CaseWorkspaces, WorkspaceChanges
from agentv.run.extensions import Extension
from agentv.run.options import EvalOptions
from agentv.run.planning.plan import Plan
from agentv.run.progress import Progress
from agentv.run.targets import OpenTargets

GROUP = "agentv.extensions"
"""The group of entry points for extensions of runs."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A run that is about to open: everything that a feature needs to join it."""

    plan: Plan
    targets: OpenTargets
    progress: Progress
    stack: AsyncExitStack
    """Closes at the end of the run what features open."""
    options: EvalOptions | None = None
    """The options of the run; None in a worker of a cluster."""


class Feature(NamedTuple):
    """A feature: the module and the name of its extension, and which runs use it."""

    module: str
    name: str
    is_used: Callable[[EvalOptions, Plan], bool]


def uses_batch_api(plan: Plan) -> bool:
    """Return whether a target or a judge of a plan uses its vendor's batch API."""
    if plan.dry_run:
        return False
    for file in plan.files:
        for name in file.judges.values():
            if file.settings[name].batch_api is True:
                return True
        if plan.stand_in is not None:
            continue
        for target in file.targets.values():
            if target.settings is not None and target.settings.batch_api is True:
                return True
    return False


def uses_hooks(plan: Plan) -> bool:
    """Return whether an eval file or a target of a plan has hooks that are run."""
    if plan.dry_run or getattr(plan.stand_in, "is_stored", False):
        return False
    for file in plan.files:
        if file.hooks is not None:
            return True
        if plan.stand_in is not None:
            continue
        for target in file.targets.values():
            if target.settings is not None and target.settings.all_hooks is not None:
                return True
    return False


def _runs_hooks_apart(options: EvalOptions, plan: Plan) -> bool:
    """Return whether this process runs the hooks of the run, and other processes those of cases."""
    return options.cluster is not None and uses_hooks(plan)


def _has_judges(_options: EvalOptions, plan: Plan) -> bool:
    if plan.dry_run:
        return False
    return any(file.judges for file in plan.files)


def _exports_spans(options: EvalOptions, _plan: Plan) -> bool:
    return options.run.otel


def _has_budget(options: EvalOptions, _plan: Plan) -> bool:
    return options.limits.has_budget


def _uses_batch_api(_options: EvalOptions, plan: Plan) -> bool:
    return uses_batch_api(plan)


def _has_metrics(_options: EvalOptions, plan: Plan) -> bool:
    return any(file.case_file is not None and file.case_file.metrics for file in plan.files)


DRIVER_FEATURES = (
    Feature("agentv.telemetry.exporting", "SpanExport", _exports_spans),
    Feature("agentv.trust.extension", "Judging", _has_judges),
    Feature("agentv.budget.extension", "Budget", _has_budget),
    Feature("agentv.batches.extension", "VendorBatches", _uses_batch_api),
    Feature("agentv.metrics.extension", "RunMetrics", _has_metrics),
    Feature("agentv.hooks.extension", "RunHooks", _runs_hooks_apart),
)
"""In this order, each feature completes a result before the next one sees it."""


async def join_driver(opening: Opening, options: EvalOptions) -> list[Extension]:
    """Return the extensions that run where results are written."""
    found: list[Extension | None] = []
    for feature in DRIVER_FEATURES:
        if feature.is_used(options, opening.plan):
            extension = _load(feature.module, feature.name)
            found.append(await extension.join(opening))
    if options.stored is not None:
        found.append(StoredAnswersExtension(options.stored))
    if options.limits.max_errors is not None:
        found.append(MaxErrors(options.limits.max_errors))
    found.append(DroppedReport())
    found.append(FailureHints())
    for installed in _installed("driver"):
        found.append(await installed.join(opening))
    return [each for each in found if each is not None]


async def join_worker(opening: Opening) -> list[Extension]:
    """Return the extensions that run where cases run: in this process, or in each worker of a cluster."""
    found = [await CaseWorkspaces.join(opening)]
    if uses_hooks(opening.plan):
        hooks = _load("agentv.hooks.extension", "RunHooks")
        found.append(await hooks.join(opening))
    found.append(await WorkspaceChanges.join(opening))
    if opening.targets.options.collect.collect_traces:
        collection = _load("agentv.telemetry.collecting", "SpanCollection")
        found.append(await collection.join(opening))
    for installed in _installed("worker"):
        found.append(await installed.join(opening))
    return [each for each in found if each is not None]


def _load(module: str, name: str) -> type[Extension]:
    """Import the module of a feature, and return its extension."""
    extension: type[Extension] = getattr(import_module(module), name)
    return extension


def _installed(place: Literal["driver", "worker"]) -> Iterator[type[Extension]]:
    """Yield the extensions of installed packages that run in this kind of process."""
    for name in extension_names(GROUP):
        extension: type[Extension] | None = load_extension(GROUP, name, Extension)
        if extension is not None and extension.runs_on == place:
            yield extension
