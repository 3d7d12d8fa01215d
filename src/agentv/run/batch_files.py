"""What a batch writes -> kept until every case of it has a result, and for good if one has none."""

import contextlib
import shutil
import tempfile
from datetime import datetime
from pathlib import Path

from agentv.notices import say
from agentv.system.dumps import safe_name

BATCHES = Path(".agentv/batches")
OUTPUT = "output.jsonl"
MISSING = "missing.txt"


_created: set[Path] = set()
"""The folders that this process has made: they are removed when they are empty, whichever batch is the last."""


class RawOutput:
    """The folders that a batch writes to, one for each attempt. What was paid for is not thrown away.

    They are removed when all went well; else what is in them stays, and we say where.
    """

    def __init__(self, name: str):
        self._name = f"{datetime.now():%Y%m%d_%H%M%S}_{safe_name(name)}_"
        self._folders: list[Path] = []
        self._is_kept = False

    def new(self) -> Path:
        """An output file in an empty folder: in the project, or if that cannot be written to, among temporary files."""
        try:
            _created.update(folder.absolute() for folder in (BATCHES, BATCHES.parent) if not folder.exists())
            BATCHES.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=self._name, dir=BATCHES))
        except OSError:
            folder = Path(tempfile.mkdtemp(prefix=f"agentv_{self._name}"))
        self._folders.append(folder.absolute())
        return self._folders[-1] / OUTPUT

    def keep(self) -> str:
        """Keep what was written, and say where: the words that follow what went wrong, if anything was."""
        self._is_kept = True
        written = [str(folder / OUTPUT) for folder in self._folders if _is_written(folder / OUTPUT)]
        return f"; its raw output is kept: {', '.join(written)}" if written else ""

    def __enter__(self) -> "RawOutput":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None and (where := self.keep()):
            say(f"a batch was broken off{where}")
        for folder in self._folders:
            if not self._is_kept or not any(_is_written(folder / name) for name in (OUTPUT, MISSING)):
                shutil.rmtree(folder, ignore_errors=True)
        for folder in sorted(_created, reverse=True):  # those inside first
            with contextlib.suppress(OSError):  # somebody may have something in it
                folder.rmdir()


def _is_written(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
