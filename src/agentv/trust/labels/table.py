"""Read labels from a CSV file, one per row."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ConfigError, ResultsError
from agentv.files.conversion import convert
from agentv.files.table import TableReader, find_delimiter, restore
from agentv.files.yaml import Place, read_error
from agentv.records import Problem
from agentv.results.answer_digest import text_digest
from agentv.trust.labels.file import MAX_PROBLEMS, Label, check_digest

COLUMNS = Label.__struct_fields__
_NEEDED = (("eval_id", "id"), ("label",), ("answer_digest", "answer", "candidate_answer"))
"""The required columns, each with its alternatives."""
_NUMBERS = {"trial": int, "score": float}
_NAMES_ONLY = 65536
"""The number of bytes that contain the first row of a file."""


class LabelTable(NamedTuple):
    """The labels of a table, and facts about it."""

    labels: list[Label]
    unlabelled: int
    """The number of rows with an empty label, which are not reviewed yet."""
    is_export: bool
    """Whether agentv exported the table: its scores are then those of evaluators, not of reviewers."""


def read_label_table(path: Path) -> LabelTable:
    """Return the labels of a CSV file; raise `ResultsError` with everything that is wrong with its rows.

    Columns are named after the fields of a label, ignoring case. `answer` (or `candidate_answer`) can replace
    `answer_digest` for answers that consist of text, and `id` can replace `eval_id`; other columns are ignored. Raise
    `ConfigError` if columns are missing, or if no row has a label.
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
        raise ConfigError(
            "no row has a label",
            file=path,
            hint="the column 'label' must contain pass or fail",
        )
    return LabelTable(labels, unlabelled, is_export)


def _delimiter(path: Path) -> str:
    """Return the delimiter of a table; raise `ConfigError` if the file is not a table."""
    try:
        with path.open("rb") as file:
            data = file.read(_NAMES_ONLY)
    except OSError as error:
        raise read_error(error, path, ConfigError) from error
    start = data.decode("utf-8-sig", "replace")
    if start.lstrip().startswith(("{", "[")):
        raise ConfigError("this is JSON, not a table", file=path, hint="pass a CSV file")
    return find_delimiter(start) or ","


def _check_columns(names: list[str], path: Path) -> None:
    """Raise `ConfigError` for duplicate or missing columns."""
    repeated = [name for name in COLUMNS if names.count(name) > 1]
    if repeated:
        shown = ", ".join(map(repr, repeated))
        raise ConfigError(
            f"duplicate columns: {shown}",
            file=path,
            line=1,
            hint="column names are not case-sensitive",
        )
    missing: list[str] = []
    for alternatives in _NEEDED:
        if set(alternatives).isdisjoint(names):
            missing.append(" or ".join(map(repr, alternatives)))
    if missing:
        known = ", ".join(map(repr, names))
        raise ConfigError(
            f"no column {', no column '.join(missing)}",
            file=path,
            line=1,
            hint=f"available columns: {known}",
        )


def _label(
    cells: Mapping[str, str],
    is_export: bool,
    path: Path,
    line: int,
) -> Label | list[Problem]:
    """Return the label of a row, or its problems."""
    values: dict[str, Any] = {}
    for name in COLUMNS:
        cell = cells.get(name, "").strip()
        if cell:
            values[name] = cell
    eval_id = values.get("eval_id", cells.get("id", "").strip())
    values["eval_id"] = restore(eval_id)
    for name in ("label", "sampling", "answer_digest"):
        if name in values:
            # An export puts an apostrophe before a digest that a spreadsheet would read as a number.
            values[name] = values[name].lower().removeprefix("'")
    if "answer_digest" not in values:
        answer = cells.get("answer", cells.get("candidate_answer", ""))
        values["answer_digest"] = text_digest(restore(answer))
    if is_export:
        values.pop("score", None)  # that of the evaluators, not of a reviewer
    for name, kind in _NUMBERS.items():
        if name in values:
            values[name] = _number(values[name], kind)
    found = convert(values, Label)
    if isinstance(found, list):
        place = Place(line, 1)
        return [misfit.problem(path, place) for misfit in found]
    return check_digest(found, path, line) or found


def _number(text: str, kind: type) -> Any:
    """Return the number in a cell, or else its text, which `convert` then reports as a problem."""
    number = text
    if kind is float:
        # spreadsheets write a decimal comma in many locales
        number = text.replace(",", ".")
    try:
        return kind(number)
    except ValueError:
        return text
