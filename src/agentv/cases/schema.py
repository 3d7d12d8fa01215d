"""A case as it is written, with aliases -> EvalCase.

The loaders decode into these structs, and `agentv schema` prints their JSON Schema.
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
    """What cases take from their file for the fields that they leave out."""

    file: EvalFile
    execution: Execution
    evaluator: str
    description: str


def build_case(record: CaseRecord, defaults: Defaults, line: int) -> EvalCase | list[Misfit]:
    """Return the case that a record describes, or what is wrong with it. A field's own name wins over its alias."""
    outcome = record.expected_outcome
    if outcome is None:
        outcome = record.outcome
    messages, given = record.input_messages, record.input
    if given is not None:
        if messages is None:
            messages = _as_messages(given, "user")
        elif misfits := _missing_content(record):
            return misfits
    expected, output = record.expected_messages, record.expected_output
    if output is not None:
        if expected is None:
            expected = _as_messages(output, "assistant")
        elif misfits := _missing_content(record):
            return misfits
    expected = expected or ()
    if record.id is None or outcome is None or messages is None:
        return [*_missing_fields({"id": record.id, "outcome": outcome, "input": messages})]
    for message in messages + expected:
        if message.content is None and not _may_lack_content(message):
            return _missing_content(record)
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


def _as_messages(given: str | Json | tuple[Message, ...], role: Role) -> tuple[Message, ...]:
    """Return messages as they are, and anything else as the content of one message of this role."""
    return given if isinstance(given, tuple) else (Message(role=role, content=given),)


NEEDED = {
    "id": ("id",),
    "expected_outcome": ("expected_outcome", "outcome"),
    "input_messages": ("input_messages", "input"),
}
"""The fields that every case has, each with the names that it may have."""


def explain_case(written: Any) -> list[Misfit]:
    """Return everything that is wrong with a case as it is written, but for its evaluators; empty if nothing is."""
    record = convert(written, CaseRecord)
    misfits = record if isinstance(record, list) else _missing_content(record)
    if not isinstance(written, dict):
        return misfits
    return [*misfits, *_missing_fields(written, only=not misfits)]


def _missing_fields(written: Json, *, only: bool = True) -> Iterator[Misfit]:
    """Yield one misfit for all the fields that a case lacks; its hint tells of names that are like theirs.

    It is a warning, and the case is left out, if that is the only thing wrong with it.
    """
    lacking = [name for name, names in NEEDED.items() if all(written.get(alias) is None for alias in names)]
    if not lacking:
        return
    known = [alias for name in lacking for alias in NEEDED[name]]
    slips = ((name, closest(name, known)) for name in written if name not in field_names(CaseRecord))
    hint = ", ".join(f"did you mean {close!r} by {name!r}?" for name, close in slips if close)
    id_ = written.get("id")
    case = f"case {id_!r}" if isinstance(id_, str) and id_ else "the case"
    message = f"missing {', '.join(lacking)}"
    yield Misfit((), f"{message}; {case} is left out", hint, "warning") if only else Misfit((), message, hint)


def find_case_typos(written: Mapping[str, Any], type_: type) -> Iterator[Misfit]:
    """Yield the names of fields of a case, or of a file, that are probably typos; those in `execution` too."""
    yield from find_typos(written, type_)
    execution = written.get("execution")
    if isinstance(execution, msgspec.Raw):
        execution = msgspec.json.decode(execution)
    for misfit in find_typos(execution, Execution) if isinstance(execution, dict) else ():
        yield misfit._replace(steps=("execution", *misfit.steps))


NO_ID = "?"
"""The id of a draft whose case has none."""


def draft_case(written: Any, misfits: Iterable[Misfit], defaults: "Defaults", line: int) -> EvalCase | None:
    """Return what can be made of a case without the fields that are wrong; None if its evaluators are among them."""
    wrong = {misfit.steps[0] for misfit in misfits if misfit.steps}
    settings = {"execution", "evaluators", "rubrics", "evaluator"}
    if not isinstance(written, dict) or wrong & settings or not settings.intersection(written):
        return None
    id_ = written.get("id")
    rest = {"id": id_ if isinstance(id_, str) and id_ else NO_ID, "outcome": "", "input": ""}
    kept = {name: written[name] for name in settings.intersection(written)}
    record = convert(kept | rest, CaseRecord)
    case = record if isinstance(record, list) else build_case(record, defaults, line)
    return None if isinstance(case, list) else case


def _missing_content(record: CaseRecord) -> list[Misfit]:
    """Return the messages that have no content, by the field that they are written in."""
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
        if message.content is None and not _may_lack_content(message)
    ]


def _may_lack_content(message: Message) -> bool:
    return message.role == "assistant" and bool(message.tool_calls)


def _override(record: CaseRecord | FileRecord, base: Execution) -> Execution:
    """Return `base` with what the record sets; `evaluators` wins over `execution.evaluators`."""
    own = record.execution or Execution()
    evaluators = own.evaluators if record.evaluators is None else record.evaluators
    return Execution(
        target=own.target or base.target,
        evaluators=base.evaluators if evaluators is None else evaluators,
    )


def build_defaults(path: Path, record: FileRecord) -> Defaults:
    """Return the defaults for the cases of a file, from its record or from its sidecar's."""
    file = EvalFile(path=path, dataset=record.dataset or path.stem, root=repo_root(path.parent))
    execution = _override(record, Execution(target="default", evaluators=()))
    return Defaults(file, execution, record.evaluator or "llm_judge", record.description or "")


def _require_one(*names: str) -> Json:
    """Return the schema of an object that has one of these fields, and not null."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


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
                "properties": {"role": {"const": "assistant"}, "tool_calls": {"type": "array", "minItems": 1}},
            },
        ]
    },
}
"""What `build_case` asks of a record beyond the types of its fields, for its JSON Schema."""
