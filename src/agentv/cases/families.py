"""Families of cases: one case as it is written, with a `matrix` or `rows`, stands for many cases."""

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
from agentv.log import ignore
from agentv.placeholders import as_text
from agentv.records import Json

FAMILY_FIELDS = ("matrix", "exclude", "rows")


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
    """Return whether a case as it is written stands for several."""
    return any(written.get(name) is not None for name in FAMILY_FIELDS)


def family_of(written: Mapping[str, Any], folder: Path) -> Family | Misfit:
    """Return the family that a case stands for, or what is wrong with it. The fields have the right types.

    `folder` is that of the eval file.
    """
    matrix = written.get("matrix")
    exclude = written.get("exclude") or ()
    rows = written.get("rows")
    if matrix is not None and rows is not None:
        return Misfit(("rows",), "cannot be combined with 'matrix'", "use one of them")
    if matrix is None and exclude:
        return Misfit(("exclude",), "there is no 'matrix' to exclude combinations from", "set 'matrix', or remove it")
    if matrix is not None:
        return _matrix_family(matrix, exclude)
    if isinstance(rows, str):
        path = folder / rows
        problem = unusable(path)
        if problem is not None:
            return Misfit(("rows",), *problem)
        return Family(lambda report: _row_members(file_rows(path, report)), path)
    listed: Sequence[Json] = rows or ()
    return Family(lambda _report: _row_members(listed_rows(listed)))


# ---- matrix ----


def _matrix_family(matrix: Mapping[str, Sequence[Any]], exclude: Sequence[Json]) -> Family | Misfit:
    for number, combination in enumerate(exclude):
        misfit = _explain_exclusion(combination, matrix)
        if misfit is not None:
            return misfit._replace(steps=("exclude", number, *misfit.steps))
    excluded = [_identity(combination) for combination in exclude]
    family = Family(lambda _report: _combinations(matrix, excluded))
    if excluded and next(family.members(ignore), None) is None:
        return Misfit(("exclude",), "excludes every combination of the matrix", "remove one of its entries")
    return family


def _explain_exclusion(combination: Json, matrix: Mapping[str, Sequence[Any]]) -> Misfit | None:
    """Return why an entry of `exclude` excludes nothing, or None if it does."""
    if not combination:
        return Misfit((), "must name a value of the matrix", f"for example {_example(matrix)}")
    for name, value in combination.items():
        if name not in matrix:
            return Misfit((name,), "not in the matrix", nearest(name, matrix, "names"))
        if to_sorted_json(value) not in map(to_sorted_json, matrix[name]):
            shown = [as_text(each) for each in matrix[name]]
            return Misfit((name,), f"{as_text(value)!r} is not in the matrix", nearest(as_text(value), shown, "values"))
    return None


def _example(matrix: Mapping[str, Sequence[Any]]) -> str:
    name, values = next(iter(matrix.items()))
    return f"{{{name}: {as_text(values[0])}}}"


def _combinations(matrix: Mapping[str, Sequence[Any]], excluded: Sequence[Mapping[str, bytes]]) -> Iterator[Member]:
    *outer_names, inner_name = matrix
    *outer_axes, inner_axis = matrix.values()
    *outer_labels, inner_labels = (_labels(name, values) for name, values in matrix.items())
    # What the cases of the inner loop share is computed once for all of them.
    for parts, point in zip(product(*outer_labels), product(*outer_axes), strict=True):
        outer = dict(zip(outer_names, point, strict=True))
        prefix = "".join([f"{part}," for part in parts])
        for label, value in zip(inner_labels, inner_axis, strict=True):
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


def _row_members(rows: Rows) -> Iterator[Member]:
    for row in rows:
        yield Member(_row_label(row.values.get("id"), row.number), row.values, row.line)


def _row_label(id_: Any, number: int) -> str:
    """Return the id of a row; its number if it has none."""
    if id_ is None or id_ == "":
        return str(number)
    return as_text(id_)
