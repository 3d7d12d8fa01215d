"""How an option is declared: its flag, its help, and the values that it takes."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

WHAT_RUNS = "What runs"
WHERE_RESULTS_GO = "Where results go"
HOW_IT_RUNS = "How it runs"
LOOKING_INSIDE = "Looking inside"
GATES = "Gates"
GROUPS = (WHAT_RUNS, WHERE_RESULTS_GO, HOW_IT_RUNS, LOOKING_INSIDE, GATES)
"""The groups of flags, in the order of the help."""


class NumberRange(NamedTuple):
    """The values that a number may have."""

    low: int
    is_open: bool = False
    """Whether `low` itself is excluded."""
    is_whole: bool = False
    """Whether Python code may only pass integers."""

    def hint(self, value: object) -> str:
        """Return a hint if the value is not allowed, or an empty string."""
        if self.is_whole:
            if isinstance(value, int) and value >= self.low:
                return ""
            return f"expected an integer, at least {self.low}"
        if not isinstance(value, int | float) or not math.isfinite(value) or value < self.low:
            return f"expected a finite number, at least {self.low}"
        if self.is_open and value == self.low:
            return f"expected a finite number greater than {self.low}"
        return ""


FROM_0 = NumberRange(0)
ABOVE_0 = NumberRange(0, is_open=True)
COUNT_FROM_0 = NumberRange(0, is_whole=True)
COUNT_FROM_1 = NumberRange(1, is_whole=True)


class Option(NamedTuple):
    """The flag of an option, and the values that it takes."""

    flag: str
    """A flag that begins with `--no-` turns off an option that is on by default."""
    help: str
    group: str
    metavar: str | None = None
    bounds: NumberRange | None = None


class OptionField(NamedTuple):
    """A field with a flag, in one of the parts of a record of options."""

    name: str
    type: Any
    default: Any
    option: Option
    parts: tuple[str, ...]
    """The path of attribute names to the part that has it."""


def find_fields(struct: type[msgspec.Struct], parts: tuple[str, ...]) -> Iterator[OptionField]:
    """Yield the fields with a flag of a record and of its parts."""
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from find_fields(hint, (*parts, field.name))
            continue
        for note in getattr(hint, "__metadata__", ()):
            if isinstance(note, Option):
                yield OptionField(field.name, get_args(hint)[0], field.default, note, parts)
