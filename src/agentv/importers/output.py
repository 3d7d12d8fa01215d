"""Cases, results and answers -> the bytes that stand for them in a file, without secrets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.schema import explain_case
from agentv.errors import AgentvError
from agentv.formats.conversion import label
from agentv.formats.jsonl import MAX_LINE_BYTES
from agentv.importers.importer import Answer, Becomes, Value
from agentv.records import EvalResult, Json
from agentv.redact import clean
from agentv.results.formats import dump_yaml

_to_json = msgspec.json.Encoder(enc_hook=str).encode
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
)


class FileForm(NamedTuple):
    """How a file is written, row by row."""

    head: Callable[[Json], bytes]
    """Return how the file begins; given are the fields besides its cases."""
    encode: Callable[[Value], bytes | str]
    """Return a row as bytes, or why it cannot be written."""


def file_form(becomes: Becomes, path: Path) -> FileForm:
    """Return how a file of this name is written; raise `AgentvError` for a name that stands for another format."""
    suffix = path.suffix.lower()
    if becomes is Becomes.CASES and suffix in YAML_SUFFIXES:
        return FileForm(_yaml_head, _yaml_case)
    if becomes is Becomes.CASES and suffix != ".jsonl" and str(path) != "-":
        raise AgentvError("eval files end in .jsonl, .yaml or .yml", file=path, hint="name another --out")
    if suffix in YAML_SUFFIXES:
        raise AgentvError(f"{becomes.value}s are written as JSONL", file=path, hint="name a file that ends in .jsonl")
    return FileForm(lambda _: b"", _line)


def _line(value: Value) -> bytes | str:
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    line = _to_json(plain)
    if len(line) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES >> 20} MiB, the most that a line may have"
    return line + b"\n"


def _yaml_head(fields: Json) -> bytes:
    text = dump_yaml(clean.values(fields)).removeprefix(b"---\n").removesuffix(b"...\n") if fields else b""
    return text + b"evalcases:\n"


def _yaml_case(value: Value) -> bytes | str:
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return dump_yaml([plain]).removeprefix(b"---\n").removesuffix(b"...\n")


def _plain(value: Value) -> Any:
    """Return a row as plain values without secrets, or why it cannot be written."""
    try:
        match value:
            case EvalResult():
                plain: Any = msgspec.json.decode(_to_json(value))
            case Answer():
                plain = _batch_record(value)
            case case:
                if misfits := explain_case(case):
                    first = misfits[0]
                    return f"{label(first.steps)}: {first.message}" if first.steps else first.message
                plain = msgspec.json.decode(_to_json(case))
        return clean.values(plain)
    except (RecursionError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        return f"it cannot be written down: {type(error).__name__}"


def _batch_record(answer: Answer) -> Json:
    """Return an answer as a batch record, whose names are in snake_case."""
    given = {name: getattr(answer.response, name) for name in ANSWER_FIELDS}
    found: Json = {"id": answer.id}
    found |= msgspec.json.decode(_to_json({name: value for name, value in given.items() if value is not None}))
    return found
