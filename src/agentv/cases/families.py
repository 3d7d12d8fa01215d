"""Families of cases: one case with a `matrix` or `rows` stands for many cases."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.rows import Report, Rows, file_rows, listed_rows, unusable
from agentv.errors import nearest
from agentv.files.conversion import Misfit
from agentv.files.encode import to_sorted_json
from agentv.placeholders import as_text
from agentv.records import Json

FAMILY_FIELDS = ("matrix", "exclude", "rows")
Matrix = Mapping[str, Sequence[Any]]
"""The values of each variable. Their combinations are the members of a family."""


class Member(NamedTuple):
    """One case of a family: the part of its id in brackets, its variables, and the line of its row."""

    label: str
    values: Json
    line: int = 0


class Family(NamedTuple):
    """The members of a family, which can be listed several times, and the file with its rows."""

    members: Callable[[Report], Iterator[Member]]
    """Yield the members; report invalid rows."""
    rows: Path | None = None


def is_family(written: Mapping[str, Any]) -> bool:
    """Return whether a raw case stands for several cases."""
    return any(written.get(name) is not None for name in FAMILY_FIELDS)


def family_of(written: Mapping[str, Any], folder: Path) -> Family | Misfit:
    """Return the family that a case stands for, or its problem. The fields have the right types.

    `folder` is that of the eval file.
    """
    matrix = written.get("matrix")
    exclude = written.get("exclude") or ()
    rows = written.get("rows")
    if matrix is not None and rows is not None:
        return Misfit(
            steps=("rows",),
            message="cannot be combined with 'matrix'",
            hint="use one of them",
        )
    if matrix is None and exclude:
        return Misfit(
            steps=("exclude",),
            message="there is no 'matrix' to exclude combinations from",
            hint="set 'matrix', or remove it",
        )
    if matrix is not None:
        return _matrix_family(matrix, exclude)
    if isinstance(rows, str):
        return _file_family(folder / rows)
    return _listed_family(rows or ())


# ---- matrix ----


def _matrix_family(matrix: Matrix, exclude: Sequence[Json]) -> Family | Misfit:
    for number, combination in enumerate(exclude):
        misfit = _explain_exclusion(combination, matrix)
        if misfit is not None:
            return misfit._replace(steps=("exclude", number, *misfit.steps))
    excluded = [_identity(combination) for combination in exclude]
    if excluded and next(_combinations(matrix, excluded), None) is None:
        return Misfit(
            steps=("exclude",),
            message="excludes every combination of the matrix",
            hint="remove one of its entries",
        )
    return Family(lambda _report: _combinations(matrix, excluded))


def _explain_exclusion(combination: Json, matrix: Matrix) -> Misfit | None:
    """Return why an entry of `exclude` excludes nothing, or None if it excludes something."""
    if not combination:
        return Misfit(
            steps=(),
            message="must name a value of the matrix",
            hint=f"for example {_example(matrix)}",
        )
    for name, value in combination.items():
        if name not in matrix:
            return Misfit(
                steps=(name,),
                message="not in the matrix",
                hint=nearest(name, matrix, "names"),
            )
        known = [to_sorted_json(each) for each in matrix[name]]
        if to_sorted_json(value) not in known:
            text = as_text(value)
            shown = [as_text(each) for each in matrix[name]]
            return Misfit(
                steps=(name,),
                message=f"{text!r} is not in the matrix",
                hint=nearest(text, shown, "values"),
            )
    return None


def _example(matrix: Matrix) -> str:
    name, values = next(iter(matrix.items()))
    return f"{{{name}: {as_text(values[0])}}}"


def _combinations(matrix: Matrix, excluded: Sequence[Mapping[str, bytes]]) -> Iterator[Member]:
    """Yield a member for each combination, except for the excluded ones. The last variable changes fastest."""
    labels = [_labels(name, values) for name, values in matrix.items()]
    *outer_names, inner_name = matrix
    *outer_values, inner_values = matrix.values()
    *outer_labels, inner_labels = labels
    # What the cases of the inner loop share is computed once for all of them.
    for parts, point in zip(product(*outer_labels), product(*outer_values), strict=True):
        outer = dict(zip(outer_names, point, strict=True))
        prefix = "".join([f"{part}," for part in parts])
        for label, value in zip(inner_labels, inner_values, strict=True):
            values = {**outer, inner_name: value}
            if not excluded or not _is_excluded(values, excluded):
                yield Member(prefix + label, values)


def _labels(name: str, values: Sequence[Any]) -> list[str]:
    """Return the part of the id for each value. Texts that look like another value are quoted: 1 and "1"."""
    texts = [as_text(value) for value in values]
    counts = Counter(texts)
    labels = []
    for value, text in zip(values, texts, strict=True):
        shown = text
        if isinstance(value, str) and (counts[text] > 1 or not text.isprintable()):
            shown = msgspec.json.encode(text).decode()
        labels.append(f"{name}={shown}")
    return labels


def _is_excluded(values: Json, excluded: Sequence[Mapping[str, bytes]]) -> bool:
    identities = _identity(values)
    return any(combination.items() <= identities.items() for combination in excluded)


def _identity(combination: Json) -> Mapping[str, bytes]:
    """Return the values in a form in which 1 is not true."""
    return {name: to_sorted_json(value) for name, value in combination.items()}


# ---- rows ----


def _file_family(path: Path) -> Family | Misfit:
    """Return the family whose rows are in a file."""
    problem = unusable(path)
    if problem is not None:
        message, hint = problem
        return Misfit(("rows",), message, hint)

    def members(report: Report) -> Iterator[Member]:
        rows = file_rows(path, report)
        return _row_members(rows)

    return Family(members, path)


def _listed_family(listed: Sequence[Json]) -> Family:
    """Return the family whose rows are listed in the case."""
    return Family(lambda _report: _row_members(listed_rows(listed)))


def _row_members(rows: Rows) -> Iterator[Member]:
    for row in rows:
        label = _row_label(row.values.get("id"), row.number)
        yield Member(label, row.values, row.line)


def _row_label(id_: Any, number: int) -> str:
    """Return the id of a row; its number if it has none."""
    if id_ is None or id_ == "":
        return str(number)
    return as_text(id_)
