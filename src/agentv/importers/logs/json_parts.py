"""Locate the parts of a JSON document of any size without decoding it.

A log may have several gigabytes, of which one sample at a time is needed. The file is mapped into memory, and a regular
expression finds the brackets outside of strings.
"""

import mmap
import re
from array import array
from typing import NamedTuple

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
"""A string, a bracket, a comma or a colon."""
_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]])', re.DOTALL)
"""Everything up to the next bracket outside of strings. Inside of nested values, only brackets matter."""
Buffer = mmap.mmap | bytes


class Parts(NamedTuple):
    """Offsets of the fields of an object, and of the items of one field that is an array."""

    fields: dict[str, tuple[int, int]]
    starts: "array[int]"
    ends: "array[int]"


def find_parts(buffer: Buffer, items_of: str) -> Parts:
    """Return the offsets in a document that is an object. Raise `ValueError` if it is not one, or is truncated."""
    parts = Parts({}, array("q"), array("q"))
    depth = 0
    key = ""
    value_start = -1  # -1 while no value is open
    item_start = -1  # -1 while no item is open
    end = 0
    # This loop visits every bracket of a large file: it only compares, slices and counts. Its depth is 1 between the
    # fields of the document, 2 in a field that is an array, and 3 in an item of that.
    while True:
        found = _TOKEN.search(buffer, end) if depth < 2 else _BRACKET.match(buffer, end)
        if found is None:
            raise ValueError("the document is truncated")

        start, end = found.span(found.lastindex or 0)
        mark = buffer[start : start + 1]
        if depth == 0 and mark != b"{":
            raise ValueError("not a JSON object")
        if mark in (b"{", b"["):
            depth += 1
            if depth == 3 and key == items_of:
                item_start = start
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 2 and item_start >= 0:
                parts.starts.append(item_start)
                parts.ends.append(end)
                item_start = -1
            elif depth == 0:
                parts.fields[key] = (value_start, start)
                return parts
        elif depth == 1 and mark == b":":
            value_start = end
        elif depth == 1 and mark == b",":
            parts.fields[key] = (value_start, start)
            value_start = -1
        elif depth == 1 and value_start < 0:
            key = buffer[start + 1 : end - 1].decode("utf-8", "replace")
