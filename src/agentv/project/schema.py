"""Generate the JSON Schema of each kind of file from the structs that files are loaded into."""

from typing import Any

import msgspec

from agentv.cases.schema import RULES, CaseRecord, EvalFileRecord, FileRecord
from agentv.config import Config
from agentv.project.descriptions import describe_fields
from agentv.providers import ALIASES, kinds, settings_type
from agentv.records import EvalResult
from agentv.targets.read import TargetsFile, spellings
from agentv.trust.labels.file import Label

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def json_schema(kind: str) -> Schema:
    """Return the JSON Schema of one kind of file."""
    title, type_ = KINDS[kind]
    if type_ is TargetsFile:
        schema = _targets_schema()
    else:
        schema = _struct_schema(type_)
    return {
        "$schema": DIALECT,
        **schema,
        "title": title,
    }


def _struct_schema(type_: type) -> Schema:
    """Return the schema of a struct, with the rules that its types cannot express."""
    schema = msgspec.json.schema(type_)
    describe_fields(schema["$defs"], [type_])
    for name, definition in schema["$defs"].items():
        rules = RULES.get(name, {})
        definition.update(rules)
    return schema


def _targets_schema() -> Schema:
    """Return the schema of a targets file, with a condition on `provider` for each kind of target.

    With these conditions, editors know the fields of each kind.
    """
    known = kinds()
    types = [settings_type(kind) for kind in known]
    components, definitions = msgspec.json.schema_components(
        [TargetsFile, *types],
        ref_template="#/$defs/{name}",
    )
    _, *references = components
    describe_fields(definitions, types)
    requires_one_of = {}
    for type_ in types:
        requires_one_of[type_.__name__] = type_.requires_one_of
    for name, definition in definitions.items():
        alternatives = requires_one_of.get(name, ())
        _allow_spellings(definition, alternatives)

    conditions = []
    for kind, reference in zip(known, references, strict=True):
        provider = {"enum": _names(kind)}
        is_kind = {"properties": {"provider": provider}}
        condition = {
            "if": is_kind,
            "then": reference,
        }
        conditions.append(condition)
    all_names = sorted([*known, *ALIASES])
    any_provider = {"enum": all_names}
    file = definitions.pop("TargetsFile")
    file["properties"]["targets"]["items"] = {
        "type": "object",
        "required": ["name", "provider"],
        "properties": {"provider": any_provider},
        "allOf": conditions,
    }
    return {
        **file,
        "$defs": definitions,
    }


def _names(kind: str) -> list[str]:
    """Return the name of a kind of target, followed by its aliases."""
    names = [kind]
    for alias, name in ALIASES.items():
        if name == kind:
            names.append(alias)
    return names


def _allow_spellings(definition: Schema, requires_one_of: tuple[str, ...]) -> None:
    """Allow all spellings of each setting, as the loader does; require one of `requires_one_of`."""
    properties = {}
    for name, property_ in definition["properties"].items():
        for form in spellings(name):
            properties[form] = property_
    definition["properties"] = properties

    required = []
    alternatives: list[list[str]] = []
    for name in definition.pop("required", []):
        forms = spellings(name)
        if len(forms) == 1:
            required.append(name)
        else:
            alternatives.append(forms)
    definition["required"] = required

    if requires_one_of:
        any_form = []
        for name in requires_one_of:
            any_form.extend(spellings(name))
        alternatives.append(any_form)
    if alternatives:
        definition["allOf"] = [_require_any(forms) for forms in alternatives]


def _require_any(names: list[str]) -> Schema:
    """Return the schema of an object that has at least one of these keys."""
    choices = [{"required": [name]} for name in names]
    return {"anyOf": choices}


KINDS: dict[str, tuple[str, type]] = {
    "eval": ("agentv eval file (YAML)", EvalFileRecord),
    "sidecar": ("agentv sidecar (beside a JSONL file)", FileRecord),
    "case": ("agentv eval case (one line of JSONL)", CaseRecord),
    "targets": ("agentv targets file", TargetsFile),
    "config": ("agentv config file", Config),
    "result": ("agentv result (one line of a results file)", EvalResult),
    "label": ("agentv label (one line of labels.jsonl)", Label),
}
"""The title of each kind of file, and the struct that it is loaded into."""
