"""A result as it stands in a file -> as a page shows it: without secrets, on one line, with few escapes."""

import msgspec

from agentv.redact import clean
from agentv.results.read import Record
from agentv.results.views import PageView


def masked(record: Record[PageView]) -> Record[PageView]:
    """Return the record without secrets; a page is made to be sent to others."""
    if not has_secrets(record.raw):
        return record
    raw = masked_json(record.raw)
    return Record(msgspec.json.decode(raw, type=PageView), raw)


def has_secrets(raw: bytes) -> bool:
    """Whether a secret stands anywhere in this text."""
    text = raw.decode("utf-8", "replace")
    return clean(text) != text


def masked_json(raw: bytes) -> bytes:
    """Return the JSON with its secrets masked."""
    return msgspec.json.encode(clean.values(msgspec.json.decode(raw)))


def few_escapes(raw: bytes) -> bytes:
    """Return the JSON with characters in the place of most escapes, so that a search finds them."""
    return msgspec.json.encode(msgspec.json.decode(raw)) if b"\\u" in raw else raw.strip()
