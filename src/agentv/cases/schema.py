"""Convert raw cases, with aliases, into `EvalCase`s.

The loaders decode into these structs, and `agentv schema` prints their JSON Schema, docstrings included.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.errors import closest
from agentv.files.conversion import ACCEPTS, Misfit, convert, field_names
from agentv.files.encode import to_json
from agentv.files.folders import repo_root
from agentv.files.messages import read_case_messages
from agentv.hook_settings import Hooks
from agentv.records import (
    DEFAULT_TARGET,
    PASS,
    CaseFile,
    EvalCase,
    Execution,
    Json,
    Message,
    PassRule,
    Role,
)
from agentv.stats.metrics import MetricSpec
from agentv.text import path_text

Text = Annotated[str, Meta(min_length=1)]
Messages = Annotated[tuple[Message, ...], Meta(min_length=1)]
Evaluators = tuple[Json, ...]
Axis = Annotated[tuple[Any, ...], Meta(min_length=1)]
Matrix = Annotated[dict[Text, Axis], Meta(min_length=1)]
Rows = Annotated[tuple[Json, ...], Meta(min_length=1)]
_PASS_RULE = Meta(
    description="When a case passes: the minimum mean score (default: 0.8), or 'all' if every evaluator must pass.",
    extra={ACCEPTS: "'all' or a number greater than 0 and at most 1"},
)


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a YAML eval file apart from its cases, and the content of a sidecar."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(
        name="$schema",
        default=None,
    )

    description: Annotated[str | None, Meta(description="What this dataset is for.")] = None
    dataset: Annotated[Text | None, Meta(description="Name of the dataset. Defaults to the base name of the file.")] = (
        None
    )
    execution: Annotated[
        Execution | None,
        Meta(description="Target and evaluators of cases that do not set their own."),
    ] = None
    evaluators: Annotated[Evaluators | None, Meta(description="The same as execution.evaluators.")] = None
    evaluator: Annotated[Text | None, Meta(description="The evaluator type for cases without evaluators.")] = None
    pass_rule: Annotated[PassRule | None, _PASS_RULE] = msgspec.field(name="pass", default=None)
    vars: Annotated[Json | None, Meta(description="Values for {{ vars.NAME }} in all cases.")] = None
    metrics: Annotated[
        tuple[MetricSpec, ...] | None,
        Meta(description="Metrics over all results of the file, computed by your functions."),
    ] = None
    hooks: Annotated[Hooks | None, Meta(description="Hooks that run before and after the cases of the file.")] = None


class CaseRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One eval case as written in a file: any field may be null or missing, and some have an alias."""

    id: Annotated[Text | None, Meta(description="Unique within the file.")] = None
    expected_outcome: Annotated[str | None, Meta(description="What a good answer must achieve.")] = None
    outcome: Annotated[str | None, Meta(description="Alias of expected_outcome.")] = None
    input_messages: Annotated[Messages | None, Meta(description="Messages to send to the target.")] = None
    input: Annotated[
        str | Messages | None,
        Meta(description="Alias of input_messages; a string is one user message."),
    ] = None
    expected_messages: Annotated[
        tuple[Message, ...] | None,
        Meta(description="Reference answer, for evaluators that compare."),
    ] = None
    expected_output: Annotated[
        str | Json | tuple[Message, ...] | None,
        Meta(description="Alias of expected_messages; a string or an object is one assistant message."),
    ] = None
    conversation_id: Annotated[str | None, Meta(description="Groups the cases of one conversation.")] = None
    execution: Annotated[Execution | None, Meta(description="Overrides the file's execution.")] = None
    evaluators: Annotated[Evaluators | None, Meta(description="The same as execution.evaluators.")] = None
    rubrics: Annotated[tuple[str | Json, ...] | None, Meta(description="Adds a rubric evaluator.")] = None
    add_evaluators: Annotated[
        Evaluators | None,
        Meta(description="Evaluators in addition to those of the file, or to those of the case."),
    ] = None
    evaluator: Annotated[Text | None, Meta(description="The evaluator type for cases without evaluators.")] = None
    description: Annotated[str | None, Meta(description="Description, copied to the result.")] = None
    metadata: Annotated[Json | None, Meta(description="Custom data, copied to the result.")] = None
    tags: Annotated[
        tuple[Text, ...] | None,
        Meta(description="Labels by which --filter selects cases, copied to the result."),
    ] = None
    skip: Annotated[
        bool | Text | None,
        Meta(description="Do not run the case: the reason, or true."),
    ] = None
    vars: Annotated[
        Json | None,
        Meta(description="Values for {{ vars.NAME }} in the case. Override those of the file, key by key."),
    ] = None
    matrix: Annotated[
        Matrix | None,
        Meta(description="Lists of values by variable: one case per combination."),
    ] = None
    exclude: Annotated[
        tuple[Json, ...] | None,
        Meta(description="Combinations of the matrix, or parts of combinations, that have no case."),
    ] = None
    rows: Annotated[
        Text | Rows | None,
        Meta(description="A CSV, TSV or JSONL file, or a list of mappings: one case per row. Columns are variables."),
    ] = None
    pass_rule: Annotated[PassRule | None, _PASS_RULE] = msgspec.field(name="pass", default=None)


class _StrictExecution(Execution, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `execution` without unknown fields."""


class StrictCaseRecord(CaseRecord, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A case without unknown fields, to find out quickly that a file has none."""

    execution: _StrictExecution | None = None


class EvalFileRecord(FileRecord, frozen=True, kw_only=True):
    """A YAML eval file."""

    evalcases: Annotated[
        tuple[CaseRecord, ...],
        Meta(min_length=1, description="The eval cases. Optional if there is cases_from."),
    ] = ()
    cases_from: Annotated[
        Text | None,
        Meta(description="path/to/file.py:function, which yields cases as mappings."),
    ] = None


class Defaults(msgspec.Struct, frozen=True):
    """The values of a file that its cases inherit for the fields that they omit."""

    file: CaseFile
    execution: Execution
    evaluator: str
    description: str
    pass_rule: PassRule = PASS
    vars: Mapping[str, Any] | None = None


def build_case(
    record: CaseRecord,
    defaults: Defaults,
    line: int,
) -> EvalCase | None:
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
    if record.add_evaluators:
        evaluators = (execution.evaluators or ()) + record.add_evaluators
        execution = Execution(target=execution.target, evaluators=evaluators)
    values = defaults.vars
    if record.vars is not None:
        values = merge_vars(record.vars, defaults)
    skip = ""
    if record.skip:
        skip = _skip_reason(record)
    # The fields in order: with keywords, this would take six times as long.
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
        record.pass_rule or defaults.pass_rule,
        values,
        record.tags or (),
        skip,
    )


def merge_vars(own: Mapping[str, Any] | None, defaults: Defaults) -> Mapping[str, Any] | None:
    """Return the variables of a case, which override those of its file key by key."""
    if own is None:
        return defaults.vars
    if defaults.vars is None:
        return own
    return {**defaults.vars, **own}


def _skip_reason(record: CaseRecord) -> str:
    """Return why a case is skipped; empty if it runs."""
    if record.skip is True:
        return "skip: true"
    return record.skip or ""


def _has_unused_alias(record: CaseRecord) -> bool:
    """Return whether a record sets a field together with its alias; the messages of the alias must be valid too."""
    if record.input_messages is not None and record.input is not None:
        return True
    return record.expected_messages is not None and record.expected_output is not None


def _as_messages(
    given: str | Json | tuple[Message, ...],
    role: Role,
) -> tuple[Message, ...]:
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


MESSAGE_FIELDS = ("input_messages", "input", "expected_messages", "expected_output")


def with_own_messages(written: Any) -> Json | None:
    """Return a case whose messages have the shape of a vendor with messages of our own.

    Return None if it has none, or if a part of them cannot be read.
    """
    if not isinstance(written, dict):
        return None
    own = dict(written)
    for field in MESSAGE_FIELDS:
        if not isinstance(written.get(field), list):
            continue
        messages = read_case_messages(written[field])
        if isinstance(messages, str):
            return None
        own[field] = [msgspec.json.decode(to_json(message)) for message in messages]
    if own == written:
        return None
    return own


def explain_case(written: Any) -> list[Misfit]:
    """Return all problems of a raw case, except those of its evaluators."""
    misfits = _explain(written)
    if misfits:
        own = with_own_messages(written)
        if own is not None and not _explain(own):
            return []
    return misfits


def _explain(written: Any) -> list[Misfit]:
    record = convert(written, CaseRecord)
    if isinstance(record, list):
        misfits = record
    else:
        misfits = _missing_content(record)
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
    return Misfit((), f"{message}; {case} is skipped", hint, "warning")


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


NO_ID = "?"
"""The id of a draft whose case has none."""
_EVALUATOR_FIELDS = frozenset({"execution", "evaluators", "add_evaluators", "rubrics", "evaluator"})


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
    invalid_fields = set()
    for misfit in misfits:
        if misfit.steps:
            invalid_fields.add(misfit.steps[0])
    if not evaluator_fields or _EVALUATOR_FIELDS & invalid_fields:
        return None
    id_ = written.get("id")
    if not isinstance(id_, str) or not id_:
        id_ = NO_ID
    draft = {"id": id_, "outcome": "", "input": ""}
    for name in evaluator_fields:
        draft[name] = written[name]
    if isinstance(written.get("vars"), dict):
        draft["vars"] = written["vars"]
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
    hint = "only assistant messages with tool_calls may omit it"
    misfits = []
    for field, messages in fields.items():
        if not isinstance(messages, tuple):
            continue
        for index, message in enumerate(messages):
            if message.content is not None or _may_lack_content(message):
                continue
            steps = (field, index)
            misfits.append(Misfit(steps, "missing content", hint))
    return misfits


def _may_lack_content(message: Message) -> bool:
    return message.role == "assistant" and bool(message.tool_calls)


def _override(record: CaseRecord | FileRecord, base: Execution) -> Execution:
    """Return `base` with the record's fields; `evaluators` takes precedence over `execution.evaluators`."""
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
    file = CaseFile(
        path=path,
        dataset=record.dataset or path_text(path.stem),
        root=repo_root(path.parent),
        metrics=record.metrics or (),
        hooks=record.hooks,
    )
    built_in = Execution(target=DEFAULT_TARGET, evaluators=())
    return Defaults(
        file=file,
        execution=_override(record, built_in),
        evaluator=record.evaluator or "llm_judge",
        description=record.description or "",
        pass_rule=record.pass_rule or PASS,
        vars=record.vars,
    )


def _require_one(*names: str) -> Json:
    """Return the JSON Schema of an object that has at least one of these fields, and not null."""
    choices = []
    for name in names:
        not_null = {"not": {"type": "null"}}
        choice = {
            "required": [name],
            "properties": {name: not_null},
        }
        choices.append(choice)
    return {"anyOf": choices}


FREE_PREFIX = "x-"
"""Fields with this prefix are never reported: they are the user's own, for example to define YAML anchors."""
_NO_UNKNOWN_FIELDS: Json = {
    "patternProperties": {f"^{FREE_PREFIX}": {}},
    "additionalProperties": False,
}
RULES: dict[str, Json] = {
    "FileRecord": _NO_UNKNOWN_FIELDS,
    "EvalFileRecord": {
        **_NO_UNKNOWN_FIELDS,
        "anyOf": [
            {"required": ["evalcases"]},
            _require_one("cases_from"),
        ],
    },
    "Execution": _NO_UNKNOWN_FIELDS,
    "CaseRecord": {
        **_NO_UNKNOWN_FIELDS,
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
"""JSON Schema for what is required of a record beyond the types of its fields; `agentv validate` checks the same."""
