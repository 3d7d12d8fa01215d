"""A row with named columns -> an eval case, by columns that are found by their names or named by the user."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.errors import AgentvError, closest
from agentv.formats.wire import text_of
from agentv.importers.importer import ImportFailure, Row, Tally
from agentv.records import Json, Message

FIELDS = {
    "id": ("id", "eval_id", "case_id"),
    "question": ("question", "input", "prompt", "query", "input_messages"),
    "expected": ("expected", "answer", "ideal", "target", "expected_answer", "expected_output", "reference_answer"),
    "expected_outcome": ("expected_outcome", "outcome"),
    "description": ("description",),
    "conversation_id": ("conversation_id",),
}
"""The fields that a row may have, each with the names that its column may have, the best first."""
NAMES = {alias: field for field, aliases in FIELDS.items() for alias in aliases}
AGREES = "The answer agrees with the reference answer."
"""The expected outcome of a case that has a reference answer and nothing else."""
_SHOWN = 20


class Columns(NamedTuple):
    """Which column holds which field; the rest are metadata."""

    fields: Mapping[str, str]
    others: tuple[str, ...]

    def describe(self) -> str:
        """Return which columns are used, as text: `question from 'Prompt', expected from 'Answer'`."""
        parts = [f"{field} from {column!r}" for field, column in self.fields.items()]
        if self.others:
            parts.append(f"metadata from {', '.join(map(repr, self.others[:_SHOWN]))}")
        return ", ".join(parts)


def choose_columns(names: Sequence[str], chosen: Mapping[str, str], path: Path) -> Columns:
    """Return the columns of the fields: those that the user has chosen, else by common names in any letter case.

    Raise `ImportFailure` if a chosen column does not exist, or if there is none for the question or what is expected.
    """
    fields: dict[str, str] = {}
    for field, column in chosen.items():
        if column and column not in names:
            raise _no_such_column(column, names, path)
        fields[NAMES[field]] = column
    lower = {name.strip().casefold(): name for name in reversed(names)}
    taken = set(fields.values())
    for field, aliases in FIELDS.items():
        found = next((lower[alias] for alias in aliases if alias in lower and lower[alias] not in taken), None)
        if found is not None:
            fields.setdefault(field, found)
    fields = {field: fields[field] for field in FIELDS if fields.get(field)}
    if "question" not in fields:
        raise _missing_column("question", "the question", names, path)
    if "expected" not in fields and "expected_outcome" not in fields:
        raise _missing_column("expected", "what is expected", names, path)
    used = set(fields.values())
    return Columns(fields, tuple(name for name in names if name not in used))


def _missing_column(field: str, what: str, names: Sequence[str], path: Path) -> ImportFailure:
    usual = ", ".join(FIELDS[field][:4])
    hint = f"the first line has to name the columns; usual names are {usual}; or say which: --map {field}=COLUMN"
    return ImportFailure(f"no column holds {what}: there are {_list(names)}", file=path, hint=hint)


def _no_such_column(column: str, names: Sequence[str], path: Path) -> AgentvError:
    close = closest(column, names)
    hint = f"did you mean {close!r}?" if close else "--map takes field=column, with the column as it is written there"
    return AgentvError(f"--map: there is no column {column!r}: there are {_list(names)}", file=path, hint=hint)


def _list(names: Sequence[str]) -> str:
    shown = [repr(name if len(name) <= 40 else f"{name[:39]}…") for name in names[:_SHOWN]]
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join([*shown, *more])


class TableRow(NamedTuple):
    """A row as it was read, and where."""

    values: Mapping[str, Any]
    where: str


def cases_of(rows: Iterable[TableRow], columns: Columns, tally: Tally) -> Iterator[Row]:
    """Yield the case of each row; rows that make none are skipped with a reason."""
    for row in rows:
        tally.read += 1
        case = _case(row, columns, tally.read)
        if isinstance(case, str):
            tally.skip(case, row.where)
        else:
            yield Row(case, row.where)


def _case(row: TableRow, columns: Columns, number: int) -> Json | str:
    """Return the case of a row, or why there is none."""
    given = {field: row.values.get(column) for field, column in columns.fields.items()}
    id_ = id_of(given.get("id"), f"row-{number}")
    if id_ is None:
        return "the id is neither text nor a number"
    question = input_of(given.get("question"))
    if question is None:
        return "there is no question"
    expected, outcome = _plain(given.get("expected")), _text(given.get("expected_outcome"))
    if not expected and not outcome:
        return "nothing is expected of the answer"
    case: Json = {"id": id_, "expected_outcome": outcome or AGREES, "input": question}
    if expected:
        case["expected_output"] = expected
    case |= {name: text for name in ("description", "conversation_id") if (text := _text(given.get(name)))}
    metadata = {name: value for name in columns.others if (value := row.values.get(name)) not in (None, "")}
    return case | ({"metadata": metadata} if metadata else {})


def id_of(given: Any, otherwise: str) -> str | None:
    """Return an id as text; one that is empty is made up, and None is returned for one that is no id at all."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return otherwise
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    return given.strip() if isinstance(given, str) else text_of(given)


def input_of(given: Any) -> str | list[Json] | None:
    """Return a question as an eval file has it: a text, or messages; None if there is none."""
    if isinstance(given, list):
        try:
            messages = msgspec.convert(given, tuple[Message, ...])
        except msgspec.ValidationError:
            return text_of(given)
        return given if messages and all(message.content is not None for message in messages) else None
    return _text(given) or None


def _text(given: Any) -> str:
    text = "" if given is None else text_of(given)
    return text if text.strip() else ""


def _plain(given: Any) -> str:
    """Return an expected answer as text; of several that are possible the first."""
    if isinstance(given, list):
        given = given[0] if given else None
    return _text(given)
