"""Compute the plan that every shard of a run records about the whole run.

The digest of a plan does not depend on the order or the location of files and cases: each case has a hash, and the
digest is computed from the sum of these hashes. The sum is built while the files are scanned before a run.
"""

from collections.abc import Sequence
from hashlib import blake2b

from agentv.cases.digest import case_digests
from agentv.cases.request import Files, build_request
from agentv.cases.shard import Shard
from agentv.errors import AttachmentError
from agentv.files.compact_sets import DuplicateFinder
from agentv.files.encode import to_json
from agentv.files.fingerprint import digest
from agentv.records import EvalCase, ShardPlan

_HASH_BYTES = 16
_HASH_MASK = (1 << 8 * _HASH_BYTES) - 1


class ShardPlanBuilder:
    """Count and hash the cases of all shards, and count those of one."""

    def __init__(self, shard: Shard):
        self._shard = shard
        self._hash_sum = 0
        self._cases = 0
        self._shard_cases = 0
        self._names = DuplicateFinder()
        self._shared: set[tuple[str, ...]] = set()

    def add_case(
        self,
        case: EvalCase,
        patterns: Sequence[str],
        target: str,
        evaluators: str,
    ) -> bool:
        """Add a case with the name of its target and the digest of its evaluators; return whether it is in the shard.

        `patterns` are the globs of guideline files.
        """
        try:
            request = build_request(case, patterns, Files.REFERENCE)
        except AttachmentError:
            request = None
        names = (case.dataset, case.id)
        digested = case_digests(case, request).case
        encoded = to_json((names, digested, target, evaluators))
        hash_ = blake2b(encoded, digest_size=_HASH_BYTES).digest()
        self._hash_sum += int.from_bytes(hash_)
        self._names.add([names])
        self._cases += 1
        if not self._shard.includes(case.dataset, case.id):
            return False
        self._shard_cases += 1
        return True

    def add_shared(self, *parts: str) -> None:
        """Add data that many cases share, such as a target or a judge. Duplicates count once."""
        self._shared.add(parts)

    @property
    def has_duplicates(self) -> bool:
        """Whether two cases have the same dataset and the same id."""
        return bool(self._names.duplicate_hashes())

    def plan(self, trials: int) -> ShardPlan:
        """Return the plan that every result of the shard records, for this number of trials per case."""
        hash_sum = self._hash_sum & _HASH_MASK
        return ShardPlan(
            digest=digest(f"{hash_sum:x}", sorted(self._shared), trials),
            cases=self._cases * trials,
            shard_cases=self._shard_cases * trials,
        )
