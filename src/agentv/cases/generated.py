"""Cases that a function of the user yields (`cases_from`).

The function is called once to check its cases, and once to run them. The second time, each case is compared with the
first time by its hash, so that nothing runs that was not checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from inspect import isasyncgen, isawaitable
from pathlib import Path
from typing import NamedTuple, Protocol

from agentv.errors import ConfigError, EvalFileError
from agentv.files.encode import to_sorted_json
from agentv.files.folders import code_folders
from agentv.files.plain import json_mapping
from agentv.providers.tracebacks import explain_error
from agentv.providers.user_functions import check_function, load_function
from agentv.records import Json

_HASH_BYTES = 8


class GeneratedCase(NamedTuple):
    """A case as the function yielded it, and its number, from 1."""

    number: int
    written: Json


class Ledger(Protocol):
    """Receives the hash of each case that a function yields."""

    def add(self, number: int, hash_: bytes) -> None:
        """Record a case. Raise `ConfigError` if it differs from the case that was checked."""
        ...

    def end(self, count: int) -> None:
        """Record the number of cases. Raise `ConfigError` if there were more when they were checked."""
        ...


@dataclass
class CheckedCases:
    """Records the hashes of the cases while they are checked."""

    hashes: bytearray = field(default_factory=bytearray)

    def add(self, number: int, hash_: bytes) -> None:
        self.hashes += hash_

    def end(self, count: int) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class SameCases:
    """Compares cases with those that were checked."""

    checked: bytes

    def add(self, number: int, hash_: bytes) -> None:
        start = (number - 1) * _HASH_BYTES
        if self.checked[start : start + _HASH_BYTES] != hash_:
            raise _different(f"case {number} differs from the one that was checked")

    def end(self, count: int) -> None:
        expected = len(self.checked) // _HASH_BYTES
        if count != expected:
            raise _different(f"the function yielded {count:,} cases, but {expected:,} when they were checked")


def _different(message: str) -> ConfigError:
    return ConfigError(message, hint="the function must yield the same cases each time: seed its random numbers")


def generate(spec: str, folder: Path, ledger: Ledger | None) -> Iterator[GeneratedCase]:
    """Yield the cases of a function; `folder` is that of the eval file.

    Raise `ConfigError` if the function cannot be called, fails, or yields anything other than mappings.
    """
    function = load_function(spec, code_folders(folder, None))
    number = 0
    for value in _call(spec, function):
        number += 1
        written = json_mapping(value)
        if written is None and isinstance(value, Mapping):
            raise ConfigError(
                f"case {number} cannot be written as JSON",
                hint="it contains itself, or text with an unpaired surrogate (\\ud800 to \\udfff)",
            )
        if written is None:
            raise ConfigError(
                f"case {number} is not a mapping but {type(value).__name__}",
                hint="yield dictionaries with the fields of a case",
            )
        if ledger is not None:
            encoded = to_sorted_json(written)
            ledger.add(number, blake2b(encoded, digest_size=_HASH_BYTES).digest())
        yield GeneratedCase(number, written)
    if ledger is not None:
        ledger.end(number)


def check_spec(spec: str, folder: Path) -> None:
    """Raise `ConfigError` if the function does not exist, as far as this can be checked without running its code."""
    check_function(spec, code_folders(folder, None))


def _call(spec: str, function: object) -> Iterator[object]:
    """Yield what the user's function yields, and report its exceptions as errors of its code."""
    if not callable(function):
        raise ConfigError(f"{spec} is not a function")
    iterator = None
    while True:
        try:
            if iterator is None:
                values = function()
                if isawaitable(values) or isasyncgen(values):
                    break
                iterator = iter(values)
            value = next(iterator)
        except StopIteration:
            return
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Includes SystemExit: a function that exits must not end agentv.
            message = f"{spec} failed: {explain_error(error).message}"
            raise ConfigError(message, hint="fix the error in that code") from error
        yield value
    raise ConfigError(f"{spec} is async", hint="use 'def' instead of 'async def'")


def located(error: ConfigError, path: Path, line: int, column: int) -> EvalFileError:
    """Return an error of the function as an error at `cases_from` in the eval file."""
    return EvalFileError(
        f"cases_from: {error.message}",
        file=path,
        line=line,
        column=column,
        hint=error.hint,
    )
