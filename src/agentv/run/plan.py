"""What a run will do, as a value: it can be printed, pickled, and run in another process."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from agentv.cases.read import read_eval_file
from agentv.cases.request import Files
from agentv.cases.shard import Shard
from agentv.errors import AgentvError
from agentv.judges.target import JudgeRef
from agentv.protocols import Provider
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, Problem, ShardPlan
from agentv.redact import clean
from agentv.run.batches.vendor import BatchOptions
from agentv.system.compact_sets import HashSet
from agentv.telemetry.options import CollectOptions


class Selection(NamedTuple):
    """Which cases run, and on which target."""

    target: str | None = None
    ids: tuple[str, ...] = ()
    limit: int | None = None
    only: HashSet | None = None
    """The dataset and id of each case that may run; all may if this is not given."""
    shard: Shard | None = None
    """The part of what was asked for that runs here, if it is divided."""

    @property
    def has_all(self) -> bool:
        """Whether all cases were asked for."""
        return not self.ids and self.only is None

    def includes(self, case: EvalCase) -> bool:
        """Return whether the case is among those that were asked for."""
        if self.only is not None and (clean(case.dataset), clean(case.id)) not in self.only:
            return False
        return not self.ids or any(matches(case, id_) for id_ in self.ids)

    def target_of(self, case: EvalCase) -> str:
        """Return `--target` unless it is `default`, else the target of the case, else that of its file."""
        return self.target if self.target and self.target != "default" else case.target


def matches(case: EvalCase, pattern: str) -> bool:
    """Return whether the case has this id, or one that fits this glob."""
    return case.id == pattern or fnmatchcase(case.id, pattern)


class PlannedTarget(NamedTuple):
    """A target that answers cases of one eval file. Without settings, the plan's stand-in answers for it."""

    name: str
    settings: TargetSettings | None
    digest: str
    files: Files = Files.INLINE

    @property
    def is_alone(self) -> bool:
        """Whether the target can only work on one case at a time."""
        return self.settings is not None and self.settings.is_serial

    def limit(self, workers: int | None) -> int:
        """Return how many cases the target works on at once; `workers` of the run, when given, win over its own."""
        if self.is_alone:
            return 1
        own = self.settings.workers if self.settings is not None else None
        return workers or (own if isinstance(own, int) else 1)


class PlannedFile(NamedTuple):
    """An eval file with all that its cases need."""

    path: Path
    cases: int
    """How many of its cases run."""
    selected: int
    """How many of its cases were asked for; in a shard, more than run there."""
    patterns: tuple[str, ...]
    targets: Mapping[str, PlannedTarget]
    """The targets that answer its cases."""
    targets_file: Path | None = None
    settings: Mapping[str, TargetSettings] = {}
    """All the targets of the targets file that are in order: each may be asked to judge."""
    judges: Mapping[JudgeRef, str] = {}
    """Who judges."""
    prices: Path | None = None
    """The price list, if there is one."""


class Plan(NamedTuple):
    """What a run will do."""

    files: tuple[PlannedFile, ...]
    selection: Selection
    invalid: int
    """How many cases are left out because they are invalid."""
    folder: Path
    """The folder that the run was started in: a target may change it."""
    stand_in: Provider | None = None
    """Answers in the place of every target."""
    dry_run: bool = False
    """Nobody outside is asked, the judges neither."""
    shard_plan: ShardPlan | None = None
    """What this is a part of, if it is a shard."""

    @property
    def shard(self) -> Shard | None:
        """Which part of a run that is divided this is."""
        return self.selection.shard

    @property
    def cases(self) -> int:
        """How many cases will be run."""
        return sum(file.cases for file in self.files)

    @property
    def targets(self) -> list[PlannedTarget]:
        """The targets that answer cases, file by file."""
        return [target for file in self.files for target in file.targets.values()]

    def cases_of(self, file: PlannedFile) -> Iterator[EvalCase]:
        """Yield the planned cases of a file, read as they are asked for."""
        left, has_all, shard = file.selected, self.selection.has_all, self.selection.shard
        for case in read_eval_file(self.folder / file.path, _raise_error):
            if left <= 0:
                return
            if has_all or self.selection.includes(case):
                left -= 1
                if shard is None or shard.includes(case.dataset, case.id):
                    yield case

    def describe(self, workers: int | None) -> str:
        """Return what is about to run, in one line."""
        shard, whole = self.shard, self.shard_plan
        if shard is not None and whole is not None and not self.files:
            return f"shard {shard}: none of the cases is in it ({_count(whole.cases, 'result')} in all shards)"
        cases, files = _count(self.cases, "case"), _count(len(self.files), "file")
        what = f"{'DRY RUN: ' if self.dry_run else ''}{f'shard {shard}: ' if shard else ''}"
        calls = dict.fromkeys(f"{target.name} ({self._called(target)})" for target in self.targets)
        found = dict.fromkeys(_shown(file.targets_file) for file in self.files if file.targets_file)
        parts = [
            f"{what}running {cases} from {files} on {', '.join(calls)}",
            *([f"targets from {', '.join(found)}"] if found else []),
            _count(self.workers(workers), "worker"),
        ]
        return ", ".join(parts)

    def _called(self, target: PlannedTarget) -> str:
        if self.dry_run:
            return "mock"
        if target.settings is not None and self.stand_in is None:
            return target.settings.describe()
        return getattr(self.stand_in, "called", "a Python function")

    def workers(self, asked: int | None) -> int:
        """Return how many cases run at once: as many as were asked for, else as the targets take."""
        return asked or max((target.limit(None) for target in self.targets), default=1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _shown(path: Path) -> str:
    """Return a path as short as it can be: from the current folder, if it is inside it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class RunOptions(NamedTuple):
    """How cases are run. A time limit and a number of retries that are given win over those of the targets."""

    workers: int | None = None
    timeout_seconds: float | None = None
    max_retries: int | None = None
    cache: Path | None = None
    """The folder of the cache, if answers are to be kept."""
    include_trace: bool = False
    dump_prompts: Path | None = None
    dump_traces: Path | None = None
    trials: int = 1
    """How often each case is run."""
    run_id: str | None = None
    """Stands in every result."""
    include_inputs: bool = True
    """Whether results hold what was asked and what is expected."""
    max_errors: int | None = None
    """After so many errors of targets no further case is started."""
    batches: BatchOptions = BatchOptions()
    """What is made of batches at vendors."""
    collect: CollectOptions | None = None
    """How the traces of targets are collected, if they are."""
    has_times: bool = False
    """Whether results tell when the target had answered."""


def _raise_error(problem: Problem) -> None:
    """Raise an error: the file has changed since it was planned. Warnings have been told by the planner."""
    if problem.severity == "error":
        raise AgentvError.of(problem)
