"""Convert a source to an output file: validate, count, mask and write atomically."""

import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agentv.errors import AgentvError
from agentv.files.atomic_files import write_atomically
from agentv.files.compact_sets import DuplicateFinder
from agentv.importers import find_format, format_names, importer_type
from agentv.importers.datasets.rows import NAMES
from agentv.importers.importer import Answer, Importer, ImportFailure, ImportOptions, Row, Tally, Value
from agentv.importers.output import OutputFormat, output_format
from agentv.importers.sample import Sample, take_sample
from agentv.processes.threads import describe_error
from agentv.records import Dropped, EvalResult

SHOWN_ROWS = 3


class NothingImported(ImportFailure):
    """A source is not empty, but none of its records could be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A source with the importer that reads it."""

    source: Path
    format: str
    importer: Importer
    limit: int | None = None

    def default_path(self) -> Path:
        """Return the default output path: in the current folder, named after the source."""
        stem = self.source.stem
        if self.source.is_dir():
            stem = self.source.resolve().name  # the path of a folder may be `.`
        return Path(f"{stem}-{self.importer.becomes.value}s{self.importer.suffix}")

    def write(self, path: Path, tally: Tally) -> None:
        """Write the output file atomically. Raise `NothingImported` if it would have no rows."""
        write_atomically(path, self.blocks(path, tally))

    def blocks(self, path: Path, tally: Tally) -> Iterator[bytes]:
        """Yield the content of the output file: its head, then each row. Raise `NothingImported` if there are none."""
        output = output_format(self.importer.becomes, path)
        yield output.head(self.importer.header(self.source))
        yield from self.rows(output, tally)
        if not tally.written:
            raise NothingImported("nothing could be imported", file=self.source)

    def try_out(self, path: Path, tally: Tally) -> list[bytes]:
        """Import without writing a file, and return the first rows of the output."""
        output = output_format(self.importer.becomes, path)
        rows = self.rows(output, tally)
        first = list(islice(rows, SHOWN_ROWS))
        if not first:
            raise NothingImported("nothing could be imported", file=self.source)
        for _ in rows:
            pass  # read the rest for its errors and counts
        return first

    def rows(self, output: OutputFormat, tally: Tally) -> Iterator[bytes]:
        """Yield the encoded rows up to the limit. Raise `ImportFailure` if an id is not unique."""
        duplicates = DuplicateFinder()
        for row in self._read(tally):
            encoded = output.encode(row.value)
            if isinstance(encoded, str):
                tally.skip(encoded, row.where)
                continue
            duplicates.add([_unique_key(row.value)])
            tally.dropped.add(_dropped(row.value), row.where)
            tally.written += 1
            yield encoded
            if tally.written == self.limit:
                break

        hashes = duplicates.duplicate_hashes()
        if hashes:
            raise self._duplicate_error(hashes, output)

    def _read(self, tally: Tally) -> Iterator[Row]:
        """Yield the rows of the source. Unexpected errors of an extension are reported under the format's name."""
        try:
            yield from self.importer.read(self.source, tally)
        except AgentvError:
            raise
        except Exception as error:
            if type(self.importer).__module__.startswith("agentv."):
                raise
            message = f"the importer of {self.format!r} failed: {describe_error(error)}"
            raise ImportFailure(
                message,
                file=self.source,
                hint="report this to its authors",
            ) from error

    def _duplicate_error(self, hashes: set[int], output: OutputFormat) -> ImportFailure:
        """Return the error for two rows with the same key.

        Only hashes of keys were kept, so the source is read a second time to find the rows.
        """
        seen: dict[Hashable, str] = {}
        for row in self._read(Tally()):
            if isinstance(output.encode(row.value), str):
                continue
            key = _unique_key(row.value)
            if hash(key) not in hashes:
                continue
            if key not in seen:
                seen[key] = row.where
                continue

            id_, trial = key
            what = f"id {id_!r}"
            if trial is not None:
                what = f"id {id_!r}, trial {trial}"
            hint = "give each row a unique id"
            if self.importer.fields:
                hint += ", take the ids from another column with --map id=COLUMN, or generate them with --map id="
            message = f"duplicate {what}: {seen[key]} and {row.where}"
            return ImportFailure(message, file=self.source, hint=hint)

        return ImportFailure("duplicate id", file=self.source)


def _dropped(value: Value) -> tuple[Dropped, ...]:
    """Return the parts of a row that could not be read."""
    match value:
        case EvalResult():
            return value.dropped or ()
        case Answer():
            return value.response.dropped or ()
    return ()


def _unique_key(value: Value) -> tuple[str, int | None]:
    """Return the key that must be unique in a file: the id, with the trial for results."""
    match value:
        case EvalResult():
            return value.eval_id, value.trial
        case Answer():
            return value.id, None
    return value["id"], None


def open_import(
    source: Path,
    format_: str | None,
    options: ImportOptions,
    limit: int | None = None,
) -> Import:
    """Return the import of a source. Detect the format from the content if `format_` is None.

    Raise `AgentvError` if the source cannot be read, the format is unknown, or it does not accept the options.
    """
    if format_ is not None:
        importer_type(format_)  # report an unknown format before reading the source
    sample = _sample(source)
    name = format_ or find_format(sample)
    if name is None:
        raise _unrecognized(sample)

    type_ = importer_type(name)
    if source.is_dir() and not type_.reads_folders:
        raise AgentvError(
            f"this is a folder, but {name} is read from a file",
            file=source,
            hint="pass a file in it",
        )
    _check_options(type_, name, options)
    return Import(source=source, format=name, importer=type_(options), limit=limit)


def _sample(source: Path) -> Sample:
    """Return the start of a source. For a folder, sample its first transcript."""
    if not source.is_dir():
        return take_sample(source)
    first = min(source.rglob("*.jsonl"), default=None)
    if first is None:
        raise AgentvError(
            "the folder contains no transcripts (.jsonl files)",
            file=source,
            hint="pass a file",
        )
    return take_sample(first)


def _check_options(type_: type[Importer], name: str, options: ImportOptions) -> None:
    """Raise `AgentvError` if the format does not accept one of the options."""
    if options.columns and not type_.fields:
        raise AgentvError(f"--map requires a format with columns, and {name} has none", hint="remove it")

    for field in options.columns:
        is_known = field in type_.fields or NAMES.get(field) in type_.fields
        if not is_known:
            hint = f"available fields: {', '.join(type_.fields)}"
            raise AgentvError(f"--map: unknown field {field!r}", hint=hint)

    if options.id is not None and not type_.takes_id:
        raise AgentvError(f"--id is for transcripts, but {name} has its own ids", hint="remove it")


def _unrecognized(sample: Sample) -> AgentvError:
    text = sample.text.lstrip()
    if text.startswith("["):
        hint = "it looks like a JSON array: write one object per line, for example with jq -c '.[]'"
    elif "evalcases" in text:
        hint = "it looks like an eval file of agentv"
    else:
        hint = f"set the format with --from: {', '.join(sorted(format_names()))}"
    return AgentvError(
        "the format was not recognized",
        file=sample.path,
        hint=hint,
    )


def check_target(path: Path, source: Path, overwrite: bool) -> None:
    """Raise `AgentvError` if `path` is the source, or if it exists and `overwrite` is not set."""
    if os.path.realpath(path) == os.path.realpath(source):
        raise AgentvError(
            "--out is the same file as the source",
            file=path,
            hint="choose another file",
        )
    if path.is_file() and not overwrite:
        raise AgentvError(
            "the file already exists",
            file=path,
            hint="use --overwrite to replace it, or choose another --out",
        )
