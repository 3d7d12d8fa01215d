"""Plan a run: find the cases, targets and judges of eval files.

All problems are found here, while the files are read once, before any paid call is made.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.calls.target_version import TargetVersion
from agentv.cases.attached_files import AttachmentCheck
from agentv.cases.expand import Inspection, Report
from agentv.cases.generated import CheckedCases
from agentv.cases.metrics import metric_problems
from agentv.cases.objects import without_file
from agentv.cases.shard_plan import ShardPlanBuilder
from agentv.cases.unknown_fields import as_ignored
from agentv.config import guideline_patterns, prices_file, read_config
from agentv.errors import AgentvError, ConfigError, PlanFailed
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judging.target import JudgeRef, check_default_judges
from agentv.filters.match import Filter
from agentv.log import debug, ignore, warn
from agentv.protocols import Provider
from agentv.providers.settings import TargetSettings, target_digest
from agentv.records import CaseFile, EvalCase, Problem, ShardPlan
from agentv.run.options import ProjectOptions
from agentv.run.planning.arrivals import ArrivalCheck
from agentv.run.planning.check import CaseCheck, Needs
from agentv.run.planning.equal_ids import check_trial_names, warn_of_equal_ids
from agentv.run.planning.group_keys import GroupKeys
from agentv.run.planning.plan import STAND_IN, Plan, PlannedFile, PlanSource, Selection
from agentv.run.planning.run_targets import TargetVersions, check_targets_of, replaced_target
from agentv.run.planning.select import CaseSelector, draw_sample
from agentv.targets.find import find_targets
from agentv.targets.prices import PriceLists
from agentv.targets.read import TargetList, read_targets

MAX_PROBLEMS = 20


class PlanOptions(NamedTuple):
    """The options of a plan, apart from the eval files."""

    selection: Selection = Selection()
    project: ProjectOptions = ProjectOptions()
    stand_in: Provider | None = None
    stand_in_version: TargetVersion = STAND_IN
    dry_run: bool = False
    trials: int = 1
    source: PlanSource = PlanSource()
    """Where the cases come from."""
    require: tuple[Filter, ...] = ()
    """Filters of cases that must pass."""
    needs_attachments: bool = True
    """Whether the files that cases attach must exist; stored answers can be scored without them."""
    keys: tuple[str, ...] = ()
    """What results are grouped by. At least one case must have each of these keys."""


def make_plan(
    paths: Sequence[Path],
    options: PlanOptions,
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan for these eval files and the secrets of its targets. Raise `PlanFailed` if it cannot be run."""
    selection = draw_sample(options.selection, _read_all(paths, options.source))
    options = options._replace(selection=selection)
    planner = _Planner(options)
    planned: list[PlannedFile] = []
    for path in paths:
        file = planner.plan_file(path)
        if file is not None:
            planned.append(file)
    selector = planner.selector
    for problem in selector.unknown_ids(partial(_read_all, paths, options.source)):
        planner.report(problem)
    has_selected = any(file.selected for file in planned)
    objects = options.source.objects
    if objects is not None and objects.failure is not None and not has_selected:
        raise objects.failure  # nothing can be run
    if not planner.problems and not has_selected:
        planner.report(selector.nothing_selected(paths[0]))
    if not planner.problems:
        for problem in selector.nothing_required():
            planner.report(problem)
        if not options.source.is_streamed:
            planner.keys.check()
    if planner.problems:
        raise PlanFailed(planner.problems)
    plan = Plan(
        files=tuple(file for file in planned if file.cases),
        selection=selection,
        invalid=planner.invalid,
        folder=Path.cwd(),
        stand_in=options.stand_in,
        dry_run=options.dry_run,
        shard_plan=_shard_plan(planner.shards, options.trials),
        trials=options.trials,
        stand_in_version=options.stand_in_version,
        source=options.source,
        skipped=selector.skipped,
        required=selector.required,
        idle_files=tuple(file for file in planned if not file.cases),
    )
    check_trial_names(plan)
    warn_of_equal_ids(plan)
    return plan, tuple(planner.secrets)


def _read_all(paths: Sequence[Path], source: PlanSource) -> Iterator[EvalCase]:
    """Yield the valid cases of all eval files."""
    for path in paths:
        yield from source.read(path, ignore)


def _shard_plan(shards: ShardPlanBuilder | None, trials: int) -> ShardPlan | None:
    """Return what a shard records about the whole run.

    Raise `ConfigError` if two cases have the same dataset and id, because their results could not be distinguished.
    """
    if shards is None:
        return None
    if shards.has_duplicates:
        raise ConfigError(
            "--shard: two eval files have the same dataset name and the same ids",
            hint="change 'dataset:' in one of the files",
        )
    return shards.plan(trials)


class _Counts(NamedTuple):
    """How many cases of a file were selected, and which part of them runs here."""

    selected: int
    cases: int
    """The number of cases that run: all selected cases, or those of the shard."""
    shard_targets: Collection[str]
    """The targets that the cases of the shard use."""
    generated: bytes
    """The hashes of the cases that a function yielded."""
    file: CaseFile | None = None
    """The settings of the file; None if no case was selected."""


class _Planner:
    def __init__(self, options: PlanOptions):
        self.shards: ShardPlanBuilder | None = None
        self.problems: list[Problem] = []
        self.selector = CaseSelector(options.selection, options.require)
        self.keys = GroupKeys(options.keys)
        self.invalid = 0
        self.secrets: dict[str, None] = {}
        """An ordered set: of several names of a secret, the first one is reported."""
        self._options = options
        self._selection = options.selection
        self._is_strict = False
        self._reported: set[Problem] = set()
        """The problems of targets files, which several eval files may share."""
        self._prices = PriceLists()
        self._versions = TargetVersions()
        self._drafts: dict[Path, TargetList | None] = {}
        """By eval file, the targets with which its cases are checked."""
        self._draft_lists: dict[Path, TargetList] = {}
        """The same lists by targets file, which several eval files may share."""
        if options.selection.shard is not None:
            self.shards = ShardPlanBuilder(options.selection.shard)

    def report(self, problem: Problem) -> None:
        """Log a warning, or keep an error. Raise `PlanFailed` at `MAX_PROBLEMS` errors."""
        problem = without_file(problem)
        if problem.severity == "warning":
            warn(problem)
        elif problem not in self.problems:
            self.problems.append(problem)
            if len(self.problems) >= MAX_PROBLEMS:
                raise PlanFailed(self.problems)

    def plan_file(self, path: Path) -> PlannedFile | None:
        """Return the plan of one eval file, or None if it has problems, which are kept in `problems`."""
        try:
            return self._plan_file(path)
        except PlanFailed:
            raise
        except AgentvError as error:
            self.report(Problem.of(error))
            return None

    def _plan_file(self, path: Path) -> PlannedFile | None:
        self._is_strict = self._options.project.strict or read_config(path.parent).strict is True
        needs = Needs(path)
        counts = self._check_cases(needs)
        if self.problems:
            return None
        planned = PlannedFile(
            path=path,
            cases=counts.cases,
            selected=counts.selected,
            patterns=guideline_patterns(path.parent),
            targets={},
            generated=counts.generated,
            case_file=counts.file,
        )
        if not counts.selected:
            return planned
        planned = self._with_targets(planned, needs)
        if self._options.source.is_streamed:
            planned = planned._replace(check=self._arrival_check(planned))
        if self.shards is None:
            return planned
        return _limit_to_shard(planned, counts, self.shards)

    # ---- cases ----

    def _check_cases(self, needs: Needs) -> _Counts:
        """Check the selected cases of a file, collect what they need, and count them."""
        path = needs.path
        selection = self._selection
        shards = self.shards
        builder = self._builder(needs, self.report)
        check = self._case_check(needs, builder, self.report)
        patterns: Sequence[str] = ()
        if shards is not None:
            patterns = guideline_patterns(path.parent)
        selected = 0
        file: CaseFile | None = None
        shard_cases = 0
        shard_targets: set[str] = set()
        inspection = Inspection(self._report_ignored, partial(self._check_draft, builder))
        checked = CheckedCases()
        source = self._options.source
        for case in source.read(path, self._report_case, inspection, ledger=checked):
            if not self.selector.selects(case):
                if source.has_enough(selected, is_open=not self.selector.is_complete):
                    break
                continue
            selected += 1
            file = case.file
            self.keys.add(case)
            target = selection.target_of(case)
            check.check(case, target)
            if shards is not None and not self.problems:
                evaluators = builder.build(case, target).digests["evaluators"]
                if shards.add_case(case, patterns, target, evaluators):
                    shard_targets.add(target)
                    shard_cases += 1
            if source.has_enough(selected, is_open=not self.selector.is_complete):
                break
        if file is not None and file.metrics:
            self._check_metrics(file, builder)
        cases = selected
        if shards is not None:
            cases = shard_cases
        return _Counts(
            selected=selected,
            cases=cases,
            shard_targets=shard_targets,
            generated=bytes(checked.hashes),
            file=file,
        )

    def _check_metrics(self, file: CaseFile, builder: EvaluatorBuilder) -> None:
        folders = builder.code_folders(file.path.parent)
        for problem in metric_problems(file, folders):
            self.report(problem)

    def _builder(self, needs: Needs, warn: Report) -> EvaluatorBuilder:
        return EvaluatorBuilder(
            needs.judges,
            dry_run=self._options.dry_run,
            warn=warn,
            targets=self._options.project.targets,
        )

    def _case_check(self, needs: Needs, builder: EvaluatorBuilder, report: Report) -> CaseCheck:
        attachments = None
        if self._options.needs_attachments:
            attachments = AttachmentCheck(report, reads_content=False)
        return CaseCheck(
            needs=needs,
            builder=builder,
            find_settings=partial(self._find_settings, needs.path),
            report=report,
            attachments=attachments,
        )

    def _arrival_check(self, planned: PlannedFile) -> ArrivalCheck:
        """Return the check of the cases that arrive after those that are planned."""
        needs = Needs(planned.path)
        problems: list[Problem] = []
        judges = None
        if not self._options.dry_run:
            judges = planned.judges.keys()
        return ArrivalCheck(
            check=self._case_check(needs, self._builder(needs, ignore), problems.append),
            problems=problems,
            selection=self._selection,
            targets=planned.targets,
            judges=judges,
            has_stand_in=self._options.stand_in is not None,
        )

    def _check_draft(self, builder: EvaluatorBuilder, case: EvalCase, is_skipped: bool) -> None:
        """Report the problems of the evaluators of an invalid case, unless the run only skips the case."""
        if is_skipped:
            return
        target = self._selection.target_of(case)
        for problem in builder.setting_problems(case, target):
            self.report(problem)

    def _report_case(self, problem: Problem) -> None:
        """Report a problem of a case. A warning means that the case is skipped, which is an error in a strict run."""
        is_selected = self._selection.has_all and self.selector.is_open
        if problem.severity == "warning" and is_selected:
            if self._is_strict:
                problem = self._strict_problem(problem)
            else:
                self.invalid += 1
        self.report(problem)

    def _report_ignored(self, problem: Problem) -> None:
        """Report an unknown field, or a file that is not a sidecar, which the run ignores."""
        self.report(as_ignored(problem))

    def _strict_problem(self, problem: Problem) -> Problem:
        """Return the warning that a case is skipped as an error."""
        message = re.sub("; (the case|case .*) is skipped$", "", problem.message)
        _, _, missing = message.partition("missing ")
        remedy = f"add {missing}"
        if missing == "id":
            remedy = "add an id"
        way_out = "remove 'strict: true' from .agentv/config.yaml"
        if self._options.project.strict:
            way_out = "run without --strict"
        return msgspec.structs.replace(
            problem,
            severity="error",
            # The case is not skipped: nothing runs.
            message=message,
            hint=problem.hint or f"{remedy}, or {way_out}",
        )

    def _find_settings(self, path: Path, target: str) -> TargetSettings | None:
        """Return the settings of a target of an eval file, with which its cases are checked."""
        if self._options.stand_in is not None and not self._options.dry_run:
            return None  # a user function receives the paths of all files
        if path not in self._drafts:
            file = self._find_targets(path, is_needed=False)
            self._drafts[path] = self._read_drafts(file)
        targets = self._drafts[path]
        if targets is None:
            return None
        entry = targets.entry(target)
        if entry is None:
            return None
        return entry.draft

    def _read_drafts(self, file: Path | None) -> TargetList | None:
        if file is None:
            return None
        if file not in self._draft_lists:
            self._draft_lists[file] = read_targets(file, os.environ)
        return self._draft_lists[file]

    # ---- targets ----

    def _with_targets(self, planned: PlannedFile, needs: Needs) -> PlannedFile:
        """Return the plan of a file with its targets and judges."""
        options = self._options
        path = planned.path
        judges: Mapping[JudgeRef, EvalCase] = {}
        if not options.dry_run:
            judges = needs.judges.cases
        try:
            file = self._find_targets(path, is_needed=bool(judges))
        except ConfigError:
            if options.stand_in is not None:
                check_default_judges(judges)
            raise
        if file is None:
            return self._with_stand_ins(planned, needs)
        debug(f"{path}: reading targets from {file}")
        prices = options.project.prices or prices_file(path.parent)
        read = self._read_targets(file, needs, judges, prices)
        check_type = check_targets_of(dry_run=options.dry_run, stand_in=options.stand_in)
        check = check_type(
            needs=needs,
            file=file,
            read=read,
            report=self.report,
            selection=self._selection,
            versions=self._versions,
            stand_in_version=options.stand_in_version,
            stand_in=options.stand_in,
        )
        if self.problems:
            judges = {}  # they depend on the targets, which are invalid
        check.run(judges)
        return planned._replace(
            targets=check.targets,
            targets_file=file.absolute(),
            settings=read.targets,
            judges=check.judges,
            prices=prices,
        )

    def _with_stand_ins(self, planned: PlannedFile, needs: Needs) -> PlannedFile:
        """Return the plan of a file without a targets file, whose cases the stand-in answers."""
        targets = {}
        for name in needs.targets:
            targets[name] = replaced_target(name, self._options.stand_in, self._options.stand_in_version)
            if not self._options.dry_run:
                for problem in needs.workspace_problems(name):
                    self.report(problem)
        return planned._replace(targets=targets)

    def _find_targets(self, path: Path, *, is_needed: bool) -> Path | None:
        """Return the targets file of an eval file, or None if the stand-in can do without one.

        Raise `ConfigError` if there is none and it `is_needed`, or if targets answer themselves.
        """
        options = self._options
        if options.stand_in is None or options.project.targets is not None or is_needed:
            return find_targets(path.parent, options.project.targets)
        if not options.dry_run:
            return None
        try:
            return find_targets(path.parent)
        except ConfigError:
            return None

    def _read_targets(
        self,
        file: Path,
        needs: Needs,
        judges: Iterable[JudgeRef],
        prices: Path | None,
    ) -> TargetList:
        """Return the targets of a file with their prices; report the problems that were not reported before."""
        used: set[str] = set()
        if self._options.stand_in is None:
            used.update(needs.targets)
        named = {ref.name for ref in judges if ref.name}
        read = read_targets(file, os.environ, named | used)
        self.secrets.update(dict.fromkeys(read.secrets))
        judging = {_judging_target(ref, read) for ref in judges}
        called = used | judging
        read, unpriced = self._prices.apply(read, prices, called)
        problems = list(read.problems)
        for problem in unpriced:
            problems.append(msgspec.structs.replace(problem, file=file))
        for problem in problems:
            if problem not in self._reported:
                self._reported.add(problem)
                self.report(problem)
        return read


def _judging_target(ref: JudgeRef, read: TargetList) -> str:
    """Return the name of the target that judges: the one that the evaluator names, or else the target's judge.

    A target without a judge is its own judge.
    """
    if ref.name:
        return ref.name
    settings = read.targets.get(ref.target)
    if settings is not None and settings.judge_target:
        return settings.judge_target
    return ref.target


def _limit_to_shard(planned: PlannedFile, counts: _Counts, shards: ShardPlanBuilder) -> PlannedFile:
    """Add the targets and judges of a file to the digest of the whole run; keep the targets of the shard's cases."""
    for target in planned.targets.values():
        shards.add_shared("target", target.name, target.digest)
    for ref, name in planned.judges.items():
        version = target_digest(planned.settings[name])
        shards.add_shared("judge", ref.target, ref.name or "", name, version)
    targets = {}
    for name, target in planned.targets.items():
        if name in counts.shard_targets:
            targets[name] = target
    return planned._replace(targets=targets)
