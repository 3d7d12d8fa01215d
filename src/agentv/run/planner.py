"""Eval files and targets -> a plan.

All that can be wrong is found here, in one pass over the files, before anything is paid for.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.calls.cache_key import target_version
from agentv.cases.guidelines import guideline_patterns, prices_file, read_config
from agentv.cases.media import has_files, media_problem
from agentv.cases.read import Inspection, read_eval_file
from agentv.cases.request import Files
from agentv.cases.shard_plan import ShardPlanBuilder
from agentv.errors import AgentvError, ConfigError, PlanFailed, nearest
from agentv.evaluators.build import EvaluatorBuilder
from agentv.formats.fingerprint import digest
from agentv.judges.target import JudgeRef, NeededJudges, judge_error, judge_name
from agentv.notices import note, warn
from agentv.protocols import BatchProvider, Provider
from agentv.providers.settings import TargetSettings, target_digest
from agentv.providers.workspaces.settings import has_workspaces
from agentv.records import EvalCase, Problem, ShardPlan
from agentv.run.plan import Plan, PlannedFile, PlannedTarget, Selection, matches
from agentv.system.compact_sets import DuplicateFinder
from agentv.system.entry_points import open_settings
from agentv.targets.prices import PriceLists
from agentv.targets.read import TargetList, find_targets, read_targets

MOST_PROBLEMS = 20
STAND_IN = digest("stand-in")


class PlanOptions(NamedTuple):
    """What a user asks for, besides the eval files."""

    selection: Selection = Selection()
    targets: Path | None = None
    stand_in: Provider | None = None
    dry_run: bool = False
    trials: int = 1
    strict: bool = False
    """A case that would be left out as invalid is an error."""
    prices: Path | None = None
    """The price list; else that of the config."""


def make_plan(paths: Sequence[Path], options: PlanOptions) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan for these eval files, and the secrets of its targets; raise `PlanFailed` if it cannot be run."""
    planner = _Planner(options)
    files = [planner.plan_file(path) for path in paths]
    for id_ in options.selection.ids:
        if id_ not in planner.found:
            planner.report(Problem(message=f"no case has the id {id_!r}", hint="--eval-id takes an id or a glob"))
    if not planner.problems and not any(file.selected for file in files if file):
        planner.report(_no_case(paths[0], options.selection))
    if planner.problems:
        raise PlanFailed(planner.problems)
    used = tuple(file for file in files if file and file.cases)
    whole = _shard_plan(planner.shards, options.trials)
    plan = Plan(used, options.selection, planner.invalid, Path.cwd(), options.stand_in, options.dry_run, whole)
    _check_trials(plan, options.trials)
    _warn_of_equal_ids(plan)
    return plan, tuple(planner.secrets)


def _no_case(path: Path, selection: Selection) -> Problem:
    if selection.only is not None:
        hint = "cases are found by the name of their dataset and their id"
        return Problem(message="none of the cases that did not pass there is in these eval files", hint=hint)
    return Problem(message="no valid case to run", file=path, hint="see the warnings above")


def _shard_plan(shards: ShardPlanBuilder | None, trials: int) -> ShardPlan | None:
    """Return what the shard is a part of; raise `ConfigError` if the results of two cases could not be told apart."""
    if shards is None:
        return None
    if shards.has_duplicates:
        hint = "give one of the files another 'dataset:', so that their results can be told apart"
        raise ConfigError("--shard: two eval files have the same dataset name and the same ids", hint=hint)
    return shards.plan(trials)


def _check_trials(plan: Plan, trials: int) -> None:
    """Raise `ConfigError` if the trials of two cases could not be told apart."""
    if trials == 1 or len(plan.files) == 1:
        return
    repeats = DuplicateFinder()
    for file in plan.files:
        repeats.add((case.dataset, case.id) for case in plan.cases_of(file))
    if repeats.duplicate_hashes():
        hint = "give one of the files another 'dataset:', so that their trials can be told apart"
        raise ConfigError("--trials: two eval files have the same dataset name and the same ids", hint=hint)


def _warn_of_equal_ids(plan: Plan) -> None:
    """Warn of ids that are in more than one eval file: `compare` and people go by the id alone."""
    if len(plan.files) == 1:
        return
    ids = DuplicateFinder()
    for file in plan.files:
        ids.add(case.id for case in plan.cases_of(file))
    hashes = ids.duplicate_hashes()
    if not hashes:
        return
    first: dict[str, Path] = {}
    for file in plan.files:
        for case in plan.cases_of(file):
            if hash(case.id) in hashes and first.setdefault(case.id, file.path) != file.path:
                more = len(hashes) - 1
                others = f", and {more} more {'id stands' if more == 1 else 'ids stand'} twice" if more else ""
                message = f"the id {case.id!r} is in {first[case.id]} too{others}"
                hint = "give each case an id of its own: 'agentv compare' takes equal ids for one case"
                warn(Problem(message=message, severity="warning", file=file.path, line=case.line, column=1, hint=hint))
                return


class _Found(NamedTuple):
    """What the cases of a file come to."""

    used: Mapping[str, EvalCase]
    """The targets that they use, each with the first case that does."""
    selected: int
    cases: int
    """How many run: all that are selected, or those of the shard."""
    here: Collection[str]
    """The targets that the cases of the shard use."""


class _Planner:
    def __init__(self, options: PlanOptions):
        self._options, self._selection = options, options.selection
        self._left = options.selection.limit
        self.shards = ShardPlanBuilder(options.selection.shard) if options.selection.shard is not None else None
        self.problems: list[Problem] = []
        self.found: set[str] = set()
        self.invalid = 0
        self.secrets: set[str] = set()
        self._told: set[Problem] = set()
        self._is_strict = False
        self._need_workspace: dict[str, dict[Problem, None]] = {}
        """What is wrong with the evaluators of a file if a target, by name, has no workspaces."""
        self._prices = PriceLists()
        self._versions: dict[tuple[Path, Path, str], str] = {}
        self._drafts: dict[Path, dict[str, TargetSettings | None]] = {}
        """The targets of eval files whose cases attach files, by name."""

    def report(self, problem: Problem) -> None:
        """Tell of a warning, keep an error; more errors than anyone will read end the planning."""
        if problem.severity == "warning":
            warn(problem)
        elif problem not in self.problems:
            self.problems.append(problem)
            if len(self.problems) >= MOST_PROBLEMS:
                raise PlanFailed(self.problems)

    def plan_file(self, path: Path) -> PlannedFile | None:
        """Return the plan of one eval file; None if something is wrong, which is kept in `problems`."""
        try:
            judges = NeededJudges()
            self._is_strict = self._options.strict or read_config(path.parent).strict is True
            found = self._read_cases(path, judges)
            if self.problems:
                return None
            planned = PlannedFile(path, found.cases, found.selected, guideline_patterns(path.parent), {})
            if not found.selected:
                return planned
            planned = self._with_targets(planned, found.used, judges)
            return planned if self.shards is None else self._in_shard(planned, found, self.shards)
        except PlanFailed:
            raise
        except AgentvError as error:
            self.report(Problem.of(error))
            return None

    def _in_shard(self, planned: PlannedFile, found: "_Found", shards: ShardPlanBuilder) -> PlannedFile:
        """Return the plan of a file with the targets of the cases that run; note all of them for the plan's digest."""
        for target in planned.targets.values():
            shards.add_shared("target", target.name, target.digest)
        for ref, name in planned.judges.items():
            shards.add_shared("judge", ref.target, ref.name or "", name, target_digest(planned.settings[name]))
        return planned._replace(targets={name: planned.targets[name] for name in found.here if name in planned.targets})

    def _read_cases(self, path: Path, judges: NeededJudges) -> "_Found":
        """Return the targets that the cases use, each with the first case that does, and how many cases there are."""
        builder = EvaluatorBuilder(judges, dry_run=self._options.dry_run, targets=self._options.targets)
        used: dict[str, EvalCase] = {}
        self._need_workspace = {}
        selected = cases = 0
        here: set[str] = set()
        patterns = guideline_patterns(path.parent) if self.shards is not None else ()
        inspection = Inspection(self.report, partial(self._check_draft, builder))
        for case in read_eval_file(path, self._report_case, inspection):
            if not self._selection.includes(case):
                continue
            self.found.update(id_ for id_ in self._selection.ids if matches(case, id_))
            if self._left is not None:
                if self._left <= 0:
                    continue  # not run, but still checked
                self._left -= 1
            selected += 1
            name = self._selection.target_of(case)
            if name not in used:
                used[name] = case
            for problem in builder.problems(case, name):
                self.report(problem)
            if needs := builder.workspace_problems(case, name):
                self._need_workspace.setdefault(name, {}).update(dict.fromkeys(needs))
            if has_files(case) and (problem_of_files := self._media_problem(path, case, name)) is not None:
                self.report(problem_of_files)
            if self.shards is None:
                continue
            if not self.problems:
                evaluators = builder.build(case, name).digests["evaluators"]
                if self.shards.add_case(case, patterns, name, evaluators):
                    here.add(name)
                    cases += 1
        return _Found(used, selected, selected if self.shards is None else cases, here)

    def _media_problem(self, path: Path, case: EvalCase, name: str) -> Problem | None:
        """Return why the target of a case cannot take its images and PDFs; a user's function gets their paths."""
        if self._options.stand_in is not None and not self._options.dry_run:
            return None
        if path not in self._drafts:
            file = self._find_targets(path, needed=False)
            read = read_targets(file, os.environ) if file is not None else None
            entries = reversed(read.entries) if read is not None else ()
            self._drafts[path] = {entry.name: entry.settings or entry.draft for entry in entries}
        settings = self._drafts[path].get(name)
        return media_problem(case, settings) if settings is not None else None

    def _check_draft(self, builder: EvaluatorBuilder, case: EvalCase, is_left_out: bool) -> None:
        """Report what is wrong with the evaluators of a case that stops the run anyway."""
        if not is_left_out:
            for problem in builder.setting_problems(case, self._selection.target_of(case)):
                self.report(problem)

    def _report_case(self, problem: Problem) -> None:
        is_selected = not self._selection.ids and self._selection.only is None and self._left != 0
        if problem.severity == "warning" and is_selected:
            if self._is_strict:
                how = (
                    "run without --strict" if self._options.strict else "take 'strict: true' out of .agentv/config.yaml"
                )
                hint = problem.hint or f"mend the case, or {how}"
                message = re.sub("; case .* is left out$", "", problem.message)  # it is not: nothing runs
                problem = msgspec.structs.replace(problem, severity="error", hint=hint, message=message)
            else:
                self.invalid += 1
        self.report(problem)

    def _with_targets(self, planned: PlannedFile, used: Mapping[str, EvalCase], judges: NeededJudges) -> PlannedFile:
        """Return the plan of a file with its targets and judges."""
        path, stand_in = planned.path, self._options.stand_in
        refs = {} if self._options.dry_run else judges.cases
        file = self._find_targets(path, needed=bool(refs))
        if file is None:
            self._check_workspaces(used, {})
            return planned._replace(targets={name: PlannedTarget(name, None, STAND_IN) for name in used})
        note(f"{path}: targets are read from {file}")
        named = {ref.name for ref in refs if ref.name}
        read = read_targets(file, os.environ, named.union(used if stand_in is None else ()))
        self.secrets.update(read.secrets)
        prices = self._options.prices or prices_file(path.parent)
        read, unpriced = self._prices.apply(read, prices, self._asked(refs, used, read))
        for problem in (*read.problems, *(msgspec.structs.replace(each, file=file) for each in unpriced)):
            if problem not in self._told:  # several eval files may share a targets file
                self._told.add(problem)
                self.report(problem)
        folder = path.parent.absolute()
        resolved = {} if self.problems else self._resolve_judges(refs, read, folder, file)
        targets = dict(self._targets(path, used, read, file))
        self._check_workspaces(used, read.targets)
        return planned._replace(
            targets=targets, targets_file=file.absolute(), settings=read.targets, judges=resolved, prices=prices
        )

    def _asked(self, refs: Iterable[JudgeRef], used: Iterable[str], read: TargetList) -> set[str]:
        """Return the targets that are asked, to answer or to judge."""
        own = {name: settings.judge_target for name, settings in read.targets.items()}
        judges = {ref.name or own.get(ref.target) or ref.target for ref in refs}
        return judges.union(used if self._options.stand_in is None else ())

    def _check_workspaces(self, used: Iterable[str], settings: Mapping[str, TargetSettings]) -> None:
        """Report evaluators that run in the workspace of a target that has none. In a dry run they are not run."""
        if self._options.dry_run:
            return
        for name in used:
            target = settings.get(name)
            if self._options.stand_in is None and (target is None or has_workspaces(target)):
                continue
            for problem in self._need_workspace.get(name, ()):
                self.report(problem)

    def _version(self, name: str, settings: TargetSettings, folder: Path, file: Path) -> str:
        """Return whose answers a target's are; what it works on is read once for all the eval files of a folder."""
        key = file, folder, name
        if key not in self._versions:
            self._versions[key] = target_version(settings, folder, file)
        return self._versions[key]

    def _resolve_judges(
        self, refs: Mapping[JudgeRef, EvalCase], read: TargetList, folder: Path, file: Path
    ) -> dict[JudgeRef, str]:
        """Return who judges; report what is wrong with that."""
        resolved: dict[JudgeRef, str] = {}
        settings = read.targets
        for ref, case in refs.items():
            try:
                name = judge_name(ref, settings, case)
                if not self._can_be_opened(name, settings[name], folder, file, read):
                    continue
                _check_judge(name, settings[name], folder, file)
            except ConfigError as error:
                placed_error = error if error.file else judge_error(case, error.message, error.hint)
                self.report(Problem.of(placed_error))
            else:
                resolved[ref] = name
        return resolved

    def _targets(
        self, path: Path, used: Mapping[str, EvalCase], read: TargetList, file: Path
    ) -> Iterable[tuple[str, PlannedTarget]]:
        """Yield the targets that answer cases, by name; report those that cannot."""
        stand_in, dry_run = self._options.stand_in, self._options.dry_run
        for name, case in used.items():
            note(f"{path}: target {name!r}: {self._why(case)}")
            settings = read.targets.get(name)
            if name not in read.names and (stand_in is None or dry_run):
                if self.problems and not read.names:
                    continue  # the file itself is wrong, and that has been told
                message, hint = f"unknown target {name!r}: {file} has none of that name", nearest(name, read.names)
                self.report(Problem(message=message, file=path, line=case.line, column=1, hint=hint))
            elif settings is not None:
                folder = path.parent.absolute()
                if stand_in is None and not self._can_be_opened(name, settings, folder, file, read):
                    continue
                stamp = STAND_IN if stand_in else self._version(name, settings, folder, file)
                yield name, PlannedTarget(name, settings, stamp, _files(settings))
            elif stand_in is not None:
                yield name, PlannedTarget(name, None, STAND_IN)
            elif (entry := read.entry(name)) is not None and entry.draft is not None:
                try:  # to find what else is wrong with it
                    entry.draft.check_for(path.parent.absolute(), file)
                except ConfigError as error:
                    self.report(entry.problem(file, error))

    def _can_be_opened(self, name: str, settings: TargetSettings, folder: Path, file: Path, read: TargetList) -> bool:
        """Return whether a target can be opened; report why not, where it stands in the targets file."""
        try:
            open_provider(name, settings, folder, file)
        except ConfigError as error:
            entry = read.entry(name)
            cause = error.__cause__ if isinstance(error.__cause__, ConfigError) else error
            self.report(entry.problem(file, cause) if entry is not None else Problem.of(error))
            return False
        return True

    def _find_targets(self, path: Path, *, needed: bool) -> Path | None:
        """Return the targets file of an eval file. A function of the user's needs none, a dry run can do without."""
        options = self._options
        if options.stand_in is None or options.targets is not None or needed:
            return find_targets(path.parent, options.targets)
        try:
            return find_targets(path.parent) if options.dry_run else None
        except ConfigError:
            return None

    def _why(self, case: EvalCase) -> str:
        if self._selection.target and self._selection.target != "default":
            return "asked for with --target"
        return (
            f"asked for by case {case.id!r} or its file" if case.target != "default" else "nothing else was asked for"
        )


def _files(settings: TargetSettings) -> Files:
    return Files.REFERENCE if settings.reads_files else Files.INLINE


def open_provider(name: str, settings: TargetSettings, folder: Path, file: Path | None) -> Provider | BatchProvider:
    """Return the provider of a target for the eval files in a folder; raise `ConfigError` if there can be none."""
    try:
        open_ = partial(settings.open_for, folder, file)
        return open_settings(settings, open_, "invoke", "invoke_batch")  # type: ignore[no-any-return]
    except ConfigError as error:
        raise ConfigError(f"target {name!r}: {error.message}", file=file, hint=error.hint) from error


def _check_judge(name: str, settings: TargetSettings, folder: Path, file: Path) -> None:
    """Raise `ConfigError` if the target cannot be asked to judge."""
    if isinstance(open_provider(name, settings, folder, file), BatchProvider):
        hint = "name another target with 'judge_target'"
        raise ConfigError(f"target {name!r} answers in batches, and cannot judge", hint=hint)
