"""Checks on answers that should be JSON.

The validator would silently pass over what came after draft 7 of JSON Schema, and fetch what a `$ref` names from the
network. Both are refused before anything is run.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import msgspec

from agentv.errors import AgentvError, ConfigError
from agentv.evaluators.matching import json_in
from agentv.formats.conversion import label
from agentv.formats.schema_keywords import schema_misfits
from agentv.formats.yaml import read_bytes, read_yaml
from agentv.protocols import Evaluator, EvaluatorContext
from agentv.records import Exchange, Json, Score
from agentv.system.cpu_limit import call_with_cpu_limit, can_limit_cpu

SECONDS = 1.0
MOST_CHARACTERS = 500


class IsJson(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer is JSON, or has JSON in its only code fence."""

    waits: ClassVar[bool] = False

    negate: bool = False

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            json_in(exchange.response.text)
        except ValueError as error:
            return _verdict(self.negate, f"is no JSON: {error}")
        return _verdict(not self.negate, "is JSON")


class JsonSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer is JSON that fits the schema: an object, or the path of a JSON or YAML file."""

    schema: str | Json
    negate: bool = False

    def open(self, context: EvaluatorContext) -> Evaluator:
        if not isinstance(self.schema, str):
            return _Validator(_compiled(self.schema, None), self.negate)
        path = context.folder / self.schema
        return _Validator(_compiled(_read(path), path), self.negate)


class _Validator(msgspec.Struct, frozen=True):
    waits: ClassVar[bool] = False

    validate: Callable[[Any], Any]
    negate: bool

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            value = json_in(exchange.response.text)
        except ValueError as error:
            return _verdict(self.negate, f"is no JSON: {error}")
        misfit = self._misfit(value)
        return _verdict((misfit is None) is not self.negate, misfit or "fits the schema")

    def _misfit(self, value: Any) -> str | None:
        import fastjsonschema

        try:
            if can_limit_cpu():
                call_with_cpu_limit(SECONDS, lambda: self.validate(value))
            else:
                self.validate(value)
        except fastjsonschema.JsonSchemaValueException as error:
            return _words(error)
        except TimeoutError:
            raise AgentvError(f"no end to checking the schema within {SECONDS:g} s") from None
        return None


def _words(error: Any) -> str:
    """What does not fit and where: `items[0].price must be number (type)`."""
    path = error.name.removeprefix("data").removeprefix(".")
    words = f"{path or 'the answer'}{error.message.removeprefix(error.name)}"
    cut = words if len(words) <= MOST_CHARACTERS else words[:MOST_CHARACTERS] + "…"
    return f"{cut} ({error.rule})"


def _verdict(passed: bool, words: str) -> Score:
    return Score(score=1.0, hits=(words,)) if passed else Score(score=0.0, misses=(words,))


def _read(path: Path) -> Any:
    if path.suffix != ".json":
        return read_yaml(path, ConfigError).value
    try:
        return msgspec.json.decode(read_bytes(path, ConfigError))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"invalid JSON: {error}", file=path, hint="mend the file, or name another") from None


def _compiled(schema: Any, file: Path | None) -> Callable[[Any], Any]:
    import fastjsonschema

    try:
        for misfit in schema_misfits(schema):
            where = label(("schema", *misfit.steps))
            raise ConfigError(f"{where}: {misfit.message}", file=file, hint=misfit.hint)
        own = copy.deepcopy(schema)  # the library writes into it
        compiled: Callable[[Any], Any] = fastjsonschema.compile(own, handlers=_Nowhere(), use_default=False)
    except AgentvError:
        raise
    except Exception as error:  # it stumbles over some schemas in ways of its own
        hint = "'schema' is a JSON Schema: an object, or a file that holds one"
        raise ConfigError(f"invalid schema: {str(error) or type(error).__name__}", file=file, hint=hint) from None
    return compiled


class _Nowhere(dict[str, Any]):
    """What the library asks for schemas that are elsewhere: for any kind of address, an error."""

    def __contains__(self, _scheme: object) -> bool:
        return True

    def __getitem__(self, _scheme: str) -> Callable[[str], NoReturn]:
        return _refuse


def _refuse(address: str) -> NoReturn:
    raise ConfigError(f"$ref to {address!r}: nothing is fetched", hint="put it into the schema, under $defs")
