"""A case as it is written, aliases and all -> EvalCase.

These structs are what the loaders decode into and what `agentv schema` prints.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from agentv.formats.conversion import Misfit
from agentv.records import EvalCase, EvalFile, Execution, Json, Message, Role
from agentv.system.folders import repo_root

Text = Annotated[str, Meta(min_length=1)]
Messages = Annotated[tuple[Message, ...], Meta(min_length=1)]
Evaluators = tuple[Json, ...]


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a YAML eval file says besides its cases, and all that a sidecar says."""

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
    """What the cases of a file take from it when they say nothing themselves."""

    file: EvalFile
    execution: Execution
    evaluator: str
    description: str


def complete(record: CaseRecord, defaults: Defaults, line: int) -> EvalCase | list[Misfit]:
    """The case that a record describes, or what it lacks. A field's own name wins over its alias."""
    outcome = record.expected_outcome
    if outcome is None:
        outcome = record.outcome
    messages, given = record.input_messages, record.input
    if given is not None:
        if messages is None:
            messages = _one_or_more(given, "user")
        elif silent := _silent(record):
            return silent
    expected, output = record.expected_messages, record.expected_output
    if output is not None:
        if expected is None:
            expected = _one_or_more(output, "assistant")
        elif silent := _silent(record):
            return silent
    expected = expected or ()
    if record.id is None or outcome is None or messages is None:
        return _missing(record.id, outcome, messages)
    for message in messages + expected:
        if message.content is None and not _may_be_silent(message):
            return _silent(record)
    execution = defaults.execution
    if record.execution is not None or record.evaluators is not None:
        execution = _overriding(record, execution)
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


def _one_or_more(given: str | Json | tuple[Message, ...], role: Role) -> tuple[Message, ...]:
    """Messages as they are; anything else is what one message of `role` says."""
    return given if isinstance(given, tuple) else (Message(role=role, content=given),)


def _missing(id_: str | None, outcome: str | None, messages: tuple[Message, ...] | None) -> list[Misfit]:
    needed = {"id": id_, "expected_outcome": outcome, "input_messages": messages}
    lacking = ", ".join(name for name, value in needed.items() if value is None)
    case = f"case {id_!r}" if id_ else "the case"
    return [Misfit((), f"missing {lacking}; {case} is left out", severity="warning")]


def _silent(record: CaseRecord) -> list[Misfit]:
    """The messages that say nothing, by the field that they were written in."""
    fields = {
        "input_messages": record.input_messages,
        "input": record.input,
        "expected_messages": record.expected_messages,
        "expected_output": record.expected_output,
    }
    return [
        Misfit((field, index), "missing content", "only an assistant that has tool_calls may leave it out")
        for field, messages in fields.items()
        if isinstance(messages, tuple)
        for index, message in enumerate(messages)
        if message.content is None and not _may_be_silent(message)
    ]


def _may_be_silent(message: Message) -> bool:
    return message.role == "assistant" and bool(message.tool_calls)


def _overriding(record: CaseRecord | FileRecord, base: Execution) -> Execution:
    """`base` with what the record sets; `evaluators` wins over `execution.evaluators`."""
    own = record.execution or Execution()
    evaluators = own.evaluators if record.evaluators is None else record.evaluators
    return Execution(
        target=own.target or base.target,
        evaluators=base.evaluators if evaluators is None else evaluators,
    )


def defaults_of(path: Path, record: FileRecord) -> Defaults:
    file = EvalFile(path=path, dataset=record.dataset or path.stem, root=repo_root(path.parent))
    execution = _overriding(record, Execution(target="default", evaluators=()))
    return Defaults(file, execution, record.evaluator or "llm_judge", record.description or "")


def _given(*names: str) -> Json:
    """Schema: one of these fields is there, and not null."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


RULES: dict[str, Json] = {
    "CaseRecord": {
        "allOf": [_given("id"), _given("expected_outcome", "outcome"), _given("input_messages", "input")],
    },
    "Message": {
        "anyOf": [
            _given("content"),
            {
                "required": ["tool_calls"],
                "properties": {"role": {"const": "assistant"}, "tool_calls": {"type": "array", "minItems": 1}},
            },
        ]
    },
}
"""What `complete` asks of a record beyond the types of its fields, for its JSON Schema."""
