"""Compute the digests of an eval case."""

from collections.abc import Sequence
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import NamedTuple

from agentv.files.encode import to_sorted_json
from agentv.files.fingerprint import digest
from agentv.records import EvalCase, ProviderRequest

_NOT_RECEIVED = (
    "eval_id",
    "dataset",
    "input_files",
    "guideline_files",
    "media",
    "attempt",
    "trial",
    "workspace",
    "telemetry",
    "fence",
    "state",
)
"""Fields of a request that are not hashed: they identify it, differ in every call, or count by file content instead."""
_UNSET = ProviderRequest(eval_id="", question="")
_RECEIVED = [(name, getattr(_UNSET, name)) for name in _UNSET.__struct_fields__ if name not in _NOT_RECEIVED]
"""The fields that a target receives, with their defaults."""


class CaseDigests(NamedTuple):
    """A digest of the whole case with its expectations, and a digest of the request to its target."""

    case: str
    request: str


def case_digests(case: EvalCase, request: ProviderRequest | None) -> CaseDigests:
    """Return the digests of a case, including the content of its attached files.

    `request` is None if the request of the case cannot be built; its files are then not part of the digest.
    """
    fields = (
        case.id,
        case.expected_outcome,
        case.input_messages,
        case.expected_messages,
    )
    if request is None:
        return CaseDigests(digest(*fields), "")
    files = (*request.input_files, *request.guideline_files)
    if not files:
        return CaseDigests(digest(*fields), _request_digest(request, ()))
    file_digests = [_file_digest(path) for path in files]
    return CaseDigests(digest(*fields, file_digests), _request_digest(request, file_digests))


def _request_digest(request: ProviderRequest, file_digests: Sequence[str]) -> str:
    """Return a digest of what a target receives. Attached files count by content and name, not by location."""
    fields = {}
    for name, default in _RECEIVED:
        value = getattr(request, name)
        if value != default:
            fields[name] = value
    if not file_digests:
        return digest(fields)
    encoded = to_sorted_json(fields).decode()
    for path in (*request.input_files, *request.guideline_files):
        encoded = encoded.replace(str(path), path.name)
    return digest(encoded, file_digests)


def _file_digest(path: Path) -> str:
    try:
        # Hashed in blocks: an attached PDF may be large.
        with path.open("rb") as file:
            hash_ = file_digest(file, lambda: blake2b(digest_size=16))
            return hash_.hexdigest()
    except OSError:
        return "unreadable"
