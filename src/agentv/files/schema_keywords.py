"""Validate JSON Schemas of drafts 4, 6 and 7."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentv.files.conversion import Misfit, convert
from agentv.files.yaml import Steps
from agentv.records import Json

TOO_NEW = {
    "prefixItems",
    "unevaluatedProperties",
    "unevaluatedItems",
    "dependentRequired",
    "dependentSchemas",
    "minContains",
    "maxContains",
    "$dynamicRef",
    "$recursiveRef",
}
"""Keywords that were added after draft 7."""
Schema = Json | bool
SchemaList = Annotated[tuple[Schema, ...], Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
_RENAMED = {
    "ref": "$ref",
    "schema": "$schema",
    "defs": "$defs",
    "not_": "not",
    "if_": "if",
    "else_": "else",
}
"""Keywords that cannot be the name of a field."""


def _keyword(field: str) -> str:
    return _RENAMED.get(field, field)


class Keywords(msgspec.Struct, frozen=True, kw_only=True, rename=_keyword):
    """The keywords of a schema and the types of their values. Other keywords are comments."""

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
    allOf: SchemaList | None = None
    anyOf: SchemaList | None = None
    oneOf: SchemaList | None = None
    not_: Schema | None = None
    if_: Schema | None = None
    then: Schema | None = None
    else_: Schema | None = None


_NAMED = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
"""Keywords whose value maps names to schemas."""
_LISTED = ("items", "allOf", "anyOf", "oneOf")
"""Keywords whose value may be a list of schemas."""
_SINGLE = (
    "additionalProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "contains",
    "not",
    "if",
    "then",
    "else",
)
"""Keywords whose value may be a schema."""
_DRAFTS = ("draft-04", "draft-06", "draft-07")
_SUPPORTED = "supported drafts: 4, 6 and 7"


def schema_misfits(schema: Any, steps: Steps = ()) -> Iterator[Misfit]:
    """Yield everything that is invalid in a schema and its subschemas, or was added after draft 7."""
    if isinstance(schema, bool):
        return
    draft = _unsupported_draft(schema)
    if draft is not None:
        yield Misfit((*steps, "$schema"), f"{draft!r} is not supported", _SUPPORTED)
        return
    keywords = convert(schema, Keywords)
    if isinstance(keywords, list):
        for misfit in keywords:
            yield misfit._replace(steps=(*steps, *misfit.steps))
        return
    for name in sorted(TOO_NEW & schema.keys()):
        yield Misfit((*steps, name), "was added after draft 7 and is not supported", _SUPPORTED)
    for inner, child in _subschemas(schema):
        yield from schema_misfits(child, (*steps, *inner))


def _unsupported_draft(schema: Any) -> str | None:
    """Return the draft that a schema declares if it is not a supported one."""
    if not isinstance(schema, dict):
        return None
    declared = schema.get("$schema")
    if not isinstance(declared, str):
        return None
    if any(draft in declared for draft in _DRAFTS):
        return None
    return declared


def _subschemas(schema: Json) -> Iterator[tuple[Steps, Any]]:
    """Yield the direct subschemas, with the steps that lead to them."""
    for name in _NAMED:
        children = schema.get(name) or {}
        for key, child in children.items():
            if isinstance(child, dict):  # a dependency may be a list of names
                yield (name, key), child
    for name in _LISTED:
        if isinstance(schema.get(name), list):
            for index, child in enumerate(schema[name]):
                yield (name, index), child
    for name in _SINGLE:
        if isinstance(schema.get(name), dict):
            yield (name,), schema[name]
