"""The formats of results files: JSONL and YAML.

A results file is a sequence of records, one per result: lines of JSON, or YAML documents between `---` and `...`.
Each record is self-contained, so that files can be read as a stream and appended to.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import AgentvError
from agentv.files.yaml import parse_yaml

MAX_DEPTH = 900
"""Maximum nesting of a YAML document. Answers of agents have deeper nesting than hand-written files."""
DECODE_ERRORS = (msgspec.MsgspecError, AgentvError, UnicodeDecodeError, RecursionError)
"""The exceptions that a decoder raises for invalid input."""

Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class ResultFormat:
    """How results are encoded, split and decoded."""

    name: str
    suffixes: tuple[str, ...]
    """The file name suffixes of the format; new files get the first."""
    record: str
    """The term for a record in messages."""
    start: bytes
    """The first bytes of a record written by agentv."""
    end: bytes
    encode: Callable[[bytes], bytes]
    """Return the record of a result given as JSON."""
    split: Callable[[Iterable[bytes]], Iterable[bytes]]
    """Yield the records of a file given as lines; the last one may be truncated."""
    decoder: Callable[[type], Decode]
    """Return a function that decodes a record as the given type and raises one of `DECODE_ERRORS`."""

    def is_truncated(self, record: bytes) -> bool:
        """Return whether this record is truncated: agentv was killed while it wrote it."""
        if record.endswith(self.end):
            return False
        return record.startswith(self.start) or self.start.startswith(record)


def format_of(name: str) -> ResultFormat | None:
    """Return the format with this name, or None if the name is unknown."""
    return FORMATS.get(name)


def format_for(path: Path) -> ResultFormat:
    """Return the format for the suffix of a file; defaults to JSONL."""
    suffix = path.suffix.lower()
    for form in FORMATS.values():
        if suffix in form.suffixes:
            return form
    return JSONL


def sniff(start: bytes) -> ResultFormat | None:
    """Detect the format from the first bytes of a file; return None if they are inconclusive."""
    start = start.removeprefix(b"\xef\xbb\xbf")
    if start.startswith(b"---"):
        return YAML
    if start.lstrip().startswith(b"{"):
        return JSONL
    return None


def dump_yaml(value: Any) -> bytes:
    """Return `value` as a YAML document that ends with `...`; multi-line strings become block scalars."""
    import yaml

    text: str = yaml.dump(
        value,
        Dumper=_yaml_dumper(),
        allow_unicode=True,
        sort_keys=False,
        explicit_start=True,
        explicit_end=True,
        width=2**20,
    )
    return text.encode()


_NUMBER_IN_YAML_1_2 = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|0o[0-7]+$|0x[0-9a-fA-F]+$")
_ODD_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks in YAML 1.1 but ordinary characters in 1.2, unless they are escaped."""


@cache
def _yaml_dumper() -> Any:
    """Return a dumper whose output has the same meaning in YAML 1.1 and 1.2."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        pass

    def represent_text(dumper: Any, value: str) -> Any:
        style = None
        if _ODD_BREAKS.search(value):
            style = '"'
        elif "\n" in value:
            style = "|"
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, represent_text)
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_IN_YAML_1_2, None)
    return Dumper


def _split_documents(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the YAML documents of a file given as lines."""
    document: list[bytes] = []
    for line in lines:
        if line.startswith(b"---") and document:
            yield b"".join(document)
            document = []
        document.append(line)
        if line == b"...\n":
            yield b"".join(document)
            document = []
    if document:
        yield b"".join(document)


@cache
def _json_decoder(type_: type) -> Decode:
    return msgspec.json.Decoder(type_).decode


def _yaml_decoder(type_: type) -> Decode:
    def decode(record: bytes) -> Any:
        document = parse_yaml(record.decode(), Path(), AgentvError, max_depth=MAX_DEPTH)
        return msgspec.convert(document.value, type_)

    return decode


JSONL = ResultFormat(
    name="jsonl",
    suffixes=(".jsonl",),
    record="line",
    start=b'{"timestamp":"',
    end=b"\n",
    encode=lambda json: json + b"\n",
    split=iter,
    decoder=_json_decoder,
)
YAML = ResultFormat(
    name="yaml",
    suffixes=(".yaml", ".yml"),
    record="document",
    start=b"---\ntimestamp: ",
    end=b"\n...\n",
    encode=lambda json: dump_yaml(msgspec.json.decode(json)),
    split=_split_documents,
    decoder=_yaml_decoder,
)
FORMATS = {each.name: each for each in (JSONL, YAML)}
