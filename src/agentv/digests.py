"""What produced a result -> short fingerprints of it."""

from hashlib import blake2b
from typing import Any

import msgspec

from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, ProviderRequest

_ENCODE = msgspec.json.Encoder(enc_hook=str, order="sorted").encode
SECRET_FIELDS = ("api_key", "headers")


def digest(*parts: Any) -> str:
    """Twelve hexadecimal digits that stand for these values."""
    return blake2b(_ENCODE(parts), digest_size=6).hexdigest()


def case_digest(case: EvalCase, request: ProviderRequest | None) -> str:
    """Stands for what a case asks, the content of its files included."""
    said = (case.id, case.expected_outcome, case.input_messages, case.expected_messages)
    if request is None:
        return digest(*said)
    if not request.input_files and not request.guideline_files:
        return digest(*said)
    return digest(*said, [_content(path) for path in (*request.input_files, *request.guideline_files)])


def target_digest(settings: TargetSettings) -> str:
    """Stands for a target's settings, without its secrets."""
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in SECRET_FIELDS}
    return digest({name: value for name, value in fields.items() if value is not None})


def _content(path: Any) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return "unreadable"
