"""Convert raw cases to `EvalCase`s: replace variables, and expand families."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentv.cases.families import FAMILY_FIELDS, Family, Member, family_of, is_family
from agentv.cases.schema import (
    CaseRecord,
    Defaults,
    build_case,
    draft_case,
    explain_case,
    merge_vars,
    with_own_messages,
)
from agentv.cases.variables import expand_fields, fields_with_variables
from agentv.files.conversion import Misfit, convert
from agentv.files.yaml import Place, Steps
from agentv.placeholders import RepeatedTexts, texts_in
from agentv.records import EvalCase, Json, Problem

Report = Callable[[Problem], None]
"""A function that handles a problem: raises it, warns about it, or collects it."""
Locate = Callable[[Steps], Place]
"""A function that returns the position of a part of a case."""


class Inspection(NamedTuple):
    """Callbacks for findings that are not problems of the file itself."""

    on_ignored: Report
    """Called with an error for what a run ignores: an unknown field, once per name, or a file that is not a sidecar."""
    on_draft: Callable[[EvalCase, bool], None] = lambda _case, _is_skipped: None
    """Called with the readable part of an invalid case, and whether the case is merely skipped (warnings only)."""
    runs_code: bool = True
    """Whether to call a function that yields cases. If not, it only has to exist."""


class CaseSource(NamedTuple):
    """A raw case from a file: its value, its line, and the positions of its parts."""

    value: Any
    line: int
    locate: Locate
    subject: str = ""
    """The prefix of messages, if the position alone does not identify the case."""


@dataclass
class CaseExpander:
    """Yields the cases that a written case describes: one, or the members of a family."""

    path: Path
    defaults: Defaults
    report: Report
    inspection: Inspection | None = None
    row: tuple[Path, int] | None = None
    """The file and line of the row from which the last case was made, if there is one."""
    _reported: set[tuple[int, Misfit]] = field(default_factory=set)
    """The problems of families that were reported: many members share the same ones."""

    def cases(self, written: CaseSource) -> Iterator[EvalCase]:
        """Yield the valid cases, and report the problems of all others."""
        self.row = None
        value = written.value
        if isinstance(value, dict) and is_family(value):
            yield from self._members(written)
            return
        if isinstance(value, dict):
            fields = fields_with_variables(value)
            if fields:
                values = merge_vars(_own_vars(value), self.defaults)
                expanded = expand_fields(fields, values)
                value = {**value, **expanded.fields}
                if expanded.misfits:
                    self._report_invalid(written, expanded.misfits)
                    return
        case = convert_case(value, self.defaults, written.line)
        if case is None:
            self._report_invalid(written, explain_case(value))
            return
        yield case

    def _report_invalid(self, written: CaseSource, misfits: list[Misfit]) -> None:
        for misfit in misfits:
            self._report_misfit(written, misfit)
        inspect_draft(written.value, misfits, self.defaults, written.line, self.inspection)

    def _report_misfit(self, written: CaseSource, misfit: Misfit) -> None:
        problem = misfit.problem(self.path, written.locate(misfit.steps))
        if written.subject:
            problem = msgspec.structs.replace(problem, message=f"{written.subject}: {problem.message}")
        self.report(problem)

    # ---- families ----

    def _members(self, written: CaseSource) -> Iterator[EvalCase]:
        value = written.value
        fields = fields_with_variables(value)
        misfits = [misfit for misfit in explain_case(value) if not _is_in(misfit.steps, fields)]
        if misfits:
            self._report_invalid(written, misfits)
            return
        family = family_of(value, self.path.parent)
        if isinstance(family, Misfit):
            self._report_misfit(written, family)
            return
        template = _Template(value, fields, self.defaults, written.line)
        is_empty = True

        def report(problem: Problem) -> None:
            nonlocal is_empty
            is_empty = False
            self.report(problem)

        for member in family.members(report):
            is_empty = False
            case = template.fill(member)
            if isinstance(case, EvalCase):
                if family.rows is not None:
                    self.row = (family.rows, member.line)
                yield case
            else:
                self._report_member(written, family, member, case)
        if is_empty and family.rows is not None:
            self._report_misfit(written, Misfit(("rows",), f"{family.rows.name} has no rows"))

    def _report_member(
        self,
        written: CaseSource,
        family: Family,
        member: Member,
        misfits: list[Misfit],
    ) -> None:
        """Report the problems of a member, each only for the first member that has it."""
        name = f"case '{written.value['id']}[{member.label}]'"
        if family.rows is not None:
            name += f", {family.rows}:{member.line}"
        for misfit in misfits:
            key = (written.line, misfit)
            if key not in self._reported:
                self._reported.add(key)
                message = misfit.message
                if name not in message:
                    message += f" ({name})"
                self._report_misfit(written, misfit._replace(message=message))


class _Template:
    """The case that the members of a family are made of."""

    def __init__(self, written: Json, fields: Json, defaults: Defaults, line: int):
        """`fields` are those that contain variables."""
        self._fields = fields
        self._rest = {name: value for name, value in written.items() if name not in FAMILY_FIELDS}
        self._id = written["id"]
        self._vars = merge_vars(_own_vars(written), defaults) or {}
        self._defaults = defaults
        self._line = line
        self._texts: RepeatedTexts | None = None
        """The texts with variables, if members can differ in nothing else."""
        self._places: list[_TextPlace] = []
        """Where these texts are."""
        self._first: list[Any] = []
        """The fields of the first case."""
        places = _repeated_texts(written, fields)
        if places is not None:
            self._places = places
            self._texts = RepeatedTexts(place.text for place in places)

    def fill(self, member: Member) -> EvalCase | list[Misfit]:
        """Return a member of the family, or its problem."""
        id_ = f"{self._id}[{member.label}]"
        values = member.values
        if self._vars:
            values = {**self._vars, **values}
        if self._first and self._texts is not None:
            texts = self._texts.fill(values)
            if texts is not None:
                return self._with_texts(id_, values, texts)
        expanded = expand_fields(self._fields, values)
        if expanded.misfits:
            return expanded.misfits
        value = {**self._rest, **expanded.fields, "id": id_, "vars": values}
        case = convert_case(value, self._defaults, self._line)
        if case is None:
            return explain_case(value)
        self._learn(case)
        return case

    def _learn(self, case: EvalCase) -> None:
        """Keep a case for `_with_texts` if that would have returned the same case."""
        if self._texts is None:
            return
        texts = self._texts.fill(case.vars or {})
        if texts is None:
            return
        self._first = [getattr(case, name) for name in EvalCase.__struct_fields__]
        try:
            is_same = self._with_texts(case.id, dict(case.vars or {}), texts) == case
        except IndexError:
            is_same = False
        if not is_same:
            self._texts = None  # messages in a vendor's format have other positions

    def _with_texts(self, id_: str, values: Json, texts: list[str]) -> EvalCase:
        """Return a member that differs from the first in a few texts: the rest has been checked.

        There may be millions of members, and this takes a fifth of the time of converting each.
        """
        fields = self._first.copy()
        fields[_ID] = id_
        fields[_VARS] = values
        for (index, number, _), text in zip(self._places, texts, strict=True):
            if number is None:
                fields[index] = text
                continue
            messages = fields[index]
            changed = replace(messages[number], content=text)
            if len(messages) == 1:
                fields[index] = (changed,)
            else:
                fields[index] = (*messages[:number], changed, *messages[number + 1 :])
        return EvalCase(*fields)


_index_of = EvalCase.__struct_fields__.index
_ID = _index_of("id")
_VARS = _index_of("vars")
_POSITIONS = {
    "expected_outcome": _index_of("expected_outcome"),
    "outcome": _index_of("expected_outcome"),
    "input": _index_of("input_messages"),
    "input_messages": _index_of("input_messages"),
    "expected_output": _index_of("expected_messages"),
    "expected_messages": _index_of("expected_messages"),
}
"""The positions in `EvalCase` of the fields with variables."""


class _TextPlace(NamedTuple):
    """A text with variables: the position of its field in `EvalCase`, and its message, if the field has messages."""

    field: int
    message: int | None
    text: str


def _repeated_texts(written: Json, fields: Json) -> list[_TextPlace] | None:
    """Return the texts with variables, if all of them are whole fields or contents of messages; else None."""
    if _has_alias_twice(written):
        return None
    texts = []
    for name, value in fields.items():
        index = _POSITIONS[name]
        has_messages = index != _POSITIONS["outcome"]
        for steps, text in texts_in(value):
            match steps:
                case ():  # a field that is a text, such as `input`
                    message = None
                    if has_messages:
                        message = 0
                case (int(message), "content"):
                    pass  # a message whose content is a text
                case _:
                    return None
            texts.append(_TextPlace(index, message, text))
    return texts


def _has_alias_twice(written: Json) -> bool:
    """Return whether a field is written together with its alias, so that one of them does not count."""
    pairs = (
        ("expected_outcome", "outcome"),
        ("input_messages", "input"),
        ("expected_messages", "expected_output"),
    )
    return any(written.get(name) is not None and written.get(alias) is not None for name, alias in pairs)


def _own_vars(written: Json) -> Json | None:
    values = written.get("vars")
    if isinstance(values, dict):
        return values
    return None


def _is_in(steps: Steps, fields: Mapping[str, Any]) -> bool:
    return bool(steps) and steps[0] in fields


# ---- single cases ----


def convert_case(value: Any, defaults: Defaults, line: int) -> EvalCase | None:
    """Return the case that a parsed value describes, or None if the value is invalid.

    Messages in a vendor's format are tried only if the value is not valid in agentv's own format.
    """
    case = _convert_own_case(value, defaults, line)
    if case is not None:
        return case
    own = with_own_messages(value)
    if own is None:
        return None
    return _convert_own_case(own, defaults, line)


def _convert_own_case(value: Any, defaults: Defaults, line: int) -> EvalCase | None:
    record = convert(value, CaseRecord)
    if isinstance(record, list):
        return None
    return build_case(record, defaults, line)


def inspect_draft(
    written: Any,
    misfits: list[Misfit],
    defaults: Defaults,
    line: int,
    inspection: Inspection | None,
) -> None:
    """Pass the readable part of an invalid case to the inspection."""
    if inspection is None:
        return
    draft = draft_case(written, misfits, defaults, line)
    if draft is None:
        return
    is_skipped = all(misfit.severity == "warning" for misfit in misfits)
    inspection.on_draft(draft, is_skipped)
