"""The plan of a run. It is an immutable value that can be printed, pickled and executed in another process."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from agentv.calls.target_version import TargetVersion
from agentv.cases.expand import Inspection, Report
from agentv.cases.generated import Ledger, SameCases
from agentv.cases.id_patterns import IdPatterns
from agentv.cases.objects import READ_AHEAD, CaseDefaults, CaseObjects, placed_error
from agentv.cases.read import numbered, read_eval_file
from agentv.cases.request import Files
from agentv.cases.sample import CaseSample
from agentv.cases.shard import Shard, case_hash
from agentv.errors import AgentvError
from agentv.evaluators.judging.target import JudgeRef
from agentv.files.compact_sets import HashSet
from agentv.files.fingerprint import digest
from agentv.filters.match import CaseRow, Filter
from agentv.hook_settings import Hooks
from agentv.protocols import Provider
from agentv.providers.settings import TargetSettings
from agentv.records import DEFAULT_TARGET, CaseFile, EvalCase, Problem, ShardPlan
from agentv.redact import clean
from agentv.text import plural, short_path

STAND_IN = TargetVersion(digest("stand-in"))
"""The version of every target that a stand-in of unknown version answers for."""


class Selection(NamedTuple):
    """The cases that were selected to run, and the target that was requested for them."""

    target: str | None = None
    ids: IdPatterns = IdPatterns()
    limit: int | None = None
    only: HashSet | None = None
    """The hash of each case that may run, which is the same on every worker of a cluster. None means all cases."""
    shard: Shard | None = None
    """The shard of the selected cases to run. None means all of them."""
    filter: Filter | None = None
    sample: CaseSample | None = None
    """The sample of the cases that are selected otherwise. None means all of them."""

    @property
    def has_all(self) -> bool:
        """Whether all cases are selected that are not skipped, before the limit and the shard."""
        return not self.ids and self.only is None and self.filter is None and self.sample is None

    def includes(self, case: EvalCase) -> bool:
        """Return whether the case is selected, before the limit and the shard."""
        if not self.asks_for(case) or self.skips(case):
            return False
        return self.sample is None or self.sample.includes(case)

    def asks_for(self, case: EvalCase) -> bool:
        """Return whether the ids, the earlier results and the filter select the case, even if it is skipped."""
        if self.only is not None:
            number = case_hash(clean(case.dataset), clean(case.id))
            if number not in self.only:
                return False
        if self.ids and not self.ids.matches(case.id):
            return False
        return self.filter is None or self.meets(self.filter, case)

    def meets(self, condition: Filter, case: EvalCase) -> bool:
        """Return whether a filter matches the case with the target that answers it."""
        row = CaseRow.of(case, self.target_of(case))
        return condition.matches(row)

    def skips(self, case: EvalCase) -> bool:
        """Return whether the case is marked with `skip`, and is not selected by its exact id."""
        return bool(case.skip) and not self.ids.names(case.id)

    def target_of(self, case: EvalCase) -> str:
        """Return the target of a case: `--target` unless it is `default`, else that of the case or its file."""
        if self.target and self.target != DEFAULT_TARGET:
            return self.target
        return case.target

    def reason_for(self, case: EvalCase) -> str:
        """Return why the target of a case was chosen, for debug output."""
        if self.target and self.target != DEFAULT_TARGET:
            return "set with --target"
        if case.target != DEFAULT_TARGET:
            return f"set by case {case.id!r} or its file"
        return "the default target"


class PlanSource(NamedTuple):
    """Where the cases of a plan come from: its eval files or, if there are any, objects in memory."""

    objects: CaseObjects | None = None
    defaults: CaseDefaults = CaseDefaults()

    def read(
        self, path: Path, report: Report, inspection: Inspection | None = None, *, ledger: Ledger | None = None
    ) -> Iterator[EvalCase]:
        """Yield the valid cases of an eval file or of the objects that replace it; report problems of the others."""
        if self.objects is not None:
            cases = self.objects.read(report, inspection)
        else:
            cases = read_eval_file(path, report, inspection, ledger)
        return self.defaults.apply(cases)

    def known(self) -> Iterator[EvalCase]:
        """Yield the objects that have been read so far, see `CaseObjects.known`."""
        assert self.objects is not None
        return self.defaults.apply(self.objects.known())

    def take(self) -> Iterator[EvalCase]:
        """Yield the objects for the last time, see `CaseObjects.take`."""
        assert self.objects is not None
        return self.defaults.apply(self.objects.take())

    def has_enough(self, selected: int, *, is_open: bool) -> bool:
        """Return whether planning needs no further case. A file and a list are always checked as a whole.

        `selected` is the number of selected cases so far; `is_open` says whether the selection needs further ones.
        """
        if self.objects is None or self.objects.is_list:
            return False
        if not is_open:
            return True
        return self.objects.is_streamed and selected >= READ_AHEAD

    @property
    def is_streamed(self) -> bool:
        """Whether more cases arrive while the run is under way."""
        return self.objects is not None and self.objects.is_streamed


class PlannedTarget(NamedTuple):
    """A target for cases of one eval file. Without settings, the plan's stand-in answers for it."""

    name: str
    settings: TargetSettings | None
    version: TargetVersion
    files: Files = Files.INLINE
    takes_guidelines: bool = True
    """Whether the target takes guidelines separately. If not, its prompts start with them."""
    uses: frozenset[str] = frozenset()
    """The data of a case that the target receives in addition to the prompt; see `TargetSettings.uses`."""

    @property
    def digest(self) -> str:
        """The digest of its version."""
        return self.version.digest

    @property
    def is_alone(self) -> bool:
        """Whether the target can run only one case at a time."""
        return self.settings is not None and self.settings.is_serial

    def limit(self, workers: int | None) -> int:
        """Return how many cases the target runs at once. The `workers` of the run override its own setting."""
        if self.is_alone:
            return 1
        if workers:
            return workers
        if self.settings is not None and isinstance(self.settings.workers, int):
            return self.settings.workers
        return 1


class PlannedFile(NamedTuple):
    """An eval file, and the targets, judges and prices for its cases."""

    path: Path
    cases: int
    """The number of its cases that run here."""
    selected: int
    """The number of its cases that are selected, in all shards."""
    patterns: tuple[str, ...]
    targets: Mapping[str, PlannedTarget]
    """The targets that answer its cases."""
    targets_file: Path | None = None
    settings: Mapping[str, TargetSettings] = {}
    """All valid targets of the targets file. Any of them can be a judge."""
    judges: Mapping[JudgeRef, str] = {}
    """The name of the target that judges, for each judge that the cases refer to."""
    prices: Path | None = None
    """The price list, if there is one."""
    check: Callable[[EvalCase], None] | None = None
    """Raises `AgentvError` if a case cannot be run that arrives while the run is under way."""
    generated: bytes = b""
    """The hashes of the cases that a function yielded when they were checked."""
    case_file: CaseFile | None = None
    """The settings of the file that do not belong to single cases. None if no case is selected."""

    @property
    def hooks(self) -> Hooks | None:
        """The hooks that run before and after its cases."""
        if self.case_file is None:
            return None
        return self.case_file.hooks


class RequiredCases(NamedTuple):
    """The cases that must pass: a filter, and how many of the cases that run here it selects."""

    filter: Filter
    cases: int


class Plan(NamedTuple):
    """The files, cases and targets of a run."""

    files: tuple[PlannedFile, ...]
    selection: Selection
    invalid: int
    """The number of cases that are skipped because they are invalid."""
    folder: Path
    """The folder in which the run was started. Kept because a target may change the current folder."""
    stand_in: Provider | None = None
    """The provider that answers for every target, if there is one."""
    dry_run: bool = False
    """Whether neither targets nor judges are called."""
    shard_plan: ShardPlan | None = None
    """The description of the whole run that each shard records."""
    trials: int = 1
    """How often each case is run."""
    stand_in_version: TargetVersion = STAND_IN
    """The version of the provider that answers for every target."""
    source: PlanSource = PlanSource()
    skipped: int = 0
    """The number of selected cases that are marked with `skip`. They are not part of the plan."""
    required: tuple[RequiredCases, ...] = ()
    """The cases that must pass."""
    idle_files: tuple[PlannedFile, ...] = ()
    """The eval files of which no case runs here."""

    @property
    def shard(self) -> Shard | None:
        """The shard of the run that this plan covers, if the run is sharded."""
        return self.selection.shard

    @property
    def cases(self) -> int:
        """The number of cases to run."""
        arrived = 0
        if self.source.objects is not None:
            arrived = self.source.objects.arrived
        return arrived + sum(file.cases for file in self.files)

    @property
    def jobs(self) -> int | None:
        """The number of runs of cases; None if it is not known, because more cases of an iterable may arrive."""
        objects = self.source.objects
        if objects is not None and objects.is_streamed and not objects.is_all_known:
            limit = self.selection.limit
            if limit is None or self.cases < limit:
                return None
        return self.cases * self.trials

    @property
    def failure(self) -> Exception | None:
        """Why no more cases arrived, if an iterable of cases ended in an error."""
        if self.source.objects is None:
            return None
        return self.source.objects.failure

    @property
    def targets(self) -> list[PlannedTarget]:
        """The targets of all files, in the order of the files."""
        targets: list[PlannedTarget] = []
        for file in self.files:
            targets.extend(file.targets.values())
        return targets

    @property
    def has_all_cases(self) -> bool:
        """Whether all cases of the files are planned."""
        selection = self.selection
        is_limited = selection.limit is not None or selection.shard is not None
        return selection.has_all and not is_limited and not self.skipped

    def all_cases_of(self, file: PlannedFile) -> Iterator[EvalCase]:
        """Yield all cases of a file, whether or not they are selected."""
        ledger = None
        if file.generated:
            ledger = SameCases(file.generated)
        if self.source.objects is not None:
            return self.source.read(file.path, _raise_error, ledger=ledger)
        # Only cases that run are numbered. Planning reads the same cases but must be fast.
        return numbered(self.source.read(self.folder / file.path, _raise_error, ledger=ledger))

    def cases_of(self, file: PlannedFile) -> Iterator[EvalCase]:
        """Yield the planned cases of a file. The file is read lazily."""
        if self.source.is_streamed:
            yield from self._arriving_cases(file)
            return
        left = file.selected
        shard = self.selection.shard
        for case in self.all_cases_of(file):
            if left > 0 and self.selection.includes(case):
                left -= 1
                if shard is None or shard.includes(case.dataset, case.id):
                    yield case
            if left <= 0 and not file.generated:
                return  # all cases that a function yields are compared with those that were checked

    def known_cases_of(self, file: PlannedFile) -> Iterator[EvalCase]:
        """Yield the planned cases of a file that are known before the run starts: of an iterable, the first ones."""
        if not self.source.is_streamed:
            return self.cases_of(file)
        known = filter(self.selection.includes, self.source.known())
        return islice(known, file.selected)

    def _arriving_cases(self, file: PlannedFile) -> Iterator[EvalCase]:
        """Yield the planned cases, then those that arrive while the run is under way, which are checked first."""
        objects = self.source.objects
        assert objects is not None
        limit = self.selection.limit
        number = 0
        for case in self.source.take():
            if not self.selection.includes(case):
                if self.selection.skips(case) and self.selection.asks_for(case):
                    objects.skipped += 1
                continue
            number += 1
            if number > file.selected:  # it was not there when the run was planned
                try:
                    assert file.check is not None
                    file.check(case)
                except AgentvError as error:
                    objects.failure = placed_error(error)
                    return
                objects.arrived += 1
            yield case
            if number == limit:
                return

    def describe(self, workers: int | None) -> str:
        """Return a one-line description of the run."""
        prefix = ""
        if self.dry_run:
            prefix = "DRY RUN: "
        if self.shard is not None:
            if self.shard_plan is not None and not self.files:
                results = plural(self.shard_plan.cases, "result")
                return f"shard {self.shard}: no cases ({results} in all shards)"
            prefix += f"shard {self.shard}: "
        cases = plural(self.cases, "case")
        files = plural(len(self.files), "file")
        if self.source.objects is not None:
            files = f"dataset {self.source.objects.dataset}"
        if self.source.is_streamed:
            cases = "cases as they arrive"
        called: dict[str, None] = {}
        for target in self.targets:
            called[f"{target.name} ({self._called(target)})"] = None
        parts = [f"{prefix}running {cases} from {files} on {', '.join(called)}"]
        targets_files: dict[str, None] = {}
        for file in self.files:
            if file.targets_file is not None:
                targets_files[short_path(file.targets_file)] = None
        if targets_files:
            parts.append(f"targets from {', '.join(targets_files)}")
        parts.append(plural(self.workers(workers), "worker"))
        return ", ".join(parts)

    def _called(self, target: PlannedTarget) -> str:
        """Return a description of the provider that answers for a target."""
        if self.dry_run:
            return "mock"
        if target.settings is not None and self.stand_in is None:
            return target.settings.describe()
        return getattr(self.stand_in, "called", "a Python function")

    def workers(self, asked: int | None) -> int:
        """Return how many cases run at once: the requested number, else the largest limit of a target."""
        if asked:
            return asked
        limits = [target.limit(None) for target in self.targets]
        return max(limits, default=1)


def file_finder(plan: Plan) -> Callable[[EvalCase], PlannedFile]:
    """Return a function that returns the planned file of a case."""
    if plan.source.objects is not None:
        # An `EvalCase` may come from any file, but the plan has a single file for all objects.
        return lambda _case: plan.files[0]
    files = {plan.folder / file.path: file for file in plan.files}
    return lambda case: files[case.file.path]


def _raise_error(problem: Problem) -> None:
    """Raise an error: the file has changed since planning. Ignore warnings, which planning has reported."""
    if problem.severity == "error":
        raise AgentvError.of(problem)
