"""A promptfoo config -> eval cases: each test with each prompt. What has no counterpart is told of, with its place."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import AgentvError
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.promptfoo.assertions import NoCounterpart, evaluator_of, lost_settings
from agentv.importers.promptfoo.node import DATA, FILE, PROGRAMS, Node, parse_messages, read_node, read_text
from agentv.importers.promptfoo.templates import combinations, fill, fill_variables
from agentv.importers.promptfoo.tests import merged, tests_of
from agentv.importers.sample import Sample
from agentv.records import Json

TOP = re.compile(r"^[\"']?(prompts|tests|scenarios|providers|targets)[\"']?\s*:", re.MULTILINE)
IN_JSON = re.compile(r"\"(prompts|tests|scenarios|providers|targets)\"\s*:")
READ = ("description", "prompts", "tests", "scenarios", "defaultTest", "assertionTemplates")
HARMLESS = (
    *("$schema", "outputPath", "evaluateOptions", "commandLineOptions", "sharing", "tags", "writeLatestResults"),
    *("metadata", "env"),
)
"""Parts of a config that change nothing of what is asked and how it is judged."""
TEST_FIELDS = ("description", "vars", "assert", "metadata", "options", "prompts")
OPTIONS = ("prefix", "suffix", "disableVarExpansion", "disableDefaultAsserts")
PASSES = "The answer passes the assertions of the test."
SPLIT = re.compile(r"^---\s*$", re.MULTILINE)


class Prompt(NamedTuple):
    """A prompt before variables are filled in: a text or messages; its label; and where it is."""

    content: str | list[Json]
    names: frozenset[str]
    node: Node


class Promptfoo(Importer):
    """A config of promptfoo in YAML or JSON."""

    becomes = Becomes.CASES
    noun = "tests"
    suffix = ".yaml"

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        if "evalcases" in sample.text or sample.suffix in (".csv", ".tsv", ".jsonl"):
            return False
        is_json = sample.text.lstrip().startswith("{")
        names = set((IN_JSON if is_json else TOP).findall(sample.text))
        return "prompts" in names or ("providers" in names and bool(names & {"tests", "scenarios"}))

    def header(self, source: Path) -> Json:
        description = _config(source).fields.get("description")
        return {"description": description} if isinstance(description, str) and description else {}

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        config = _config(source)
        if not {"prompts", "tests", "scenarios"} & config.fields.keys():
            names = ", ".join(map(repr, config.fields)) or "none"
            message = f"a config of promptfoo has prompts and tests: the fields here are {names}"
            raise ImportFailure(message, file=source, hint="prompts:, providers: and tests: belong at the top")
        for name in config.fields:
            if name in ("providers", "targets"):
                hint = "write them into .agentv/targets.yaml"
                tally.remark(f"{name} are not imported", source, config.at(name).line, hint)
            elif name not in READ and name not in HARMLESS:
                tally.remark(f"{name!r} has no counterpart", source, config.at(name).line)
        prompts = list(_prompts(config, tally))
        default = _default_test(config, tally)
        for number, test in enumerate(tests_of(config, tally), 1):
            tally.read += 1
            yield from _Test(test, default, config, tally).rows(number, prompts)
        if not tally.read:
            tally.read = 1
            test = Node({}, source, config.document, ("prompts",))
            yield from _Test(test, default, config, tally).rows(1, prompts)


def _config(source: Path) -> Node:
    config = read_node(source)
    if not isinstance(config.value, dict):
        raise ImportFailure("this is no config of promptfoo: expected an object at the top", file=source)
    return config


def _prompts(config: Node, tally: Tally) -> Iterator[Prompt]:
    """Yield the prompts of a config; those that programs make are told of."""
    for item in config.at("prompts").items():
        names = {str(name) for key in ("label", "id") if (name := item.fields.get(key))}
        node = item
        if isinstance(item.value, dict):
            node = item.at("raw") if "raw" in item.value else item.at("id")
        text = node.value
        is_file = isinstance(text, str) and (
            text.startswith(FILE) or ("\n" not in text and " " not in text and (config.file.parent / text).is_file())
        )
        if not isinstance(text, str):
            tally.remark("this prompt is no text, and is not imported", item.file, item.line)
        elif is_file:
            yield from _prompts_in_file(config.file.parent / text.removeprefix(FILE), names | {text}, item, tally)
        else:
            yield Prompt(parse_messages(text, item.file) or text, frozenset(names | {text}), item)


def _prompts_in_file(path: Path, names: set[str], item: Node, tally: Tally) -> Iterator[Prompt]:
    suffix = Path(path.name.partition(":")[0]).suffix.lower()
    if suffix in PROGRAMS:
        tally.remark(f"the prompt {path.name!r} is made by a program, and is not imported", item.file, item.line)
        return
    try:
        text = read_text(path)
    except AgentvError as error:
        tally.remark(f"this prompt is not imported: {error}", item.file, item.line)
        return
    parts = [text] if suffix in DATA else [part for part in SPLIT.split(text) if part.strip()]
    for part in parts:
        yield Prompt(parse_messages(part, path) or part.strip(), frozenset(names), item)


def _default_test(config: Node, tally: Tally) -> Node:
    """Return the test that all others take what they lack from."""
    node = config.at("defaultTest")
    if (path := node.path()) is None:
        return node
    try:
        return read_node(path)
    except AgentvError as error:
        tally.remark(f"defaultTest is not imported: {error}", config.file, node.line)
        return Node(None, config.file)


class _Test:
    """A test, with what it takes from the default test."""

    def __init__(self, test: Node, default: Node, config: Node, tally: Tally):
        self._test, self._default, self._config, self._tally = test, default, config, tally
        self._fields = merged(default.fields, test.fields)
        options = self._fields.get("options")
        self._options: Json = options if isinstance(options, dict) else {}

    def rows(self, number: int, prompts: list[Prompt]) -> Iterator[Row]:
        """Yield a case for each prompt and each combination of variables."""
        self._tell_of_losses()
        wanted = self._fields.get("prompts")
        chosen = [prompt for prompt in prompts if not isinstance(wanted, list) or prompt.names & set(map(str, wanted))]
        where = f"line {self._test.line}"
        if not chosen:
            self._tally.skip("there is no prompt for it", where)
        variables = self._variables()
        expanded = [variables] if self._options.get("disableVarExpansion") else combinations(variables)
        for count, values in enumerate(expanded, 1):
            for which, prompt in enumerate(chosen, 1):
                id_ = f"test-{number}" + (f"-{count}" if len(expanded) > 1 else "")
                id_ += f"-prompt-{which}" if len(prompts) > 1 else ""
                yield Row(self._case(id_, prompt, values), where)

    def _remark(self, message: str, node: Node | None = None) -> None:
        place = node or self._test
        self._tally.remark(message, place.file, place.line)

    def _tell_of_losses(self) -> None:
        for node in (self._test, self._default):
            for name in node.fields:
                if name not in TEST_FIELDS:
                    self._remark(f"{name!r} of a test has no counterpart", node.at(name))
            for name in node.at("options").fields:
                if name not in OPTIONS:
                    self._remark(f"the option {name!r} of a test has no counterpart", node.at("options").at(name))

    def _variables(self) -> Json:
        """Return the variables, with the content of the files that they refer to."""
        given = self._fields.get("vars")
        if not isinstance(given, dict):
            if given is not None:
                self._remark("vars are no object, and are not imported", self._test.at("vars"))
            return {}
        found = {}
        for name, value in given.items():
            node = self._test.at("vars").at(name)
            node = node if node.value is not None else self._default.at("vars").at(name)
            found[name] = self._file_content(node, value)
        return found

    def _file_content(self, node: Node, value: Any) -> Any:
        path = node.path()
        if path is None:
            return value
        suffix = Path(path.name.partition(":")[0]).suffix.lower()
        if suffix in PROGRAMS:
            self._remark(f"the variable in {path.name!r} is made by a program, and is left as it stands", node)
            return value
        try:
            return read_node(path).value if suffix in DATA else read_text(path).rstrip("\n")
        except AgentvError as error:
            self._remark(f"a variable cannot be read: {error}", node)
            return value

    def _case(self, id_: str, prompt: Prompt, values: Json) -> Json:
        variables = fill_variables(values)
        content: Any = prompt.content
        prefix, suffix = self._options.get("prefix") or "", self._options.get("suffix") or ""
        if isinstance(content, str):
            content = f"{prefix}{content}{suffix}"
        elif prefix or suffix:
            self._remark("prefix and suffix are for prompts that are texts: they are left out")
        question = fill(content, variables, lambda message: self._remark(message, prompt.node))
        if isinstance(question, str):
            question = parse_messages(question, prompt.node.file) or question
        evaluators = list(self._evaluators(variables))
        if not evaluators:
            self._remark("the test has no assertion that is imported: 'llm_judge' will judge its answers")
        rubrics = [text for each in evaluators for text in each.get("rubrics", ())]
        description = self._fields.get("description")
        case: Json = {"id": id_, "expected_outcome": "\n".join(rubrics) or PASSES, "input": question}
        if evaluators:
            case["evaluators"] = evaluators
        if isinstance(description, str) and description:
            case["description"] = fill(description, variables, lambda _: None)
        metadata = self._fields.get("metadata")
        known = {**(metadata if isinstance(metadata, dict) else {}), **({"vars": values} if values else {})}
        return case | ({"metadata": known} if known else {})

    def _evaluators(self, variables: Json) -> Iterator[Json]:
        defaults = () if self._options.get("disableDefaultAsserts") else self._default.at("assert").items()
        for node in (*defaults, *self._own_assertions()):
            yield from self._evaluators_of(node, variables)

    def _own_assertions(self) -> Iterator[Node]:
        """Yield the assertions of the test itself; those that a scenario gives it are not in its own place."""
        own = self._test.at("assert")
        return own.items()

    def _evaluators_of(self, node: Node, variables: Json) -> Iterator[Json]:
        """Yield the evaluators that an assertion becomes: none, one, or those of a set."""
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
            yield evaluator_of(filled, node.file.parent)
        except NoCounterpart as reason:
            self._remark(f"the assertion {str(type_)!r} has no counterpart: {reason}", node)
            return
        for name in lost_settings(assertion):
            self._remark(f"{name!r} of the assertion {str(type_)!r} has no counterpart", node)

    def _resolved(self, node: Node) -> Json:
        """Return an assertion; one that refers to a template of the config is that template."""
        found: Any = node.value
        if isinstance(found, dict) and isinstance(reference := found.get("$ref"), str):
            found = self._config.value
            for step in reference.removeprefix("#/").split("/"):
                found = found.get(step) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {"type": str(node.value)}
