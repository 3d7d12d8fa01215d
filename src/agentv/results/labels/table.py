"""A CSV file -> labels, a row each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ConfigError, ResultsError
from agentv.formats.conversion import convert
from agentv.formats.table import TableReader, find_delimiter, restore
from agentv.formats.yaml import Place, read_error
from agentv.records import Problem
from agentv.results.labels.file import MAX_PROBLEMS, Label, answer_digest, check_digest

COLUMNS = Label.__struct_fields__
_NUMBERS = {"trial": int, "score": float}
_NAMES_ONLY = 65536
"""Bytes of a file in which its first row ends."""


class LabelTable(NamedTuple):
    """The labels of a table, and what else there is to say of it."""

    labels: list[Label]
    unlabelled: int
    """Rows whose label is empty: nobody has looked at them yet."""
    is_export: bool
    """Whether agentv wrote the table, so that its scores are those of the evaluators."""


def read_label_table(path: Path) -> LabelTable:
    """Return the labels of a CSV file; raise `ResultsError` with all that is wrong with its rows.

    Columns are named as the fields of a label are, in any letter case. `answer` may stand for `answer_digest`, and
    `id` for `eval_id`; other columns are passed over.
    """
    reader = TableReader(path, _delimiter(path), ConfigError)
    names = [name.lower() for name in reader.names]
    _check_columns(names, path)
    is_export = "verdict" in names
    labels: list[Label] = []
    problems: list[Problem] = []
    unlabelled = 0
    for row, line in reader.rows():
        cells = dict(zip(names, row, strict=False))
        if not cells.get("label", "").strip():
            unlabelled += 1
            continue
        found = _label(cells, is_export, path, line)
        if isinstance(found, Label):
            labels.append(found)
        else:
            problems += found
        if len(problems) >= MAX_PROBLEMS:
            break
    if problems:
        raise ResultsError(problems)
    if not labels:
        raise ConfigError("no row has a label", file=path, hint="the column 'label' has pass or fail")
    return LabelTable(labels, unlabelled, is_export)


def _delimiter(path: Path) -> str:
    """Return what separates the cells of a table; raise `ConfigError` if it is none."""
    try:
        with path.open("rb") as file:
            start = file.read(_NAMES_ONLY).decode("utf-8-sig", "replace")
    except OSError as error:
        raise read_error(error, path, ConfigError) from error
    if start.lstrip().startswith(("{", "[")):
        raise ConfigError("this is JSON, not a table", file=path, hint="name a CSV file")
    return find_delimiter(start) or ","


def _check_columns(names: list[str], path: Path) -> None:
    """Raise `ConfigError` that names the columns which are missing, and those that exist."""
    if repeated := [name for name in COLUMNS if names.count(name) > 1]:
        message = f"several columns have one name: {', '.join(map(repr, repeated))}"
        raise ConfigError(message, file=path, line=1, hint="letter case does not count")
    needed = {"eval_id": ("eval_id", "id"), "label": ("label",), "answer_digest": ("answer_digest", "answer")}
    missing = [" or ".join(map(repr, names_)) for names_ in needed.values() if not set(names_) & set(names)]
    if missing:
        known = ", ".join(repr(name) for name in names)
        raise ConfigError(f"no column {', no column '.join(missing)}", file=path, line=1, hint=f"there are {known}")


def _label(cells: Mapping[str, str], is_export: bool, path: Path, line: int) -> Label | list[Problem]:
    values: dict[str, Any] = {name: cells[name].strip() for name in COLUMNS if cells.get(name, "").strip()}
    values["eval_id"] = restore(values.get("eval_id", cells.get("id", "").strip()))
    values["label"] = values["label"].lower()
    if "sampling" in values:
        values["sampling"] = values["sampling"].lower()
    if "answer_digest" in values:
        values["answer_digest"] = values["answer_digest"].lower()
    else:
        values["answer_digest"] = answer_digest(restore(cells.get("answer", "")))
    if is_export:
        values.pop("score", None)
    for name, kind in _NUMBERS.items():
        values |= {name: _number(values[name], kind)} if name in values else {}
    found = convert(values, Label)
    if isinstance(found, list):
        return [misfit.problem(path, Place(line, 1)) for misfit in found]
    return check_digest(found, path, line) or found


def _number(text: str, kind: type) -> Any:
    """Return the number that a cell has, else its text, of which `convert` will say what is wrong."""
    try:
        return kind(text.replace(",", ".") if kind is float else text)
    except ValueError:
        return text
