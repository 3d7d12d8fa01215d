"""Environment variables that describe a case to the command that works on it."""

import os
from pathlib import Path


def case_variables(
    eval_id: str,
    eval_folder: Path,
    workspace: Path | None,
) -> dict[bytes, bytes]:
    """Return the variables with the id of a case, the folder of its eval file and its workspace, if any."""
    variables = {
        b"AGENTV_EVAL_ID": eval_id.encode("utf-8", "replace").replace(b"\0", b""),
        b"AGENTV_EVAL_DIR": os.fsencode(eval_folder),
    }
    if workspace is not None:
        variables[b"AGENTV_WORKSPACE"] = os.fsencode(workspace)
    return variables
