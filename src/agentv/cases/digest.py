"""What produced a result -> short fingerprints of it."""

from hashlib import blake2b
from typing import Any

from agentv.formats.fingerprint import digest
from agentv.records import EvalCase, ProviderRequest


def case_digest(case: EvalCase, request: ProviderRequest | None) -> str:
    """Stands for what a case asks, the content of its files included."""
    said = (case.id, case.expected_outcome, case.input_messages, case.expected_messages)
    if request is None:
        return digest(*said)
    if not request.input_files and not request.guideline_files:
        return digest(*said)
    return digest(*said, [_content(path) for path in (*request.input_files, *request.guideline_files)])


def _content(path: Any) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return "unreadable"
