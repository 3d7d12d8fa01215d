"""All cases, targets and evaluators of a run -> what each of its shards says of the whole.

The order of files and cases does not count, nor does where they are: each part has a hash, and the sum of these is
what the digest is made of. It is added up in the pass over the files that every run makes before it starts.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from agentv.cases.digest import case_digest
from agentv.cases.request import Files, build_request
from agentv.cases.shard import Shard
from agentv.errors import AttachmentError
from agentv.formats.fingerprint import digest
from agentv.records import EvalCase, ShardPlan
from agentv.system.compact_sets import DuplicateFinder

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
_SIZE = 16
_ALL = (1 << 8 * _SIZE) - 1


class ShardPlanBuilder:
    """Adds up the cases of all shards, and those of one."""

    def __init__(self, shard: Shard):
        self._shard = shard
        self._sum = self._cases = self._shard_cases = 0
        self._names = DuplicateFinder()
        self._shared: set[tuple[str, ...]] = set()

    def add_case(self, case: EvalCase, patterns: Sequence[str], target: str, evaluators: str) -> bool:
        """Add a case with the name of its target and the digest of its evaluators; return whether it is in the shard.

        `patterns` are those of guidelines.
        """
        try:
            request = build_request(case, patterns, Files.REFERENCE)
        except AttachmentError:
            request = None
        names = case.dataset, case.id
        part = _ENCODE((names, case_digest(case, request), target, evaluators))
        self._sum += int.from_bytes(blake2b(part, digest_size=_SIZE).digest())
        self._names.add([names])
        is_here = self._shard.includes(*names)
        self._cases += 1
        self._shard_cases += is_here
        return is_here

    def add_shared(self, *parts: str) -> None:
        """Add what many cases have in common: a target, a judge. It counts once."""
        self._shared.add(parts)

    @property
    def has_duplicates(self) -> bool:
        """Whether two cases have the same dataset and the same id."""
        return bool(self._names.duplicate_hashes())

    def plan(self, trials: int) -> ShardPlan:
        """Return what stands in every result of the shard, if each case is run so often."""
        return ShardPlan(
            digest=digest(f"{self._sum & _ALL:x}", sorted(self._shared), trials),
            cases=self._cases * trials,
            shard_cases=self._shard_cases * trials,
        )
