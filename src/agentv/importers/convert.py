"""A source and its importer -> a file: checked, counted, masked, and written as a whole or not at all."""

import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agentv.errors import AgentvError
from agentv.importers import find_format, format_names, importer_type
from agentv.importers.datasets.rows import NAMES
from agentv.importers.importer import Answer, Importer, ImportFailure, ImportOptions, Row, Tally, Value
from agentv.importers.output import FileForm, file_form
from agentv.importers.sample import Sample, take_sample
from agentv.records import EvalResult
from agentv.system.atomic_files import write_atomically
from agentv.system.compact_sets import DuplicateFinder
from agentv.system.threads import describe_error

SHOWN_ROWS = 3


class NothingImported(ImportFailure):
    """A source has something in it, of which nothing could be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A source with the importer that reads it."""

    source: Path
    format: str
    importer: Importer
    limit: int | None = None

    def default_path(self) -> Path:
        """Return where the result goes unless told otherwise: in the current folder, named after the source."""
        stem = self.source.resolve().name if self.source.is_dir() else self.source.stem
        return Path(f"{stem}-{self.importer.becomes.value}s{self.importer.suffix}")

    def write(self, path: Path, tally: Tally) -> None:
        """Write the file in one step; raise `NothingImported` if it would have no rows."""
        write_atomically(path, self.blocks(path, tally))

    def blocks(self, path: Path, tally: Tally) -> Iterator[bytes]:
        """Yield what is written to a file: how it begins, and each row; raise `NothingImported` if there are none."""
        form = file_form(self.importer.becomes, path)
        yield form.head(self.importer.header(self.source))
        yield from self.rows(form, tally)
        if not tally.written:
            raise NothingImported("nothing in it could be imported", file=self.source)

    def try_out(self, path: Path, tally: Tally) -> list[bytes]:
        """Do the same without writing; return the first rows as they would be written."""
        rows = self.rows(file_form(self.importer.becomes, path), tally)
        first = list(islice(rows, SHOWN_ROWS))
        if not first:
            raise NothingImported("nothing in it could be imported", file=self.source)
        for _ in rows:
            pass  # to find what is wrong with the rest
        return first

    def rows(self, form: FileForm, tally: Tally) -> Iterator[bytes]:
        """Yield what is written for each row, until the limit; raise `ImportFailure` if two of them have one id."""
        repeats = DuplicateFinder()
        for row in self._read(tally):
            block = form.encode(row.value)
            if isinstance(block, str):
                tally.skip(block, row.where)
                continue
            repeats.add([_key(row.value)])
            tally.written += 1
            yield block
            if tally.written == self.limit:
                break
        if hashes := repeats.duplicate_hashes():
            raise self._repeated(hashes, form)

    def _read(self, tally: Tally) -> Iterator[Row]:
        """Yield the rows of the source. The importer may be a package's: what goes wrong in it is told in its name."""
        try:
            yield from self.importer.read(self.source, tally)
        except AgentvError:
            raise
        except Exception as error:
            if type(self.importer).__module__.startswith("agentv."):
                raise
            message = f"the importer of {self.format!r} broke: {describe_error(error)}"
            raise ImportFailure(message, file=self.source, hint="tell those who made it") from error

    def _repeated(self, hashes: set[int], form: FileForm) -> ImportFailure:
        """Return the error for two rows with one id; they are looked for in a second pass."""
        seen: dict[Hashable, str] = {}
        for row in self._read(Tally()):
            if isinstance(form.encode(row.value), str):
                continue
            key = _key(row.value)
            if hash(key) not in hashes:
                continue
            if key in seen:
                id_, trial = key
                what = f"the id {id_!r}" if trial is None else f"the id {id_!r}, trial {trial},"
                hint = "give each row an id of its own"
                if self.importer.fields:
                    hint += "; or take the ids from another column with --map id=COLUMN, or make them up with --map id="
                message = f"{what} stands twice: {seen[key]} and {row.where}"
                return ImportFailure(message, file=self.source, hint=hint)
            seen[key] = row.where
        return ImportFailure("an id stands twice", file=self.source)


def _key(value: Value) -> tuple[str, int | None]:
    """Return what has to be unique in a file: the id, and the trial of a result."""
    match value:
        case EvalResult():
            return value.eval_id, value.trial
        case Answer():
            return value.id, None
    return value["id"], None


def open_import(source: Path, format_: str | None, options: ImportOptions, limit: int | None = None) -> Import:
    """Return the import of a source; without a format, it is told by what the source says.

    Raise `AgentvError` if the source cannot be read, the format is not known, or the options do not fit it.
    """
    if format_ is not None:
        importer_type(format_)  # which is the first thing that may be wrong
    sample = _sample(source)
    name = format_ or find_format(sample)
    if name is None:
        raise _unknown(sample)
    type_ = importer_type(name)
    if source.is_dir() and not type_.reads_folders:
        raise AgentvError(f"this is a folder, and {name} is read from a file", file=source, hint="name a file in it")
    _check_options(type_, name, options)
    return Import(source=source, format=name, importer=type_(options), limit=limit)


def _sample(source: Path) -> Sample:
    """Return how a source starts; of a folder, the first of its transcripts."""
    if not source.is_dir():
        return take_sample(source)
    first = min(source.rglob("*.jsonl"), default=None)
    if first is None:
        raise AgentvError("this folder has no transcripts: no .jsonl file is in it", file=source, hint="name a file")
    return take_sample(first)


def _check_options(type_: type[Importer], name: str, options: ImportOptions) -> None:
    if options.columns and not type_.fields:
        raise AgentvError(f"--map is for formats with columns, and {name} has none", hint="leave it out")
    known = {alias for alias, field in NAMES.items() if field in type_.fields} | set(type_.fields)
    for field in options.columns:
        if field not in known:
            hint = f"fields are {', '.join(type_.fields)}"
            raise AgentvError(f"--map: there is no field {field!r}", hint=hint)
    if options.id is not None and not type_.takes_id:
        raise AgentvError(f"--id is for transcripts, and {name} has ids of its own", hint="leave it out")


def _unknown(sample: Sample) -> AgentvError:
    text = sample.text.lstrip()
    hint = f"name it with --from: {', '.join(sorted(format_names()))}"
    if text.startswith("["):
        hint = "it begins like a JSON array: write one object a line (jq -c '.[]' does that)"
    elif "evalcases" in text:
        hint = "it looks like an eval file of agentv already"
    return AgentvError("this is in none of the formats that can be imported", file=sample.path, hint=hint)


def check_target(path: Path, source: Path, overwrite: bool) -> None:
    """Raise `AgentvError` if a file must not be written: it is the source, or it is there and nobody said so."""
    if os.path.realpath(path) == os.path.realpath(source):
        raise AgentvError("--out is the source itself", file=path, hint="name another file")
    if path.is_file() and not overwrite:
        raise AgentvError("this file is there already", file=path, hint="--overwrite replaces it; --out names another")
