"""The extension point for import formats: a class that reads the files of another tool.

An importer recognizes its files by their first lines, and yields their content as eval cases, results or answers.
`convert.py` validates, counts, masks and writes what an importer yields, regardless of the format.
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
from agentv.results.dropped import DroppedCounts

MAX_PLACES = 3


class ImportFailure(AgentvError):
    """A source cannot be imported."""


class Becomes(enum.Enum):
    """The kind of records that a format is imported as. The value is the singular noun that reports use."""

    CASES = "case"
    RESULTS = "result"
    ANSWERS = "answer"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that an agent gave outside of agentv, written as a batch record for the `replay` provider."""

    id: str
    response: ProviderResponse


Value = Json | EvalResult | Answer
"""An eval case as written in an eval file, a result, or an answer, according to `Importer.becomes`."""


class Row(NamedTuple):
    """A record to write, and its location in the source, such as `line 3` or `sample 2`."""

    value: Value
    where: str


class Tally:
    """Counts what was read and written, and collects the reasons for everything that was not written."""

    def __init__(self) -> None:
        self.read = 0
        self.written = 0
        self.skipped: dict[str, list[str]] = {}
        """The locations of the first `MAX_PLACES` skipped rows, by reason."""
        self._counts: dict[str, int] = {}
        self.remarks: list[Problem] = []
        """Parts of the source that are lost although no row was skipped."""
        self.dropped = DroppedCounts()
        """Parts of answers that could not be read."""
        self.notes: list[str] = []
        """How the source was interpreted."""

    def skip(self, reason: str, where: str) -> None:
        """Count a row that was read but is not written."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        places = self.skipped.setdefault(reason, [])
        if len(places) < MAX_PLACES:
            places.append(where)

    def count(self, reason: str) -> int:
        """Return how many rows were skipped for this reason."""
        return self._counts[reason]

    def remark(
        self,
        message: str,
        file: Path,
        line: int | None = None,
        hint: str = "",
    ) -> None:
        """Record that a part of the source has no counterpart in agentv, once per location."""
        problem = Problem(
            message=message,
            severity="warning",
            file=file,
            line=line,
            hint=hint,
        )
        if problem not in self.remarks:
            self.remarks.append(problem)

    def note(self, text: str) -> None:
        """Record how the source was interpreted, once per text."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options that the user sets for a source."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Column names by field: `--map field=column`. An empty name means that the field has no column."""
    id: str | None = None
    """The id of the only answer in the source."""


class Importer(ABC):
    """Reads sources of one format. An instance is bound to one source and can read it several times."""

    becomes: ClassVar[Becomes]
    noun: ClassVar[str] = "rows"
    """The plural noun for the records of a source, in reports."""
    suffix: ClassVar[str] = ".jsonl"
    """The suffix of the default output file. Cases may also use `.yaml`."""
    fields: ClassVar[tuple[str, ...]] = ()
    """The fields that `--map` accepts. Empty if the format has no columns."""
    takes_id: ClassVar[bool] = False
    """Whether the format accepts `--id`."""
    reads_folders: ClassVar[bool] = False
    """Whether a source may be a folder."""

    def __init__(self, options: ImportOptions):
        self.options = options

    @classmethod
    @abstractmethod
    def recognizes(cls, sample: Sample) -> bool:
        """Return whether a source that starts with this sample is in this format."""

    @abstractmethod
    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        """Yield the records to write, one at a time. Raise `ImportFailure` if the source is malformed.

        Implementations count every record in `tally.read` and report each one they do not yield to `tally.skip`.
        """

    def header(self, source: Path) -> dict[str, Any]:
        """Return the top-level fields of a YAML eval file, without its cases."""
        return {}
