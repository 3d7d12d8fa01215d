"""A JSON Schema -> what is wrong with it as a schema, in the drafts 4, 6 and 7."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentv.formats.conversion import Misfit, convert
from agentv.formats.yaml import Steps
from agentv.records import Json

TOO_NEW = {
    *("prefixItems", "unevaluatedProperties", "unevaluatedItems", "dependentRequired", "dependentSchemas"),
    *("minContains", "maxContains", "$dynamicRef", "$recursiveRef"),
}
Schema = Json | bool
Count = Annotated[int, Meta(ge=0)]
Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
_RENAMED = {"ref": "$ref", "schema": "$schema", "defs": "$defs", "not_": "not", "if_": "if", "else_": "else"}


class Keywords(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: _RENAMED.get(name, name)):
    """What may stand in a schema, and in those inside it. Anything else is a remark."""

    schema: str | None = None
    ref: str | None = None
    type: Type | tuple[Type, ...] | None = None
    enum: tuple[Any, ...] | None = None
    format: str | None = None
    pattern: str | None = None
    minLength: Count | None = None
    maxLength: Count | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusiveMinimum: float | bool | None = None
    exclusiveMaximum: float | bool | None = None
    multipleOf: Annotated[float, Meta(gt=0)] | None = None
    required: tuple[str, ...] | None = None
    minProperties: Count | None = None
    maxProperties: Count | None = None
    properties: dict[str, Schema] | None = None
    patternProperties: dict[str, Schema] | None = None
    definitions: dict[str, Schema] | None = None
    defs: dict[str, Schema] | None = None
    dependencies: dict[str, Json | bool | tuple[str, ...]] | None = None
    additionalProperties: Schema | None = None
    propertyNames: Schema | None = None
    minItems: Count | None = None
    maxItems: Count | None = None
    uniqueItems: bool | None = None
    items: Json | bool | tuple[Schema, ...] | None = None
    additionalItems: Schema | None = None
    contains: Schema | None = None
    allOf: Annotated[tuple[Schema, ...], Meta(min_length=1)] | None = None
    anyOf: Annotated[tuple[Schema, ...], Meta(min_length=1)] | None = None
    oneOf: Annotated[tuple[Schema, ...], Meta(min_length=1)] | None = None
    not_: Schema | None = None
    if_: Schema | None = None
    then: Schema | None = None
    else_: Schema | None = None


_NAMED = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
_LISTED = ("items", "allOf", "anyOf", "oneOf")
_SINGLE = ("additionalProperties", "propertyNames", "items", "additionalItems", "contains", "not", "if", "then", "else")


def schema_misfits(schema: Any, steps: Steps = ()) -> Iterator[Misfit]:
    """Everything that is wrong with a schema and those inside it, or that came after draft 7."""
    if isinstance(schema, bool):
        return
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    if isinstance(declared, str) and not any(f"draft-0{number}" in declared for number in (4, 6, 7)):
        yield Misfit((*steps, "$schema"), f"{declared!r} is not supported", "the drafts 4, 6 and 7 are")
        return
    found = convert(schema, Keywords)
    if isinstance(found, list):
        yield from (misfit._replace(steps=(*steps, *misfit.steps)) for misfit in found)
        return
    for name in sorted(TOO_NEW & schema.keys()):
        yield Misfit((*steps, name), "came after draft 7 and is not supported", "the drafts 4, 6 and 7 are")
    for inner, child in _inside(schema):
        yield from schema_misfits(child, (*steps, *inner))


def _inside(schema: Json) -> Iterator[tuple[Steps, Any]]:
    """The schemas that stand directly in this one."""
    for name in _NAMED:
        for key, child in (schema.get(name) or {}).items():
            if isinstance(child, dict):  # a dependency may be a list of names
                yield (name, key), child
    for name in _LISTED:
        if isinstance(schema.get(name), list):
            yield from (((name, index), child) for index, child in enumerate(schema[name]))
    for name in _SINGLE:
        if isinstance(schema.get(name), dict):
            yield (name,), schema[name]
