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
from agentv.repeats import CompactSet
from agentv.results import Earlier, ResultFile, earlier_results, reopen, rewrite

NAMES = ("eval_*.jsonl", "eval_*.yaml")


class Resumed(NamedTuple):
    """What a resumed run goes on from."""

    path: Path
    form: str
    plan: Plan
    done: CompactSet
    skipped: int
    failed: int
    changed: int

    def is_done(self, case: EvalCase, file: PlannedFile) -> bool:
        """Whether the file holds a result for the case as it is now."""
        return _stamp(case, _digest(case, file, self.plan)) in self.done

    @property
    def kept(self) -> Iterator[tuple[float, str]]:
        """The score and the id of each result that was kept."""
        for earlier in earlier_results(self.path, self.form):
            if (*earlier.key, earlier.digest) in self.done:
                yield earlier.score, earlier.key[1]

    def words(self) -> str:
        parts = [f"{self.skipped} done already", f"{self.failed} that ended in an error run again"]
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
    stands = CompactSet((*earlier.key, earlier.digest) for earlier in earlier_results(path, form) if not earlier.failed)
    known = CompactSet(earlier.key for earlier in earlier_results(path, form))
    wrong = CompactSet(earlier.key for earlier in earlier_results(path, form) if earlier.failed)
    changed: set[int] = set()
    skipped = failed = 0
    for file in plan.files:
        for case in plan.cases_of(file):
            key = case.dataset, case.id
            if _stamp(case, _digest(case, file, plan)) in stands:
                skipped += 1
            elif key in wrong:
                failed += 1
            elif key in known:
                changed.add(hash(key))
    kept: set[int] = set()

    def keep(earlier: Earlier) -> bool:
        if earlier.failed or hash(earlier.key) in changed or hash(earlier.key) in kept:
            return False
        kept.add(hash(earlier.key))
        return True

    rewrite(path, form, keep)
    return reopen(path, form, clean), Resumed(path, form, plan, stands, skipped, failed, len(changed))


def _stamp(case: EvalCase, digest: str) -> tuple[str, str, str]:
    return case.dataset, case.id, digest


def _digest(case: EvalCase, file: PlannedFile, plan: Plan) -> str:
    target = file.targets[plan.wanted.target_of(case)]
    try:
        return case_digest(case, build_request(case, file.patterns, target.files))
    except AttachmentError:
        return ""
