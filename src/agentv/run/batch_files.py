"""The output files of batch programs. They are kept until every case has a result, or permanently if one never does.

Answers are read from the unchanged files. Files that stay on disk are masked at the end.
"""

import contextlib
import tempfile
from datetime import datetime
from pathlib import Path

from agentv.files.dumps import safe_name
from agentv.files.masked_files import mask_files
from agentv.files.state import state_folder
from agentv.files.temporary import keep_folder, make_folder, remove_folder
from agentv.log import info
from agentv.redact import clean

OUTPUT = "output.jsonl"
MISSING = "missing.txt"
_open: list["RawOutput"] = []
_created: set[Path] = set()
"""The folders that this process has created. The last batch that leaves them empty removes them."""


class RawOutput:
    """The folders that a batch writes to, one per attempt.

    They are removed if every case has an answer. Otherwise they stay, since answers were paid for, and a notice says
    where they are.
    """

    def __init__(self, name: str):
        self._name = f"{datetime.now():%Y%m%d_%H%M%S}_{safe_name(name)}_"
        self._folders: list[Path] = []
        self._is_kept = False

    def new(self) -> Path:
        """Return the path of an output file in a new folder of the project, or in a temporary one if that fails."""
        batches = state_folder("batches")
        try:
            for parent in (batches, batches.parent):
                if not parent.exists():
                    _created.add(parent.absolute())
            batches.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=self._name, dir=batches)).absolute()
        except OSError:
            folder = make_folder(prefix=self._name)
        self._folders.append(folder)
        return folder / OUTPUT

    def keep(self) -> str:
        """Keep the files; return the end of an error message that says where they are, empty if there are none."""
        self._is_kept = True
        for folder in self._folders:
            keep_folder(folder)
        written = []
        for folder in self._folders:
            if _has_content(folder / OUTPUT):
                written.append(str(folder / OUTPUT))
        if not written:
            return ""
        return f"; its raw output is kept: {', '.join(written)}"

    def break_off(self) -> None:
        """Keep the files of a batch that was interrupted, and report where they are."""
        where = self.keep()
        if where:
            info(f"a batch was interrupted{where}")
        self.close()

    def close(self) -> None:
        """Mask the files that are kept, and remove the others."""
        _open.remove(self)
        for folder in self._folders:
            has_files = _has_content(folder / OUTPUT) or _has_content(folder / MISSING)
            if self._is_kept and has_files:
                mask_files(folder, clean)
            else:
                remove_folder(folder)
        # Reverse order: inner folders come before those that contain them.
        for folder in sorted(_created, reverse=True):
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()

    def __enter__(self) -> "RawOutput":
        _open.append(self)
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.break_off()
        else:
            self.close()


def break_off_batches() -> None:
    """Mask and keep the files of all batches that are running, because this process is about to exit."""
    for raw in list(_open):
        raw.break_off()


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
