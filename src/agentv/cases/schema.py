"""Convert cases as they are written, with aliases, into `EvalCase`s.

The loaders decode into these structs, and `agentv schema` prints their JSON Schema, docstrings included.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.errors import closest
from agentv.formats.conversion import Misfit, convert, field_names, find_typos
from agentv.records import EvalCase, EvalFile, Execution, Json, Message, Role
from agentv.system.folders import repo_root

Text = Annotated[str, Meta(min_length=1)]
Messages = Annotated[tuple[Message, ...], Meta(min_length=1)]
Evaluators = tuple[Json, ...]


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a YAML eval file besides its cases, and all of a sidecar."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(name="$schema", default=None)

    description: Annotated[str | None, Meta(description="What this dataset is for.")] = None
    dataset: Annotated[Text | None, Meta(description="Its name; the file's base name if left out.")] = None
    execution: Annotated[
        Execution | None, Meta(description="The target and the evaluators of the cases that name no others.")
    ] = None
    evaluators: Annotated[Evaluators | None, Meta(description="The same as execution.evaluators.")] = None
    evaluator: Annotated[Text | None, Meta(description="The kind of evaluator used when none is set up.")] = None


class CaseRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One eval case as it is written: any field may be null or missing, and some have an alias."""

    id: Annotated[Text | None, Meta(description="Unique in its file.")] = None
    expected_outcome: Annotated[str | None, Meta(description="What a good answer achieves.")] = None
    outcome: Annotated[str | None, Meta(description="Alias of expected_outcome.")] = None
    input_messages: Annotated[Messages | None, Meta(description="What is sent to the target.")] = None
    input: Annotated[
        str | Messages | None, Meta(description="Alias of input_messages; a string is one user message.")
    ] = None
    expected_messages: Annotated[
        tuple[Message, ...] | None, Meta(description="A good answer, for evaluators that compare.")
    ] = None
    expected_output: Annotated[
        str | Json | tuple[Message, ...] | None,
        Meta(description="Alias of expected_messages; a string or an object is one assistant message."),
    ] = None
    conversation_id: Annotated[str | None, Meta(description="Groups the cases of one conversation.")] = None
    execution: Annotated[Execution | None, Meta(description="Overrides the file's execution.")] = None
    evaluators: Annotated[Evaluators | None, Meta(description="The same as execution.evaluators.")] = None
    rubrics: Annotated[tuple[str | Json, ...] | None, Meta(description="Adds a rubric evaluator.")] = None
    evaluator: Annotated[Text | None, Meta(description="The kind of evaluator used when none is set up.")] = None
    description: Annotated[str | None, Meta(description="For the reader of the results.")] = None
    metadata: Annotated[Json | None, Meta(description="Carried to the result.")] = None


class EvalFileRecord(FileRecord, frozen=True, kw_only=True):
    """A YAML eval file."""

    evalcases: Annotated[tuple[CaseRecord, ...], Meta(min_length=1, description="The eval cases.")]


class Defaults(msgspec.Struct, frozen=True):
    """The values of a file that its cases inherit for the fields that they omit."""

    file: EvalFile
    execution: Execution
    evaluator: str
    description: str


def build_case(record: CaseRecord, defaults: Defaults, line: int) -> EvalCase | None:
    """Return the case that a record describes, or None if it is invalid; `explain_case` returns the reasons.

    A field takes precedence over its alias.
    """
    # This runs once per line of a JSONL file, so it calls helpers only when plain attributes do not suffice.
    outcome = record.expected_outcome
    if outcome is None:
        outcome = record.outcome
    messages = record.input_messages
    if messages is None and record.input is not None:
        messages = _as_messages(record.input, "user")
    expected = record.expected_messages
    if expected is None:
        expected = ()
        if record.expected_output is not None:
            expected = _as_messages(record.expected_output, "assistant")

    if record.id is None or outcome is None or messages is None:
        return None
    for message in messages + expected:
        if message.content is None and not _may_lack_content(message):
            return None
    if _has_unused_alias(record) and _missing_content(record):
        return None

    execution = defaults.execution
    if record.execution is not None or record.evaluators is not None:
        execution = _override(record, execution)
    return EvalCase(
        record.id,
        outcome,
        messages,
        expected,
        record.conversation_id,
        execution,
        record.rubrics or (),
        record.evaluator or defaults.evaluator,
        record.description or defaults.description,
        record.metadata,
        defaults.file,
        line,
    )


def _has_unused_alias(record: CaseRecord) -> bool:
    """Return whether a record sets a field together with its alias; the messages of the alias must be valid too."""
    if record.input_messages is not None and record.input is not None:
        return True
    return record.expected_messages is not None and record.expected_output is not None


def _as_messages(given: str | Json | tuple[Message, ...], role: Role) -> tuple[Message, ...]:
    """Return messages unchanged, and anything else as the content of a single message of this role."""
    if isinstance(given, tuple):
        return given
    return (Message(role=role, content=given),)


REQUIRED_FIELDS = {
    "id": ("id",),
    "expected_outcome": ("expected_outcome", "outcome"),
    "input_messages": ("input_messages", "input"),
}
"""The fields that every case must have, each with its accepted names."""


def explain_case(written: Any) -> list[Misfit]:
    """Return everything that is wrong with a case as it is written, except for its evaluators; empty if valid."""
    record = convert(written, CaseRecord)
    misfits = record if isinstance(record, list) else _missing_content(record)
    if isinstance(written, dict):
        missing = _missing_fields(written, is_only_problem=not misfits)
        if missing is not None:
            return [*misfits, missing]
    return misfits


def _missing_fields(written: Json, *, is_only_problem: bool) -> Misfit | None:
    """Return a single misfit for all required fields that a case lacks; its hint suggests fields with similar names.

    If nothing else is wrong with the case, the misfit is a warning, and the case is skipped.
    """
    missing = []
    missing_names: list[str] = []
    for field, names in REQUIRED_FIELDS.items():
        if all(written.get(name) is None for name in names):
            missing.append(field)
            missing_names.extend(names)
    if not missing:
        return None
    hint = _suggest_names(written, missing_names)
    message = f"missing {', '.join(missing)}"
    if not is_only_problem:
        return Misfit((), message, hint)
    case = "the case"
    id_ = written.get("id")
    if isinstance(id_, str) and id_:
        case = f"case {id_!r}"
    return Misfit((), f"{message}; {case} is left out", hint, "warning")


def _suggest_names(written: Json, known: list[str]) -> str:
    """Return a hint for the unknown fields of a case that are similar to one of the known names."""
    suggestions = []
    for name in written:
        if name in field_names(CaseRecord):
            continue
        close = closest(name, known)
        if close:
            suggestions.append(f"did you mean {close!r} by {name!r}?")
    return ", ".join(suggestions)


def find_case_typos(written: Mapping[str, Any], type_: type) -> Iterator[Misfit]:
    """Yield the field names of a case or a file that are probably typos, including those in `execution`."""
    yield from find_typos(written, type_)
    execution = written.get("execution")
    if isinstance(execution, msgspec.Raw):
        execution = msgspec.json.decode(execution)
    if not isinstance(execution, dict):
        return
    for misfit in find_typos(execution, Execution):
        yield misfit._replace(steps=("execution", *misfit.steps))


NO_ID = "?"
"""The id of a draft whose case has none."""
_EVALUATOR_FIELDS = frozenset({"execution", "evaluators", "rubrics", "evaluator"})


def draft_case(
    written: Any,
    misfits: Iterable[Misfit],
    defaults: Defaults,
    line: int,
) -> EvalCase | None:
    """Return a case with only the evaluators of an invalid one, so that they can be checked too.

    Return None if the case has no evaluators of its own, or if they are among the misfits.
    """
    if not isinstance(written, dict):
        return None
    evaluator_fields = _EVALUATOR_FIELDS.intersection(written)
    invalid_fields = {misfit.steps[0] for misfit in misfits if misfit.steps}
    if not evaluator_fields or _EVALUATOR_FIELDS & invalid_fields:
        return None
    id_ = written.get("id")
    if not isinstance(id_, str) or not id_:
        id_ = NO_ID
    draft = {name: written[name] for name in evaluator_fields}
    draft.update(id=id_, outcome="", input="")
    record = convert(draft, CaseRecord)
    if isinstance(record, list):
        return None
    return build_case(record, defaults, line)


def _missing_content(record: CaseRecord) -> list[Misfit]:
    """Return a misfit for each message without content, by the field that contains it."""
    fields = {
        "input_messages": record.input_messages,
        "input": record.input,
        "expected_messages": record.expected_messages,
        "expected_output": record.expected_output,
    }
    hint = "only an assistant that has tool_calls may leave it out"
    misfits = []
    for field, messages in fields.items():
        if not isinstance(messages, tuple):
            continue
        for index, message in enumerate(messages):
            if message.content is None and not _may_lack_content(message):
                misfits.append(Misfit((field, index), "missing content", hint))
    return misfits


def _may_lack_content(message: Message) -> bool:
    return message.role == "assistant" and bool(message.tool_calls)


def _override(record: CaseRecord | FileRecord, base: Execution) -> Execution:
    """Return `base` with what the record sets; `evaluators` takes precedence over `execution.evaluators`."""
    execution = record.execution or Execution()
    evaluators = record.evaluators
    if evaluators is None:
        evaluators = execution.evaluators
    if evaluators is None:
        evaluators = base.evaluators
    return Execution(
        target=execution.target or base.target,
        evaluators=evaluators,
    )


def build_defaults(path: Path, record: FileRecord) -> Defaults:
    """Return the defaults for the cases of a file, from its own record or from its sidecar's."""
    file = EvalFile(
        path=path,
        dataset=record.dataset or path.stem,
        root=repo_root(path.parent),
    )
    built_in = Execution(target="default", evaluators=())
    return Defaults(
        file=file,
        execution=_override(record, built_in),
        evaluator=record.evaluator or "llm_judge",
        description=record.description or "",
    )


def _require_one(*names: str) -> Json:
    """Return the JSON Schema of an object that has at least one of these fields, and not null."""
    choices = []
    for name in names:
        not_null = {"not": {"type": "null"}}
        choices.append({"required": [name], "properties": {name: not_null}})
    return {"anyOf": choices}


RULES: dict[str, Json] = {
    "CaseRecord": {
        "allOf": [
            _require_one("id"),
            _require_one("expected_outcome", "outcome"),
            _require_one("input_messages", "input"),
        ],
    },
    "Message": {
        "anyOf": [
            _require_one("content"),
            {
                "required": ["tool_calls"],
                "properties": {
                    "role": {"const": "assistant"},
                    "tool_calls": {"type": "array", "minItems": 1},
                },
            },
        ]
    },
}
"""JSON Schema for what `build_case` requires of a record beyond the types of its fields."""
