"""Write what Python and the pages share: declarations of types for TypeScript, and constants. Run by `make schemas`.

The JavaScript of the pages is checked against the declarations, so a page cannot read a field that Python does not
send. A test checks that the files are up to date.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from agentv.filters.keys import KEYS, ON, Key
from agentv.filters.match import EQUAL_WITHIN
from agentv.report.page import index, meta, sums
from agentv.results.summary import EDGES
from agentv.scoring import verdict_of
from agentv.trust import answers
from agentv.trust import review as trust_review
from agentv.view import review, routes, runs

SOURCE = Path(__file__).parent.parent / "src" / "agentv"
PAGE_TYPES = (
    meta.PageMeta,
    meta.EmbeddedPageMeta,
    sums.CaseSums,
    sums.FlipCounts,
)
VIEWER_TYPES = (
    routes.DescribeRequest,
    routes.IndexState,
    runs.RunList,
    trust_review.ReviewDefaults,
    review.ReviewRequest,
    trust_review.ReviewState,
    trust_review.NewLabel,
    answers.BlindCase,
)
PAGE_FILE = SOURCE / "report" / "page" / "contract.d.ts"
VIEWER_FILE = SOURCE / "view" / "contract.d.ts"
CONSTANTS_FILE = SOURCE / "report" / "page" / "assets" / "constants.js"
TYPES_HEADER = (
    "// Written by scripts/page_contract.py (`make schemas`) from the structs of the same names. Do not edit.\n"
)
CONSTANTS = """\
// @ts-check
// Written by scripts/page_contract.py (`make schemas`). Do not edit.
/** The numbers that the pages share with Python. */

/** The bits of the flags of a result. The two lowest bits hold the verdict. */
export const VERDICT_MASK = {index.VERDICT};
export const ERROR_FLAG = {index.ERROR};
export const TIMEOUT_FLAG = {index.TIMEOUT};
export const UNJUDGED_FLAG = {index.UNJUDGED};
export const CUT_OFF_FLAG = {index.CUT_OFF};
export const NOTED_FLAG = {index.NOTED};
export const DRY_RUN_FLAG = {index.DRY_RUN};
/** Both bits: the machine had reached a limit. */
export const MACHINE_FLAGS = {index.MACHINE};

/** In the flags of an evaluator's score: it does not apply to the case. */
export const NOT_APPLICABLE_FLAG = {index.NOT_APPLICABLE};

/** The verdicts in the two lowest bits. Any other is a failure. */
export const BORDERLINE_VERDICT = {verdicts[borderline]};
export const PASS_VERDICT = {verdicts[pass]};

/** The edges between the bins of a histogram of scores, and the verdict of the scores in each bin. */
export const BIN_EDGES = {edges};
export const BIN_VERDICTS = {bin_verdicts};

/** What a filter selects; each also has the keys of those before it. */
export const FILTERED = {filtered};
/**
 * The keys of filters.
 * @type {{Record<string, {{ values: string, on: string, choices?: string[], needsName?: boolean }}>}}
 */
export const FILTER_KEYS = {{
{keys}
}};
/** How close a score must be to equal another. */
export const EQUAL_WITHIN = {equal_within};
"""
SIMPLE = (
    (inspect.BoolType, "boolean"),
    (inspect.IntType, "number"),
    (inspect.FloatType, "number"),
    (inspect.StrType, "string"),
    (inspect.NoneType, "null"),
    (inspect.CustomType, "string"),  # a path, encoded as text
)


def written_files() -> dict[Path, str]:
    """Return the content of each file."""
    page = reachable(PAGE_TYPES)
    viewer = []
    shared = []
    for struct in reachable(VIEWER_TYPES):
        if struct in page:
            shared.append(struct.__name__)
        else:
            viewer.append(struct)
    interfaces = "\n".join(interface(struct) for struct in viewer)
    imported = [name for name in shared if re.search(rf"\b{name}\b", interfaces)]
    imports = f'import type {{ {", ".join(imported)} }} from "../report/page/contract";\n'
    return {
        PAGE_FILE: "\n".join([TYPES_HEADER, *map(interface, page)]),
        VIEWER_FILE: "\n".join([TYPES_HEADER, imports, interfaces]),
        CONSTANTS_FILE: constants(),
    }


def constants() -> str:
    """Return the module with the constants."""
    bin_verdicts = []
    for lower_edge in (0.0, *EDGES):
        bin_verdicts.append(index.VERDICTS[verdict_of(lower_edge)])
    return CONSTANTS.format(
        index=index,
        verdicts=index.VERDICTS,
        edges=list(EDGES),
        bin_verdicts=bin_verdicts,
        filtered=json.dumps(ON),
        keys="\n".join(_filter_key(name, key) for name, key in KEYS.items()),
        equal_within=EQUAL_WITHIN,
    )


def _filter_key(name: str, key: Key) -> str:
    """Return the lines of a key of filters."""
    fields = {
        "values": json.dumps(key.values),
        "on": json.dumps(key.on),
    }
    if key.choices:
        fields["choices"] = json.dumps(key.choices)
    if key.needs_name:
        fields["needsName"] = "true"
    lines = [f"    {field}: {value}," for field, value in fields.items()]
    return "\n".join([f"  {name}: {{", *lines, "  },"])


def reachable(types: Iterable[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    """Return the structs and those that they refer to, sorted by name."""
    found: set[type[msgspec.Struct]] = set()
    waiting = list(types)
    while waiting:
        struct = waiting.pop()
        if struct in found:
            continue
        found.add(struct)
        for field in _fields(struct):
            waiting.extend(_structs_in(field.type))
    return sorted(found, key=lambda struct: struct.__name__)


def interface(struct: type[msgspec.Struct]) -> str:
    """Return the declaration of a struct."""
    may_be_omitted = struct.__struct_config__.omit_defaults
    lines = [f"export interface {struct.__name__} {{"]
    for field in _fields(struct):
        mark = ""
        if may_be_omitted and not field.required:
            mark = "?"
        lines.append(f"  {field.encode_name}{mark}: {type_name(field.type)};")
    return "\n".join([*lines, "}", ""])


def type_name(found: inspect.Type) -> str:
    """Return a type in TypeScript."""
    for kind, name in SIMPLE:
        if isinstance(found, kind):
            return name
    match found:
        case inspect.Metadata(type=inner):
            name = type_name(inner)
        case inspect.StructType(cls=struct):
            name = struct.__name__
        case inspect.LiteralType(values=values):
            name = " | ".join(f'"{value}"' for value in values)
        case inspect.UnionType(types=types):
            name = " | ".join(map(type_name, types))
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            name = f"Array<{type_name(item)}>"
        case inspect.TupleType(item_types=items):
            name = f"[{', '.join(map(type_name, items))}]"
        case inspect.DictType(value_type=value):
            name = f"Record<string, {type_name(value)}>"
        case _:
            raise TypeError(f"no TypeScript for {found}")
    return name


def _fields(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    found = inspect.type_info(struct)
    assert isinstance(found, inspect.StructType)
    return found.fields


def _structs_in(found: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(found, inspect.StructType):
        yield found.cls
        return
    parts = ("type", "types", "item_type", "item_types", "value_type")
    for part in parts:
        inner = getattr(found, part, ())
        if not isinstance(inner, tuple):
            inner = (inner,)
        for each in inner:
            yield from _structs_in(each)


def main() -> None:
    for path, text in written_files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
