"""The formats of results files: JSONL and YAML.

A results file is a sequence of records, one for each result: lines of JSON, or YAML documents between `---` and `...`.
Each record is whole in itself, so that a file can be read as a stream and appended to.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import AgentvError
from agentv.formats.yaml import parse_yaml

MAX_DEPTH = 900
"""Levels of nesting in a YAML document: results hold what agents answered, so it is more than people write."""
DECODE_ERRORS = (msgspec.MsgspecError, AgentvError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are not what it expects."""

Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class ResultFormat:
    """How results are written to a file and found in it again."""

    name: str
    suffixes: tuple[str, ...]
    """The endings of file names that stand for it; new files get the first."""
    record: str
    """What a record is called in messages."""
    start: bytes
    """How a record begins that agentv has written."""
    end: bytes
    encode: Callable[[bytes], bytes]
    """Return the record of a result that is given as JSON."""
    split: Callable[[Iterable[bytes]], Iterable[bytes]]
    """Yield the records of a file that is given as lines, each whole or torn."""
    decoder: Callable[[type], Decode]
    """Return a function that decodes a record as the given type; it raises one of `DECODE_ERRORS`."""

    def is_torn(self, record: bytes) -> bool:
        """Return whether a kill has kept the end of this record from being written."""
        return not record.endswith(self.end) and (record.startswith(self.start) or self.start.startswith(record))


def format_of(name: str) -> ResultFormat | None:
    """Return the format that has this name, None if there is none."""
    return FORMATS.get(name)


def format_for(path: Path) -> ResultFormat:
    """Return the format that the suffix of a file stands for; JSONL if it stands for none."""
    suffix = path.suffix.lower()
    return next((each for each in FORMATS.values() if suffix in each.suffixes), JSONL)


def sniff(start: bytes) -> ResultFormat | None:
    """Return the format of a file that starts with these bytes, None if they do not tell."""
    start = start.removeprefix(b"\xef\xbb\xbf")
    if start.startswith(b"---"):
        return YAML
    return JSONL if start.lstrip().startswith(b"{") else None


def dump_yaml(value: Any) -> bytes:
    """Return `value` as a YAML document, closed by `...`; texts of several lines are block scalars."""
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
"""Line breaks to readers of YAML 1.1 and text to readers of 1.2, unless they are escaped."""


@cache
def _yaml_dumper() -> Any:
    """Return a dumper whose YAML means the same to readers of 1.1 and of 1.2."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        pass

    def represent_text(dumper: Any, value: str) -> Any:
        style = '"' if _ODD_BREAKS.search(value) else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, represent_text)
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_IN_YAML_1_2, None)
    return Dumper


def _split_documents(lines: Iterable[bytes]) -> Iterator[bytes]:
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
