"""Draw a random sample of cases by a hash of seed, dataset and id, the same on every machine and Python version.

A sample of N cases consists of those with the N smallest hashes, so it does not depend on the order of the cases, and a
larger sample contains every smaller one.
"""

from collections.abc import Iterable
from hashlib import blake2b
from heapq import nsmallest
from typing import NamedTuple

from agentv.records import EvalCase


class CaseSample(NamedTuple):
    """The number of cases to draw, and the seed that decides which ones."""

    size: int
    seed: int = 0
    bound: bytes | None = None
    """The largest hash in the sample, once it is drawn; None if it has all cases."""

    def draw(self, cases: Iterable[EvalCase]) -> "CaseSample":
        """Return the sample of these cases. Only `size` hashes are in memory."""
        smallest = nsmallest(self.size, map(self._hash, cases))
        if len(smallest) < self.size:
            return self._replace(bound=None)
        return self._replace(bound=smallest[-1])

    def includes(self, case: EvalCase) -> bool:
        """Return whether a case is in the sample that was drawn."""
        return self.bound is None or self._hash(case) <= self.bound

    def _hash(self, case: EvalCase) -> bytes:
        dataset = case.dataset.encode("utf-8", "surrogatepass")
        eval_id = case.id.encode("utf-8", "surrogatepass")
        # The length keeps the boundary between the dataset and the id.
        text = b"%d %d %b%b" % (self.seed, len(dataset), dataset, eval_id)
        return blake2b(text, digest_size=16).digest()
