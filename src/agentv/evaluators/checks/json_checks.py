"""Checks on answers that should be JSON.

The validator would silently pass over what came after draft 7 of JSON Schema, and fetch what a `$ref` names from the
network. Both are refused before anything is run.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import msgspec

from agentv.errors import AgentvError, ConfigError, SettingError
from agentv.evaluators.checks.matching import parse_json
from agentv.formats.conversion import label
from agentv.formats.schema_keywords import schema_misfits
from agentv.formats.yaml import Steps, read_bytes, read_yaml
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Json, Score
from agentv.system.cpu_limit import call_with_cpu_limit, can_limit_cpu

SECONDS = 1.0
MAX_CHARACTERS = 500


class IsJson(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer is JSON, or has JSON in its only code fence."""

    waits: ClassVar[bool] = False

    negate: bool = False

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            parse_json(exchange.response.text)
        except ValueError as error:
            return _score(self.negate, f"is no JSON: {error}")
        return _score(not self.negate, "is JSON")


class JsonSchema(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer is JSON that fits the schema: an object, or the path of a JSON or YAML file."""

    schema: str | Json
    negate: bool = False

    def open(self, context: EvaluatorContext) -> Evaluator:
        if not isinstance(self.schema, str):
            return _Validator(_compile(self.schema, None), self.negate)
        path = context.folder / self.schema
        return _Validator(_compile(_read(path), path), self.negate)


@dataclass(frozen=True, slots=True)
class _Validator(Evaluator):
    waits: ClassVar[bool] = False

    validate: Callable[[Any], Any]
    negate: bool

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            value = parse_json(exchange.response.text)
        except ValueError as error:
            return _score(self.negate, f"is no JSON: {error}")
        misfit = self._misfit(value)
        return _score((misfit is None) is not self.negate, misfit or "fits the schema")

    def _misfit(self, value: Any) -> str | None:
        """Return what does not fit the schema."""
        import fastjsonschema

        try:
            if can_limit_cpu():
                call_with_cpu_limit(SECONDS, lambda: self.validate(value))
            else:
                self.validate(value)
        except fastjsonschema.JsonSchemaValueException as error:
            return _explain(error)
        except TimeoutError:
            raise AgentvError(f"no end to checking the schema within {SECONDS:g} s") from None
        return None


def _explain(error: Any) -> str:
    """Return what does not fit and where: `items[0].price must be number (type)`."""
    path = error.name.removeprefix("data").removeprefix(".")
    message = f"{path or 'the answer'}{error.message.removeprefix(error.name)}"
    cut = message if len(message) <= MAX_CHARACTERS else message[:MAX_CHARACTERS] + "…"
    return f"{cut} ({error.rule})"


def _score(passed: bool, message: str) -> Score:
    return Score(score=1.0, hits=(message,)) if passed else Score(score=0.0, misses=(message,))


def _read(path: Path) -> Any:
    if path.suffix != ".json":
        return read_yaml(path, ConfigError).value
    try:
        return msgspec.json.decode(read_bytes(path, ConfigError))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"invalid JSON: {error}", file=path, hint="mend the file, or name another") from None


def _compile(schema: Any, file: Path | None) -> Callable[[Any], Any]:
    import fastjsonschema

    try:
        for misfit in schema_misfits(schema):
            steps = ("schema", *misfit.steps)
            raise _error(f"{label(steps)}: {misfit.message}", file, steps, misfit.hint)
        own = copy.deepcopy(schema)  # the library writes into it
        compiled: Callable[[Any], Any] = fastjsonschema.compile(own, handlers=_Nowhere(), use_default=False)
    except AgentvError:
        raise
    except Exception as error:  # the library fails at some schemas in many ways
        hint = "'schema' is a JSON Schema: an object, or a file that holds one"
        raise _error(f"invalid schema: {str(error) or type(error).__name__}", file, ("schema",), hint) from None
    return compiled


def _error(message: str, file: Path | None, steps: Steps, hint: str) -> ConfigError:
    """Return the error for a schema: one in a file of its own stands in that file."""
    return SettingError(message, *steps, hint=hint) if file is None else ConfigError(message, file=file, hint=hint)


class _Nowhere(dict[str, Any]):
    """The handlers for schemas that are elsewhere: an error for any kind of address."""

    def __contains__(self, _scheme: object) -> bool:
        return True

    def __getitem__(self, _scheme: str) -> Callable[[str], NoReturn]:
        return _refuse


def _refuse(address: str) -> NoReturn:
    raise ConfigError(f"$ref to {address!r}: nothing is fetched", hint="put it into the schema, under $defs")
