"""The structs that files are loaded into -> JSON Schema, for editors and other tools."""

from collections.abc import Callable
from typing import Any

import msgspec

from agentv.cases.guidelines import Config
from agentv.cases.schema import RULES, CaseRecord, EvalFileRecord, FileRecord
from agentv.providers import ALIASES, kinds, settings_type
from agentv.records import EvalResult
from agentv.results.labels.file import Label
from agentv.targets.read import TargetsFile, spellings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def json_schema(kind: str) -> Schema:
    """Return the JSON Schema of one kind of file."""
    title, build = KINDS[kind]
    return {"$schema": DIALECT, **build(), "title": title}


def _struct_schema(type_: Any) -> Schema:
    """Return the schema of a struct, with the rules that its types cannot express."""
    schema = msgspec.json.schema(type_)
    for name, definition in schema["$defs"].items():
        definition.update(RULES.get(name, {}))
    return schema


def _targets_schema() -> Schema:
    """Return the schema of a targets file, with a condition on `provider` for each kind of target.

    So editors know the fields of each kind.
    """
    known = kinds()
    (_, *references), definitions = msgspec.json.schema_components(
        [TargetsFile, *map(settings_type, known)], ref_template="#/$defs/{name}"
    )
    needs = {settings_type(kind).__name__: settings_type(kind).requires_one_of for kind in known}
    for name, definition in definitions.items():
        _allow_spellings(definition, needs.get(name, ()))
    file = definitions.pop("TargetsFile")
    file["properties"]["targets"]["items"] = {
        "type": "object",
        "required": ["name", "provider"],
        "properties": {"provider": {"enum": sorted([*known, *ALIASES])}},
        "allOf": [
            {"if": {"properties": {"provider": {"enum": _names(kind)}}}, "then": reference}
            for kind, reference in zip(known, references, strict=True)
        ],
    }
    return {**file, "$defs": definitions}


def _names(kind: str) -> list[str]:
    return [kind, *(alias for alias, name in ALIASES.items() if name == kind)]


def _allow_spellings(definition: Schema, requires_one_of: tuple[str, ...]) -> None:
    """Allow each setting under all of its spellings, as loading does; require one of `requires_one_of`."""
    properties = definition["properties"]
    definition["properties"] = {form: properties[name] for name in properties for form in spellings(name)}
    required = definition.pop("required", [])
    definition["required"] = [name for name in required if len(spellings(name)) == 1]
    choices = [[{"required": [form]} for form in spellings(name)] for name in required if len(spellings(name)) > 1]
    choices += (
        [[{"required": [form]} for name in requires_one_of for form in spellings(name)]] if requires_one_of else []
    )
    if choices:
        definition["allOf"] = [{"anyOf": forms} for forms in choices]


KINDS: dict[str, tuple[str, Callable[[], Schema]]] = {
    "eval": ("agentv eval file (YAML)", lambda: _struct_schema(EvalFileRecord)),
    "sidecar": ("agentv sidecar (beside a JSONL file)", lambda: _struct_schema(FileRecord)),
    "case": ("agentv eval case (one line of JSONL)", lambda: _struct_schema(CaseRecord)),
    "targets": ("agentv targets file", _targets_schema),
    "config": ("agentv config file", lambda: _struct_schema(Config)),
    "result": ("agentv result (one line of a results file)", lambda: _struct_schema(EvalResult)),
    "label": ("agentv label (one line of labels.jsonl)", lambda: _struct_schema(Label)),
}
