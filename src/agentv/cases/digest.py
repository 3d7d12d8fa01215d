"""Compute the digest of an eval case."""

from hashlib import blake2b, file_digest
from pathlib import Path

from agentv.formats.fingerprint import digest
from agentv.records import EvalCase, ProviderRequest


def case_digest(case: EvalCase, request: ProviderRequest | None) -> str:
    """Return a digest of a case's question and expectations, including the content of its attached files.

    `request` is None if the request of the case cannot be built; its files are then not part of the digest.
    """
    fields = (
        case.id,
        case.expected_outcome,
        case.input_messages,
        case.expected_messages,
    )
    if request is None:
        return digest(*fields)
    files = (*request.input_files, *request.guideline_files)
    if not files:
        return digest(*fields)
    file_digests = [_file_digest(path) for path in files]
    return digest(*fields, file_digests)


def _file_digest(path: Path) -> str:
    try:
        # Hashed in blocks: an attached PDF may be large.
        with path.open("rb") as file:
            hash_ = file_digest(file, lambda: blake2b(digest_size=16))
            return hash_.hexdigest()
    except OSError:
        return "unreadable"
