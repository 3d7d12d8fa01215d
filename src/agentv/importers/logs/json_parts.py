"""A JSON document of any size -> where its parts are, without decoding it.

A log may be some gigabytes, of which one sample at a time is needed. The file is mapped into memory, and a pattern
finds the brackets that are not inside of strings.
"""

import mmap
import re
from array import array
from typing import NamedTuple

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]])', re.DOTALL)
"""All up to the next bracket that is not inside of a string: deep inside, nothing else matters."""
Buffer = mmap.mmap | bytes


class Parts(NamedTuple):
    """Where the fields of an object begin and end, and the items of one of them, which is an array."""

    fields: dict[str, tuple[int, int]]
    starts: "array[int]"
    ends: "array[int]"


def find_parts(buffer: Buffer, items_of: str) -> Parts:
    """Return the parts of a document that is an object; raise `ValueError` if it is none, or is cut off."""
    parts = Parts({}, array("q"), array("q"))
    depth, key, value, item, end = 0, "", -1, -1, 0
    while found := _TOKEN.search(buffer, end) if depth < 2 else _BRACKET.match(buffer, end):
        start, end = found.span(found.lastindex or 0)
        mark = buffer[start : start + 1]
        if depth == 0 and mark != b"{":
            raise ValueError("it is no JSON object")
        if mark in (b"{", b"["):
            depth += 1
            if depth == 3 and key == items_of:
                item = start
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 2 and item >= 0:
                parts.starts.append(item)
                parts.ends.append(end)
                item = -1
            elif depth == 0:
                parts.fields[key] = value, start
                return parts
        elif depth == 1 and mark == b":":
            value = end
        elif depth == 1 and mark == b",":
            parts.fields[key] = value, start
            value = -1
        elif depth == 1 and value < 0:
            key = buffer[start + 1 : end - 1].decode("utf-8", "replace")
    raise ValueError("the document is cut off")
