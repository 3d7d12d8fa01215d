"""Choose whether and how a run shows its progress."""

import sys
from typing import Any

from agentv.errors import ConfigError
from agentv.redact import clean
from agentv.report.progress import progress_for
from agentv.run.progress import Progress


def progress_of(shown: Any) -> Progress:
    """Return the progress view of a run: on stderr if `shown`; None means that it is shown in interactive sessions."""
    if shown is not None and not isinstance(shown, bool):
        raise ConfigError(f"progress is {shown!r}", hint="expected True, False or None")
    if shown is None:
        shown = _is_interactive()
    if not shown:
        return Progress()
    return progress_for(clean)


def _is_interactive() -> bool:
    """Return whether Python runs at a prompt or in a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
