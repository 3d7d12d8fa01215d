"""Encode values as JSON. Values of other types, such as paths, are encoded as text."""

from pathlib import PurePath
from typing import Any

import msgspec

from agentv.text import path_text


def _text(value: Any) -> str:
    if isinstance(value, PurePath):
        return path_text(value)
    return str(value)


to_json = msgspec.json.Encoder(enc_hook=_text).encode
to_sorted_json = msgspec.json.Encoder(enc_hook=_text, order="sorted").encode
"""Sort the keys of objects, so that equal values have equal digests."""
