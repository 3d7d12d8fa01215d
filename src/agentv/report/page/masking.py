"""Prepare the JSON of a result for a page: mask secrets, and decode most escapes."""

import msgspec

from agentv.redact import clean
from agentv.results.read import StoredResult
from agentv.results.views import PageView


def masked(record: StoredResult[PageView]) -> StoredResult[PageView]:
    """Return the record with its secrets masked: a page may be sent to others."""
    if not has_secrets(record.raw):
        return record
    raw = masked_json(record.raw)
    return StoredResult(msgspec.json.decode(raw, type=PageView), raw)


def has_secrets(raw: bytes) -> bool:
    """Return whether the text contains a secret."""
    text = raw.decode("utf-8", "replace")
    return clean(text) != text


def masked_json(raw: bytes) -> bytes:
    """Return the JSON with its secrets masked."""
    value = msgspec.json.decode(raw)
    return msgspec.json.encode(clean.values(value))


def few_escapes(raw: bytes) -> bytes:
    r"""Return the JSON with `\u` escapes replaced by their characters, so that a text search finds them."""
    if b"\\u" not in raw:
        return raw.strip()
    return msgspec.json.encode(msgspec.json.decode(raw))
