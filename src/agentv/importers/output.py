"""Encode cases, results and answers as the bytes of an output file, with secrets masked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.schema import explain_case
from agentv.errors import AgentvError
from agentv.files.conversion import label
from agentv.files.encode import to_json
from agentv.files.jsonl import MAX_LINE_BYTES
from agentv.importers.importer import Answer, Becomes, Value
from agentv.records import EvalResult, Json
from agentv.redact import clean
from agentv.results.formats import dump_yaml

YAML_SUFFIXES = (".yaml", ".yml")
ANSWER_FIELDS = (
    "text",
    "output_messages",
    "trace",
    "token_usage",
    "cost_usd",
    "duration_ms",
    "stop_reason",
    "note",
    "trace_complete",
    "metadata",
)


class OutputFormat(NamedTuple):
    """How an output file is encoded, row by row."""

    head: Callable[[Json], bytes]
    """Return the start of the file, given the top-level fields."""
    encode: Callable[[Value], bytes | str]
    """Return an encoded row as bytes, or as text the reason why it cannot be written."""


def output_format(becomes: Becomes, path: Path) -> OutputFormat:
    """Return the encoding for an output path. Raise `AgentvError` if the suffix does not fit the kind of records."""
    suffix = path.suffix.lower()
    if becomes is Becomes.CASES and suffix in YAML_SUFFIXES:
        return OutputFormat(_yaml_head, _yaml_case)
    if becomes is Becomes.CASES and suffix != ".jsonl" and str(path) != "-":
        raise AgentvError(
            "eval files end in .jsonl, .yaml or .yml",
            file=path,
            hint="choose another --out",
        )
    if suffix in YAML_SUFFIXES:
        raise AgentvError(
            f"{becomes.value}s are written as JSONL",
            file=path,
            hint="choose a file that ends in .jsonl",
        )
    return OutputFormat(_jsonl_head, _jsonl_line)


def _jsonl_head(_fields: Json) -> bytes:
    return b""


def _jsonl_line(value: Value) -> bytes | str:
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    line = to_json(plain)
    if len(line) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES >> 20} MiB, the maximum length of a line"
    return line + b"\n"


def _yaml_head(fields: Json) -> bytes:
    if not fields:
        return b"evalcases:\n"
    return _yaml_fragment(clean.values(fields)) + b"evalcases:\n"


def _yaml_case(value: Value) -> bytes | str:
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return _yaml_fragment([plain])


def _yaml_fragment(value: Any) -> bytes:
    """Return YAML without document markers, so that fragments can be concatenated to one document."""
    return dump_yaml(value).removeprefix(b"---\n").removesuffix(b"...\n")


def _plain(value: Value) -> Any:
    """Return a row as plain, masked values, or as text the reason why it cannot be written."""
    try:
        match value:
            case EvalResult():
                plain: Any = msgspec.json.decode(to_json(value))
            case Answer():
                plain = _batch_record(value)
            case case:
                reason = _case_problem(case)
                if reason is not None:
                    return reason
                plain = msgspec.json.decode(to_json(case))
        return clean.values(plain)
    except (RecursionError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        return f"it cannot be written as JSON: {type(error).__name__}"


def _case_problem(case: Json) -> str | None:
    """Return the first problem of a case, or None if it is valid."""
    misfits = explain_case(case)
    if not misfits:
        return None
    first = misfits[0]
    if not first.steps:
        return first.message
    return f"{label(first.steps)}: {first.message}"


def _batch_record(answer: Answer) -> Json:
    """Return an answer as a batch record. Its keys are in snake_case, unlike those of a `ProviderResponse`."""
    fields: Json = {}
    for name in ANSWER_FIELDS:
        value = getattr(answer.response, name)
        if value is not None:
            fields[name] = value
    record: Json = {"id": answer.id}
    record |= msgspec.json.decode(to_json(fields))
    return record
