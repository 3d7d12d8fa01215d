"""Decide which results of an earlier results file are still valid, so that `--resume` runs only the rest of a plan.

The target is not part of the identity of an earlier result: a run on another target replaces the results of the same
cases and trials. Digests show whether a result belongs to the current version of its target.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.calls.stale import StaleGroup
from agentv.cases.digest import CaseDigests, case_digests
from agentv.cases.shard import case_hash
from agentv.errors import NothingToRun, OutputError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.files.compact_sets import DuplicateFinder, HashSet
from agentv.files.fingerprint import DIGEST_FORMAT
from agentv.records import CaseKey, EvalCase, ResultKey
from agentv.redact import clean
from agentv.results.locate import is_results_file_of, results_path
from agentv.results.merging.stamps import ShardStamp
from agentv.results.read import read_records
from agentv.results.runs import RunRecord, read_runs
from agentv.results.views import DigestsView, JudgedView, ResultRow, TextRow
from agentv.results.write import EarlierFile, ResultFile
from agentv.run.jobs import IsDone, build_or_explain
from agentv.run.options import OutputOptions
from agentv.run.planning.plan import Plan, PlannedFile, PlannedTarget
from agentv.scoring import SCORING
from agentv.text import path_of_text, plural

_NO_DIGESTS = DigestsView()


class PlannedCase(NamedTuple):
    """A case of the current plan: its key, digests, target and the digest of its evaluators."""

    key: CaseKey
    digests: CaseDigests
    target: PlannedTarget
    evaluators: str


class Resumed(NamedTuple):
    """The results of an earlier run that are still valid, and the numbers of the others."""

    file: ResultFile
    stands: HashSet
    """The keys of the results that are still valid, for any target."""
    found: Counter[str]
    run_ids: tuple[str, ...] = ()
    """The ids of the runs whose results are kept."""
    backup: Path | None = None
    """The file with the answers that were removed, if there were any."""
    stale: Mapping[StaleGroup, int] = {}
    """The results of an earlier version of the target."""

    def is_done(self, case: EvalCase, trial: int) -> bool:
        """Return whether there is a result for this trial of the current version of the case."""
        return _masked_key(case, trial) in self.stands

    def results(self) -> Iterator[JudgedView]:
        """Yield the results that are still valid, with the replies of their judges."""
        for record in read_records(self.file.path, JudgedView):
            if record.view.trial_key in self.stands:
                yield record.view

    def describe(self) -> str:
        """Describe how many results are kept, and how many are re-run for which reasons."""
        texts = {
            "failed": "to re-run after an error",
            "missed": "to re-run because of --failed",
            "changed": "to re-run because the case has changed",
            "stale": "to re-run because the target has changed (--keep-stale keeps them)",
            "dry": "to re-run because a mock answered in a dry run",
            "kept": "kept although the target has changed",
            "format": "kept with target versions in an older format",
            "other": "kept although the evaluators have changed ('agentv grade' re-scores them)",
            "scoring": "kept although an agentv version with other scoring rules scored them",
        }
        parts = [f"{self.found['done']} already done"]
        for what, text in texts.items():
            if self.found[what]:
                parts.append(f"{self.found[what]} {text}")
        if self.backup is not None:
            parts.append(f"previous answers saved in {self.backup}")
        return ", ".join(parts)

    def describe_unplanned(self) -> str:
        """Describe the results whose cases are not in the eval files. Return an empty string if there are none."""
        count = self.found["gone"]
        if not count:
            return ""
        results = plural(count, "result")
        return f"{results} in {self.file.path} kept but not summarized: the cases are not in these eval files"


def _masked_key(case: EvalCase, trial: int) -> ResultKey:
    """Return the key of a trial as in a results file, where secrets are masked."""
    return ResultKey.of_any_target(clean(case.dataset), clean(case.id), trial)


def newest_results(runs: Path, plan: Plan) -> Path | None:
    """Return the results file of the newest run of the same eval files, targets and shard, or None.

    `runs` is the folder with the records of runs. Dry runs are ignored.
    """
    needed = {os.path.realpath(file.path) for file in plan.files}
    allowed = needed.union(os.path.realpath(file.path) for file in plan.idle_files)
    targets = {target.name for target in plan.targets}
    shard = None
    if plan.shard is not None:
        shard = str(plan.shard)
    for record in read_runs(runs):
        path = results_path(record)
        if path is None or record.dry_run or record.shard != shard or not path.is_file():
            continue
        same_targets = targets == {target.get("name") for target in record.targets}
        files = _recorded_files(record)
        same_files = needed <= files <= allowed  # files without a case to run may be missing
        if same_targets and same_files and is_results_file_of(record, path):
            return path
    return None


def _recorded_files(record: RunRecord) -> set[str]:
    """Return the real paths of the eval files of an earlier run."""
    folder = path_of_text(record.cwd)
    return {os.path.realpath(folder / path_of_text(file.get("path", ""))) for file in record.eval_files}


def failed_cases(path: Path) -> HashSet:
    """Return the hash of each case that did not pass in a results file.

    Raise `NothingToRun` if all passed, `OutputError` if the file cannot be read.
    """
    failed = HashSet()
    results = 0
    passed = 0
    try:
        for record in read_records(path, ResultRow):
            results += 1
            if record.view.has_passed:
                passed += 1
            else:
                failed.add(case_hash(*record.view.case_key))
    except OSError as error:
        raise OutputError(f"cannot be read: {error.strerror}", file=path, hint="pass a results file") from error
    if passed == results:
        raise NothingToRun(f"nothing to run: all {results} results in {path} passed")
    return failed


OnKept = Callable[[TextRow], None]
"""Called with each result of a planned case that is kept."""


def resume(
    earlier: EarlierFile,
    plan: Plan,
    evaluators: EvaluatorBuilder,
    options: OutputOptions,
    on_kept: OnKept,
) -> Resumed:
    """Continue an earlier results file, without the results that must be re-run."""
    try:
        planned = _PlannedCases(plan, evaluators, options)
        keep = _Keep(planned, on_kept)
        for result in earlier.results():
            _check_shard(result, plan, planned, earlier.path)
            _check_file(result, planned, earlier.path)
            keep.learn(result)
    except BaseException:
        earlier.close()
        raise
    stamp = None
    if plan.shard and plan.shard_plan:
        stamp = ShardStamp(str(plan.shard), plan.shard_plan)
    file, backup = earlier.rewrite(keep, keep.removes_answers, stamp)
    return Resumed(
        file=file,
        stands=keep.stands,
        found=keep.found,
        run_ids=tuple(keep.run_ids),
        backup=backup,
        stale=keep.stale,
    )


def find_standing(
    path: Path,
    plan: Plan,
    evaluators: EvaluatorBuilder,
    options: OutputOptions,
) -> IsDone:
    """Return a predicate for the trials that are already done. The earlier file is not changed."""
    planned = _PlannedCases(plan, evaluators, options)
    keep = _Keep(planned, lambda _result: None)
    for record in read_records(path, TextRow):
        _check_shard(record.view, plan, planned, path)
        _check_file(record.view, planned, path)
        keep.learn(record.view)
    return lambda case, trial: _masked_key(case, trial) in keep.stands


def _check_shard(
    result: TextRow,
    plan: Plan,
    planned: "_PlannedCases",
    path: Path,
) -> None:
    """Raise `OutputError` if the file belongs to another shard: its results could no longer be merged."""
    shard = None
    if plan.shard is not None:
        shard = str(plan.shard)
    if result.shard != shard:
        raise OutputError(
            f"cannot resume: the file has results of {_run_name(result.shard)}, but this is {_run_name(shard)}",
            file=path,
            hint="use a separate --out for each shard, and combine them with 'agentv merge'",
        )
    if shard is not None and not planned.concerns(result):
        raise OutputError(
            f"cannot resume shard {shard}: case {result.eval_id!r} of {result.dataset!r} is no longer selected",
            file=path,
            hint="pass the same eval files and options as before, or another --out",
        )


def _check_file(result: TextRow, planned: "_PlannedCases", path: Path) -> None:
    """Raise `OutputError` if a result belongs to an existing eval file that is not part of the plan."""
    if planned.is_gone(result) and planned.is_of_other_file(result):
        raise OutputError(
            f"cannot resume: the file has results of {result.file}, which is not one of the eval files of this run",
            file=path,
            hint="pass the same eval files as before, or another --out",
        )


def _run_name(shard: str | None) -> str:
    if shard:
        return f"shard {shard}"
    return "a run without --shard"


class _PlannedCases:
    """The cases of a plan with the values that a results file would contain."""

    def __init__(
        self,
        plan: Plan,
        evaluators: EvaluatorBuilder,
        options: OutputOptions,
    ):
        self._options = options
        self._is_dry = plan.dry_run
        self._trials = plan.trials
        self._files = _EvalFiles(plan)
        self._cases = HashSet()
        self._facts = HashSet()
        """The known digests, by the key of the case and the kind of digest."""
        repeats = DuplicateFinder()
        for file in plan.files:
            for case in plan.cases_of(file):
                planned = _planned_case(case, file, plan, evaluators)
                self._add(planned)
                repeats.add([planned.key])
        if repeats.duplicate_hashes():
            raise OutputError(
                "cannot resume: two eval files have the same dataset name and the same ids",
                hint="change 'dataset:' in one of the files",
            )
        self._all_cases = self._cases
        if not plan.has_all_cases:
            self._all_cases = existing_cases(plan)

    def _add(self, planned: PlannedCase) -> None:
        key = planned.key
        version = planned.target.version
        self._cases.add(key)
        facts = {
            "case": planned.digests.case,
            "request": planned.digests.request,
            "target": version.digest,
            "settings": version.settings,
            "files": version.files,
            "format_1": version.format_1 or "",
            "evaluators": planned.evaluators,
        }
        for kind, value in facts.items():
            self._facts.add((*key, kind, value))

    def _has(self, result: ResultRow, kind: str, value: str) -> bool:
        """Return whether a digest of the case of a result is still the same."""
        return (*result.case_key, kind, value) in self._facts

    def is_gone(self, result: ResultRow) -> bool:
        """Return whether the case of a result is not in the eval files, whether or not it is selected."""
        return result.case_key not in self._all_cases

    def is_of_other_file(self, result: ResultRow) -> bool:
        """Return whether a result names an existing eval file that is not part of the plan."""
        return result.file is not None and self._files.is_other(result.file)

    def concerns(self, result: ResultRow) -> bool:
        """Return whether a result is one of a planned case and trial."""
        return (result.trial or 1) <= self._trials and result.case_key in self._cases

    def why_not(self, result: ResultRow) -> str | None:
        """Return why a result is no longer valid, as a key of `Resumed.found`, or None if it still is."""
        if result.error is not None:
            return "failed"
        if self._is_dry and not result.dry_run:
            return None  # a mock never replaces an answer
        if not self._is_of_this_request(result):
            return "changed"
        if bool(result.dry_run) and not self._is_dry:
            return "dry"
        if not self._options.keep_stale and not self._is_of_this_target(result):
            return "stale"
        reason = None
        if self._options.rerun_failed and result.verdict != "pass":
            reason = "missed"
        return reason

    def differences(self, result: ResultRow) -> Iterator[str]:
        """Yield the changes since a result that is kept, as keys of `Resumed.found`."""
        digests = result.digests or _NO_DIGESTS
        if not self._is_of_this_target(result):
            yield "kept"
        elif digests.format != DIGEST_FORMAT and not self._has(result, "target", digests.target):
            yield "format"
        # What the digest of evaluators covers depends on the format.
        is_comparable = digests.format == DIGEST_FORMAT
        is_other = is_comparable and not self._has(result, "evaluators", digests.evaluators)
        if is_other or not self._has(result, "case", digests.case):
            yield "other"
        if digests.scoring != SCORING:
            yield "scoring"

    def _is_of_this_request(self, result: ResultRow) -> bool:
        """Return whether the target would receive the same request again."""
        digests = result.digests or _NO_DIGESTS
        if digests.request:
            return self._has(result, "request", digests.request)
        return self._has(result, "case", digests.case)  # results in format 1 have no digest of the request

    def _is_of_this_target(self, result: ResultRow) -> bool:
        """Return whether the target has the same version as in the result, as far as older formats record it."""
        digests = result.digests or _NO_DIGESTS
        if self._has(result, "target", digests.target):
            return True
        if digests.format == DIGEST_FORMAT:
            return False
        if digests.settings and not self._has(result, "settings", digests.settings):
            return False
        if digests.files and not self._has(result, "files", digests.files):
            return False
        has_parts = bool(digests.settings or digests.files)
        if digests.format == 1 and not has_parts:
            # An empty digest of the target means that its version in format 1 cannot be compared.
            return self._has(result, "format_1", digests.target) or self._has(result, "format_1", "")
        return True


class _EvalFiles:
    """The eval files of a run, to be compared with the paths in results."""

    def __init__(self, plan: Plan):
        files = plan.files + plan.idle_files
        self._real_paths = {os.path.realpath(plan.folder / file.path) for file in files}
        self._roots = {plan.folder}
        """The folders that the paths in results may be relative to."""
        for file in files:
            if file.case_file is not None and file.case_file.root is not None:
                self._roots.add(file.case_file.root)
        self._is_other: dict[str, bool] = {}

    def is_other(self, path: str) -> bool:
        """Return whether a path in a result refers to an existing file that is not part of the plan."""
        known = self._is_other.get(path)
        if known is None:
            known = self._look_up(path)
            self._is_other[path] = known
        return known

    def _look_up(self, path: str) -> bool:
        candidates = [root / path_of_text(path) for root in self._roots]
        existing = {os.path.realpath(candidate) for candidate in candidates if candidate.is_file()}
        return bool(existing) and existing.isdisjoint(self._real_paths)


def existing_cases(plan: Plan) -> HashSet:
    """Return the keys of all cases in the eval files of a plan, selected or not."""
    found = HashSet()
    for file in plan.files + plan.idle_files:
        for case in plan.all_cases_of(file):
            found.add(CaseKey(clean(case.dataset), clean(case.id)))
    return found


class _Keep:
    """Decide which earlier results stay in the file: those of unplanned cases, and one per trial that is done.

    All results must be passed to `learn` before any is decided on.
    """

    def __init__(self, planned: _PlannedCases, on_kept: OnKept):
        self._planned = planned
        self._on_kept = on_kept
        self.stands = HashSet()
        self.found: Counter[str] = Counter()
        self.run_ids: dict[str, None] = {}
        """The ids of the runs whose results are kept, in the order of the file."""
        self._failed = HashSet()
        self._up_to_date = HashSet()
        """The keys with a valid result that was scored by the current version of the case."""
        self.stale: Counter[StaleGroup] = Counter()
        self._removes_answers = False
        self._repeats = DuplicateFinder()
        self._repeated: set[int] | None = None
        """The hashes of keys with several valid results."""
        self._seen: set[int] = set()
        """The hashes in `_repeated` for which a result was already kept."""

    def learn(self, result: ResultRow) -> None:
        """Register a result, before any decision."""
        if not self._planned.concerns(result):
            return
        why = self._planned.why_not(result)
        if why is None:
            self.stands.add(result.trial_key)
            if not any(self._planned.differences(result)):
                self._up_to_date.add(result.trial_key)
            self._repeats.add([result.trial_key])
        elif why == "failed":
            self._failed.add(result.trial_key)

    def __call__(self, result: TextRow) -> bool:
        """Return whether a result stays in the file."""
        if not self._planned.concerns(result):
            if self._planned.is_gone(result):
                self.found["gone"] += 1
            return True
        key = result.trial_key
        why = self._planned.why_not(result)
        if why is not None:
            # each trial is counted once: as done, otherwise as failed, otherwise by another reason
            if key not in self.stands and (why == "failed" or key not in self._failed):
                self._count(result, why)
            return False
        if self._repeated is None:
            self._repeated = self._repeats.duplicate_hashes()
        number = hash(key)
        if number in self._seen:
            return False
        is_repeated = number in self._repeated
        if is_repeated and key in self._up_to_date and any(self._planned.differences(result)):
            # Another result of this trial is kept: one scored by the current version of the case.
            self._removes_answers = True
            return False
        if is_repeated:
            self._seen.add(number)
        self.found["done"] += 1
        if result.run_id is not None:
            self.run_ids[result.run_id] = None
        self.found.update(self._planned.differences(result))
        self._on_kept(result)
        return True

    def _count(self, result: TextRow, why: str) -> None:
        """Count a result that is re-run."""
        self.found[why] += 1
        if why == "stale":
            digests = msgspec.structs.replace(result.digests or _NO_DIGESTS, case="", request="")
            self.stale[StaleGroup(result.run_id or "", result.target, digests)] += 1
        # Mock answers of a dry run cost nothing.
        if not result.dry_run and (result.error is None or result.candidate_answer):
            self._removes_answers = True

    def removes_answers(self) -> bool:
        """Return whether results that have an answer are removed, to be run again."""
        return self._removes_answers


def _planned_case(
    case: EvalCase,
    file: PlannedFile,
    plan: Plan,
    builder: EvaluatorBuilder,
) -> PlannedCase:
    target = file.targets[plan.selection.target_of(case)]
    request, _ = build_or_explain(case, file, target)
    return PlannedCase(
        key=CaseKey(clean(case.dataset), clean(case.id)),
        digests=case_digests(case, request),
        target=target,
        evaluators=builder.build(case, target.name).digests["evaluators"],
    )
