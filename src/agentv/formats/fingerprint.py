"""Compute short digests of values."""

from hashlib import blake2b
from typing import Any

import msgspec

_ENCODE = msgspec.json.Encoder(enc_hook=str, order="sorted").encode


def digest(*parts: Any) -> str:
    """Return a digest of the values, as twelve hexadecimal digits."""
    return blake2b(_ENCODE(parts), digest_size=6).hexdigest()
