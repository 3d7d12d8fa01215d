"""An earlier results file -> what of a plan is done already."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentv.digests import case_digest
from agentv.errors import AttachmentError
from agentv.plan import Plan, PlannedFile
from agentv.prompts import build_request
from agentv.records import EvalCase
from agentv.redact import Clean
from agentv.repeats import CompactSet, Repeats
from agentv.results import Earlier, ResultFile, earlier_results, reopen, rewrite

NAMES = ("eval_*.jsonl", "eval_*.yaml")


class Resumed(NamedTuple):
    """What a resumed run goes on from, and how many cases that spares it."""

    path: Path
    form: str
    plan: Plan
    done: CompactSet
    skipped: int
    failed: int
    changed: int

    def is_done(self, case: EvalCase, file: PlannedFile) -> bool:
        """Whether the file holds a result for the case as it is now."""
        return _stamp(case, file, self.plan) in self.done

    @property
    def kept(self) -> Iterator[tuple[float, str]]:
        """The score and the id of each planned case that has its result already."""
        planned = CompactSet()
        for file in self.plan.files:
            for case in self.plan.cases_of(file):
                planned.add(_stamp(case, file, self.plan))
        for earlier in earlier_results(self.path, self.form):
            if (*earlier.key, earlier.digest) in planned:
                yield earlier.score, earlier.key[1]

    def words(self) -> str:
        """What was found, for the person who asked to resume."""
        parts = [f"{self.skipped} done already"]
        if self.failed:
            parts.append(f"{self.failed} that ended in an error run again")
        if self.changed:
            parts.append(f"{self.changed} changed since run again")
        return ", ".join(parts)


def newest_results(folder: Path) -> Path | None:
    """The results file in `folder` that was written to last."""
    found = [path for name in NAMES for path in folder.glob(name)]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def resume(path: Path, plan: Plan, clean: Clean) -> tuple[ResultFile, Resumed]:
    """Open an earlier results file to go on with it. Results that do not stand any more are taken out first."""
    form = "yaml" if path.suffix.lower() in (".yaml", ".yml") else "jsonl"
    done, known, failed, repeats = CompactSet(), CompactSet(), CompactSet(), Repeats()
    for earlier in earlier_results(path, form):
        known.add(earlier.key)
        if earlier.failed:
            failed.add(earlier.key)
        else:
            done.add((*earlier.key, earlier.digest))
            repeats.add([earlier.key])
    changed: set[int] = set()
    skipped = again = 0
    for file in plan.files:
        for case in plan.cases_of(file):
            key = case.dataset, case.id
            if _stamp(case, file, plan) in done:
                skipped += 1
            elif key in failed:
                again += 1
            elif key in known:
                changed.add(hash(key))
    rewrite(path, form, _Keep(changed, repeats.hashes()))
    return reopen(path, form, clean), Resumed(path, form, plan, done, skipped, again, len(changed))


class _Keep:
    """Says which earlier results stand: no errors, nothing that has changed, and each case once."""

    def __init__(self, changed: set[int], repeated: set[int]):
        self._changed, self._repeated = changed, repeated
        self._seen: set[int] = set()

    def __call__(self, earlier: Earlier) -> bool:
        number = hash(earlier.key)
        if earlier.failed or number in self._changed or number in self._seen:
            return False
        if number in self._repeated:
            self._seen.add(number)
        return True


def _stamp(case: EvalCase, file: PlannedFile, plan: Plan) -> tuple[str, str, str]:
    """Stands for the case as it is now, its files included."""
    target = file.targets[plan.wanted.target_of(case)]
    try:
        request = build_request(case, file.patterns, target.files)
    except AttachmentError:
        return case.dataset, case.id, ""
    return case.dataset, case.id, case_digest(case, request)
