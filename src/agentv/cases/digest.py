"""What a case asks -> its digest."""

from hashlib import blake2b, file_digest
from pathlib import Path

from agentv.formats.fingerprint import digest
from agentv.records import EvalCase, ProviderRequest


def case_digest(case: EvalCase, request: ProviderRequest | None) -> str:
    """Return a digest of what a case asks, with the content of its files; `request` is None if it cannot be built."""
    fields = (case.id, case.expected_outcome, case.input_messages, case.expected_messages)
    files = (*request.input_files, *request.guideline_files) if request is not None else ()
    return digest(*fields, [_file_digest(path) for path in files]) if files else digest(*fields)


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:  # which may be a large PDF
            return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError:
        return "unreadable"
