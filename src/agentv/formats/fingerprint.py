"""Values -> short fingerprints that stand for them."""

from hashlib import blake2b
from typing import Any

import msgspec

_ENCODE = msgspec.json.Encoder(enc_hook=str, order="sorted").encode


def digest(*parts: Any) -> str:
    """Twelve hexadecimal digits that stand for these values."""
    return blake2b(_ENCODE(parts), digest_size=6).hexdigest()
