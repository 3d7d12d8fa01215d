"""What a command is told of the case that it works on: variables of its environment."""

import os
from pathlib import Path


def case_variables(eval_id: str, eval_folder: Path, workspace: Path | None) -> dict[bytes, bytes]:
    """Return the variables for a command that works on a case: its id, its eval file's folder, and its workspace."""
    variables = {
        b"AGENTV_EVAL_ID": eval_id.encode("utf-8", "replace").replace(b"\0", b""),
        b"AGENTV_EVAL_DIR": os.fsencode(eval_folder),
    }
    return variables if workspace is None else {**variables, b"AGENTV_WORKSPACE": os.fsencode(workspace)}
