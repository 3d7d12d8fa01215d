"""An earlier results file -> what of a plan is done already."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from agentv.cases.digest import case_digest
from agentv.errors import NothingToRun, OutputError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.records import EvalCase
from agentv.redact import clean
from agentv.results.merging.stamps import ShardStamp
from agentv.results.read import read_records
from agentv.results.views import DigestsView, EarlierView, JudgedView, TrialView
from agentv.results.write import EarlierFile, ResultFile
from agentv.run.jobs import IsDone, build_or_explain
from agentv.run.plan import Plan, PlannedFile
from agentv.scoring import SCORING
from agentv.system.compact_sets import DuplicateFinder, HashSet

ANSWERED = ("missed", "stale")
"""Why answers to a case that is the same as before are run again."""
NAMES = ("eval_*.jsonl", "eval_*.yaml")


class Stamp(NamedTuple):
    """A case as it is now: where it belongs, and the digests of what it asks and how it is scored."""

    dataset: str
    eval_id: str
    case: str
    target: str
    evaluators: str

    @property
    def names(self) -> tuple[str, str]:
        return self.dataset, self.eval_id

    @property
    def asked(self) -> tuple[str, str, str]:
        return self.dataset, self.eval_id, self.case


class Resumed(NamedTuple):
    """What a resumed run goes on from: the results that stand, and what was found on the way."""

    file: ResultFile
    stands: HashSet
    """The runs of cases that need not be run again, by dataset, id and trial."""
    found: Counter[str]
    backup: Path | None = None
    """Holds the answers that were taken out, if there were any."""

    def is_done(self, case: EvalCase, trial: int) -> bool:
        """Return whether the results hold one for this trial of the case as it is now."""
        return (clean(case.dataset), clean(case.id), trial) in self.stands

    def results(self) -> Iterator[JudgedView]:
        """Yield the results that stand, with what judges said."""
        for record in read_records(self.file.path, JudgedView):
            if record.view.trial_key in self.stands:
                yield record.view

    def describe(self) -> str:
        """Return what was found, for the person who asked to resume."""
        told = {
            "failed": "that ended in an error run again",
            "missed": "that did not pass run again",
            "changed": "changed since run again",
            "stale": "that another version of the target answered run again (--keep-stale keeps them)",
            "dry": "that a mock answered in a dry run run again",
            "kept": "of those done are of another version of the target, and are kept",
            "other": "of those done were scored by other evaluators, and are kept",
            "scoring": "of those done were scored by a version of agentv that scores otherwise, and are kept",
        }
        parts = [f"{self.found[what]} {text}" for what, text in told.items() if self.found[what]]
        if self.backup is not None:
            parts.append(f"the old answers are in {self.backup}")
        return ", ".join([f"{self.found['done']} done already", *parts])


def newest_results(folder: Path) -> Path | None:
    """The results file in `folder` that was written to last."""
    found = [path for name in NAMES for path in folder.glob(name)]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def failed_cases(path: Path) -> HashSet:
    """Return the dataset and id of each case that did not pass in a results file.

    Raise `NothingToRun` if all passed, `OutputError` if the file cannot be read.
    """
    failed, results, passed = HashSet(), 0, 0
    try:
        for record in read_records(path, TrialView):
            results += 1
            if record.view.has_passed:
                passed += 1
            else:
                failed.add(record.view.case_key)
    except OSError as error:
        raise OutputError(f"cannot be read: {error.strerror}", file=path, hint="name a results file") from error
    if passed == results:
        raise NothingToRun(f"nothing to run: all {results} results in {path} passed")
    return failed


OnKept = Callable[[tuple[str, str], EarlierView], None]
"""Is told of a run of a planned case that is done already: whose it is, and what is known of it."""


class ResumeOptions(NamedTuple):
    """Which earlier results stand."""

    trials: int = 1
    keep_stale: bool = False
    """Those that another version of the target answered stand, too."""
    rerun_failed: bool = False
    """Those that did not pass do not stand."""


def resume(
    earlier: EarlierFile, plan: Plan, evaluators: EvaluatorBuilder, options: ResumeOptions, on_kept: OnKept
) -> Resumed:
    """Go on with an earlier results file. Results that do not stand any more are taken out first."""
    try:
        planned = _Planned(plan, evaluators, options)
        keep = _Keep(planned, on_kept)
        for result in earlier.results():
            _check_shard(result, plan, planned, earlier.path)
            keep.learn(result)
    except BaseException:
        earlier.close()
        raise
    stamp = ShardStamp(str(plan.shard), plan.shard_plan) if plan.shard and plan.shard_plan else None
    file, backup = earlier.rewrite(keep, lambda: any(keep.found[why] for why in ANSWERED), stamp)
    return Resumed(file, keep.stands, keep.found, backup)


def find_standing(path: Path, plan: Plan, evaluators: EvaluatorBuilder, options: ResumeOptions) -> IsDone:
    """Return what tells whether a trial of a case need not be run; the earlier file stays as it is."""
    planned = _Planned(plan, evaluators, options)
    keep = _Keep(planned, lambda _names, _result: None)
    for record in read_records(path, EarlierView):
        _check_shard(record.view, plan, planned, path)
        keep.learn(record.view)
    return lambda case, trial: (clean(case.dataset), clean(case.id), trial) in keep.stands


def _check_shard(result: EarlierView, plan: Plan, planned: "_Planned", path: Path) -> None:
    """Raise `OutputError` if the file is not one of this shard: what it has could not be merged any more."""
    shard = str(plan.shard) if plan.shard is not None else None
    if result.shard != shard:
        found = f"shard {result.shard}" if result.shard else "a run without --shard"
        asked = f"shard {shard}" if shard else "a run without --shard"
        hint = "give each shard an --out of its own; 'agentv merge' joins them"
        raise OutputError(f"cannot resume: it has results of {found}, and this is {asked}", file=path, hint=hint)
    if shard is not None and not planned.concerns(result):
        message = f"cannot resume shard {shard}: {result.eval_id!r} of {result.dataset!r} is not planned any more"
        hint = "name the same eval files and options as before, or another --out"
        raise OutputError(message, file=path, hint=hint)


class _Planned:
    """The cases of a plan, as they would stand in a results file, each with so many trials."""

    def __init__(self, plan: Plan, evaluators: EvaluatorBuilder, options: ResumeOptions):
        self._options, self._is_dry = options, plan.dry_run
        self._cases, self._asked, self._answered, self._scored = HashSet(), HashSet(), HashSet(), HashSet()
        repeats = DuplicateFinder()
        for file in plan.files:
            for case in plan.cases_of(file):
                stamp = _stamp(case, file, plan, evaluators)
                self._cases.add(stamp.names)
                self._asked.add(stamp.asked)
                self._answered.add((*stamp.asked, stamp.target))
                self._scored.add((*stamp.asked, stamp.evaluators, "evaluators"))
                repeats.add([stamp.names])
        if repeats.duplicate_hashes():
            hint = "give one of the files another 'dataset:', so that their results can be told apart"
            raise OutputError("cannot resume: two eval files have the same dataset name and the same ids", hint=hint)

    def concerns(self, result: TrialView) -> bool:
        """Whether the result is one of a planned case and trial."""
        return (result.trial or 1) <= self._options.trials and result.case_key in self._cases

    def why_not(self, result: TrialView) -> str | None:
        """Return why the result does not stand, by the names of `Resumed.found`; None if it does."""
        if result.error is not None:
            return "failed"
        if self._is_dry and not result.dry_run:
            return None  # a mock never takes the place of an answer
        if result.content_key not in self._asked:
            return "changed"
        if bool(result.dry_run) and not self._is_dry:
            return "dry"
        if not self._options.keep_stale and not self._is_of_this_target(result):
            return "stale"
        return "missed" if self._options.rerun_failed and result.verdict != "pass" else None

    def differences(self, result: TrialView) -> Iterator[str]:
        """Yield what is not the same as now for a result that stands, by the names of `Resumed.found`."""
        if not self._is_of_this_target(result):
            yield "kept"
        if (*result.content_key, (result.digests or DigestsView()).evaluators, "evaluators") not in self._scored:
            yield "other"
        if (result.digests or DigestsView()).scoring != SCORING:
            yield "scoring"

    def _is_of_this_target(self, result: TrialView) -> bool:
        return (*result.content_key, (result.digests or DigestsView()).target) in self._answered


class _Keep:
    """Says which earlier results stand: those of runs that are not planned, and one for each that is done."""

    def __init__(self, planned: _Planned, on_kept: OnKept):
        self._planned, self._on_kept = planned, on_kept
        self.stands = HashSet()
        self.found: Counter[str] = Counter()
        self._done, self._failed, self._repeats = HashSet(), HashSet(), DuplicateFinder()
        self._repeated: set[int] | None = None
        self._seen: set[int] = set()

    def learn(self, result: TrialView) -> None:
        """See a result once before any is judged."""
        if not self._planned.concerns(result):
            return
        why = self._planned.why_not(result)
        if why is None:
            self.stands.add(result.trial_key)
            self._done.add(result.trial_key)
            self._repeats.add([result.trial_key])
        elif why == "failed":
            self._failed.add(result.trial_key)

    def __call__(self, result: EarlierView) -> bool:
        if not self._planned.concerns(result):
            return True
        if (why := self._planned.why_not(result)) is not None:
            if result.trial_key not in self._done and (why == "failed" or result.trial_key not in self._failed):
                self.found[why] += 1
            return False
        if self._repeated is None:
            self._repeated = self._repeats.duplicate_hashes()
        number = hash(result.trial_key)
        if number in self._seen:
            return False
        if number in self._repeated:
            self._seen.add(number)
        self.found["done"] += 1
        self.found.update(self._planned.differences(result))
        self._on_kept(result.case_key, result)
        return True


def _stamp(case: EvalCase, file: PlannedFile, plan: Plan, builder: EvaluatorBuilder) -> Stamp:
    target = file.targets[plan.selection.target_of(case)]
    request, _ = build_or_explain(case, file, target)
    evaluators = builder.build(case, target.name).digests["evaluators"]
    return Stamp(clean(case.dataset), clean(case.id), case_digest(case, request), target.digest, evaluators)
