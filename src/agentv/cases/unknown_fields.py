"""Find the fields of eval files and cases that agentv does not know. A name that is repeated is reported once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agentv.cases.schema import FREE_PREFIX, CaseRecord
from agentv.errors import closest
from agentv.files.conversion import Misfit, field_names
from agentv.files.yaml import Place, Steps
from agentv.records import Execution, Problem

Locate = Callable[[Steps], Place]
"""A function that returns the position of a part of a case or a file."""

MAX_NAMES = 20
"""How many names are reported per file."""
MIN_PREFIX = 4
"""Minimum length of an abbreviation that is recognized: `exec` is taken for `execution`."""

OTHER_NAMES = {
    "question": "input",
    "prompt": "input",
    "query": "input",
    "expected": "expected_output",
    "answer": "expected_output",
    "ideal": "expected_output",
    "expected_answer": "expected_output",
    "reference_answer": "expected_output",
    "assert": "evaluators",
    "scorers": "evaluators",
}
"""Names that other tools, and tables of questions, use for fields of a case."""


@dataclass
class _Found:
    """An unknown field: where it was seen first, and in how many cases it is."""

    misfit: Misfit
    place: Place
    is_in_case: bool
    count: int = 1


class UnknownFields:
    """Collect the unknown fields of one file."""

    def __init__(self, path: Path):
        self._path = path
        self._found: dict[tuple[type, Steps], _Found] = {}
        self._has_more = False

    def add(self, written: Mapping[str, Any], type_: type, locate: Locate) -> None:
        """Add the unknown fields of a raw case or file; `type_` has the known ones."""
        for steps in _unknown_steps(written, type_):
            key = (type_, steps)
            found = self._found.get(key)
            if found is not None:
                found.count += 1
            elif len(self._found) < MAX_NAMES:
                self._found[key] = _Found(
                    misfit=_explain(steps, type_),
                    place=locate(steps),
                    is_in_case=type_ is CaseRecord,
                )
            else:
                self._has_more = True

    def problems(self) -> Iterator[Problem]:
        """Yield one error per name, located where the name first occurs."""
        for found in self._found.values():
            problem = found.misfit.problem(self._path, found.place)
            if found.is_in_case and found.count > 1:
                counted = f"{problem.message} (in {found.count:,} cases)"
                problem = msgspec.structs.replace(problem, message=counted)
            yield problem
        if self._has_more:
            yield Problem(
                message=f"more than {MAX_NAMES} different unknown fields",
                file=self._path,
                line=1,
                column=1,
            )


def as_ignored(problem: Problem) -> Problem:
    """Return the problem of an unknown field as a warning: a run ignores the field."""
    return msgspec.structs.replace(
        problem,
        message=f"{problem.message}, ignored",
        severity="warning",
    )


def _unknown_steps(written: Mapping[str, Any], type_: type) -> Iterator[Steps]:
    """Yield the steps to each unknown field, including those in `execution`."""
    known = field_names(type_)
    for name in written:
        if name not in known and not name.startswith(FREE_PREFIX):
            yield (name,)
    execution = written.get("execution")
    if execution is None:
        return
    if isinstance(execution, msgspec.Raw):
        execution = msgspec.json.decode(execution)
    if not isinstance(execution, dict):
        return
    known = field_names(Execution)
    for name in execution:
        if name not in known and not name.startswith(FREE_PREFIX):
            yield "execution", name


def _explain(steps: Steps, type_: type) -> Misfit:
    """Return the problem of an unknown field, with a suggestion."""
    name = str(steps[-1])
    is_inner = len(steps) > 1
    known = field_names(type_)
    if is_inner:
        known = field_names(Execution)
    close = closest(name, known) or _completion(name, known)
    hint = f"known fields: {', '.join(sorted(known))}"
    if close:
        hint = f"did you mean {close!r}?"
    elif name in field_names(Execution):
        hint = f"move it to 'execution:', for example 'execution: {{{name}: …}}'"
    elif type_ is CaseRecord and name in OTHER_NAMES and not is_inner:
        hint = f"did you mean {OTHER_NAMES[name]!r}?"
    elif type_ is CaseRecord and not is_inner:
        hint = "put custom data under 'metadata', which is copied to the result"
    return Misfit(steps, "unknown field", hint)


def _completion(name: str, known: Iterable[str]) -> str | None:
    """Return the only known name that starts with `name`, or None."""
    found = [each for each in known if each.startswith(name)]
    if len(name) < MIN_PREFIX or len(found) != 1:
        return None
    return found[0]
