"""Convert rows with named columns to eval cases. Columns are matched by common names, or chosen by the user."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.errors import AgentvError, closest
from agentv.files.encode import to_json
from agentv.files.messages import read_case_messages
from agentv.files.wire import text_of
from agentv.importers.importer import ImportFailure, Row, Tally
from agentv.records import Json
from agentv.text import join_names, truncate_to_width

FIELDS = {
    "id": ("id", "eval_id", "case_id"),
    "question": ("question", "input", "prompt", "query", "input_messages"),
    "expected": (
        "expected",
        "answer",
        "ideal",
        "target",
        "expected_answer",
        "expected_output",
        "reference_answer",
    ),
    "expected_outcome": ("expected_outcome", "outcome"),
    "description": ("description",),
    "conversation_id": ("conversation_id",),
}
"""The fields of a row with the column names that are recognized for each, in order of preference."""
NAMES = {alias: field for field, aliases in FIELDS.items() for alias in aliases}
"""The field that each recognized column name stands for."""
AGREES = "The answer agrees with the reference answer."
"""The expected outcome of a case that only has a reference answer."""
_MAX_SHOWN_COLUMNS = 20
_MAX_SHOWN_CHARACTERS = 40


class Columns(NamedTuple):
    """The column of each field. All other columns become metadata."""

    fields: Mapping[str, str]
    others: tuple[str, ...]

    def describe(self) -> str:
        """Return the columns in use as text, such as `question from 'Prompt', expected from 'Answer'`."""
        parts = [f"{field} from {column!r}" for field, column in self.fields.items()]
        if self.others:
            shown = ", ".join(map(repr, self.others[:_MAX_SHOWN_COLUMNS]))
            parts.append(f"metadata from {shown}")
        return ", ".join(parts)


def choose_columns(
    names: Sequence[str],
    chosen: Mapping[str, str],
    path: Path,
) -> Columns:
    """Return the columns for the fields: those that the user chose, otherwise by common names in any letter case.

    Raise `AgentvError` if a chosen column does not exist. Raise `ImportFailure` if no column holds the question, or
    what is expected of the answer.
    """
    given: dict[str, str] = {}
    for field, column in chosen.items():
        if column and column not in names:
            raise _no_such_column(column, names, path)
        given[NAMES[field]] = column

    # An empty column stays in `given`: the user has chosen that the field has no column.
    found = _find_columns(names, set(given.values())) | given
    fields = {}
    for field in FIELDS:
        column = found.get(field, "")
        if column:
            fields[field] = column
    if "question" not in fields:
        raise _missing_column("question", "the question", names, path)
    if "expected" not in fields and "expected_outcome" not in fields:
        raise _missing_column("expected", "the expected outcome", names, path)

    used = set(fields.values())
    others = [name for name in names if name not in used]
    return Columns(fields, tuple(others))


def _find_columns(names: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Return the columns that have a common name for a field, by field. Columns in `taken` are not considered."""
    # Of two columns that differ only in letter case, the first one counts: it is set last.
    by_alias = {name.strip().casefold(): name for name in reversed(names)}
    found: dict[str, str] = {}
    for field, aliases in FIELDS.items():
        for alias in aliases:
            column = by_alias.get(alias)
            if column is not None and column not in taken:
                found[field] = column
                break
    return found


def _missing_column(
    field: str,
    what: str,
    names: Sequence[str],
    path: Path,
) -> ImportFailure:
    usual = ", ".join(FIELDS[field][:4])
    hint = f"the first line must have the column names, such as {usual}; or set the column with --map {field}=COLUMN"
    return ImportFailure(
        f"no column for {what}; the columns are {_list(names)}",
        file=path,
        hint=hint,
    )


def _no_such_column(column: str, names: Sequence[str], path: Path) -> AgentvError:
    hint = "--map takes FIELD=COLUMN, with the exact name of the column"
    close = closest(column, names)
    if close:
        hint = f"did you mean {close!r}?"
    return AgentvError(
        f"--map: no column {column!r}; the columns are {_list(names)}",
        file=path,
        hint=hint,
    )


def _list(names: Sequence[str]) -> str:
    """Return column names for a message. Long names, and lists with many names, are truncated."""
    quoted = [repr(truncate_to_width(name, _MAX_SHOWN_CHARACTERS)) for name in names]
    return join_names(quoted, _MAX_SHOWN_COLUMNS, ", and ")


class TableRow(NamedTuple):
    """The values of a row by column, and its location in the source."""

    values: Mapping[str, Any]
    where: str


def cases_of(rows: Iterable[TableRow], columns: Columns, tally: Tally) -> Iterator[Row]:
    """Yield the eval case for each row. Rows that cannot be converted are skipped with a reason."""
    for row in rows:
        tally.read += 1
        case = _case(row, columns, tally.read)
        if isinstance(case, str):
            tally.skip(case, row.where)
        else:
            yield Row(case, row.where)


def _case(row: TableRow, columns: Columns, number: int) -> Json | str:
    """Return a row as an eval case, or as text the reason why that is not possible."""
    given = {field: row.values.get(column) for field, column in columns.fields.items()}
    id_ = id_of(given.get("id"), f"row-{number}")
    if id_ is None:
        return "the id is neither a string nor a number"
    try:
        question = input_of(given.get("question"))
    except UnreadableMessages as error:
        return str(error)
    if question is None:
        return "the question is missing"
    expected = _expected_answer(given.get("expected"))
    outcome = _text(given.get("expected_outcome"))
    if not expected and not outcome:
        return "the expected outcome is missing"

    case: Json = {
        "id": id_,
        "expected_outcome": outcome or AGREES,
        "input": question,
    }
    if expected:
        case["expected_output"] = expected
    for name in ("description", "conversation_id"):
        text = _text(given.get(name))
        if text:
            case[name] = text
    metadata = _metadata(row, columns)
    if metadata:
        case["metadata"] = metadata
    return case


def _metadata(row: TableRow, columns: Columns) -> Json:
    """Return the values of the columns that hold no field, without empty cells."""
    metadata: Json = {}
    for name in columns.others:
        value = row.values.get(name)
        if value not in (None, ""):
            metadata[name] = value
    return metadata


def id_of(given: Any, default: str) -> str | None:
    """Return an id as text: the default for an empty one, and None if it is neither text nor a number."""
    if given is None:
        return default
    if isinstance(given, str):
        return given.strip() or default
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return text_of(given)


class UnreadableMessages(ValueError):
    """A list of messages has a role or a shape that is not known."""


def input_of(given: Any) -> str | list[Json] | None:
    """Return a question as written in an eval file: text or a list of messages. Return None if it is empty.

    A list without any object is text. Raise `UnreadableMessages` if a message of a list cannot be read.
    """
    if not isinstance(given, list):
        return _text(given) or None
    if not given:
        return None
    if not any(isinstance(entry, dict) for entry in given):
        return text_of(given)
    messages = read_case_messages(given)
    if isinstance(messages, str):
        raise UnreadableMessages(messages)
    return [msgspec.json.decode(to_json(message)) for message in messages]


def _text(given: Any) -> str:
    """Return a value as text. None and blank text become an empty text."""
    if given is None:
        return ""
    text = text_of(given)
    if not text.strip():
        return ""
    return text


def _expected_answer(given: Any) -> str:
    """Return an expected answer as text. If several are given, the first one counts."""
    if not isinstance(given, list):
        return _text(given)
    if not given:
        return ""
    return _text(given[0])
