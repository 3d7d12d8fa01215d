"""Plan an evaluation: find its cases and targets, and check its options, before anything is run or written."""

import os
from collections.abc import Sequence
from pathlib import Path

from agentv.calls.target_version import TargetVersion
from agentv.cases.discovery import eval_files
from agentv.cases.id_patterns import IdPatterns
from agentv.cases.objects import NO_FILE
from agentv.cases.sample import CaseSample
from agentv.cases.shard import Shard, case_hash
from agentv.config import configured_secrets
from agentv.errors import ConfigError, OutputError
from agentv.files.compact_sets import HashSet
from agentv.files.fingerprint import digest
from agentv.filters.match import Filter
from agentv.log import debug
from agentv.protocols import Provider
from agentv.providers.python import PythonFunction
from agentv.redact import clean
from agentv.run.features import uses_batch_api
from agentv.run.options import BatchOptions, EvalOptions, SelectionOptions
from agentv.run.planning.plan import STAND_IN, Plan, PlanSource, Selection
from agentv.run.planning.planner import PlanOptions, make_plan
from agentv.run.resume import failed_cases
from agentv.targets.dotenv import load_env
from agentv.versions.functions import UnknownVersion, function_version, value_version
from agentv.versions.modules import current_function, reload_changed_modules, remember_modules


def plan_evaluation(options: EvalOptions) -> Plan:
    """Plan an evaluation. From here on, the secrets of the project are masked.

    With `reloads_modules`, user modules that have changed since an earlier evaluation in this process are reloaded.
    """
    if not options.reloads_modules:
        return _plan(options)
    reload_changed_modules()
    try:
        return _plan(options)
    finally:
        remember_modules()


def _plan(options: EvalOptions) -> Plan:
    asked = options.selection
    shard = None
    if asked.shard is not None:
        shard = Shard.parse(asked.shard, os.environ)
    if options.cases is not None:
        paths = [NO_FILE]
        options.cases.is_streamed = not options.cases.is_list and not _needs_all_cases(options)
    else:
        paths = eval_files(options.paths)
    folders = [path.parent for path in paths]
    for path in load_env(folders):
        debug(f"variables are read from {path}")
    for folder in dict.fromkeys(folders):
        clean.learn(configured_secrets(folder, os.environ))
    _check_outputs(options, paths)
    selection = Selection(
        target=asked.target,
        ids=IdPatterns(asked.ids),
        limit=asked.limit,
        only=_only(asked),
        shard=shard,
        filter=_filter(asked.filter),
        sample=_sample(asked),
    )
    stand_in = _stand_in(options)
    keys: tuple[str, ...] = ()
    if options.needs_keys:
        keys = options.by
    plan_options = PlanOptions(
        selection=selection,
        project=options.project,
        stand_in=stand_in,
        stand_in_version=_stand_in_version(options, stand_in),
        dry_run=options.mock.dry_run,
        trials=options.run.trials,
        source=PlanSource(options.cases, options.defaults),
        require=tuple(Filter.parse([text], "cases") for text in options.gates.require),
        needs_attachments=options.stored is None,
        keys=keys,
    )
    plan, secrets = make_plan(paths, plan_options)
    if options.cases is not None and options.cases.is_streamed and _has_batches(plan):
        options.cases.is_streamed = False  # a batch has all cases
        plan, secrets = make_plan(paths, plan_options)
    clean.learn(secrets)
    _check_batch_options(options.run.batches, plan)
    return plan


def _needs_all_cases(options: EvalOptions) -> bool:
    """Return whether a run must know all its cases before the first one starts."""
    selection = options.selection
    return (
        options.output.resume
        or options.check_judge
        or bool(selection.ids or options.gates.require)
        or selection.sample is not None
        or selection.shard is not None
    )


def _has_batches(plan: Plan) -> bool:
    """Return whether a target answers many cases at once."""
    if uses_batch_api(plan):
        return True
    if plan.stand_in is not None:
        return False
    for target in plan.targets:
        settings = target.settings
        if settings is not None and settings.answers_batches and settings.provider_batching is True:
            return True
    return False


def _check_batch_options(batches: BatchOptions, plan: Plan) -> None:
    """Raise `ConfigError` for batch API options in a run that uses no batch API.

    Batch targets are unknown in a dry run, and in a shard that has no case for them.
    """
    if plan.dry_run or plan.shard_plan is not None or uses_batch_api(plan):
        return
    option = ""
    if not batches.batch_fallback:
        option = "--no-batch-fallback"
    elif batches.batch_deadline is not None:
        option = "--batch-deadline"
    if option:
        raise ConfigError(
            f"{option}: no target or judge of this run uses a batch API",
            hint="set 'batch_api: true' on a target, or run without this option",
        )


def _filter(texts: tuple[str, ...]) -> Filter | None:
    """Return the filter of the cases that may run, or None for all cases."""
    if not texts:
        return None
    return Filter.parse(texts, "cases")


def _sample(asked: SelectionOptions) -> CaseSample | None:
    if asked.sample is None:
        return None
    return CaseSample(asked.sample, asked.seed or 0)


def _only(asked: SelectionOptions) -> HashSet | None:
    """Return the hashes of the cases that may run, or None for all cases."""
    if asked.only is not None:
        only = HashSet()
        for dataset, eval_id, _trial in asked.only:
            only.add(case_hash(clean(dataset), clean(eval_id)))
        return only
    if asked.failed_in is not None:
        return failed_cases(asked.failed_in)
    return None


def _check_outputs(options: EvalOptions, paths: Sequence[Path]) -> None:
    """Raise `OutputError` if a file that the run writes would overwrite an eval file."""
    evals = {os.path.realpath(path) for path in paths}
    for flag, path in options.written_files().items():
        if os.path.realpath(path) in evals:
            raise OutputError(f"{flag} is one of the eval files", file=path, hint="name another file")


def _stand_in(options: EvalOptions) -> Provider | None:
    """Return the provider that answers instead of every target, if there is one."""
    if options.mock.dry_run:
        return options.mock.provider()
    if options.stored is not None:
        return options.stored
    if options.function is not None:
        return PythonFunction(current_function(options.function), config=options.config)
    return None


def _stand_in_version(options: EvalOptions, stand_in: Provider | None) -> TargetVersion:
    """Return the version of a function that answers instead of every target.

    Raise `ConfigError` if it cannot be determined and answers of other versions could be mixed with its own.
    """
    if not isinstance(stand_in, PythonFunction):
        return STAND_IN
    try:
        version = options.version or function_version(stand_in.function)
        if options.config is not None:
            version = f"{version} {value_version(options.config, 'config')}"
    except UnknownVersion as error:
        for name, is_used in (("cache", options.run.cache), ("resume", options.output.resume)):
            if is_used:
                raise ConfigError(
                    f"{name}=True: the version of the function cannot be determined: {error}",
                    hint="set version='1', and change it whenever the function changes",
                ) from error
        return STAND_IN
    return TargetVersion(digest("function", version))
