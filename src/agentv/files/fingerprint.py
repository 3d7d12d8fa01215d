"""Compute short digests of values."""

from hashlib import blake2b
from typing import Any

from agentv.files.encode import to_sorted_json

DIGEST_FORMAT = 2
"""The `format` of the digests in results. It increases only when what the digests cover changes.

The definition of a digest never changes: to cover something else, a new digest is added. Digests that two formats
have in common can therefore be compared.
"""


def digest(*parts: Any) -> str:
    """Return a digest of the values, as twelve hexadecimal digits."""
    encoded = to_sorted_json(parts)
    return blake2b(encoded, digest_size=6).hexdigest()
