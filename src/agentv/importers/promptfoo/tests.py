"""Collect the tests of a promptfoo config: those in the config, in other files, and in scenarios."""

import glob
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from agentv.errors import AgentvError
from agentv.formats.table import TableReader, find_delimiter
from agentv.importers.importer import ImportFailure, Tally
from agentv.importers.promptfoo.node import DATA, FILE, Node, read_node, report
from agentv.importers.sample import read_lines, take_sample
from agentv.records import Json

EXPECTED = re.compile(r"__expected\d*")
ASSERTION = re.compile(r"(?P<type>(?:not-)?[a-z][a-z-]*)(?:\((?P<threshold>[\d.]+)\))?(?::(?P<value>.*))?", re.DOTALL)
ALIASES = {
    "grade": "llm-rubric",
    "fn": "javascript",
    "eval": "javascript",
}
"""Short names for assertion types that promptfoo accepts in a CSV file."""


def tests_of(config: Node, tally: Tally) -> Iterator[Node]:
    """Yield the tests of a config. Report tests that cannot be read."""
    yield from _tests(config.at("tests"), tally)
    for scenario in config.at("scenarios").items():
        for variant in scenario.at("config").items():
            for test in _tests(scenario.at("tests"), tally):
                yield replace(test, value=merged(variant.fields, test.fields))


def merged(base: Json, test: Json) -> Json:
    """Return a test with the fields that it inherits from `base`. Variables, metadata and options are merged by key."""
    found = {**base, **test}
    for name in ("vars", "metadata", "options"):
        inherited = base.get(name)
        own = test.get(name)
        if isinstance(inherited, dict) and isinstance(own, dict):
            found[name] = inherited | own
    return found


def _tests(node: Node, tally: Tally) -> Iterator[Node]:
    """Yield the tests in a list, whose items are tests or paths of files with tests."""
    for item in node.items():
        if isinstance(item.value, dict) and "path" not in item.value:
            yield item
        elif isinstance(item.value, str):
            yield from _tests_in_files(item, item.value, tally)
        else:
            report(tally, item, "these tests are made by a program, and are not imported")


def _tests_in_files(item: Node, written: str, tally: Tally) -> Iterator[Node]:
    """Yield the tests in the files that match a path or a glob pattern."""
    pattern = str(item.file.parent / written.removeprefix(FILE))
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths:
        report(tally, item, f"the tests in {written!r} are not there, and are not imported")
    for path in paths:
        try:
            yield from _tests_in_file(Path(path), item, tally)
        except AgentvError as error:
            report(tally, item, f"the tests in {written!r} are not imported: {error}")


def _tests_in_file(path: Path, item: Node, tally: Tally) -> Iterator[Node]:
    suffix = path.suffix.lower()
    if suffix in DATA:
        yield from _tests(read_node(path), tally)
    elif suffix == ".jsonl":
        for line in read_lines(path):
            yield Node(value=line.value, file=path, first_line=line.number)
    elif suffix in (".csv", ".tsv"):
        yield from _tests_in_table(path)
    else:
        report(tally, item, f"the tests in {path.name!r} are not read, and are not imported")


def _tests_in_table(path: Path) -> Iterator[Node]:
    sample = take_sample(path)
    delimiter = find_delimiter(sample.text) or ","
    reader = TableReader(path, delimiter, ImportFailure)
    for cells, line in reader.rows():
        row = dict(zip(reader.names, cells, strict=False))
        yield Node(value=_test_of_row(row), file=path, first_line=line)


def _test_of_row(row: dict[str, str]) -> Json:
    """Return a row of a CSV file as a test.

    Each column is a variable. Columns that start with two underscores have a special meaning.
    """
    test: Json = {
        "vars": {},
        "assert": [],
        "metadata": {},
        "options": {},
    }
    for name, cell in row.items():
        if EXPECTED.fullmatch(name):
            written = cell.strip()
            if written:
                test["assert"].append(_assertion(written))
        elif name.startswith("__metadata:"):
            key = name.removeprefix("__metadata:").removesuffix("[]")
            test["metadata"][key] = cell
        elif name in ("__prefix", "__suffix"):
            if cell:
                test["options"][name.removeprefix("__")] = cell
        elif name.startswith("__"):
            if cell:
                test[name.removeprefix("__")] = cell
        else:
            test["vars"][name] = cell

    metric = test.pop("metric", None)
    if metric:
        for assertion in test["assert"]:
            assertion["metric"] = metric
    # Without empty fields, which would override those of the default test.
    return {name: value for name, value in test.items() if value}


def _assertion(cell: str) -> Json:
    """Return a cell as an assertion: `contains: Paris`, `similar(0.8): Paris`, or any other text for `equals`."""
    found = ASSERTION.fullmatch(cell)
    if found is None:
        return {"type": "equals", "value": cell}
    type_ = found["type"]
    if found["value"] is None and type_ != "is-json":
        return {"type": "equals", "value": cell}

    assertion: Json = {"type": ALIASES.get(type_, type_)}
    value = (found["value"] or "").strip()
    if value:
        assertion["value"] = value
    if found["threshold"]:
        assertion["threshold"] = float(found["threshold"])
    elif assertion["type"] in ("latency", "cost"):
        assertion["threshold"] = value
    return assertion
