"""Checks answers that should be JSON.

The validator would silently ignore keywords that JSON Schema added after draft 7, and fetch a remote `$ref` from the
network. Both are rejected before anything is run.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import msgspec

from agentv.errors import AgentvError, ConfigError, SettingError
from agentv.evaluators.checks.matching import CheckSettings, parse_json, score_point
from agentv.files.conversion import label
from agentv.files.schema_keywords import schema_misfits
from agentv.files.yaml import Steps, read_bytes, read_yaml
from agentv.processes.cpu_limit import call_with_cpu_limit, can_limit_cpu
from agentv.protocols import Evaluator, EvaluatorContext
from agentv.records import Exchange, Json, Score
from agentv.redact import clean
from agentv.text import truncate

SECONDS = 1.0
MAX_CHARACTERS = 500
Validate = Callable[[Any], Any]
"""Takes a value and raises `JsonSchemaValueException` if it does not fit the schema."""


class IsJson(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer is JSON, or has JSON in its only code fence."""

    waits: ClassVar[bool] = False

    negate: bool = False
    """Pass if the answer is not JSON."""

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            parse_json(exchange.response.text)
        except ValueError as error:
            return score_point(self.negate, f"is not valid JSON: {error}")
        return score_point(not self.negate, "is valid JSON")


class JsonSchema(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer is JSON that fits the schema: an object, or the path of a JSON or YAML file."""

    schema: str | Json
    """A JSON Schema, or the path of a file that contains one."""
    negate: bool = False
    """Pass if the answer does not match the schema."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        file = None
        schema: Any = self.schema
        if isinstance(schema, str):
            file = context.folder / schema
            schema = _read(file)
        validate = _compile(schema, file)
        return _Validator(validate, self.negate)


@dataclass(frozen=True, slots=True)
class _Validator(Evaluator):
    """Validates each answer with a compiled schema."""

    waits: ClassVar[bool] = False

    validate: Validate
    negate: bool

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            value = parse_json(exchange.response.text)
        except ValueError as error:
            return score_point(self.negate, f"is not valid JSON: {error}")
        misfit = self._misfit(value)
        if misfit is None:
            return score_point(not self.negate, "matches the schema")
        return score_point(self.negate, misfit)

    def _misfit(self, value: Any) -> str | None:
        """Return why a value does not fit the schema; None if it does. Raise `AgentvError` if that takes too long."""
        import fastjsonschema

        try:
            # A pattern in the schema may take exponential time.
            if can_limit_cpu():
                call_with_cpu_limit(SECONDS, partial(self.validate, value))
            else:
                self.validate(value)
        except fastjsonschema.JsonSchemaValueException as error:
            return _explain(error)
        except TimeoutError:
            raise AgentvError(f"validating against the schema took longer than {SECONDS:g} s") from None
        return None


def _explain(error: Any) -> str:
    """Return what does not fit and where: `items[0].price must be number (type)`."""
    path = error.name.removeprefix("data").removeprefix(".")
    if not path:
        path = "the answer"
    reason = error.message.removeprefix(error.name)
    message = truncate(clean(f"{path}{reason}"), MAX_CHARACTERS)
    return f"{message} ({error.rule})"


def _read(path: Path) -> Any:
    """Return the schema in a JSON or YAML file; raise `ConfigError` if it cannot be read."""
    if path.suffix != ".json":
        return read_yaml(path, ConfigError).value
    try:
        return msgspec.json.decode(read_bytes(path, ConfigError))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"invalid JSON: {error}", file=path, hint="fix the file, or choose another one") from None


def _compile(schema: Any, file: Path | None) -> Validate:
    """Return the compiled schema; raise `ConfigError` if it is invalid. `file` is None for a schema in the settings."""
    import fastjsonschema

    try:
        misfit = next(schema_misfits(schema), None)
        if misfit is not None:
            steps = ("schema", *misfit.steps)
            raise _error(f"{label(steps)}: {misfit.message}", file, steps, misfit.hint)
        compiled: Validate = fastjsonschema.compile(
            copy.deepcopy(schema),  # the library modifies it
            handlers=_NoRemoteSchemas(),
            use_default=False,
        )
    except AgentvError:
        raise
    except Exception as error:  # for some schemas, the library raises arbitrary exceptions
        reason = str(error) or type(error).__name__
        hint = "'schema' must be a JSON Schema: an object, or the path of a file that contains one"
        raise _error(f"invalid schema: {reason}", file, ("schema",), hint) from None
    return compiled


def _error(
    message: str,
    file: Path | None,
    steps: Steps,
    hint: str,
) -> ConfigError:
    """Return the error for a schema, located in its own file or at the setting."""
    if file is None:
        return SettingError(message, *steps, hint=hint)
    return ConfigError(message, file=file, hint=hint)


class _NoRemoteSchemas(dict[str, Any]):
    """The handlers for remote schemas: every URL scheme has one that raises an error."""

    def __contains__(self, _scheme: object) -> bool:
        return True

    def __getitem__(self, _scheme: str) -> Callable[[str], NoReturn]:
        return _refuse


def _refuse(address: str) -> NoReturn:
    raise ConfigError(
        f"$ref to {address!r}: remote schemas are not fetched", hint="move it into the schema, under $defs"
    )
