"""What a batch writes -> kept until every case of it has a result, and for good if one has none.

Answers are read from these files as they were written; what stays on disk in the end is masked.
"""

import contextlib
import tempfile
from datetime import datetime
from pathlib import Path

from agentv.notices import say
from agentv.redact import clean
from agentv.system.dumps import safe_name
from agentv.system.masked_files import mask_files
from agentv.system.temporary import keep_folder, make_folder, remove_folder

BATCHES = Path(".agentv/batches")
OUTPUT = "output.jsonl"
MISSING = "missing.txt"
_open: list["RawOutput"] = []
_created: set[Path] = set()
"""The folders that this process has made: they are removed when they are empty, whichever batch is the last."""


class RawOutput:
    """The folders that a batch writes to, one for each attempt. Answers that were paid for are not thrown away.

    The folders are removed if all went well; else they stay, and a notice says where.
    """

    def __init__(self, name: str):
        self._name = f"{datetime.now():%Y%m%d_%H%M%S}_{safe_name(name)}_"
        self._folders: list[Path] = []
        self._is_kept = False

    def new(self) -> Path:
        """Return the path of an output file in a new folder: in the project, or a temporary one if that cannot be."""
        try:
            _created.update(folder.absolute() for folder in (BATCHES, BATCHES.parent) if not folder.exists())
            BATCHES.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=self._name, dir=BATCHES)).absolute()
        except OSError:
            folder = make_folder(prefix=self._name)
        self._folders.append(folder)
        return folder / OUTPUT

    def keep(self) -> str:
        """Keep the files, and return where they are: the end of an error message, empty if nothing was written."""
        self._is_kept = True
        for folder in self._folders:
            keep_folder(folder)
        written = [str(folder / OUTPUT) for folder in self._folders if _is_written(folder / OUTPUT)]
        return f"; its raw output is kept: {', '.join(written)}" if written else ""

    def break_off(self) -> None:
        """Keep the files of a batch that does not come to its end, and say where."""
        if where := self.keep():
            say(f"a batch was broken off{where}")
        self.close()

    def close(self) -> None:
        """Mask the files that are kept, and remove the others."""
        _open.remove(self)
        for folder in self._folders:
            if self._is_kept and any(_is_written(folder / name) for name in (OUTPUT, MISSING)):
                mask_files(folder, clean)
            else:
                remove_folder(folder)
        for folder in sorted(_created, reverse=True):  # those inside first
            with contextlib.suppress(OSError):  # somebody may have something in it
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
    """Keep the files of all batches that are running, masked: this process is about to exit."""
    for raw in list(_open):
        raw.break_off()


def _is_written(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
