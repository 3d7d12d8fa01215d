"""Import a promptfoo config as eval cases: one case per test and prompt.

Parts of the config that have no counterpart in agentv are reported with their location.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import AgentvError
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.promptfoo.assertions import NoCounterpart, evaluator_of, lost_settings
from agentv.importers.promptfoo.node import (
    DATA,
    FILE,
    PROGRAMS,
    Node,
    parse_messages,
    read_node,
    read_text,
    referenced_suffix,
    report,
)
from agentv.importers.promptfoo.templates import combinations, fill, fill_quietly, fill_variables
from agentv.importers.promptfoo.tests import merged, tests_of
from agentv.importers.sample import Sample
from agentv.records import Json

TOP = re.compile(r"^[\"']?(prompts|tests|scenarios|providers|targets)[\"']?\s*:", re.MULTILINE)
IN_JSON = re.compile(r"\"(prompts|tests|scenarios|providers|targets)\"\s*:")
READ = ("description", "prompts", "tests", "scenarios", "defaultTest", "assertionTemplates")
HARMLESS = (
    "$schema",
    "outputPath",
    "evaluateOptions",
    "commandLineOptions",
    "sharing",
    "tags",
    "writeLatestResults",
    "metadata",
    "env",
)
"""Parts of a config that affect neither the questions nor how answers are judged."""
TEST_FIELDS = ("description", "vars", "assert", "metadata", "options", "prompts")
OPTIONS = ("prefix", "suffix", "disableVarExpansion", "disableDefaultAsserts")
PASSES = "The answer passes the assertions of the test."
SPLIT = re.compile(r"^---\s*$", re.MULTILINE)
"""The line that separates the prompts in a text file."""


class PromptTemplate(NamedTuple):
    """A prompt before variables are filled in: text or messages, the names that select it, and its node."""

    content: str | list[Json]
    names: frozenset[str]
    node: Node


class Promptfoo(Importer):
    """A promptfoo config in YAML or JSON."""

    becomes = Becomes.CASES
    noun = "tests"
    suffix = ".yaml"

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        if "evalcases" in sample.text or sample.suffix in (".csv", ".tsv", ".jsonl"):
            return False
        pattern = TOP
        if sample.text.lstrip().startswith("{"):
            pattern = IN_JSON
        names = set(pattern.findall(sample.text))
        if "prompts" in names:
            return True
        return "providers" in names and ("tests" in names or "scenarios" in names)

    def header(self, source: Path) -> Json:
        description = _config(source).fields.get("description")
        if not isinstance(description, str) or not description:
            return {}
        return {"description": description}

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        config = _config(source)
        _check_fields(config, source)
        _report_lost_fields(config, source, tally)
        prompts = list(_prompts(config, tally))
        default = _default_test(config, tally)
        for number, test in enumerate(tests_of(config, tally), 1):
            tally.read += 1
            yield from _Test(test, default, config, tally).rows(number, prompts)
        if not tally.read:
            # A config without tests evaluates its prompts once.
            tally.read = 1
            test = Node(
                value={},
                file=source,
                document=config.document,
                steps=("prompts",),
            )
            yield from _Test(test, default, config, tally).rows(1, prompts)


def _config(source: Path) -> Node:
    """Return the root of a config. Raise `ImportFailure` if it cannot be read, or is not an object."""
    config = read_node(source)
    if not isinstance(config.value, dict):
        raise ImportFailure("not a promptfoo config: expected an object at the top level", file=source)
    return config


def _check_fields(config: Node, source: Path) -> None:
    """Raise `ImportFailure` if a config has neither prompts nor tests."""
    if {"prompts", "tests", "scenarios"} & config.fields.keys():
        return
    names = ", ".join(map(repr, config.fields)) or "none"
    raise ImportFailure(
        f"neither 'prompts' nor 'tests': not a promptfoo config (fields: {names})",
        file=source,
        hint="put prompts:, providers: and tests: at the top level",
    )


def _report_lost_fields(config: Node, source: Path, tally: Tally) -> None:
    """Report the parts of a config that have no counterpart."""
    for name in config.fields:
        if name in READ or name in HARMLESS:
            continue
        line = config.at(name).line
        if name in ("providers", "targets"):
            tally.remark(f"{name} are not imported", source, line, "define them in .agentv/targets.yaml")
        else:
            tally.remark(f"{name!r} has no counterpart", source, line)


def _prompts(config: Node, tally: Tally) -> Iterator[PromptTemplate]:
    """Yield the prompts of a config. Report those that are made by programs."""
    folder = config.file.parent
    for item in config.at("prompts").items():
        node = item
        if isinstance(item.value, dict):
            node = item.at("raw" if "raw" in item.value else "id")
        text = node.value
        if not isinstance(text, str):
            report(tally, item, "this prompt is not a text and is not imported")
            continue
        names = _prompt_names(item) | {text}
        if _is_file(text, folder):
            path = folder / text.removeprefix(FILE)
            yield from _prompts_in_file(path, names, item, tally)
        else:
            content = parse_messages(text, item.file) or text
            yield PromptTemplate(content, names, item)


def _prompt_names(item: Node) -> frozenset[str]:
    """Return the names that tests can select a prompt by."""
    names = set()
    for key in ("label", "id"):
        name = item.fields.get(key)
        if name:
            names.add(str(name))
    return frozenset(names)


def _is_file(text: str, folder: Path) -> bool:
    """Return whether a prompt is a path, with or without `file://`."""
    if text.startswith(FILE):
        return True
    if "\n" in text or " " in text:
        return False
    return (folder / text).is_file()


def _prompts_in_file(
    path: Path,
    names: frozenset[str],
    item: Node,
    tally: Tally,
) -> Iterator[PromptTemplate]:
    """Yield the prompts in a file. A text file may contain several."""
    suffix = referenced_suffix(path)
    if suffix in PROGRAMS:
        report(tally, item, f"the prompt {path.name!r} is generated by a program and is not imported")
        return
    try:
        text = read_text(path)
    except AgentvError as error:
        report(tally, item, f"this prompt is not imported: {error}")
        return
    parts = [text]
    if suffix not in DATA:
        parts = [part for part in SPLIT.split(text) if part.strip()]
    for part in parts:
        content = parse_messages(part, path) or part.strip()
        yield PromptTemplate(content, names, item)


def _default_test(config: Node, tally: Tally) -> Node:
    """Return the test that all others inherit from."""
    node = config.at("defaultTest")
    path = node.path()
    if path is None:
        return node
    try:
        return read_node(path)
    except AgentvError as error:
        report(tally, node, f"defaultTest is not imported: {error}")
        return Node(value=None, file=config.file)


class _Test:
    """Converts a test, including what it inherits from the default test, to eval cases."""

    def __init__(
        self,
        test: Node,
        default: Node,
        config: Node,
        tally: Tally,
    ):
        self._test = test
        self._default = default
        self._config = config
        self._tally = tally
        self._fields = merged(default.fields, test.fields)
        self._options: Json = {}
        options = self._fields.get("options")
        if isinstance(options, dict):
            self._options = options

    def rows(self, number: int, prompts: list[PromptTemplate]) -> Iterator[Row]:
        """Yield a case for each prompt and each combination of variables."""
        self._report_lost_fields()
        where = f"line {self._test.line}"
        chosen = self._chosen_prompts(prompts)
        if not chosen:
            self._tally.skip("it has no prompt", where)
        variables = self._variables()
        expanded = [variables]
        if not self._options.get("disableVarExpansion"):
            expanded = combinations(variables)

        for combination_number, values in enumerate(expanded, 1):
            test_id = f"test-{number}"
            if len(expanded) > 1:
                test_id = f"{test_id}-{combination_number}"
            for prompt_number, prompt in enumerate(chosen, 1):
                case_id = test_id
                if len(prompts) > 1:
                    case_id = f"{test_id}-prompt-{prompt_number}"
                yield Row(self._case(case_id, prompt, values), where)

    def _chosen_prompts(self, prompts: list[PromptTemplate]) -> list[PromptTemplate]:
        """Return the prompts that the test names, or all if it names none."""
        wanted = self._fields.get("prompts")
        if not isinstance(wanted, list):
            return prompts
        names = set(map(str, wanted))
        return [prompt for prompt in prompts if prompt.names & names]

    def _remark(self, message: str, node: Node | None = None) -> None:
        """Report something at a node, or at the test itself."""
        report(self._tally, node or self._test, message)

    def _report_lost_fields(self) -> None:
        """Report the fields and options of the test that have no counterpart."""
        for node in (self._test, self._default):
            for name in node.fields:
                if name not in TEST_FIELDS:
                    self._remark(f"{name!r} of a test has no counterpart", node.at(name))
            options = node.at("options")
            for name in options.fields:
                if name not in OPTIONS:
                    self._remark(f"the option {name!r} of a test has no counterpart", options.at(name))

    def _variables(self) -> Json:
        """Return the variables, with the content of the files that they refer to."""
        given = self._fields.get("vars")
        if given is None:
            return {}
        if not isinstance(given, dict):
            self._remark("vars is not an object and is not imported", self._test.at("vars"))
            return {}
        variables = {}
        for name, value in given.items():
            node = self._test.at("vars").at(name)
            if node.value is None:
                node = self._default.at("vars").at(name)
            variables[name] = self._variable(node, value)
        return variables

    def _variable(self, node: Node, value: Any) -> Any:
        """Return the value of a variable, or the content of the file that it refers to."""
        path = node.path()
        if path is None:
            return value
        suffix = referenced_suffix(path)
        if suffix in PROGRAMS:
            self._remark(f"the variable in {path.name!r} is generated by a program and is kept unchanged", node)
            return value
        try:
            if suffix in DATA:
                return read_node(path).value
            return read_text(path).rstrip("\n")
        except AgentvError as error:
            self._remark(f"a variable cannot be read: {error}", node)
            return value

    def _case(self, id_: str, prompt: PromptTemplate, values: Json) -> Json:
        """Return the eval case for a prompt and one combination of variables."""
        variables = fill_variables(values)
        question = self._question(prompt, variables)
        evaluators = list(self._evaluators(variables))
        if not evaluators:
            self._remark("the test has no imported assertion: 'llm_judge' will judge its answers")
        rubrics: list[str] = []
        for evaluator in evaluators:
            rubrics.extend(evaluator.get("rubrics", ()))

        case: Json = {
            "id": id_,
            "expected_outcome": "\n".join(rubrics) or PASSES,
            "input": question,
        }
        if evaluators:
            case["evaluators"] = evaluators
        description = self._fields.get("description")
        if isinstance(description, str) and description:
            case["description"] = fill_quietly(description, variables)
        metadata = self._metadata(values)
        if metadata:
            case["metadata"] = metadata
        return case

    def _question(self, prompt: PromptTemplate, variables: Json) -> Any:
        """Return a prompt, with its variables filled in, as text or messages."""
        content: Any = prompt.content
        prefix = self._options.get("prefix") or ""
        suffix = self._options.get("suffix") or ""
        if isinstance(content, str):
            content = f"{prefix}{content}{suffix}"
        elif prefix or suffix:
            self._remark("prefix and suffix apply to text prompts only and are ignored")
        question = fill(content, variables, lambda message: self._remark(message, prompt.node))
        if not isinstance(question, str):
            return question
        return parse_messages(question, prompt.node.file) or question

    def _metadata(self, values: Json) -> Json:
        """Return the metadata of the test, with the variables under `vars`."""
        metadata: Json = {}
        given = self._fields.get("metadata")
        if isinstance(given, dict):
            metadata |= given
        if values:
            metadata["vars"] = values
        return metadata

    def _evaluators(self, variables: Json) -> Iterator[Json]:
        """Yield the evaluators for the assertions of the default test and of the test itself."""
        if not self._options.get("disableDefaultAsserts"):
            for node in self._default.at("assert").items():
                yield from self._evaluators_of(node, variables)
        for node in self._test.at("assert").items():
            yield from self._evaluators_of(node, variables)

    def _evaluators_of(self, node: Node, variables: Json) -> Iterator[Json]:
        """Yield the evaluators for an assertion: none, one, or those of an assert-set."""
        assertion = self._resolved(node)
        type_ = assertion.get("type")
        if type_ == "assert-set":
            if "threshold" in assertion:
                self._remark("the threshold of an assert-set has no counterpart: each of its assertions counts", node)
            for inner in node.at("assert").items():
                yield from self._evaluators_of(inner, variables)
            return

        filled = fill(assertion, variables, lambda message: self._remark(message, node))
        try:
            evaluator = evaluator_of(filled, node.file.parent)
        except NoCounterpart as reason:
            self._remark(f"the assertion {str(type_)!r} has no counterpart: {reason}", node)
            return
        yield evaluator
        for name in lost_settings(assertion):
            self._remark(f"{name!r} of the assertion {str(type_)!r} has no counterpart", node)

    def _resolved(self, node: Node) -> Json:
        """Return an assertion. If it is a `$ref`, return the template in the config that it refers to."""
        found: Any = node.value
        if isinstance(found, dict) and isinstance(found.get("$ref"), str):
            steps = found["$ref"].removeprefix("#/").split("/")
            found = self._config.value
            for step in steps:
                if not isinstance(found, dict):
                    break
                found = found.get(step)
        if not isinstance(found, dict):
            # No evaluator has this type, so that the assertion is reported without a counterpart.
            return {"type": str(node.value)}
        return found
