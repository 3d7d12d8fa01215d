"""Cache keys: digests of everything that determines an answer.

A key is stable: new settings and new fields of requests are part of it only if they are set.
"""

from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

from agentv.calls.format_1 import REQUEST_FIELDS, settings_in_key, work_folders
from agentv.calls.target_version import covered_parts
from agentv.files.encode import to_sorted_json
from agentv.files.trees import tree_digest
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.records import ProviderRequest
from agentv.text import path_text

FILE_FIELDS = ("input_files", "guideline_files", "media")
NOT_SENT = (*FILE_FIELDS, "dataset", "workspace", "telemetry", "fence", "question_with_guidelines", "state")
_UNSET = ProviderRequest(eval_id="", question="")


def cache_key(target: Any, request: ProviderRequest) -> str:
    """Return the key of a request to the target with this `target_key`.

    Attached files count by content, not by location. Each trial, and each repeated judge call, has a key of its own:
    it needs an independent answer.
    """
    fields = {}
    for name in request.__struct_fields__:
        value = getattr(request, name)
        is_set = name not in NOT_SENT and value != getattr(_UNSET, name)
        if is_set or name in REQUEST_FIELDS:
            fields[name] = value
    fields["question"] = request.prompt
    files = []
    for path in (*request.input_files, *request.guideline_files):
        content = _file_hash(path)
        files.append((path_text(path.name), content))
    encoded = to_sorted_json([target, fields, files])
    if request.fence:
        # The fence is random and differs in every call.
        encoded = encoded.replace(request.fence.encode(), b"")
    return blake2b(encoded, digest_size=20).hexdigest()


def target_key(
    settings: TargetSettings,
    folder: Path,
    targets_file: Path | None = None,
) -> Any:
    """Return the part of a cache key that all requests to a target share; `folder` is that of the eval file.

    It covers what the version of a target covers, and for an agent also the content of the folder that it works in.
    """
    fields = settings_in_key(settings)
    covered = sorted(covered_parts(settings, folder, targets_file).values())
    if isinstance(settings, RetrySettings):
        if not covered:
            return fields
        return [fields, covered]
    trees = []
    if settings.reads_files:
        for work_folder in work_folders(fields, folder):
            trees.append(tree_digest(work_folder))
    return [fields, path_text(folder), covered, trees]


def _file_hash(path: Path) -> str:
    """Return a hash of an attached file's content; empty if the file cannot be read."""
    try:
        with path.open("rb") as file:
            content = file_digest(file, lambda: blake2b(digest_size=20))
    except OSError:
        return ""
    return content.hexdigest()
