"""Where the tests of a promptfoo config are written -> the tests: in the config, in other files, in scenarios."""

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.formats.table import TableReader, find_delimiter
from agentv.importers.importer import ImportFailure, Tally
from agentv.importers.promptfoo.node import DATA, FILE, Node, read_node
from agentv.importers.sample import read_lines, take_sample
from agentv.records import Json

EXPECTED = re.compile(r"__expected\d*")
ASSERTION = re.compile(r"(?P<type>(?:not-)?[a-z][a-z-]*)(?:\((?P<threshold>[\d.]+)\))?(?::(?P<value>.*))?", re.DOTALL)
WORDS = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
"""What promptfoo takes in a CSV for the name of an assertion."""


def tests_of(config: Node, tally: Tally) -> Iterator[Node]:
    """Yield the tests of a config; what cannot be read is told of."""
    yield from _tests(config.at("tests"), tally)
    for scenario in config.at("scenarios").items():
        for variant in scenario.at("config").items():
            for test in _tests(scenario.at("tests"), tally):
                yield Node(merged(variant.fields, test.fields), test.file, test.document, test.steps, test.first_line)


def merged(base: Json, test: Json) -> Json:
    """Return a test with what it takes from another, which comes first: variables, assertions, metadata, options."""
    found = {**base, **test}
    for name in ("vars", "metadata", "options"):
        parts = [part for part in (base.get(name), test.get(name)) if isinstance(part, dict)]
        if len(parts) == 2:
            found[name] = parts[0] | parts[1]
    return found


def _tests(node: Node, tally: Tally) -> Iterator[Node]:
    for item in node.items():
        if isinstance(item.value, dict) and "path" not in item.value:
            yield item
        elif isinstance(item.value, str):
            yield from _from_files(item, item.value, tally)
        else:
            tally.remark("these tests are made by a program, and are not imported", item.file, item.line)


def _from_files(item: Node, written: str, tally: Tally) -> Iterator[Node]:
    pattern = str(item.file.parent / written.removeprefix(FILE))
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
    if not paths:
        tally.remark(f"the tests in {written!r} are not there, and are not imported", item.file, item.line)
    for path in paths:
        try:
            yield from _from_file(path, item, tally)
        except AgentvError as error:
            tally.remark(f"the tests in {written!r} are not imported: {error}", item.file, item.line)


def _from_file(path: Path, item: Node, tally: Tally) -> Iterator[Node]:
    suffix = path.suffix.lower()
    if suffix in DATA:
        yield from _tests(read_node(path), tally)
    elif suffix == ".jsonl":
        yield from (Node(line.value, path, first_line=line.number) for line in read_lines(path))
    elif suffix in (".csv", ".tsv"):
        reader = TableReader(path, find_delimiter(take_sample(path).text) or ",", ImportFailure)
        for cells, line in reader.rows():
            row = dict(zip(reader.names, cells, strict=False))
            yield Node(_test_of(row), path, first_line=line)
    else:
        tally.remark(f"the tests in {path.name!r} are not read, and are not imported", item.file, item.line)


def _test_of(row: dict[str, str]) -> Json:
    """Return the test that a row of a CSV is: a variable a column, but for those that begin with two underscores."""
    test: Json = {"vars": {}, "assert": [], "metadata": {}, "options": {}}
    for name, cell in row.items():
        if EXPECTED.fullmatch(name):
            if cell.strip():
                test["assert"].append(_assertion(cell.strip()))
        elif name.startswith("__metadata:"):
            test["metadata"][name.partition(":")[2].removesuffix("[]")] = cell
        elif name in ("__prefix", "__suffix"):
            test["options"] |= {name.removeprefix("__"): cell} if cell else {}
        elif name.startswith("__"):
            test |= {name.removeprefix("__"): cell} if cell else {}
        else:
            test["vars"][name] = cell
    metric = test.pop("metric", None)
    for assertion in test["assert"] if metric else ():
        assertion["metric"] = metric
    return {name: value for name, value in test.items() if value}


def _assertion(cell: str) -> Json:
    """Return the assertion that a cell is: `contains: Paris`, `similar(0.8): Paris`, or a text that is to be equal."""
    found = ASSERTION.fullmatch(cell)
    if found is None or (found["value"] is None and found["type"] != "is-json"):
        return {"type": "equals", "value": cell}
    assertion: Json = {"type": WORDS.get(found["type"], found["type"])}
    value: Any = (found["value"] or "").strip()
    if value:
        assertion["value"] = value
    if found["threshold"]:
        assertion["threshold"] = float(found["threshold"])
    elif assertion["type"] in ("latency", "cost"):
        assertion["threshold"] = value
    return assertion
