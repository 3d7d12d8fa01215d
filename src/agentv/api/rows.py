"""Make cases from the rows of a table: mappings, or a data frame of pandas or polars, neither of which is imported."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any

from agentv.errors import ConfigError, closest
from agentv.files.encode import to_json

_ABSENT = ("NAType", "NaTType")
"""The types of the values that pandas uses for missing data."""
_Case = dict[str, Any]


def cases_from(  # noqa: PLR0913  # a parameter for each field
    rows: Any,
    *,
    input: str,  # the name of the field in a case
    id: str | None = None,
    expected_output: str | None = None,
    expected_outcome: str | None = None,
    metadata: str | Sequence[str] = (),
    vars: str | Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return a case for each row of a data frame or of an iterable of mappings.

    Each keyword names the column with the values of a field; `metadata` and `vars` can name several columns. `defaults`
    is a mapping in the case format with the fields that all cases share. The id comes from the column `id` by default;
    without such a column, it is the number of the row. Raise `AgentvError` for an unknown column.
    """
    table = list(_records(rows))
    columns = _columns(rows, table)
    shared = _mapping(defaults)
    fields = {
        "input": input,
        "expected_output": expected_output,
        "expected_outcome": expected_outcome,
    }
    keys = {
        "metadata": _names("metadata", metadata),
        "vars": _names("vars", vars),
    }
    if id is None and "id" in columns:
        id = "id"
    for field, column in fields.items():
        _check_column(field, column, columns)
    _check_column("id", id, columns)
    for field, names in keys.items():
        for name in names:
            _check_column(field, name, columns)
    cases = []
    for number, row in enumerate(table, 1):
        case = dict(shared)
        if id is None:
            case["id"] = str(number)
        else:
            case.pop("id", None)
            _add_text(case, "id", row.get(id))
        for field, column in fields.items():
            if column is not None:
                _add_text(case, field, row.get(column))
        for field, names in keys.items():
            _add_values(case, field, names, row)
        cases.append(case)
    return cases


def _records(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table as mappings."""
    if hasattr(rows, "iter_rows"):  # polars
        yield from rows.iter_rows(named=True)
        return
    if hasattr(rows, "collect_schema"):
        raise ConfigError(f"rows is {_described(rows)}", hint="pass rows.collect(), its data frame")
    if hasattr(rows, "columns") and hasattr(rows, "to_dict"):  # pandas, whose columns may have numbers as names
        for row in rows.to_dict("records"):
            yield {str(column): value for column, value in row.items()}
        return
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise ConfigError(
            f"rows is {_described(rows)}",
            hint="pass a list of mappings or a data frame, such as pandas.read_csv(...)",
        )
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            shown = _described(row)
            raise ConfigError(f"row {number} is {shown}", hint="a row is a mapping of columns to values")
        yield row


def _described(value: object) -> str:
    if isinstance(value, str | int | float) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def _columns(rows: Any, table: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    if hasattr(rows, "columns"):
        return [str(column) for column in rows.columns]
    found: dict[str, None] = {}
    for row in table:
        for column in row:
            found[column] = None
    return list(found)


def _mapping(defaults: Any) -> _Case:
    if defaults is None:
        return {}
    if not isinstance(defaults, Mapping):
        raise ConfigError(f"defaults is {defaults!r}", hint="pass a mapping in the case format")
    return dict(defaults)


def _names(keyword: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,)
    found: tuple[str, ...] = ()
    if isinstance(names, Iterable):
        found = tuple(names)
    are_strings = all(isinstance(name, str) for name in found)
    is_other = not found and bool(names)  # such as a number
    if is_other or not are_strings:
        raise ConfigError(f"{keyword} is {names!r}", hint="pass the names of columns")
    return found


def _check_column(keyword: str, column: Any, columns: Sequence[str]) -> None:
    if column is None or column in columns:
        return
    if not columns:
        raise ConfigError("rows is empty", hint="pass at least one row")
    listed = ", ".join(map(repr, columns))
    hint = ""
    close = closest(str(column), columns)
    if close:
        hint = f"did you mean {close!r}?"
    raise ConfigError(f"{keyword}: no column {column!r}; the columns are {listed}", hint=hint)


def _add_text(case: _Case, field: str, value: Any) -> None:
    """Set a field to a value. Numbers and booleans become text; a missing value is not set."""
    value = cell_value(value)
    if value is None:
        return
    if isinstance(value, float) and value.is_integer() and field == "id":
        value = int(value)  # pandas turns integers into floats if one of them is missing
    if isinstance(value, bool):
        encoded = to_json(value)
        value = encoded.decode()
    elif isinstance(value, int | float):
        value = str(value)
    case[field] = value


def _add_values(case: _Case, field: str, names: Sequence[str], row: Mapping[str, Any]) -> None:
    """Add the values of several columns to a mapping of the case."""
    values = dict(case.get(field) or {})
    for name in names:
        value = cell_value(row.get(name))
        if value is not None:
            values[name] = value
    if values:
        case[field] = values


def cell_value(value: Any) -> Any:  # noqa: PLR0911  # a branch for each kind of value
    """Return a cell of a table as a JSON value, or None if it is missing."""
    type_ = type(value).__name__
    if value is None or type_ in _ABSENT:
        return None
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        mapping = {}
        for key, inner in value.items():
            mapping[str(key)] = cell_value(inner)
        return mapping
    if isinstance(value, list | tuple | set | frozenset):
        return [cell_value(inner) for inner in value]
    if isinstance(value, date | time):
        return value.isoformat()
    if getattr(value, "ndim", 0):  # an array
        return cell_value(value.tolist())
    if value != value:  # NaN, and NaT of numpy  # noqa: PLR0124
        return None
    if type_ in ("datetime64", "timedelta64"):
        return str(value)
    if hasattr(value, "item"):  # a scalar of numpy
        return value.item()
    if isinstance(value, float):
        return value
    return str(value)
