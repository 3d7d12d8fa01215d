"""An earlier results file -> what of a plan is done already."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agentv.cases.digest import case_digest
from agentv.errors import OutputError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.records import EvalCase
from agentv.redact import clean
from agentv.results.views import DigestsView, TrialView
from agentv.results.write import EarlierFile, ResultFile
from agentv.run.jobs import build_or_explain
from agentv.run.plan import Plan, PlannedFile
from agentv.system.compact_sets import DuplicateFinder, HashSet

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

    def is_done(self, case: EvalCase, trial: int) -> bool:
        """Return whether the results hold one for this trial of the case as it is now."""
        return (clean(case.dataset), clean(case.id), trial) in self.stands

    def describe(self) -> str:
        """Return what was found, for the person who asked to resume."""
        told = {
            "failed": "that ended in an error run again",
            "changed": "changed since run again",
            "other": "of those done came from another target or other evaluators, and are kept",
        }
        parts = [f"{self.found[what]} {text}" for what, text in told.items() if self.found[what]]
        return ", ".join([f"{self.found['done']} done already", *parts])


def newest_results(folder: Path) -> Path | None:
    """The results file in `folder` that was written to last."""
    found = [path for name in NAMES for path in folder.glob(name)]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


OnKept = Callable[[tuple[str, str], TrialView], None]
"""Is told of a run of a planned case that is done already: whose it is, and what is known of it."""


def resume(earlier: EarlierFile, plan: Plan, evaluators: EvaluatorBuilder, trials: int, on_kept: OnKept) -> Resumed:
    """Go on with an earlier results file. Results that do not stand any more are taken out first."""
    try:
        planned = _Planned(plan, evaluators, trials)
        keep = _Keep(planned, on_kept)
        for result in earlier.results():
            keep.learn(result)
    except BaseException:
        earlier.close()
        raise
    return Resumed(earlier.rewrite(keep), keep.stands, keep.found)


class _Planned:
    """The cases of a plan, as they would stand in a results file, each with so many trials."""

    def __init__(self, plan: Plan, evaluators: EvaluatorBuilder, trials: int):
        self._trials = trials
        self._cases, self._asked, self._exact = HashSet(), HashSet(), HashSet()
        repeats = DuplicateFinder()
        for file in plan.files:
            for case in plan.cases_of(file):
                stamp = _stamp(case, file, plan, evaluators)
                self._cases.add(stamp.names)
                self._asked.add(stamp.asked)
                self._exact.add(tuple(stamp))
                repeats.add([stamp.names])
        if repeats.duplicate_hashes():
            hint = "give one of the files another 'dataset:', so that their results can be told apart"
            raise OutputError("cannot resume: two eval files have the same dataset name and the same ids", hint=hint)

    def concerns(self, result: TrialView) -> bool:
        """Whether the result is one of a planned case and trial."""
        return (result.trial or 1) <= self._trials and result.case_key in self._cases

    def wants(self, result: TrialView) -> bool:
        """Whether the result is one of a planned case, as that case is now."""
        return result.error is None and result.content_key in self._asked

    def is_exact(self, result: TrialView) -> bool:
        """Whether the target and the evaluators are the same as well."""
        digests = result.digests or DigestsView()
        return (*result.content_key, digests.target, digests.evaluators) in self._exact


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
        if self._planned.wants(result):
            self.stands.add(result.trial_key)
            self._done.add(result.trial_key)
            self._repeats.add([result.trial_key])
        elif result.error is not None:
            self._failed.add(result.trial_key)

    def __call__(self, result: TrialView) -> bool:
        if not self._planned.concerns(result):
            return True
        if not self._planned.wants(result):
            if result.trial_key not in self._done:
                is_stale = result.error is None and result.trial_key not in self._failed
                self.found["failed"] += result.error is not None
                self.found["changed"] += is_stale
            return False
        if self._repeated is None:
            self._repeated = self._repeats.duplicate_hashes()
        number = hash(result.trial_key)
        if number in self._seen:
            return False
        if number in self._repeated:
            self._seen.add(number)
        self.found["done"] += 1
        self.found["other"] += not self._planned.is_exact(result)
        self._on_kept(result.case_key, result)
        return True


def _stamp(case: EvalCase, file: PlannedFile, plan: Plan, builder: EvaluatorBuilder) -> Stamp:
    target = file.targets[plan.selection.target_of(case)]
    request, _ = build_or_explain(case, file, target)
    evaluators = builder.build(case, target.name).digests["evaluators"]
    return Stamp(clean(case.dataset), clean(case.id), case_digest(case, request), target.digest, evaluators)
