"""A CSV file -> labels, a row each."""

from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ConfigError, ResultsError
from agentv.formats.conversion import convert
from agentv.formats.table import TableRow, read_table
from agentv.formats.yaml import Place
from agentv.records import Problem
from agentv.results.labels.file import MAX_PROBLEMS, Label, answer_digest, check_digest

COLUMNS = Label.__struct_fields__
_NUMBERS = {"trial": int, "score": float}
_NEUTRALISED = tuple(f"'{sign}" for sign in "=+-@\t\r")
"""How answers begin in an export that a spreadsheet would take for formulas."""


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
    names, rows = read_table(path, ConfigError)
    _check_columns(names, path)
    is_export = "verdict" in names
    labels: list[Label] = []
    problems: list[Problem] = []
    unlabelled = 0
    for row in rows:
        if not row.cells.get("label", "").strip():
            unlabelled += 1
            continue
        found = _label(row, is_export, path)
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


def _check_columns(names: list[str], path: Path) -> None:
    """Raise `ConfigError` that names the columns which are missing, and those that exist."""
    needed = {"eval_id": ("eval_id", "id"), "label": ("label",), "answer_digest": ("answer_digest", "answer")}
    missing = [" or ".join(map(repr, names_)) for names_ in needed.values() if not set(names_) & set(names)]
    if missing:
        known = ", ".join(repr(name) for name in names if name) or "none that has a name"
        raise ConfigError(f"no column {', no column '.join(missing)}", file=path, line=1, hint=f"there are {known}")


def _label(row: TableRow, is_export: bool, path: Path) -> Label | list[Problem]:
    cells = row.cells
    values: dict[str, Any] = {name: cells[name].strip() for name in COLUMNS if cells.get(name, "").strip()}
    values.setdefault("eval_id", cells.get("id", "").strip())
    values["label"] = values["label"].lower()
    if "sampling" in values:
        values["sampling"] = values["sampling"].lower()
    if "answer_digest" in values:
        values["answer_digest"] = values["answer_digest"].lower()
    else:
        answer = cells.get("answer", "")
        values["answer_digest"] = answer_digest(answer[1:] if answer.startswith(_NEUTRALISED) else answer)
    if is_export:
        values.pop("score", None)
    for name, kind in _NUMBERS.items():
        values |= {name: _number(values[name], kind)} if name in values else {}
    found = convert(values, Label)
    if isinstance(found, list):
        return [misfit.problem(path, Place(row.line, 1)) for misfit in found]
    return check_digest(found, path, row.line) or found


def _number(text: str, kind: type) -> Any:
    """Return the number that a cell has, else its text, of which `convert` will say what is wrong."""
    try:
        return kind(text.replace(",", ".") if kind is float else text)
    except ValueError:
        return text
