"""The seam: what reads the files of another tool.

To add a format is to write one class: it tells its files by their first lines, and yields what they hold as eval
cases, as results or as answers. Checking, counting, masking and writing are done in `convert.py`, for all of them.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from agentv.errors import AgentvError
from agentv.importers.sample import Sample
from agentv.records import EvalResult, Json, Problem, ProviderResponse

MAX_PLACES = 3


class ImportFailure(AgentvError):
    """A source cannot be imported."""


class Becomes(enum.Enum):
    """What a source becomes. The value is what one of them is called."""

    CASES = "case"
    RESULTS = "result"
    ANSWERS = "answer"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that an agent gave elsewhere: a batch record, which the provider `replay` can give again."""

    id: str
    response: ProviderResponse


Value = Json | EvalResult | Answer
"""A case as it is written in an eval file, a result, or an answer: what `Becomes` says."""


class Row(NamedTuple):
    """Something that is to be written, and where in the source it comes from: `line 3`, `sample 2`."""

    value: Value
    where: str


class Tally:
    """Counts what is read of a source, and why some of it is not written."""

    def __init__(self) -> None:
        self.read = self.written = 0
        self.skipped: dict[str, list[str]] = {}
        """Where rows were skipped, by the reason; each list ends with the number of further ones."""
        self._counts: dict[str, int] = {}
        self.remarks: list[Problem] = []
        """What of the source is lost, though nothing is skipped for it."""
        self.notes: list[str] = []
        """How the source was understood."""

    def skip(self, reason: str, where: str) -> None:
        """Count something that was read and is not written."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        places = self.skipped.setdefault(reason, [])
        if len(places) < MAX_PLACES:
            places.append(where)

    def count(self, reason: str) -> int:
        """Return how many were skipped for this reason."""
        return self._counts[reason]

    def remark(self, message: str, file: Path, line: int | None = None, hint: str = "") -> None:
        """Tell of a part of the source that has no counterpart, once for each place."""
        problem = Problem(message=message, severity="warning", file=file, line=line, hint=hint)
        if problem not in self.remarks:
            self.remarks.append(problem)

    def note(self, text: str) -> None:
        """Tell how the source was understood."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the user says of a source."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns of fields, by the name of the field: `--map field=column`. No column is an empty text."""
    id: str | None = None
    """The id of the one answer in the source."""


class Importer(ABC):
    """Reads the sources of one format. An instance reads one source, as often as it is asked to."""

    becomes: ClassVar[Becomes]
    noun: ClassVar[str] = "rows"
    """What a source consists of, in reports."""
    suffix: ClassVar[str] = ".jsonl"
    """How the name of a new file ends; `.yaml` is possible for cases."""
    fields: ClassVar[tuple[str, ...]] = ()
    """The fields that `--map` can name; without any, the format has no columns."""
    takes_id: ClassVar[bool] = False
    """Whether `--id` makes sense."""
    reads_folders: ClassVar[bool] = False
    """Whether a source may be a folder."""

    def __init__(self, options: ImportOptions):
        self.options = options

    @classmethod
    @abstractmethod
    def recognizes(cls, sample: Sample) -> bool:
        """Return whether a source that starts like this is one of this format."""

    @abstractmethod
    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        """Yield what is to be written, one at a time; raise `ImportFailure` if the source is not what it should be.

        All that is read is counted in `tally.read`; what is not written is given to `tally.skip` with a reason.
        """

    def header(self, source: Path) -> dict[str, Any]:
        """Return the fields of a YAML eval file besides its cases."""
        return {}
